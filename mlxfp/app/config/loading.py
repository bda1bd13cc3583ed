"""Configurations from preset, file and command line, with the origin of each value."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp.app.config.classes import RunConfig, hint, option_paths
from mlxfp.app.config.presets import PRESETS
from mlxfp.support.checks import check_text
from mlxfp.support.errors import ConfigError
from mlxfp.support.options import class_schema
from mlxfp.support.structuring import structure, unstructure
from mlxfp.support.yaml_files import Document, KeyPath, read_document, read_value

SCHEMA = "mlxfp.schema.json"  # file name of the JSON schema in a project folder

Choices = Mapping[str, Collection[str]]  # valid names by option path, such as optimizer.name


@frozen
class Resolved:
    """A configuration with the origin of each value that is not a default.

    >>> resolved = resolve_config(preset="titanic", overrides=["training.epochs=3"])
    >>> resolved.config.training.epochs, resolved.origin("training.epochs"), resolved.origin("text.max_length"), resolved.origin("name")
    (3, 'command line', 'preset titanic', 'preset titanic')
    """

    config: RunConfig
    origins: Mapping[str, str]

    def origin(self, path: str) -> str:
        """Return the origin of the value at a path such as `training.epochs`."""
        if path not in option_paths() and not path.startswith("model.arguments."):  # defined by other libraries
            raise ConfigError(f"A configuration has no option {path!r}. Give a path such as training.epochs.")
        return self.origins.get(path, "default")


def resolve_config(
    path: str | Path | None = None,
    *,
    preset: str | None = None,
    overrides: Sequence[str] = (),
    choices: Choices | None = None,
    defaults: Callable[[str], Mapping[str, Any]] | None = None,
) -> Resolved:
    """Read a configuration. The function `defaults` returns the default settings for the name of a model.

    >>> resolve_config(overrides=["model.name=mine"], defaults=lambda name: {"training": {"epochs": 7}}).config.training.epochs
    7
    """
    if isinstance(overrides, str | Mapping):
        example = [f"{key}={value}" for key, value in overrides.items()] if isinstance(overrides, Mapping) else [overrides]
        raise ConfigError(f"overrides must be a list of strings, got {type(overrides).__name__}. Write overrides={example!r:.100}.")
    if isinstance(path, str) and path in PRESETS and not Path(path).exists():
        raise ConfigError(f"There is no file {path!r}, but a preset has this name. Write load_config(preset={path!r}).")
    origins, values = dict[KeyPath, str](), dict[str, Any]()
    document = Document({}, {}) if path is None else read_document(path)
    file_values, lines = dict(document.values), document.lines
    named = file_values.pop("preset", None)
    if named is not None and not isinstance(named, str):
        raise ConfigError(f"{path}: preset must be a name, got {named!r:.60}. Known: {', '.join(PRESETS)}.")
    chosen = preset if preset is not None else named
    given = [_parse_override(override) for override in overrides]
    layers: list[tuple[Mapping[str, Any], Any]] = [] if chosen is None else [(PRESETS[chosen], lambda _: f"preset {chosen}")]
    model = next(
        (name for settings in (*reversed(given), file_values, *(layer for layer, _ in layers)) if (name := _model_of(settings))), None
    )
    if model is not None and defaults is not None:
        named_by_preset = any(_model_of(layer) == model for layer, _ in layers)
        layers.insert(0 if named_by_preset else len(layers), (defaults(model), lambda _: f"model {model}"))
    layers.append((file_values, lambda key: f"{path}:{lines[key]}" if key in lines else str(path)))
    layers += [(settings, lambda _: "command line") for settings in given]
    for layer, origin_of in layers:
        values = _merge(values, layer, origins, (), origin_of)

    def origin(key: KeyPath) -> str:
        return next((origins[key[:end]] for end in range(len(key), 0, -1) if key[:end] in origins), "")

    config = structure(values, RunConfig, origin=origin, choices=choices, hint=hint)
    by_path = {".".join(map(str, key)): source for key, source in origins.items()}
    return Resolved(config, {path: by_path[path] for path in option_paths() if path in by_path})


def read_config(path: Path) -> RunConfig:
    """Read the complete configuration in the folder of a run. Raises `ConfigError` with all mistakes."""
    return structure(read_document(path).values, RunConfig, origin=lambda _: str(path), hint=hint)


def apply_overrides(config: RunConfig, overrides: Sequence[str]) -> RunConfig:
    """Return a configuration with overrides `key.sub=value`. Raises `ConfigError` with all mistakes.

    >>> apply_overrides(RunConfig(), ["training.epochs=3"]).training.epochs
    3
    """
    values = unstructure(config)
    for override in overrides:
        values = _merge(values, _parse_override(override), {}, (), lambda _: "")
    return structure(values, RunConfig, origin=lambda _: "command line", hint=hint)


def json_schema(choices: Choices | None = None) -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of the files that `runs.load_config` reads.

    With `choices`, such as `runs.CHOICES`, the schema lists the names of optimizers and other parts.

    >>> import mlxfp as fp
    >>> made = fp.runs.json_schema({"optimizer.name": ["adamw", "sgd"]})
    >>> made["properties"]["training"]["properties"]["epochs"]["minimum"], made["properties"]["optimizer"]["properties"]["name"]["enum"]
    (1, ['adamw', 'sgd'])
    """
    schema = class_schema(RunConfig, choices=choices)
    schema["properties"]["preset"] = {"description": "The preset to start from.", "enum": list(PRESETS)}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "A run of mlxfp"} | schema


def _model_of(values: Mapping[str, Any]) -> Any:
    section = values.get("model")
    name = section.get("name") if isinstance(section, Mapping) else None
    return name if isinstance(name, str) else None


def _parse_override(override: str) -> dict[str, Any]:
    check_text(override=override)
    path, equals, text = override.partition("=")
    if not equals or not all(path.split(".")):
        raise ConfigError(f"{override!r} is not of the form key.sub=value. Write, for example, training.epochs=3.")
    try:
        value: Any = read_value(text, where=override)
    except ConfigError as error:
        error.add_note(f"If the value is text, quote the value for YAML and the whole argument for the shell: '{path}=\"{text}\"'.")
        raise
    return reduce(lambda inner, name: {name: inner}, reversed(path.split(".")), value)


def _merge(
    below: Mapping[str, Any], above: Mapping[str, Any], origins: dict[KeyPath, str], parents: KeyPath, origin: Any
) -> dict[str, Any]:
    """Merge two nested dicts. `above` has priority, and the origins of the values of `above` are recorded in `origins`."""
    out = dict(below)
    for name, value in above.items():
        key = (*parents, name)
        origins[key] = origin(key)
        under = out[name] if isinstance(out.get(name), Mapping) else {}
        out[name] = _merge(under, value, origins, key, origin) if isinstance(value, Mapping) else value
    return out
