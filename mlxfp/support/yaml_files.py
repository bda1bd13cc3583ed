"""YAML 1.2 and JSON files as plain values, with the line of each value.

YAML 1.1 reads `1e-5` as text, `no` as False, `012` as 10 and `12:30` as 750. YAML 1.2 reads these values as a number, text, 12 and text.
"""

import json
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp.support.errors import ConfigError, MissingFileError
from mlxfp.support.optional import optional

KeyPath = tuple[str | int, ...]  # path of a value in a tree: names and list indices, outermost first

_TAG = "tag:yaml.org,2002:"
_PLAIN = "Write a plain value: a number, text, a list or names with values."
_MOST_BYTES, _DEEPEST = 1 << 24, 100  # maximum file size in bytes and maximum depth of nesting; a configuration of 20,000 columns has 2 MB
_MOST_BITS = 1024  # Maximum number of bits of an integer. Larger integers exceed all floats, and Python cannot print thousands of digits.
_TOO_DEEP = f"values are nested more than {_DEEPEST} deep. Write a file with fewer levels."


@frozen
class Document:
    """A tree of plain values with line numbers."""

    values: dict[str, Any]
    lines: Mapping[KeyPath, int]

    def line(self, path: KeyPath) -> str:
        """Return the line number of a value, or of the nearest enclosing value, as in "line 7". Return "" for an unknown line."""
        return next((f"line {self.lines[path[:end]]}" for end in range(len(path), 0, -1) if path[:end] in self.lines), "")


def read_document(path: str | Path, *, what: str = "configuration") -> Document:
    r"""Read a YAML or JSON file with a mapping of plain values. Error messages call the file `what`.

    Raises `MissingFileError` for a missing file. Raises `ConfigError` with file and line for invalid YAML or JSON, for duplicate keys and
    for YAML tags. Without tags, a file cannot create Python objects. Raises `ConfigError` for files larger than 16 MiB and for values
    nested more than 100 deep. Nested aliases are expanded without a limit, so read only trusted files.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "run.yaml")
    ...     _ = path.write_text("training:\n  seed: 012\nname: no\n")
    ...     read_document(path)
    Document(values={'training': {'seed': 12}, 'name': 'no'}, lines={('training',): 1, ('training', 'seed'): 2, ('name',): 3})
    """
    if Path(path).suffix.lower() in (".toml", ".ini", ".cfg", ".py"):
        raise ConfigError(f"{path} has the suffix {Path(path).suffix}, but a {what} is a file in YAML or JSON. Convert the file to YAML.")
    try:
        if (size := Path(path).stat().st_size) > _MOST_BYTES:
            raise ConfigError(
                f"{path} has {size:,} bytes, but a {what} has at most {_MOST_BYTES:,} bytes. Give the path of a {what}, not of a data file."
            )
        text = Path(path).read_text("utf-8-sig")
    except FileNotFoundError as error:
        raise MissingFileError(f"There is no {what} at {str(path)!r}. Give the path of a YAML or JSON file.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}. Save the file as UTF-8.") from error
    lines: dict[KeyPath, int] = {}
    if Path(path).suffix == ".json":
        values = _parse_json(text, str(path))
        try:
            _plain_value(_parse_yaml(text, ""), "", lines)
        except ConfigError:  # ruamel rejects some valid JSON, and then the line numbers are unknown
            lines = {}
    else:
        values = _plain_value(_parse_yaml(text, str(path)), str(path), lines)
    if not isinstance(values, dict):
        kind = {list: "a list", type(None): "nothing"}.get(type(values), f"the value {values!r:.40}")
        raise ConfigError(f"{path} holds {kind}, expected names and values, as in `name: titanic`.")
    return Document(values, lines)


def read_value(text: str, *, where: str = "a value") -> Any:
    """Parse a value by the rules of YAML 1.2."""
    return _plain_value(_parse_yaml(text, where), where, {})


def write_document(values: Mapping[str, Any]) -> str:
    """Return plain values as YAML for `read_document`.

    >>> print(write_document({"name": "no", "training": {"epochs": 3, "ema": None}}), end="")
    name: no
    training:
      epochs: 3
      ema: null
    """
    out, yaml = StringIO(), _yaml("safe")
    yaml.Representer, _ = _yaml_classes()
    yaml.default_flow_style, yaml.allow_unicode, yaml.width, yaml.sort_base_mapping_type_on_output = False, True, 10_000, False
    yaml.dump(dict(values), out)
    return out.getvalue()


def _yaml(typ: str) -> Any:
    return optional("ruamel.yaml", extra="config", needed_by="YAML").YAML(typ=typ, pure=True)


