"""Saving and loading of fitted estimators: JSON values, arrays, and models in data-only formats."""

import json
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any, Literal
from zipfile import BadZipFile

import numpy as np
from attrs import evolve, frozen

from mlxfp.app.kaggle.estimators.columns import Categories, Columns, Layout
from mlxfp.app.kaggle.estimators.fitting import FittedEstimator, FittedTarget
from mlxfp.app.kaggle.estimators.libraries import LIBRARIES
from mlxfp.app.kaggle.estimators.skops_files import dump, load
from mlxfp.app.kaggle.specs.dates import Order
from mlxfp.app.kaggle.specs.reading import hash_file
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.models import WordCounts
from mlxfp.support.atomic_files import write_whole, written_whole
from mlxfp.support.errors import DataError, MissingFileError
from mlxfp.support.structuring import structure, unstructure

RECIPE, _ARRAYS, _SCALER = "recipe.json", "model-texts.npz", "model-columns.skops"


@frozen
class _Texts:
    column: str
    analyzer: Literal["words", "characters"]


@frozen
class _Recipe:
    """Plain values of a fitted estimator, without arrays and models."""

    spec: DatasetSpec
    layout: Layout
    numbers: tuple[str, ...]
    categories: tuple[Categories, ...]
    texts: tuple[_Texts, ...]
    classes: tuple[tuple[int, ...], ...]
    packages: tuple[str, ...]
    sha256: dict[str, str]  # maps file names to SHA-256 digests, checked before loading, because some damaged models crash LightGBM
    dates: tuple[tuple[str, Order], ...] = ()
    typical: tuple[tuple[float | None, ...], ...] = ()


def save_estimator(fitted: FittedEstimator, folder: str | PathLike[str]) -> None:
    """Write a fitted estimator to a folder, which is created if needed. Equal estimators produce equal bytes.

    - `recipe.json`: the spec, the preprocessing of each column, and the SHA-256 digest of each other file;
    - `model-1` and so on: one model per target, in the format of the library: `.txt` (LightGBM), `.cbm`
      (CatBoost) or `.skops` (scikit-learn);
    - `model-texts.npz` and `model-columns.skops`: preprocessing of texts and scaled columns.

    Raises `ArgumentError` for a scikit-learn model with types that are not known to be plain data.

    >>> from sklearn.linear_model import Ridge
    >>> from tempfile import TemporaryDirectory
    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["y"], "metric": "rmse"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="size", type="numerical")], **about)
    >>> fitted = fp.kaggle.estimator(Ridge(1e-9), spec)(fp.Splits(fp.from_table({"size": [1.0, 3.0], "y": [10.0, 30.0]})))
    >>> with TemporaryDirectory() as folder:
    ...     save_estimator(fitted, folder)
    ...     load_estimator(folder)(fp.from_table({"size": [2.0]})).round(6).tolist()
    [20.0]
    """
    path, columns = Path(folder), fitted.columns
    path.mkdir(parents=True, exist_ok=True)
    names = [_model_file(number, target.package) for number, target in enumerate(fitted.targets, 1)]
    for name, target in zip(names, fitted.targets, strict=True):
        with written_whole(path / name) as file:
            target.library.save(target.model, file)
    if columns.scaler is not None:
        names.append(_SCALER)
        with written_whole(path / _SCALER) as file:
            dump(columns.scaler, file)
    if columns.texts:
        names.append(_ARRAYS)
        arrays = {
            f"{number}-{name}": array
            for number, (_, counts) in enumerate(columns.texts)
            for name in ("kept", "weights", "components")
            if (array := getattr(counts, name)) is not None
        }
        with written_whole(path / _ARRAYS) as file:
            np.savez(file, allow_pickle=False, **arrays)
    about = _Recipe(
        fitted.spec,
        columns.layout,
        columns.numbers,
        columns.categories,
        tuple(_Texts(name, counts.analyzer) for name, counts in columns.texts),
        tuple(target.classes for target in fitted.targets),
        tuple(target.package for target in fitted.targets),
        {name: hash_file(path / name) for name in names},
        columns.dates,
        ()
        if columns.typical is None
        else tuple(tuple(None if value != value else value for value in row) for row in columns.typical.tolist()),
    )
    text = json.dumps(unstructure(about), indent=2, ensure_ascii=False) + "\n"
    write_whole(path / RECIPE, text.encode("utf-8"))  # recipe.json is written last, so a folder with recipe.json is complete


def load_estimator(folder: str | PathLike[str]) -> FittedEstimator:
    """Read a fitted estimator from a folder of `save_estimator`, without unpickling or running code.

    Raises `MissingFileError` for a folder without an estimator, `DataError` for damaged files, and `MissingExtraError` for a
    missing library.

    >>> load_estimator("no such folder")
    Traceback (most recent call last):
    mlxfp.support.errors.MissingFileError: 'no such folder' has no estimator: recipe.json is missing. Give a folder ...
    """
    path = Path(folder)
    if not (path / RECIPE).is_file():
        raise MissingFileError(f"{str(path)!r} has no estimator: {RECIPE} is missing. Give a folder written by save_estimator.")
    try:
        values = json.loads((path / RECIPE).read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path / RECIPE} is damaged: {error}. Save the estimator again.") from error
    about = structure(values, _Recipe, what=str(path / RECIPE))
    models = [_model_file(number, package) for number, package in enumerate(about.packages, 1)]
    for name in dict.fromkeys([*models, *about.sha256]):
        if Path(name).name != name or not (path / name).is_file() or hash_file(path / name) != about.sha256.get(name):
            raise DataError(
                f"{path / name} is missing, or its SHA-256 digest differs from the digest in {RECIPE}. Save the estimator again."
            )
    texts = _read_texts(about, path / _ARRAYS) if about.texts else ()
    columns = Columns(
        about.layout,
        about.numbers,
        about.categories,
        texts,
        dates=about.dates,
        typical=np.array(about.typical, np.float64) if about.typical else None,
    )
    if columns.layout != "codes" and (columns.measured or columns.categories):
        columns = evolve(columns, scaler=load(path / _SCALER))
    targets = []
    for name, package, classes in zip(models, about.packages, about.classes, strict=True):
        model = LIBRARIES[package].load(path / name, classed=about.spec.task.has_classes)
        targets.append(FittedTarget(package, classes, model))
    return FittedEstimator(about.spec, columns, tuple(targets))


def _model_file(number: int, package: str) -> str:
    return f"model-{number}{LIBRARIES[package].suffix}"


def _read_texts(about: _Recipe, path: Path) -> tuple[tuple[str, WordCounts], ...]:
    try:
        # Read from memory, because numpy does not close a damaged file.
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as file:
            arrays: dict[str, Any] = dict(file)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise DataError(f"{path} is missing or damaged: {error}. Save the estimator again.") from error
    return tuple(
        (text.column, WordCounts(text.analyzer, arrays[f"{index}-kept"], arrays[f"{index}-weights"], arrays.get(f"{index}-components")))
        for index, text in enumerate(about.texts)
    )
