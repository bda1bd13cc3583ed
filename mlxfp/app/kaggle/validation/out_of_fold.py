"""Out-of-fold predictions, with scores and comparisons of runs. No model predicts its own training rows."""

from collections.abc import Iterable, Mapping
from math import isnan
from typing import Any

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike

from mlxfp.app.kaggle.validation.folds import Fold, Folds
from mlxfp.app.kaggle.validation.scoring import Metric, Numbers, finite_numbers, is_shaped, read_only
from mlxfp.inspect import fingerprint
from mlxfp.support.checks import check_types
from mlxfp.support.errors import ArgumentError, DataError
from mlxfp.support.html import clip, element, fragment, share_bar, table
from mlxfp.support.optional import optional

_FOLDS = 50  # maximum number of folds in a notebook view


@frozen(repr=False)
class FoldPredictions:
    """Predictions of one fold for its validation rows, in row order. Returned by `fold_predictions`.

    `folds` is the fingerprint of the folds. `predictions` is float64[n] or [n, C].

    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> [fold_predictions(fold, [0.2, 0.4]).predictions.tolist() for fold in custom([0, 0, 1, 1])]
    [[0.2, 0.4], [0.2, 0.4]]
    """

    folds: str
    repeat: int
    number: int
    predictions: Numbers = field(converter=read_only, eq=fingerprint)

    def __repr__(self) -> str:
        return f"FoldPredictions(repeat {self.repeat}, fold {self.number}, {len(self.predictions):,} rows)"


@frozen(repr=False)
class OutOfFold:
    """Predictions of all folds, with the folds and targets. Returned by `out_of_fold`.

    `targets` is float64[N], or [N, T] for several columns. `predictions` is float64[R, N] or [R, N, C] for R repeats. Rows that are not in
    any validation fold have the prediction NaN.

    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> folds = custom([0, 1])
    >>> oof = out_of_fold(folds, [3.0, 5.0], [fold_predictions(fold, [4.0]) for fold in folds])
    >>> oof.predictions.shape, [values.tolist() for values in oof.of(list(folds)[1])]
    ((1, 2), [[5.0], [4.0]])
    """

    folds: Folds
    targets: Numbers = field(converter=read_only, eq=fingerprint)
    predictions: Numbers = field(converter=read_only, eq=fingerprint)

    def of(self, fold: Fold) -> tuple[Numbers, Numbers]:
        """Return the targets and predictions for the validation rows of one fold."""
        return self.targets[fold.valid], self.predictions[fold.repeat][fold.valid]

    def __repr__(self) -> str:
        return f"OutOfFold({self.folds!r})"


def fold_predictions(fold: Fold, predictions: ArrayLike) -> FoldPredictions:
    """Check predictions, [n] or [n, C], for the validation rows of a fold. Return the predictions with the fold number."""
    array = finite_numbers(f"The predictions of {fold!r}", predictions)
    if not is_shaped(array, len(fold.valid)):
        raise ArgumentError(
            f"The predictions of {fold!r} must be [n], or [n, C] for 2 or more classes, with n={len(fold.valid)} rows, "
            f"got {list(array.shape)}."
        )
    return FoldPredictions(fold.folds.fingerprint, fold.repeat, fold.number, array)


def out_of_fold(folds: Folds, targets: ArrayLike, parts: Iterable[FoldPredictions]) -> OutOfFold:
    """Combine the predictions of all folds into arrays in row order.

    Raises `ArgumentError` if predictions belong to other folds than `folds`, if a fold is missing or occurs twice, or if shapes differ.

    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> folds = custom([0, 1, 0, -1])
    >>> first, second = folds
    >>> out_of_fold(folds, [0, 1, 1, 0], [fold_predictions(second, [0.5]), fold_predictions(first, [0.2, 0.4])]).predictions.tolist()
    [[0.2, 0.5, 0.4, nan]]
    """
    check_types(Folds, folds=folds)
    truth = finite_numbers("The targets", targets)
    if truth.ndim not in (1, 2) or len(truth) != folds.size:
        raise ArgumentError(f"The targets must be [N] or [N, T] for the {folds.size} rows of the folds, got {list(truth.shape)}.")
    known: dict[tuple[int, int], Numbers] = {}
    for part in parts:
        if part.folds != folds.fingerprint:
            raise ArgumentError(
                f"{part!r} belongs to other folds: got the fingerprint {part.folds}, expected {folds.fingerprint}. "
                "Predict with the same folds. Otherwise a model has trained on the validation rows of another model."
            )
        if (part.repeat, part.number) in known:
            raise ArgumentError(f"{part!r} is a duplicate. Pass the predictions of each fold only once per repeat.")
        known[part.repeat, part.number] = part.predictions
    missing = [repr(fold) for fold in folds if (fold.repeat, fold.number) not in known]
    if missing:
        raise ArgumentError(f"There are no predictions of {', '.join(missing)}. Run the missing folds first.")
    shapes = {array.shape[1:] for array in known.values()}
    if len(shapes) > 1:
        raise ArgumentError(
            f"The predictions of all folds must have the same shape, got {', '.join(str(['n', *shape]) for shape in shapes)}."
        )
    predictions = np.full((folds.repeats, folds.size, *shapes.pop()), np.nan)
    for fold in folds:
        predictions[fold.repeat, fold.valid] = known[fold.repeat, fold.number]
    return OutOfFold(folds, truth, predictions)