@lru_cache(maxsize=1)
def _yaml_classes() -> tuple[Any, Any]:
    """Return subclasses of ruamel's classes for writing and reading values. Changes to ruamel's own classes would affect other programs."""
    from ruamel.yaml.constructor import RoundTripConstructor, SafeConstructor  # `_yaml` has already checked that ruamel is installed
    from ruamel.yaml.representer import SafeRepresenter

    representer: Any = type("Representer", (SafeRepresenter,), {})
    constructor: Any = type("Constructor", (RoundTripConstructor,), {})

    def write_text(writer: Any, text: str) -> Any:
        """Quote text with unprintable characters, because unquoted characters such as U+0085 would be read as line ends."""
        return writer.represent_scalar(f"{_TAG}str", text, style=None if text.isprintable() else '"')

    representer.add_representer(str, write_text)
    representer.add_representer(type(None), lambda writer, _: writer.represent_scalar(f"{_TAG}null", "null"))
    constructor.add_constructor(f"{_TAG}bool", SafeConstructor.construct_yaml_bool)  # ruamel returns an int for a boolean with an anchor
    constructor.add_constructor(f"{_TAG}timestamp", lambda _, node: node.value)  # dates and times stay text, as in YAML 1.2
    return representer, constructor


def _parse_yaml(text: str, where: str) -> Any:
    yaml = _yaml("rt")
    _, yaml.Constructor = _yaml_classes()
    from ruamel.yaml.constructor import DuplicateKeyError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        location = where if error.problem_mark is None else f"{where}:{error.problem_mark.line + 1}"
        if isinstance(error, DuplicateKeyError):
            key = str(error.problem).partition('"')[2].partition('" with value')[0]
            raise ConfigError(f"{location}: duplicate key {key!r}; remove one.") from error
        raise ConfigError(f"{location} is not valid YAML: {str(error.problem).strip()}. Fix this line.") from error
    except YAMLError as error:
        raise ConfigError(f"{where} is not valid YAML: {' '.join(str(error).split())}. Fix the file.") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: {_TOO_DEEP}") from error
    except ValueError as error:  # Python raises `ValueError` for integers with thousands of digits
        raise _unreadable(where, error) from error


def _unreadable(where: str, error: Exception) -> ConfigError:
    return ConfigError(f"{where} has an unreadable value: {error}. Write a plain value with fewer digits.")


def _parse_json(text: str, where: str) -> Any:
    """Parse JSON with the json module. The YAML parser ruamel splits surrogate pairs, and rejects U+007F and long keys in valid JSON."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        doubled = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        if doubled:
            raise ConfigError(f"{where}: duplicate key {doubled[0]!r}; remove one.")
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}:{error.lineno} is not valid JSON: {error.msg}. Fix this line.") from error
    except RecursionError as error:
        raise ConfigError(f"{where}: {_TOO_DEEP}") from error
    except ConfigError:
        raise
    except ValueError as error:  # Python raises `ValueError` for integers with thousands of digits
        raise _unreadable(where, error) from error


def _plain_value(value: Any, where: str, lines: dict[KeyPath, int], path: KeyPath = (), line: int | None = None) -> Any:
    """Convert values of the YAML parser, such as `ScalarFloat`, to plain values. Add the line number of each value to `lines`."""
    location = where if line is None else f"{where}:{line}"
    if len(path) > _DEEPEST:
        raise ConfigError(f"{location}: {_TOO_DEEP}")
    tag = getattr(getattr(value, "tag", None), "value", None)  # None for a value without a YAML tag such as !!set
    if tag is not None:
        raise ConfigError(f"{location} has the tag {str(tag)!r}. {_PLAIN}")
    if isinstance(value, Mapping | list):
        values = {}
        for name, inner in value.items() if isinstance(value, Mapping) else enumerate(value):
            if isinstance(value, Mapping) and not isinstance(name, str):
                raise ConfigError(f"{location} has the key {name!r}, which is not text. Put the key in quotes.")
            position = (value.lc.data or {}).get(name)  # type: ignore[union-attr]  # merged entries have no line in ruamel
            if position is not None:
                lines[(*path, name)] = position[0] + 1
            values[name] = _plain_value(inner, where, lines, (*path, name), lines.get((*path, name), line))
        return {str(name): inner for name, inner in values.items()} if isinstance(value, Mapping) else [*values.values()]
    return _scalar(value, location)


def _scalar(value: Any, location: str) -> Any:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ConfigError(f"{location} has an integer of {value.bit_length():,} bits. Write a number of at most {_MOST_BITS:,} bits.")
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    if value is None:
        return None
    raise ConfigError(f"{location} has a {type(value).__name__}: {value!r:.40}. {_PLAIN}")
