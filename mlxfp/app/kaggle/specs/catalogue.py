"""Specs shipped as YAML files in `shipped/`, and specs in a folder of competitions."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp.app.kaggle.specs.inferring import infer_spec, is_train_file
from mlxfp.app.kaggle.specs.kinds import TASK_KINDS, Kind
from mlxfp.app.kaggle.specs.spec_files import is_spec_file, load_spec
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.support.checks import check_choice, check_types, explain_call
from mlxfp.support.errors import DataError, MissingFileError
from mlxfp.support.registries import Registry

_FOLDER = Path(__file__).with_name("shipped")
_load_once = lru_cache(load_spec)


@frozen(repr=False, eq=False)
class ShippedSpecs(Registry[DatasetSpec]):
    """Registry of the specs shipped with mlxfp. Each spec file is read on first access.

    Reading needs the extra `config`. `SPECS | {"mine": spec}` is a `Registry` with the shipped specs and your own spec.

    >>> SPECS, SPECS["titanic"].target
    (Registry of 4 data sets: disaster_tweets, house_prices, spaceship_titanic, titanic, ('Survived',))
    """

    __eq__ = Mapping.__eq__  # a registry is equal to any other registry with the same specs
    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, name: str) -> DatasetSpec:
        path: Any = super().__getitem__(name)
        return _load_once(path)


SPECS = ShippedSpecs("data set", {path.stem: path for path in _FOLDER.glob("*.yaml")})


def scan(folder: str | Path) -> Registry[DatasetSpec]:
    r"""Collect the data sets in a folder: spec files, and competition folders directly below `folder`.

    A competition folder holds a train file. The folder name is the name of the data set. The spec comes from `spec.yaml`,
    `spec.yml` or `spec.json` in the competition folder, otherwise from `infer_spec`. Every YAML or JSON file directly in `folder`
    is read as a spec.

    Nothing is skipped silently: raises `DataError` for duplicate names, and for a competition folder without an inferable target.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "cats").mkdir()
    ...     _ = Path(folder, "cats", "train.csv").write_text("id,age,purrs\n1,3,True\n2,,False\n")
    ...     _ = Path(folder, "cats", "test.csv").write_text("id,age\n4,8\n")
    ...     specs = scan(folder)
    >>> specs, specs["cats"].target
    (Registry of 1 data set: cats, ('purrs',))

    See also: `SPECS`, the shipped specs; `SPECS | scan(folder)` has both.
    """
    check_types((str, Path), folder=folder)
    if not Path(folder).is_dir():
        raise MissingFileError(f"There is no folder at {str(folder)!r}. Give a folder with competition folders or spec files.")
    specs: dict[str, DatasetSpec] = {}
    for path in sorted(Path(folder).iterdir()):
        spec = _spec_at(path)
        if spec is not None and spec.name in specs:
            raise DataError(
                f"Two data sets in {str(folder)!r} have the name {spec.name!r}; the second is {path.name!r}. Rename one data set."
            )
        specs |= {} if spec is None else {spec.name: spec}
    return Registry("data set", specs)


@explain_call
def find(specs: Mapping[str, DatasetSpec], *, kind: Kind) -> Registry[DatasetSpec]:
    """Return the data sets of the given `kind`, such as "regression".

    >>> find(SPECS, kind="regression")
    Registry of 1 data set: house_prices
    """
    check_types(Mapping, specs=specs)
    check_choice(TASK_KINDS, kind=kind)
    return Registry("data set", {name: spec for name, spec in specs.items() if spec.kind == kind})


def _spec_at(path: Path) -> DatasetSpec | None:
    if path.is_file():
        return load_spec(path) if is_spec_file(path) else None
    files = sorted(path.iterdir()) if path.is_dir() else []
    spec_files = [file for file in files if file.stem == "spec" and is_spec_file(file)]
    if spec_files:
        return load_spec(spec_files[0])
    try:
        return infer_spec(path) if any(map(is_train_file, files)) else None
    except ValueError as error:
        raise DataError(f"No spec can be inferred from {str(path)!r}: {error} Alternatively, write spec.yaml in this folder.") from error


def named_spec(name: str) -> DatasetSpec:
    """Return a shipped spec by name, or read a spec from a YAML or JSON file. An existing file takes precedence."""
    return load_spec(name) if Path(name).is_file() or Path(name).suffix else SPECS[name]
