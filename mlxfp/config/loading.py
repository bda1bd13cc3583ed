"""A configuration from a preset, a file and the command line, and where each of its values was said."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import fields, frozen, has

from mlxfp.config.classes import RunConfig
from mlxfp.config.presets import PRESETS
from mlxfp.core.checks import check_text
from mlxfp.core.errors import ConfigError
from mlxfp.settings.structuring import structure, unstructure
from mlxfp.settings.yaml_files import Place, read_document, read_value


@frozen
class Resolved:
    """A configuration, and where its values come from; what no one said has its default.

    >>> resolved = load_config(preset="titanic", overrides=["training.epochs=3"])
    >>> resolved.config.training.epochs, resolved.origin("training.epochs"), resolved.origin("text.max_length"), resolved.origin("name")
    (3, 'command line', 'preset titanic', 'preset titanic')
    """

    config: RunConfig
    origins: Mapping[Place, str]

    def origin(self, path: str) -> str:
        """Say where the value at a path such as `training.epochs` was said.

        >>> load_config().origin("training.epochs")
        'default'
        """
        place = tuple(path.split("."))
        if place not in dict(_leaves(RunConfig, ())):
            raise ConfigError(f"A configuration has no {path!r}. Its values have paths such as training.epochs.")
        return self.origins.get(place, "default")


def load_config(path: str | Path | None = None, *, preset: str | None = None, overrides: Sequence[str] = ()) -> Resolved:
    """Read a configuration: the values of a preset, over them those of a YAML or JSON file, over these `key.sub=value`.

    A file may name its preset, as in `preset: titanic`; `preset` goes before that. The value behind the first `=` is read as YAML 1.2 does.
    Raises `ConfigError` with every mistake at once: its path, file and line, what was expected and got, and the nearest name.

    >>> load_config(overrides=["training.epochs=0", "modle.name=bert"])
    Traceback (most recent call last):
    mlxfp.core.errors.ConfigError: 2 mistakes in the configuration:
      training.epochs (command line): expected at least 1, got 0
      modle (command line): no such name. Did you mean 'model'?

    See also: `RunConfig`; `PRESETS`; `json_schema`, for editors.
    """
    said, values = dict[Place, str](), dict[str, Any]()
    document = None if path is None else read_document(path)
    own = {} if document is None else dict(document.values)
    named = own.pop("preset", None)
    if named is not None and not isinstance(named, str):
        raise ConfigError(f"{path}: preset must be a name, got {named!r:.60}. Known: {', '.join(PRESETS)}.")
    chosen = preset if preset is not None else named
    if chosen is not None:
        values = _over(values, PRESETS[chosen], said, (), lambda _: f"preset {chosen}")
    if document is not None:
        lines = document.lines
        values = _over(values, own, said, (), lambda place: f"{path}:{lines[place]}" if place in lines else str(path))
    for override in overrides:
        values = _over(values, _parsed(override), said, (), lambda _: "command line")

    def origin(place: Place) -> str:
        return next((said[place[:end]] for end in range(len(place), 0, -1) if place[:end] in said), "")

    return Resolved(
        structure(values, RunConfig, origin=origin), {place: said[place] for place, _ in _leaves(RunConfig, ()) if place in said}
    )


def apply_overrides(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Change values of a configuration, as `key.sub=value` says; raises `ConfigError` with every mistake.

    >>> apply_overrides(RunConfig(), ["training.epochs=3"]).training.epochs
    3
    """
    values = unstructure(config)
    for override in overrides:
        values = _over(values, _parsed(override), {}, (), lambda _: "")
    return structure(values, RunConfig, origin=lambda _: "command line")


def _parsed(override: str) -> dict[str, Any]:
    check_text(override=override)
    path, equals, text = override.partition("=")
    if not equals or not all(path.split(".")):
        raise ConfigError(f"{override!r} is no key.sub=value. Write, for example, training.epochs=3.")
    inside = [".".join(map(str, place)) for place, _ in _leaves(RunConfig, ()) if place[-1] == path and len(place) > 1]
    if inside and path not in {each.name for each in fields(RunConfig)}:
        raise ConfigError(f"A configuration has no {path!r} of its own. Write {' or '.join(f'{name}={text}' for name in inside)}.")
    try:
        value: Any = read_value(text, where=override)
    except ConfigError as error:
        error.add_note(f"Text with signs of YAML goes in quotes, and these in quotes for the shell: '{path}=\"{text}\"'.")
        raise
    for name in reversed(path.split(".")):
        value = {name: value}
    parsed: dict[str, Any] = value
    return parsed


def _over(below: Mapping[str, Any], above: Mapping[str, Any], said: dict[Place, str], place: Place, origin: Any) -> dict[str, Any]:
    """Lay values over others, noting where each was said."""
    out = dict(below)
    for name, value in above.items():
        here = (*place, name)
        said[here] = origin(here)
        under = out.get(name)
        if isinstance(value, Mapping):
            out[name] = _over(under if isinstance(under, Mapping) else {}, value, said, here, origin)
        else:
            out[name] = value
    return out


def _leaves(kind: Any, place: Place) -> Iterator[tuple[Place, Any]]:
    for field in fields(kind):
        here = (*place, field.name)
        yield from _leaves(field.type, here) if has(field.type) else ((here, field),)
