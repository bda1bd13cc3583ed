"""YAML 1.2 and JSON files as plain values, with the line that each comes from.

YAML 1.1 reads `1e-5` as text, `no` as False, `012` as 10 and `12:30` as 750; YAML 1.2 reads what is written.
"""

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp.core._optional import optional
from mlxfp.core.errors import ConfigError, MissingFileError

Place = tuple[str | int, ...]  # the names, and numbers in lists, that lead to a value, from the outside in

_TAG = "tag:yaml.org,2002:"
_PLAIN = "Write a plain value: a number, text, a list or names with values."


@frozen
class Document:
    """A tree of plain values, and where each stands."""

    values: dict[str, Any]
    lines: Mapping[Place, int]

    def line(self, place: Place) -> str:
        """Say the line of a value, or of what it would stand in: `structure` says it with each mistake.

        >>> document = Document({"a": {}}, {("a",): 7})
        >>> document.line(("a", "b")), document.line(("c",))
        ('line 7', '')
        """
        return next((f"line {self.lines[place[:end]]}" for end in range(len(place), 0, -1) if place[:end] in self.lines), "")


def read_document(path: str | Path, *, what: str = "configuration") -> Document:
    r"""Read a YAML or JSON file: a mapping of plain values; `what` it is called in an error.

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
        text = Path(path).read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise MissingFileError(f"There is no {what} at {str(path)!r}. Give the path of a YAML or JSON file.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not text in UTF-8: {error.reason} at byte {error.start}. Save it as UTF-8.") from error
    if Path(path).suffix == ".json":
        values, lines = _parse_json(text, str(path)), _json_lines(text)
    else:
        found = _parse(text, str(path))
        values, lines = _plain(found, str(path), None), dict(_lines(found, ()))
    if not isinstance(values, dict):
        kind = {list: "a list", type(None): "nothing"}.get(type(values), f"the value {values!r:.40}")
        raise ConfigError(f"{path} holds {kind}, where names and values belong, as in `name: titanic`.")
    return Document(values, lines)


def read_value(text: str, *, where: str = "a value") -> Any:
    """Read one value as YAML 1.2 does.

    >>> read_value("1e-5"), read_value("no"), read_value("[1, two]"), read_value("null"), read_value("")
    (1e-05, 'no', [1, 'two'], None, None)
    """
    return _plain(_parse(text, where), where, None)


def write_document(values: Mapping[str, Any]) -> str:
    """Write plain values as YAML that `read_document` reads back.

    >>> print(write_document({"name": "no", "training": {"epochs": 3, "ema": None}}), end="")
    name: no
    training:
      epochs: 3
      ema: null
    """
    out, yaml = StringIO(), _yaml("safe")
    yaml.Representer, _ = _classes()
    yaml.default_flow_style, yaml.allow_unicode, yaml.width, yaml.sort_base_mapping_type_on_output = False, True, 10_000, False
    yaml.dump(dict(values), out)
    return out.getvalue()


def _yaml(typ: str) -> Any:
    return optional("ruamel.yaml", extra="config", needed_by="YAML").YAML(typ=typ, pure=True)


@lru_cache(maxsize=1)
def _classes() -> tuple[Any, Any]:
    """Make what writes and what reads values; classes of our own, as ruamel keeps what to do with a value by class."""
    from ruamel.yaml.constructor import RoundTripConstructor, SafeConstructor  # after _yaml has said what to install
    from ruamel.yaml.representer import SafeRepresenter

    class Representer(SafeRepresenter):
        pass

    class Constructor(RoundTripConstructor):
        pass

    def write_text(representer: Any, text: str) -> Any:
        """Quote what does not print: unquoted, U+0085 and its like would be read as line ends."""
        return representer.represent_scalar(f"{_TAG}str", text, style=None if text.isprintable() else '"')

    Representer.add_representer(str, write_text)
    Representer.add_representer(type(None), lambda representer, _: representer.represent_scalar(f"{_TAG}null", "null"))
    Constructor.add_constructor(f"{_TAG}bool", SafeConstructor.construct_yaml_bool)  # with an anchor, its own would give a kind of int
    Constructor.add_constructor(f"{_TAG}timestamp", lambda _, node: node.value)  # dates, and times, are text
    return Representer, Constructor


def _parse(text: str, where: str) -> Any:
    yaml = _yaml("rt")
    _, yaml.Constructor = _classes()
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        place = where if error.problem_mark is None else f"{where}:{error.problem_mark.line + 1}"
        raise ConfigError(f"{place} is no YAML: {str(error.problem).strip()}. Mend the line.") from error
    except YAMLError as error:
        raise ConfigError(f"{where} is no YAML: {' '.join(str(error).split())}. Mend the file.") from error


def _parse_json(text: str, where: str) -> Any:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise ConfigError(f"{where}: the name {doubled!r} is there twice. Leave one out.")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}:{error.lineno} is no JSON: {error.msg}. Mend the line.") from error


def _json_lines(text: str) -> dict[Place, int]:
    """Find the lines of JSON by reading it as YAML 1.2, which can do so but for odd characters: those that do not print, or tabs."""
    try:
        return dict(_lines(_parse(text, ""), ()))
    except ConfigError:
        return {}


def _plain(value: Any, where: str, line: int | None) -> Any:
    """Turn what the parser gives, which remembers how it was written, into plain values."""
    here = where if line is None else f"{where}:{line}"
    tag = getattr(getattr(value, "tag", None), "value", None)  # none where the file says none
    if tag is not None:
        raise ConfigError(f"{here} has the tag {str(tag)!r}. {_PLAIN}")
    if isinstance(value, Mapping):
        return {_name(name, here): _plain(inner, where, _line(value, name) or line) for name, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner, where, _line(value, place) or line) for place, inner in enumerate(value)]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise ConfigError(f"{here} has a {type(value).__name__}: {value!r:.40}. {_PLAIN}")


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str):
        raise ConfigError(f"{where} has the name {name!r}, which is no text. Put it in quotes.")
    return str(name)


def _lines(value: Any, place: Place) -> Iterator[tuple[Place, int]]:
    inside = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        line = _line(value, name)
        yield from () if line is None else (((*place, name), line),)
        yield from _lines(inner, (*place, name))


def _line(value: Any, name: Any) -> int | None:
    """Return the line of what stands in a mapping or a list; there is none for what an anchor was merged in."""
    at: list[int] | None = (value.lc.data or {}).get(name)
    return None if at is None else at[0] + 1
