"""Specs shipped as YAML files in `shipped/`."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp.app.kaggle.specs.spec_files import load_spec
from mlxfp.app.kaggle.specs.specs import DatasetSpec
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


def named_spec(name: str) -> DatasetSpec:
    """Return a shipped spec by name, or read a spec from a YAML or JSON file. An existing file takes precedence."""
    return load_spec(name) if Path(name).is_file() or Path(name).suffix else SPECS[name]
