"""What depends on the library of an estimator: each is one entry of `LIBRARIES`, by the name of its package.

A fitted model is kept in the library's own format that holds data and no code: text of LightGBM and XGBoost, CatBoost's binary form, and
for scikit-learn that of skops, which builds only types that it trusts.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.app.kaggle.estimators.skops_files import dump, load
from mlxfp.support.blas import free_cores
from mlxfp.support.errors import MissingExtraError
from mlxfp.support.optional import optional

# For each thread beyond the first. LightGBM, 300 trees on two cores: 20 columns of 50,000 rows take 1.45 s and, with two threads, .85 s; 10
# columns of 5,000 rows .22 and .15 s, and 12 s where another program runs.
_NUMBERS = 200_000


@frozen(eq=False)
class Examples:
    """What an estimator is fitted to: numbers of rows with their targets, and rows to stop early by, if there are some."""

    numbers: Any
    targets: NDArray[Any]
    weights: NDArray[np.float64] | None = None
    valid: tuple[Any, NDArray[Any]] | None = None
    coded: tuple[int, ...] = ()  # the places of categories
    patience: int = 50  # rounds without improvement


@frozen
class Library:
    """A library of estimators.

    - `suffix`: of the files of its models.
    - `settings(threads, seed)`: parameters that a model gets unless they were set.
    - `fit(model, examples)`: fit a model, and return what predicts.
    - `predict(fitted, numbers, classed)`: values [n], or probabilities [n, C], or [n] of the second of two classes.
    - `stops`: whether it can stop early.
    """

    package: str
    suffix: str
    settings: Callable[[int, int], Mapping[str, Any]] = field(repr=False)
    fit: Callable[[Any, Examples], Any] = field(repr=False)
    predict: Callable[..., NDArray[Any]] = field(repr=False)
    save: Callable[[Any, Path], None] = field(repr=False)
    load: Callable[..., Any] = field(repr=False)
    stops: bool = False


def threads(size: int) -> int:
    """Return how many threads estimators take for so many numbers: the cores that other programs leave free, and one for small tables.

    Threads of OpenMP wait for each other by spinning, at every node of every tree: where another program takes one of their cores, a
    second thread makes a fit up to a hundred times slower.
    """
    return min(free_cores()[0], 1 + size // _NUMBERS)


def other_package(name: str) -> ModuleType:
    """Import a package that no extra brings; raises `MissingExtraError` where it is not installed."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"This estimator needs {name}. Install it with: pip install {name}") from error


@contextmanager
def one_decides(size: int = 0) -> Iterator[None]:
    """Keep the libraries from taking each other's cores, while they work on so many numbers.

    OpenBLAS gets one thread, so that last digits do not depend on how busy the machine is; OpenMP gets those of `threads`.
    """
    limits = optional("threadpoolctl", extra="kaggle", needed_by="estimator").threadpool_limits
    with limits({"blas": 1, "openmp": threads(size)}):
        yield


def _fit_lightgbm(model: Any, examples: Examples) -> Any:
    lightgbm = optional("lightgbm", extra="boosting", needed_by="model.name=lightgbm")
    stopping: dict[str, Any] = {}
    if examples.valid is not None:
        numbers, targets = examples.valid
        stopping = {"eval_X": (numbers,), "eval_y": (targets,), "callbacks": [lightgbm.early_stopping(examples.patience, verbose=False)]}
    # Categories as numbers in order are at least as good as its own treatment: .1244 to .1265 on house_prices, equal on titanic.
    return model.fit(examples.numbers, examples.targets, sample_weight=examples.weights, **stopping).booster_


def _predict_lightgbm(fitted: Any, numbers: Any, *, classed: bool) -> NDArray[Any]:
    return np.asarray(fitted.predict(numbers, num_threads=threads(numbers.size)))


def _save_lightgbm(fitted: Any, path: Path) -> None:
    # The number of threads is that of the moment, and has no effect on a model: a run that goes on later has the same bytes.
    path.write_text(re.sub(r"(?m)^\[num_threads: \d+\]$", "[num_threads: 0]", fitted.model_to_string()), encoding="utf-8")


def _load_lightgbm(path: Path, *, classed: bool) -> Any:
    lightgbm = optional("lightgbm", extra="boosting", needed_by="model.name=lightgbm")
    return lightgbm.Booster(model_str=path.read_text(encoding="utf-8"))