@frozen
class Score:
    """Metric values of out-of-fold predictions, per fold and overall. Returned by `score`.

    An undefined metric is NaN, for example roc_auc in a fold with only one class. Mean and standard deviation ignore NaN.

    >>> Score("accuracy", (0.75, 0.85), 0.8)
    accuracy 0.8000, in folds 0.8000 +- 0.0707
    """

    metric: str
    folds: tuple[float, ...]
    overall: float

    @property
    def mean(self) -> float:
        """Mean over the folds with a score; NaN if no fold has a score."""
        return float(np.mean(known)) if (known := self._known) else float("nan")

    @property
    def sd(self) -> float:
        """Sample standard deviation over folds; NaN for a single fold."""
        return float(np.std(known, ddof=1)) if len(known := self._known) > 1 else float("nan")

    @property
    def _known(self) -> list[float]:
        return [value for value in self.folds if not isnan(value)]

    def __repr__(self) -> str:
        folds = f", in folds {self.mean:.4f} +- {self.sd:.4f}" if len(self.folds) > 1 else ""
        return f"{self.metric} {self.overall:.4f}{folds}"

    def _repr_html_(self) -> str:
        """Render the scores as HTML bars for notebooks, one bar per fold."""
        longest = max(map(abs, self._known), default=0.0) or 1.0
        bars = ("" if isnan(value) else share_bar(abs(value) / longest) for value in self.folds[:_FOLDS])
        rows = list(zip(range(1, _FOLDS + 1), self.folds, bars, strict=False))
        more = [element("p", f"and {len(self.folds) - _FOLDS:,} more folds", class_="muted")] if len(self.folds) > _FOLDS else []
        return fragment(
            element("p", clip(self, 300)), element("div", table(["fold", clip(self.metric, 60), ""], rows), class_="scroll"), *more
        )


def score_in(numbers: Mapping[str, Any]) -> Score | None:
    """Return the score in the content of a `metrics.json`, or None if the metric is undefined. In JSON, an undefined fold score is null."""
    if "oof" not in numbers:
        return None
    folds = tuple(float("nan") if value is None else value for value in numbers["folds"])
    return Score(numbers["metric"], folds, numbers["oof"])


def score(oof: OutOfFold, metric: Metric) -> Score:
    """Score out-of-fold predictions in each fold, and over all validation rows.

    With repeats, the overall score is the mean over repeats. Raises `DataError` if the metric is undefined over all rows.

    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> import mlxfp as fp
    >>> folds = custom([0, 1, 0, 1])
    >>> parts = [fold_predictions(fold, values) for fold, values in zip(folds, ([0.2, 0.4], [0.5, 0.9]))]
    >>> score(out_of_fold(folds, [0, 1, 1, 1], parts), fp.kaggle.METRICS["accuracy"]).folds
    (0.5, 0.5)
    """
    check_types(OutOfFold, oof=oof)
    check_types(Metric, metric=metric)
    folds = tuple(_in_fold(metric, oof, fold) for fold in oof.folds)
    overall = [
        metric(oof.targets[assigned >= 0], predictions[assigned >= 0])
        for assigned, predictions in zip(oof.folds.assignments, oof.predictions, strict=True)
    ]
    return Score(metric.name, folds, float(np.mean(overall)))


def _in_fold(metric: Metric, oof: OutOfFold, fold: Fold) -> float:
    try:
        return metric(*oof.of(fold))
    except DataError:
        return float("nan")


