"""Specs as files, YAML 1.2 or JSON by suffix, to read, edit and share."""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin

from attrs import asdict, fields, has

from mlxfp.core._optional import optional
from mlxfp.core.checks import check_types
from mlxfp.core.errors import ConfigError, MissingFileError, MlxfpError, unknown_name
from mlxfp.core.registries import Registry
from mlxfp.kaggle.specs import ColumnSpec, DatasetSpec

T = TypeVar("T")

_SUFFIXES = (".yaml", ".yml", ".json")


def save_spec(spec: DatasetSpec, path: str | Path) -> None:
    """Write a spec to a file; `load_spec` reads the same back. A file that is there is replaced.

    The suffix says the format: `.yaml`, `.yml` or `.json`. Raises `ConfigError` for another.

    >>> from tempfile import TemporaryDirectory
    >>> from mlxfp.kaggle.catalogue import SPECS
    >>> with TemporaryDirectory() as folder:
    ...     save_spec(SPECS["titanic"], Path(folder, "titanic.yaml"))
    ...     print(*Path(folder, "titanic.yaml").read_text().splitlines()[:2], sep="; ")
    ...     load_spec(Path(folder, "titanic.yaml")) == SPECS["titanic"]
    name: titanic; kind: binary
    True
    """
    check_types(DatasetSpec, spec=spec)
    _write(_plain(spec), path)


def load_spec(path: str | Path) -> DatasetSpec:
    r"""Read a spec from a YAML or JSON file.

    Raises `MissingFileError`, and `ConfigError` with every mistake in the file and its place: a name that a spec does not have, a value of
    another type, facts that contradict each other.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "cats.yaml").write_text("name: cats\nkind: binry\ntrain: {name: a.csv, rows: 3.5}\ntarget: [x]\ncolumns: []")
    ...     load_spec(Path(folder, "cats.yaml"))
    Traceback (most recent call last):
    mlxfp.core.errors.ConfigError: 3 mistakes in ...
      kind: No choice is named 'binry'. Did you mean 'binary'? Known: ...
      train.rows: expected an integer, got 3.5
      metric: a value is needed and there is none
    """
    return _structure(_read(path), DatasetSpec, path)


def save_specs(specs: Mapping[str, DatasetSpec], path: str | Path) -> None:
    """Write a registry of specs to one file; `load_specs` reads the same back.

    >>> from tempfile import TemporaryDirectory
    >>> from mlxfp.kaggle.catalogue import SPECS
    >>> with TemporaryDirectory() as folder:
    ...     save_specs(SPECS, Path(folder, "specs.json"))
    ...     load_specs(Path(folder, "specs.json")) == SPECS
    True
    """
    check_types(Mapping, specs=specs)
    _write({name: _plain(spec) for name, spec in specs.items()}, path)


def load_specs(path: str | Path) -> Registry[DatasetSpec]:
    r"""Read a registry of specs from a YAML or JSON file of names with specs. Raises what `load_spec` raises.

    >>> from tempfile import TemporaryDirectory
    >>> from mlxfp.kaggle.catalogue import SPECS
    >>> with TemporaryDirectory() as folder:
    ...     save_specs({"mine": SPECS["titanic"]}, Path(folder, "specs.yaml"))
    ...     SPECS | load_specs(Path(folder, "specs.yaml"))
    Registry of 5 data sets: disaster_tweets, house_prices, mine, spaceship_titanic, titanic
    """
    return Registry("data set", _structure(_read(path), dict[str, DatasetSpec], path))


def is_spec_file(path: Path) -> bool:
    """Whether a file may hold a spec, by its suffix."""
    return path.suffix in _SUFFIXES


def _plain(value: Any) -> dict[str, Any]:
    """Return a spec as plain values, without those that are as they would be anyway."""

    def plainly(_: Any, field: Any, value: Any) -> Any:
        if isinstance(value, tuple):
            return dict(value) if field is not None and field.name == "values" else list(value)
        return value

    return asdict(value, filter=lambda field, value: value != field.default, value_serializer=plainly)


def _write(plain: dict[str, Any], path: str | Path) -> None:
    if _format(path) == ".json":
        text = json.dumps(plain, indent=2, ensure_ascii=False) + "\n"
    else:
        out, yaml = StringIO(), _yaml()
        yaml.default_flow_style, yaml.allow_unicode, yaml.width, yaml.sort_base_mapping_type_on_output = False, True, 10_000, False
        yaml.dump(plain, out)
        text = out.getvalue()
    Path(path).write_text(text, "utf-8")


