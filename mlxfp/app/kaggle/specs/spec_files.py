"""Reading and writing specs as YAML 1.2 or JSON files. The suffix selects the format."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from attrs import asdict

from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.support.atomic_files import write_whole
from mlxfp.support.checks import check_types
from mlxfp.support.errors import ConfigError
from mlxfp.support.registries import Registry
from mlxfp.support.structuring import structure
from mlxfp.support.yaml_files import read_document, write_document

T = TypeVar("T")

_SUFFIXES = (".yaml", ".yml", ".json")


def save_spec(spec: DatasetSpec, path: str | Path) -> None:
    """Write a spec to a file, for `load_spec`. An existing file is replaced.

    The suffix selects the format: `.yaml`, `.yml` or `.json`. Raises `ConfigError` for another suffix.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> with TemporaryDirectory() as folder:
    ...     save_spec(fp.kaggle.SPECS["titanic"], Path(folder, "titanic.yaml"))
    ...     print(*Path(folder, "titanic.yaml").read_text().splitlines()[:2], sep="; ")
    ...     load_spec(Path(folder, "titanic.yaml")) == fp.kaggle.SPECS["titanic"]
    name: titanic; kind: binary
    True
    """
    check_types(DatasetSpec, spec=spec)
    _write(to_tree(spec), path)


def load_spec(path: str | Path) -> DatasetSpec:
    r"""Read a spec from a YAML or JSON file.

    Raises `MissingFileError` for a missing file. Raises a single `ConfigError` with all mistakes in the file and their line
    numbers: unknown or duplicate keys, wrong types, and contradictory fields.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "cats.yaml").write_text("name: cats\nkind: binry\ntrain: {name: a.csv, rows: 3.5}\ntarget: [x]\ncolumns: []")
    ...     load_spec(Path(folder, "cats.yaml"))
    Traceback (most recent call last):
    mlxfp.support.errors.ConfigError: 3 mistakes in ...
      kind (line 2): expected 'binary' or ... (did you mean 'binary'?), got 'binry'
      train.rows (line 3): expected an integer, got 3.5
      metric: a value is required
    """
    return _read(path, DatasetSpec)


def save_specs(specs: Mapping[str, DatasetSpec], path: str | Path) -> None:
    """Write a registry of specs to a single file, for `load_specs`.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> with TemporaryDirectory() as folder:
    ...     save_specs(fp.kaggle.SPECS, Path(folder, "specs.json"))
    ...     load_specs(Path(folder, "specs.json")) == fp.kaggle.SPECS
    True
    """
    check_types(Mapping, specs=specs)
    _write({name: to_tree(spec) for name, spec in specs.items()}, path)


def load_specs(path: str | Path) -> Registry[DatasetSpec]:
    r"""Read a registry of specs from a YAML or JSON file with a mapping from names to specs. Raises the same errors as `load_spec`.

    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> with TemporaryDirectory() as folder:
    ...     save_specs({"mine": fp.kaggle.SPECS["titanic"]}, Path(folder, "specs.yaml"))
    ...     fp.kaggle.SPECS | load_specs(Path(folder, "specs.yaml"))
    Registry of 5 data sets: disaster_tweets, house_prices, mine, spaceship_titanic, titanic
    """
    return Registry("data set", _read(path, dict[str, DatasetSpec]))


def is_spec_file(path: Path) -> bool:
    """Return True if the suffix is `.yaml`, `.yml` or `.json`."""
    return path.suffix in _SUFFIXES


def to_tree(value: Any) -> dict[str, Any]:
    """Convert a spec to plain values. Default values are omitted."""

    def serialize(_: Any, field: Any, value: Any) -> Any:
        if isinstance(value, tuple):
            return dict(value) if field is not None and field.name == "values" else list(value)
        return value

    return asdict(value, filter=lambda field, value: value != field.default, value_serializer=serialize)


def _write(tree: dict[str, Any], path: str | Path) -> None:
    is_json = _suffix(path) == ".json"
    text = json.dumps(tree, indent=2, ensure_ascii=False) + "\n" if is_json else write_document(tree)
    write_whole(Path(path), text.encode())


def _read(path: str | Path, kind: type[T]) -> T:
    _suffix(path)
    document = read_document(path, what="spec")
    return structure(document.values, kind, what=repr(str(path)), origin=document.line)


def _suffix(path: str | Path) -> str:
    check_types((str, Path), path=path)
    if not is_spec_file(Path(path)):
        raise ConfigError(f"A spec file must be YAML or JSON, got {str(path)!r}. Use one of the suffixes {', '.join(_SUFFIXES)}.")
    return Path(path).suffix