@frozen
class Comparison:
    """Score difference between two runs in units of the metric: mean, standard deviation over folds, and a 95 % interval.

    The difference is undecided if the interval contains 0 or if there are only two folds.

    >>> Comparison("accuracy", (0.02, 0.0), 0.01, 0.014, -0.1, 0.12)
    accuracy undecided, +0.0100 (above 0 is better; two folds allow no useful interval: use at least 3 folds), SD 0.0140 over 2 folds
    >>> Comparison("accuracy", (0.02, 0.0, 0.01), 0.01, 0.01, -0.02, 0.04)
    accuracy undecided, +0.0100 (above 0 is better; 95 %: -0.0200 to +0.0400), SD 0.0100 over 3 folds
    >>> Comparison("accuracy", (0.02, 0.03, 0.01), 0.02, 0.01, 0.01, 0.03)
    accuracy better by 0.0200 (above 0 is better; 95 %: +0.0100 to +0.0300), SD 0.0100 over 3 folds
    """

    metric: str
    differences: tuple[float, ...]
    mean: float
    sd: float
    low: float
    high: float

    def __repr__(self) -> str:
        interval, decided = f"95 %: {self.low:+.4f} to {self.high:+.4f}", self.low > 0 or self.high < 0
        if len(self.differences) == 2:  # with one degree of freedom, the interval is too wide to be useful
            interval, decided = "two folds allow no useful interval: use at least 3 folds", False
        how = f"{'better' if self.mean > 0 else 'worse'} by {abs(self.mean):.4f}" if decided else f"undecided, {self.mean:+.4f}"
        how = how if any(self.differences) else "equal"
        return f"{self.metric} {how} (above 0 is better; {interval}), SD {self.sd:.4f} over {len(self.differences)} folds"


def compare(run: OutOfFold, baseline: OutOfFold, metric: Metric) -> Comparison:
    """Compare two runs fold by fold. Positive differences mean that `run` is better.

    The result contains the 95 % interval of Student's t. Folds share training rows, so the variance is corrected after Nadeau and
    Bengio, "Inference for the Generalization Error", 2003; the uncorrected interval is far too narrow. More repeats narrow the
    interval. Raises `ArgumentError` unless both runs have the same folds and targets.

    >>> from mlxfp.app.kaggle.validation.folds import kfold
    >>> import mlxfp as fp
    >>> folds, targets = kfold(40, count=4, seed=0), np.arange(40) % 2
    >>> good, poor = (
    ...     out_of_fold(folds, targets, [fold_predictions(fold, values[fold.valid]) for fold in folds])
    ...     for values in (targets, np.where(np.arange(40) < 8, 1 - targets, targets))
    ... )
    >>> compare(good, poor, fp.kaggle.METRICS["accuracy"])
    accuracy better by 0.2000 (above 0 is better; 95 %: ... to ...), SD ... over 4 folds
    """
    check_types(Metric, metric=metric)
    check_same((run, baseline))
    return compare_scores(score(run, metric), score(baseline, metric), metric, run.folds)


def compare_scores(run: Score, baseline: Score, metric: Metric, folds: Folds) -> Comparison:
    """Compare the scores of two runs on the same folds. See `compare`."""
    sign = 1 if metric.greater_is_better else -1
    differences = np.subtract(run.folds, baseline.folds) * sign
    count = len(differences)
    if np.isnan(differences).any():
        index = int(np.argmax(np.isnan(differences)))
        raise DataError(
            f"{metric.name} is undefined on fold {index + 1}: the runs cannot be compared. Choose another metric, or use stratified folds."
        )
    if count < 2:
        raise DataError("A comparison needs at least two folds, got one. Use more folds.")
    shared = np.mean([len(fold.valid) / len(fold.train) for fold in folds])
    t = optional("scipy.stats", extra="kaggle", needed_by="compare").t.ppf(0.975, count - 1)
    mean, sd = float(differences.mean()), float(differences.std(ddof=1))
    half = float(t * sd * np.sqrt(1 / count + shared))
    return Comparison(metric.name, tuple(differences.tolist()), mean, sd, mean - half, mean + half)


def check_same(oofs: Iterable[OutOfFold]) -> None:
    """Raise `ArgumentError` unless all predictions have the same folds and targets.

    With different folds, one model would have trained on validation rows of the other model.
    """
    first, *others = oofs
    for other in others:
        if other.folds.fingerprint != first.folds.fingerprint:
            raise ArgumentError(
                f"The out-of-fold predictions have different folds: {first.folds!r} ({first.folds.fingerprint}) and {other.folds!r} "
                f"({other.folds.fingerprint}). Use the same folds for both runs."
            )
        if not np.array_equal(first.targets, other.targets):
            row = int(np.argmax(first.targets != other.targets))
            raise ArgumentError(f"The out-of-fold predictions have different targets, first in row {row}. Use the same rows for both runs.")