def _read(path: str | Path) -> Any:
    kind, parse = ("JSON", json.loads) if _format(path) == ".json" else ("YAML", _yaml().load)
    try:
        return parse(Path(path).read_text("utf-8"))
    except FileNotFoundError as error:
        raise MissingFileError(f"There is no spec at {str(path)!r}. Give the path of a YAML or JSON file.") from error
    except Exception as error:  # what the parsers raise, and text that is not UTF-8
        raise ConfigError(f"{path} is no {kind}: {' '.join(str(error).split())}. Mend the file.") from error


def _format(path: str | Path) -> str:
    check_types((str, Path), path=path)
    if not is_spec_file(Path(path)):
        raise ConfigError(f"A spec is a file in YAML or JSON, got {str(path)!r}. Let its name end in {', '.join(_SUFFIXES)}.")
    return Path(path).suffix


def _yaml() -> Any:
    package = optional("ruamel.yaml", extra="config", needed_by="a spec in YAML")

    class Representer(package.SafeRepresenter):  # type: ignore[misc, name-defined]  # a class of our own, as representers are kept by class
        pass

    def write_text(representer: Any, text: str) -> Any:
        """Quote what does not print: unquoted, U+0085 and its like would be read as line ends."""
        return representer.represent_scalar("tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"')

    Representer.add_representer(str, write_text)
    yaml = package.YAML(typ="safe", pure=True)
    yaml.Representer = Representer
    return yaml


def _structure(plain: Any, kind: type[T], path: str | Path) -> T:
    """Make a value of plain ones, strictly: every value must have its type."""
    converter = _converter()
    try:
        made: T = converter.structure(plain, kind)
    except Exception as error:
        found = optional("cattrs", extra="config", needed_by="a spec file").transform_error(error, path="", format_exception=_say)
        mistakes = [_placed(mistake) for mistake in found]
        count = f"{len(mistakes)} mistakes" if len(mistakes) > 1 else "A mistake"
        lines = "".join(f"\n  {mistake}" for mistake in mistakes)
        raise ConfigError(f"{count} in {str(path)!r}:{lines}") from error
    return made


@lru_cache(maxsize=1)
def _converter() -> Any:
    cattrs = optional("cattrs", extra="config", needed_by="a spec file")
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind, name in ((int, "an integer"), (str, "text")):
        converter.register_structure_hook(kind, _strictly(kind, name))
    converter.register_structure_hook_func(_is_choice, _choice)
    converter.register_structure_hook_func(_is_tuple, lambda value, kind: _listed(converter, value, kind))
    values = cattrs.override(struct_hook=lambda value, _: tuple(converter.structure(value, dict[str, str]).items()))
    make = cattrs.gen.make_dict_structure_fn
    converter.register_structure_hook(ColumnSpec, make(ColumnSpec, converter, _cattrs_forbid_extra_keys=True, values=values))
    return converter


def _is_choice(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is Literal


def _is_tuple(kind: Any) -> bool:
    origin: Any = get_origin(kind)
    return origin is tuple


def _strictly(kind: type, name: str) -> Callable[[Any, Any], Any]:
    def hook(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        raise ValueError(f"expected {name}, got {value!r:.60}")

    return hook


def _choice(value: Any, kind: Any) -> Any:
    if value in get_args(kind):
        return value
    raise unknown_name("choice", str(value), get_args(kind))


def _listed(converter: Any, value: Any, kind: Any) -> Any:
    if isinstance(value, list):
        return tuple(converter.structure(value, list[get_args(kind)[0]]))  # type: ignore[misc]  # a type made at run time
    raise ValueError(f"expected a list, got {value!r:.60}")


def _say(error: BaseException, _: type | None) -> str:
    """Say what is wrong with one value, in place of cattrs' words."""
    from cattrs.errors import ForbiddenExtraKeysError

    if isinstance(error, ForbiddenExtraKeysError):
        known = [field.name for field in fields(error.cl)] if has(error.cl) else []
        return " ".join(str(unknown_name("field", name, known)) for name in sorted(error.extra_fields))
    if isinstance(error, MlxfpError | ValueError):
        return str(error)
    return "a value is needed and there is none" if isinstance(error, KeyError) else "expected names with values"


def _placed(mistake: str) -> str:
    said, _, place = mistake.rpartition(" @ ")
    return f"{place.lstrip('.') or 'the whole'}: {said}"
