"""Reading YAML 1.2 and JSON files into plain values, with the line that each comes from.

YAML 1.1 reads `1e-5` as text, `no` as False, `012` as 10 and `12:30` as 750; YAML 1.2 reads what is written.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import date
from io import StringIO
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp.core._optional import optional
from mlxfp.core.errors import ConfigError, MissingFileError

Place = tuple[str, ...]  # the names that lead to a value, from the outside in


@frozen
class Document:
    """A tree of plain values, and where each stands."""

    values: dict[str, Any]
    lines: Mapping[Place, int]


def read_document(path: str | Path) -> Document:
    r"""Read a YAML or JSON file: a mapping of plain values.

    Raises `MissingFileError`, and `ConfigError` naming file and line for text that is neither, for a name that is there twice, and for
    YAML's tags: nothing in a file can make an object.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.yaml")
    ...     _ = path.write_text("training:\n  seed: 012\nname: no\n")
    ...     read_document(path)
    Document(values={'training': {'seed': 12}, 'name': 'no'}, lines={('training',): 1, ('training', 'seed'): 2, ('name',): 3})
    """
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError as error:
        raise MissingFileError(f"There is no configuration at {str(path)!r}. Give the path of a YAML or JSON file.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}. Save it as UTF-8.") from error
    is_json = Path(path).suffix == ".json"  # YAML 1.2 reads JSON, but for escaped pairs of surrogates: it finds the lines, no more
    own = _parse_json(text, str(path)) if is_json else None
    found = _parse(text, str(path))
    if not isinstance(found, Mapping):
        kind = "nothing" if found is None else f"a {type(found).__name__}"
        raise ConfigError(f"{path} holds {kind}, where names and values belong, as in `training:` and below it `  epochs: 3`.")
    values: dict[str, Any] = _plain(found, str(path))
    return Document(own if own is not None else values, dict(_lines(found, ())))


def read_value(text: str, *, where: str = "a value") -> Any:
    """Read one value as YAML 1.2 does.

    >>> read_value("1e-5"), read_value("no"), read_value("[1, two]"), read_value("null"), read_value("")
    (1e-05, 'no', [1, 'two'], None, None)
    """
    return _plain(_parse(text, where), where)


def write_document(values: Mapping[str, Any]) -> str:
    """Write plain values as YAML that `read_document` reads back.

    >>> print(write_document({"name": "no", "training": {"epochs": 3, "ema": None}}), end="")
    name: no
    training:
      epochs: 3
      ema: null
    """
    out = StringIO()
    yaml = _yaml(typ="safe")
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False
    yaml.allow_unicode = True
    yaml.width = 10_000
    yaml.representer.add_representer(type(None), lambda made, _: made.represent_scalar("tag:yaml.org,2002:null", "null"))
    yaml.dump(dict(values), out)
    return out.getvalue()


def _yaml(typ: str) -> Any:
    package = optional("ruamel.yaml", extra="config", needed_by="a configuration")
    yaml = package.YAML(typ=typ, pure=True)
    yaml.version = None
    return yaml


def _parse(text: str, where: str) -> Any:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError  # after _yaml has said what to install

    try:
        return _yaml(typ="rt").load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{where}:{mark.line + 1}" if mark else where
        raise ConfigError(f"{place} is no YAML: {(error.problem or error.context or 'unreadable').strip()}. Mend the line.") from error
    except YAMLError as error:
        raise ConfigError(f"{where} is no YAML: {error}. Mend the file.") from error


def _parse_json(text: str, where: str) -> dict[str, Any] | None:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise ConfigError(f"{where}: the name {doubled!r} is there twice. Leave one out.")
        return dict(pairs)

    try:
        found = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}:{error.lineno} is no JSON: {error.msg}. Mend the line.") from error
    return found if isinstance(found, dict) else None


def _plain(value: Any, where: str) -> Any:
    """Turn what the parser gives, which remembers how it was written, into plain values."""
    tag = getattr(getattr(value, "tag", None), "value", None)  # none where the file says none
    if tag is not None:
        raise ConfigError(f"{where} has the tag {str(tag)!r}. Write a plain value: a number, text, a list or names with values.")
    if isinstance(value, Mapping):
        return {_name(name, where): _plain(inner, where) for name, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(inner, where) for inner in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, date):  # dates, and times, are text here
        return value.isoformat()
    if value is None:
        return None
    raise ConfigError(
        f"{where} has a {type(value).__name__}: {value!r:.40}. Write a plain value: a number, text, a list or names with values."
    )


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"{where} has the name {name!r}, which is no text. Put it in quotes.")
    return str(name)


def _lines(value: Any, place: Place) -> Iterator[tuple[Place, int]]:
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        here, marks = (*place, str(name)), getattr(value, "lc", None)
        if marks is not None and name in (marks.data or ()):  # not so for what an anchor was merged in
            yield here, marks.key(name)[0] + 1
        yield from _lines(inner, here)
