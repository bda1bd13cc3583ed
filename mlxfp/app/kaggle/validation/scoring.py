"""Competition metrics. `METRICS` holds all metric-specific behaviour, with one entry per metric.

Metrics are computed on the host from whole arrays in float64, as in competitions. `mlxfp.evaluation.metrics` computes metrics
per batch on the device.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray

from mlxfp.metrics import Explained, Ranking
from mlxfp.support.checks import check_positive
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.support.optional import optional
from mlxfp.support.registries import Registry

Numbers = NDArray[np.float64]
Needs = Literal["labels", "probabilities", "values"]
Errors = Literal["squared", "absolute", "logarithmic"]


@frozen
class Metric:
    """Competition metric. Calling the metric with targets and predictions returns a number.

    - `needs`: expected predictions: "labels" (class numbers), "values" or "probabilities" ([N] for the second of two classes, or [N, C]).
    - `function`: computes the metric on the host from float64[N] targets and predictions.
    - `errors`: error that the training loss of a regression should minimise for this metric: "squared", "absolute" or "logarithmic".

    >>> METRICS["rmse"].greater_is_better, METRICS["qwk"].needs
    (False, 'labels')
    """

    name: str
    needs: Needs
    function: Callable[[Numbers, Numbers], float]
    greater_is_better: bool = field(kw_only=True)
    errors: Errors = field(kw_only=True, default="squared")

    def __call__(self, targets: ArrayLike, predictions: ArrayLike) -> float:
        """Score predictions [N] or [N, C] against targets [N]. For targets [N, T] and predictions [N, T], return the mean over targets.

        Metrics of labels also accept probabilities, and score the likeliest class per row (see `labels_of`). Raises `ArgumentError` for
        unsuitable shapes or fractional class numbers, and `DataError` for NaN or an undefined metric.

        >>> METRICS["accuracy"]([0, 1, 1], [0.2, 0.7, 0.4]), METRICS["accuracy"]([0, 1, 1], [0, 1, 0])
        (0.666..., 0.666...)
        """
        truth = finite_numbers(f"The targets of {self.name}", targets)
        guesses = finite_numbers(f"The predictions for {self.name}", predictions)
        if truth.ndim == 2 and truth.shape == guesses.shape and truth.shape[1] > 1:
            return float(np.mean([self(truth[:, column], guesses[:, column]) for column in range(truth.shape[1])]))
        if truth.ndim != 1 or not len(truth) or not is_shaped(guesses, len(truth)):
            raise ArgumentError(
                f"{self.name} needs targets [N] and predictions [N], or [N, C] for 2 classes or more, got {list(truth.shape)} and "
                f"{list(guesses.shape)}. For several targets both are [N, T]."
            )
        if self.needs == "labels":
            if (truth != np.round(truth)).any():
                row = int(np.argmax(truth != np.round(truth)))
                raise ArgumentError(
                    f"{self.name} needs class numbers as targets, got {truth[row]:g} in row {row}. Make class numbers from the targets: "
                    "numpy.unique(targets, return_inverse=True)[1], or choose a regression metric such as rmse."
                )
            guesses = labels_of(guesses)
        elif self.needs == "values" and guesses.ndim > 1:
            raise ArgumentError(f"{self.name} needs one value for each row, [N], got {list(guesses.shape)}.")
        return float(self.function(truth, guesses))

    def better(self, a: float, b: float) -> bool:
        """Return True if score `a` is better than score `b`."""
        return a > b if self.greater_is_better else a < b


def finite_numbers(name: str, values: ArrayLike) -> Numbers:
    """Convert `values` to float64. Raise `ArgumentTypeError` for values other than numbers, and `DataError` for NaN and infinity."""
    try:
        array = np.asarray(values).astype(np.float64)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name} must be numbers, got {values!r:.60}. Encode classes as 0, 1, 2 and so on.") from None
    if not np.isfinite(array).all():
        row = np.argwhere(~np.isfinite(array))[0][0]
        raise DataError(f"{name} must be finite, got {array[row]} in row {row}.")
    return array


def read_only(values: Any) -> NDArray[Any]:
    """Copy numbers to a read-only float64 or int64 array. The fingerprint of folds or predictions then stays correct."""
    copied = np.array(values, np.int64 if np.asarray(values).dtype.kind == "i" else np.float64)
    copied.setflags(write=False)
    return copied


def is_shaped(predictions: Numbers, count: int) -> bool:
    """Return True for predictions [count], or [count, C] with at least two classes.

    The shape [count, 1] is rejected: its argmax would always be class 0.
    """
    return predictions.shape == (count,) or (predictions.ndim == 2 and len(predictions) == count and predictions.shape[1] > 1)


def labels_of(predictions: ArrayLike) -> Numbers:
    """Convert predictions to class labels [N].

    For probabilities [N, C], return the likeliest class. For probabilities [N], return 1 above 0.5, and 0 otherwise. If all predictions
    [N] are whole numbers, return the predictions unchanged as labels. Raises `ArgumentError` for probabilities below 0 or above 1.

    >>> labels_of([[0.2, 0.8], [0.5, 0.5]]).tolist(), labels_of([0.4, 0.6]).tolist(), labels_of([3, 1]).tolist()
    ([1.0, 0.0], [0.0, 1.0], [3.0, 1.0])
    """
    values = np.asarray(predictions, np.float64)
    if values.ndim == 2:
        return np.asarray(values.argmax(axis=1), np.float64)
    if (values == np.round(values)).all():
        return values
    if values.min() < 0 or values.max() > 1:
        raise ArgumentError(
            f"The metric compares predicted classes, got predictions from {values.min():g} to {values.max():g}. Predict class numbers, or "
            "probabilities from 0 to 1."
        )
    return (values > 0.5).astype(np.float64)


def map_at(count: int) -> Metric:
    """Return the metric "mean average precision at `count`" for one correct class per row.

    Classes are ranked by predicted probability. Each row scores 1 / rank of the correct class, or 0 for ranks above `count`. Classes with
    equal probabilities rank by class number. The metric needs probabilities [N, C].

    >>> map_at(2)([2, 0, 1], [[0.1, 0.2, 0.7], [0.3, 0.6, 0.1], [0.4, 0.1, 0.5]])
    0.5
    """
    check_positive(count=count)
    return Metric(f"map_at_{count}", "probabilities", partial(_map_at, count), greater_is_better=True)


def _map_at(count: int, targets: Numbers, predictions: Numbers) -> float:
    truth = _classes(targets, predictions)
    order = np.argsort(-predictions, axis=1, kind="stable")
    ranks = np.argmax(order == truth[:, None], axis=1) + 1
    return float(np.where(ranks <= count, 1 / ranks, 0).mean())


def _sklearn(name: str, targets: Numbers, guesses: Numbers, **options: Any) -> float:
    metric = getattr(optional("sklearn.metrics", extra="kaggle", needed_by=f"The metric {name}"), name)
    return float(metric(targets, guesses, **options))


def _roc_auc(targets: Numbers, scores: Numbers) -> float:
    """Compute the area under the ROC curve.

    For several classes, compute the area of each class against all other classes, and average with the class frequencies as weights, as
    `roc_auc_score` of scikit-learn with `multi_class="ovr", average="weighted"`.
    """
    if scores.ndim == 1 or scores.shape[1] == 2:
        return Ranking(scores if scores.ndim == 1 else scores[:, 1], targets, np.ones(len(targets))).value("roc_auc")
    kinds, counts = np.unique(_classes(targets, scores), return_counts=True)
    areas = [Ranking(scores[:, kind], targets == kind, np.ones(len(targets))).value("roc_auc") for kind in kinds]
    return float(np.average(areas, weights=counts))


def _log_loss(targets: Numbers, probabilities: Numbers) -> float:
    """Compute the mean negative log probability of the correct class.

    As on Kaggle, the probabilities of a row are scaled to sum to 1, then limited to the range from 1e-15 to 1 - 1e-15.
    """
    if probabilities.min() < 0 or (probabilities.ndim == 1 and probabilities.max() > 1):
        raise DataError(f"log_loss needs probabilities, got values from {probabilities.min():g} to {probabilities.max():g}.")
    table = np.stack([1 - probabilities, probabilities], axis=1) if probabilities.ndim == 1 else probabilities
    truth = _classes(targets, table)
    sums = table.sum(axis=1)
    if (sums == 0).any():
        raise DataError(f"log_loss needs probabilities that add up to 1, got a row of zeros: row {int(np.argmin(sums))}.")
    right = table[np.arange(len(truth)), truth] / sums
    return float(-np.log(np.clip(right, 1e-15, 1 - 1e-15)).mean())


def _f1(average: str, targets: Numbers, labels: Numbers) -> float:
    if average == "binary" and not np.isin(np.concatenate([targets, labels]), (0, 1)).all():
        raise ArgumentError("f1 needs the labels 0 and 1, got other labels. Use f1_macro or f1_micro.")
    return _sklearn("f1_score", targets, labels, average=average, zero_division=0.0)


def _qwk(targets: Numbers, labels: Numbers) -> float:
    if len(np.unique(np.concatenate([targets, labels]))) == 1:
        return 1.0  # with only one class in targets and predictions, the formula of Cohen's kappa would divide by zero
    # Keep unused labels in the confusion matrix, because the metric weights an error by the distance between the two labels.
    kinds = np.arange(min(targets.min(), labels.min()), max(targets.max(), labels.max()) + 1)
    return _sklearn("cohen_kappa_score", targets, labels, labels=kinds, weights="quadratic")


def _rmse(targets: Numbers, values: Numbers) -> float:
    return float(np.sqrt(np.square(targets - values).mean()))


def _rmsle(targets: Numbers, values: Numbers) -> float:
    low = min(targets.min(), values.min())
    if low <= -1:
        raise DataError(f"rmsle needs values above -1, got a value of {low:g}. Clip predictions at 0.")
    return _rmse(np.log1p(targets), np.log1p(values))


def _r2(targets: Numbers, values: Numbers) -> float:
    return Explained(values, targets, np.ones_like(targets)).value("r2")


def _spearman(targets: Numbers, values: Numbers) -> float:
    for name, array in (("targets", targets), ("predictions", values)):
        if (array == array[0]).all():
            raise DataError(f"spearman is undefined: all {len(array)} {name} are equal to {array[0]:g}. Use rmse or mae.")
    return float(optional("scipy.stats", extra="kaggle", needed_by="The metric spearman").spearmanr(targets, values).statistic)


def _classes(targets: Numbers, probabilities: Numbers) -> NDArray[np.int64]:
    """Return targets as class numbers. Raise `ArgumentError` for class numbers without a column in `probabilities`."""
    if probabilities.ndim != 2:
        raise ArgumentError(f"Probabilities of every class are needed, [N, C], got an array of shape {list(probabilities.shape)}.")
    classes = targets.astype(np.int64)
    if (classes != targets).any() or classes.min() < 0 or classes.max() >= probabilities.shape[1]:
        raise ArgumentError(
            f"Targets must be class numbers from 0 to {probabilities.shape[1] - 1}, "
            f"because the probabilities have {probabilities.shape[1]} columns, got {targets.min():g} to {targets.max():g}."
        )
    return classes


_TABLE = (
    Metric("accuracy", "labels", lambda targets, labels: np.equal(targets, labels).mean(), greater_is_better=True),
    Metric("roc_auc", "probabilities", _roc_auc, greater_is_better=True),
    Metric("log_loss", "probabilities", _log_loss, greater_is_better=False),
    Metric("f1", "labels", partial(_f1, "binary"), greater_is_better=True),
    Metric("f1_macro", "labels", partial(_f1, "macro"), greater_is_better=True),
    Metric("f1_micro", "labels", partial(_f1, "micro"), greater_is_better=True),
    Metric("qwk", "labels", _qwk, greater_is_better=True),
    Metric("mcc", "labels", partial(_sklearn, "matthews_corrcoef"), greater_is_better=True),
    Metric("rmse", "values", _rmse, greater_is_better=False),
    Metric("rmsle", "values", _rmsle, greater_is_better=False, errors="logarithmic"),
    Metric("mae", "values", lambda targets, values: np.abs(targets - values).mean(), greater_is_better=False, errors="absolute"),
    Metric("r2", "values", _r2, greater_is_better=True),
    Metric("spearman", "values", _spearman, greater_is_better=True),
    map_at(3),
    map_at(5),
)
METRICS: Registry[Metric] = Registry("metric", {metric.name: metric for metric in _TABLE})