def _fit_catboost(model: Any, examples: Examples) -> Any:
    stopping: dict[str, Any] = {}
    if examples.valid is not None:
        valid = (_with_categories(examples.valid[0], examples.coded), examples.valid[1])
        stopping = {"eval_set": valid, "early_stopping_rounds": examples.patience}
    coded = list(examples.coded)
    model.fit(
        _with_categories(examples.numbers, examples.coded), examples.targets, cat_features=coded, sample_weight=examples.weights, **stopping
    )
    for name in ("train_finish_time", "model_guid"):  # else equal models would have other bytes
        model.get_metadata()[name] = ""
    return _Coded(model, examples.coded)


@frozen
class _Coded:
    """A model of CatBoost, and which of its numbers are categories."""

    model: Any
    coded: tuple[int, ...]


def _with_categories(numbers: NDArray[Any], coded: tuple[int, ...]) -> Any:
    """Return numbers as CatBoost reads them: categories must be integers, so they come in a table of pandas, which it needs anyway."""
    if not coded:
        return numbers
    table = other_package("pandas").DataFrame(numbers)
    for place in coded:
        table[place] = np.nan_to_num(numbers[:, place], nan=-1).astype(np.int64)
    return table


def _predict_catboost(fitted: _Coded, numbers: Any, *, classed: bool) -> NDArray[Any]:
    return _chances(fitted.model, _with_categories(numbers, fitted.coded), classed=classed)


def _save_catboost(fitted: _Coded, path: Path) -> None:
    fitted.model.save_model(str(path), format="cbm")


def _load_catboost(path: Path, *, classed: bool) -> _Coded:
    catboost = other_package("catboost")
    model = (catboost.CatBoostClassifier if classed else catboost.CatBoostRegressor)()
    model.load_model(str(path), format="cbm")
    return _Coded(model, tuple(model.get_cat_feature_indices()))


def _fit_xgboost(model: Any, examples: Examples) -> Any:
    stopping: dict[str, Any] = {}
    if examples.valid is not None:
        model.set_params(early_stopping_rounds=examples.patience)
        stopping = {"eval_set": [examples.valid], "verbose": False}
    if examples.coded:
        kinds = ["c" if place in examples.coded else "q" for place in range(examples.numbers.shape[1])]
        model.set_params(enable_categorical=True, feature_types=kinds)
    return model.fit(examples.numbers, examples.targets, sample_weight=examples.weights, **stopping)


def _save_xgboost(fitted: Any, path: Path) -> None:
    path.write_bytes(bytes(fitted.get_booster().save_raw("json")))


def _load_xgboost(path: Path, *, classed: bool) -> Any:
    xgboost = other_package("xgboost")
    model = (xgboost.XGBClassifier if classed else xgboost.XGBRegressor)()
    model.load_model(str(path))
    return model


def _fit_sklearn(model: Any, examples: Examples) -> Any:
    weights = {} if examples.weights is None else {"sample_weight": examples.weights}
    return model.fit(examples.numbers, examples.targets, **weights)


def _load_sklearn(path: Path, *, classed: bool) -> Any:
    return load(path)


def _chances(fitted: Any, numbers: Any, *, classed: bool) -> NDArray[Any]:
    return np.asarray(fitted.predict_proba(numbers) if classed else fitted.predict(numbers), np.float64)


# LightGBM adds numbers in another order on another number of threads, except with `deterministic`.
LIBRARIES: Mapping[str, Library] = {
    library.package: library
    for library in (
        Library(
            "lightgbm",
            ".txt",
            lambda threads, seed: {"n_jobs": threads, "random_state": seed, "verbose": -1, "deterministic": True, "force_row_wise": True},
            _fit_lightgbm,
            _predict_lightgbm,
            _save_lightgbm,
            _load_lightgbm,
            stops=True,
        ),
        Library(
            "catboost",
            ".cbm",
            lambda threads, seed: {"thread_count": threads, "random_seed": seed, "verbose": False, "allow_writing_files": False},
            _fit_catboost,
            _predict_catboost,
            _save_catboost,
            _load_catboost,
            stops=True,
        ),
        Library(
            "xgboost",
            ".json",
            lambda threads, seed: {"n_jobs": threads, "random_state": seed},
            _fit_xgboost,
            _chances,
            _save_xgboost,
            _load_xgboost,
            stops=True,
        ),
        Library(
            "sklearn",
            ".skops",
            lambda threads, seed: {"random_state": seed},
            _fit_sklearn,
            _chances,
            dump,
            _load_sklearn,
        ),
    )
}
