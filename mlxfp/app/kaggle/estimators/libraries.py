"""Libraries of estimators. `LIBRARIES` holds all library-specific behaviour, with one entry per package name.

Fitted models are saved in data-only formats: text for LightGBM, CatBoost's binary format, and skops files for
scikit-learn. Skops files may contain only trusted types.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.app.kaggle.estimators.skops_files import dump, load
from mlxfp.support.blas import free_cores
from mlxfp.support.errors import DataError
from mlxfp.support.optional import optional

# Number of table cells per additional thread, chosen by fit times of LightGBM with 300 trees on two cores.
# A fit to 50,000 rows and 20 columns takes 1.45 s with one thread, and 0.85 s with two threads.
# A fit to 5,000 rows and 10 columns takes 0.22 s with one thread, and 0.15 s with two threads.
# If another program occupies one of the two cores, a fit to 5,000 rows takes 12 s with two threads.
_NUMBERS = 200_000


@frozen(eq=False)
class Examples:
    """Training rows of an estimator: inputs, targets, weights, and optional rows for early stopping."""

    numbers: Any
    targets: NDArray[Any]
    weights: NDArray[np.float64] | None = None
    valid: tuple[Any, NDArray[Any]] | None = None
    coded: tuple[int, ...] = ()  # indices of the categorical columns
    patience: int = 50  # rounds without improvement
    seconds: float | None = None  # maximum duration of a fit of boosted trees, in seconds

    def clock(self) -> Callable[[], bool]:
        """Start a timer. Return a function that returns False until `seconds` have passed, and True afterwards."""
        end = inf if self.seconds is None else monotonic() + self.seconds
        return lambda: monotonic() > end


@frozen
class Library:
    """Functions and settings for the estimators of one package.

    - `suffix`: file suffix of saved models.
    - `settings(threads, seed)`: return defaults for the model parameters that the user did not set.
    - `fit(model, examples)`: return the fitted object for `predict`.
    - `predict(fitted, numbers, classed)`: return values [n] if `classed=False`, and probabilities [n, C] if `classed=True`. With two
      classes, some libraries return only the probabilities [n] of the second class.
    - `stops`: True if the library supports early stopping.
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
    """Return the number of threads for a table with `size` cells: one thread for small tables, at most one thread per idle core.

    OpenMP threads wait for each other at every node of every tree. If another program occupies a core, a second thread makes fits up to
    100 times slower.
    """
    return min(free_cores()[0], 1 + size // _NUMBERS)


@contextmanager
def limited_threads(size: int = 0) -> Iterator[None]:
    """Limit the threads of OpenBLAS and OpenMP in a `with` block. The argument `size` is the number of table cells in the computation.

    OpenBLAS uses a single thread, because more threads could change the last digits of the results. OpenMP uses `threads(size)` threads.
    """
    limits = optional("threadpoolctl", extra="kaggle", needed_by="estimator").threadpool_limits
    with limits({"blas": 1, "openmp": threads(size)}):
        yield


def _fit_lightgbm(model: Any, examples: Examples) -> Any:
    lightgbm = optional("lightgbm", extra="boosting", needed_by="model.name=lightgbm")
    expired = examples.clock()

    def stop_in_time(state: Any) -> None:
        if expired():
            raise lightgbm.callback.EarlyStopException(state.iteration, [])  # the model keeps the trees of all finished iterations

    stopping: dict[str, Any] = {"callbacks": [stop_in_time]}
    if examples.valid is not None:
        numbers, targets = examples.valid
        early = lightgbm.early_stopping(examples.patience, verbose=False)
        stopping = {"eval_X": (numbers,), "eval_y": (targets,), "callbacks": [early, stop_in_time]}
    # LightGBM gets category codes as plain numbers, because the category support of LightGBM does not improve the scores.
    # With category support, the error on house_prices rises from 0.1244 to 0.1265, and the error on titanic stays the same.
    return model.fit(examples.numbers, examples.targets, sample_weight=examples.weights, **stopping).booster_


def _predict_lightgbm(fitted: Any, numbers: Any, *, classed: bool) -> NDArray[Any]:
    return np.asarray(fitted.predict(numbers, num_threads=threads(numbers.size)))


def _save_lightgbm(fitted: Any, path: Path) -> None:
    # The stored number of threads does not affect predictions. Replace the number, so that equal models have equal bytes on all machines.
    path.write_text(re.sub(r"(?m)^\[num_threads: \d+\]$", "[num_threads: 0]", fitted.model_to_string()), encoding="utf-8")


def _load_lightgbm(path: Path, *, classed: bool) -> Any:
    lightgbm = optional("lightgbm", extra="boosting", needed_by="model.name=lightgbm")
    return lightgbm.Booster(model_str=path.read_text(encoding="utf-8"))


def _fit_catboost(model: Any, examples: Examples) -> Any:
    stopping: dict[str, Any] = {}
    if examples.valid is not None:
        valid = (_with_categories(examples.valid[0], examples.coded), examples.valid[1])
        stopping = {"eval_set": valid, "early_stopping_rounds": examples.patience}
    try:
        model.fit(
            _with_categories(examples.numbers, examples.coded),
            examples.targets,
            cat_features=list(examples.coded),
            sample_weight=examples.weights,
            callbacks=[_InTime(examples.clock())],
            **stopping,
        )
    except optional("catboost", extra="boosting", needed_by="model.name=catboost").CatBoostError as error:
        raise _unfit(model, examples, error) from error
    for name in ("train_finish_time", "model_guid"):  # remove the time and the random id, which differ between equal models
        model.get_metadata()[name] = ""
    return _Coded(model, examples.coded)


@frozen
class _InTime:
    """Callback of CatBoost that ends the training after the maximum time."""

    expired: Callable[[], bool]

    def after_iteration(self, _: Any) -> bool:
        """Return True to continue the training."""
        return not self.expired()


@frozen
class _Coded:
    """CatBoost model, and the indices of the categorical columns."""

    model: Any
    coded: tuple[int, ...]


def _with_categories(numbers: NDArray[Any], coded: tuple[int, ...]) -> Any:
    """Convert categories to integers for CatBoost. The result is a pandas table, because NumPy arrays cannot mix floats and integers."""
    if not coded:
        return numbers
    table = import_module("pandas").DataFrame(numbers)
    for index in coded:
        table[index] = np.nan_to_num(numbers[:, index], nan=-1).astype(np.int64)
    return table


def _predict_catboost(fitted: _Coded, numbers: Any, *, classed: bool) -> NDArray[Any]:
    return _chances(fitted.model, _with_categories(numbers, fitted.coded), classed=classed)


def _save_catboost(fitted: _Coded, path: Path) -> None:
    fitted.model.save_model(str(path), format="cbm")


def _load_catboost(path: Path, *, classed: bool) -> _Coded:
    catboost = optional("catboost", extra="boosting", needed_by="model.name=catboost")
    model = (catboost.CatBoostClassifier if classed else catboost.CatBoostRegressor)()
    model.load_model(str(path), format="cbm")
    return _Coded(model, tuple(model.get_cat_feature_indices()))


def _fit_sklearn(model: Any, examples: Examples) -> Any:
    weights = {} if examples.weights is None else {"sample_weight": examples.weights}
    unfinished = optional("sklearn.exceptions", extra="kaggle", needed_by="estimator").ConvergenceWarning
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", unfinished)  # an unfinished fit is no error: the validation score shows the quality of the model
        if getattr(model, "stack_method", "") == "decision_function":  # with a class missing from a fold, outputs would be mixed up
            warnings.filterwarnings("error", "The least populated class", UserWarning)
        try:
            return model.fit(examples.numbers, examples.targets, **weights)
        except (ValueError, UserWarning) as error:  # for example if a class has too few rows
            raise _unfit(model, examples, error) from error


def _unfit(model: Any, examples: Examples, error: Exception) -> DataError:
    return DataError(
        f"{type(model).__name__} cannot be fitted to {len(examples.targets):,} training rows: {str(error).rstrip('.')}. Change the rows or "
        "the columns of the spec, or choose another model, such as model.name=lightgbm."
    )


def _load_sklearn(path: Path, *, classed: bool) -> Any:
    return load(path)


def _chances(fitted: Any, numbers: Any, *, classed: bool) -> NDArray[Any]:
    return np.asarray(fitted.predict_proba(numbers) if classed else fitted.predict(numbers), np.float64)


# Without `deterministic`, LightGBM sums in an order that depends on the number of threads.
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
