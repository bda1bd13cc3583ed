"""Out-of-fold predictions: each row predicted by a model that was not trained on it; scores and comparisons of runs."""

from collections.abc import Iterable
from math import isnan

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

_FOLDS = 50  # that a notebook shows


@frozen(repr=False)
class FoldPredictions:
    """The predictions of one fold's model for the validation rows of the fold, in their order; made by `fold_predictions`.

    `folds` is the fingerprint of the folds, `predictions` float64[n] or [n, C].

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
    """The predictions of all folds, with the folds and the targets; made by `out_of_fold`.

    `targets` is float64[N], or [N, T] for several columns; `predictions` is float64[R, N] or [R, N, C] for R repeats, NaN in rows that
    never validate.

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
        """Return the targets and predictions of the validation rows of one fold."""
        return self.targets[fold.valid], self.predictions[fold.repeat][fold.valid]

    def __repr__(self) -> str:
        return f"OutOfFold({self.folds!r})"


def fold_predictions(fold: Fold, predictions: ArrayLike) -> FoldPredictions:
    """Check the predictions of the rows `fold.valid`, [n] or [n, C], and label them with their fold."""
    array = finite_numbers(f"The predictions of {fold!r}", predictions)
    if not is_shaped(array, len(fold.valid)):
        raise ArgumentError(
            f"The predictions of {fold!r} must be [n], or [n, C] for 2 classes or more, for its {len(fold.valid)} rows, "
            f"got {list(array.shape)}."
        )
    return FoldPredictions(fold.folds.fingerprint, fold.repeat, fold.number, array)


def out_of_fold(folds: Folds, targets: ArrayLike, parts: Iterable[FoldPredictions]) -> OutOfFold:
    """Combine the predictions of all folds, each row in its place.

    Raises `ArgumentError` for predictions of other folds, for duplicate or missing folds, and where shapes differ.

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
                f"{part!r} belongs to other folds, {part.folds}, not to these, {folds.fingerprint}. Predictions of different folds "
                "cannot be mixed: one model has trained on the validation rows of another."
            )
        if (part.repeat, part.number) in known:
            raise ArgumentError(f"{part!r} is a duplicate. Every row is predicted once in a repeat.")
        known[part.repeat, part.number] = part.predictions
    missing = [repr(fold) for fold in folds if (fold.repeat, fold.number) not in known]
    if missing:
        raise ArgumentError(f"There are no predictions of {', '.join(missing)}. Run them too.")
    shapes = {array.shape[1:] for array in known.values()}
    if len(shapes) > 1:
        raise ArgumentError(f"The predictions of all folds must have one shape, got {', '.join(str(['n', *shape]) for shape in shapes)}.")
    predictions = np.full((folds.repeats, folds.size, *shapes.pop()), np.nan)
    for fold in folds:
        predictions[fold.repeat, fold.valid] = known[fold.repeat, fold.number]
    return OutOfFold(folds, truth, predictions)


@frozen
class Score:
    """A metric of out-of-fold predictions: in each fold, and overall; made by `score`.

    A fold where the metric is undefined, such as roc_auc of rows of one class, is NaN, and left out of mean and standard deviation.

    >>> Score("accuracy", (0.75, 0.85), 0.8)
    accuracy 0.8000, in folds 0.8000 +- 0.0707
    """

    metric: str
    folds: tuple[float, ...]
    overall: float

    @property
    def mean(self) -> float:
        """The mean over folds; NaN if no fold has a score."""
        return float(np.mean(known)) if (known := self._known) else float("nan")

    @property
    def sd(self) -> float:
        """The sample standard deviation over folds; NaN for one fold."""
        return float(np.std(known, ddof=1)) if len(known := self._known) > 1 else float("nan")

    @property
    def _known(self) -> list[float]:
        return [value for value in self.folds if not isnan(value)]

    def __repr__(self) -> str:
        folds = f", in folds {self.mean:.4f} +- {self.sd:.4f}" if len(self.folds) > 1 else ""
        return f"{self.metric} {self.overall:.4f}{folds}"

    def _repr_html_(self) -> str:
        """Show the folds in a notebook, as bars from zero."""
        longest = max(map(abs, self._known), default=0.0) or 1.0
        bars = ("" if isnan(value) else share_bar(abs(value) / longest) for value in self.folds[:_FOLDS])
        rows = list(zip(range(1, _FOLDS + 1), self.folds, bars, strict=False))
        more = [element("p", f"and {len(self.folds) - _FOLDS:,} more folds", class_="muted")] if len(self.folds) > _FOLDS else []
        return fragment(
            element("p", clip(self, 300)), element("div", table(["fold", clip(self.metric, 60), ""], rows), class_="scroll"), *more
        )


def score(oof: OutOfFold, metric: Metric) -> Score:
    """Score out-of-fold predictions: in each fold, and over all validation rows (with repeats, the mean over them).

    Raises `DataError` if the metric is undefined over all rows.

    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> from mlxfp.app.kaggle.validation.scoring import METRICS
    >>> folds = custom([0, 1, 0, 1])
    >>> parts = [fold_predictions(fold, values) for fold, values in zip(folds, ([0.2, 0.4], [0.5, 0.9]))]
    >>> score(out_of_fold(folds, [0, 1, 1, 1], parts), METRICS["accuracy"]).folds
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
    """How much better one run is than another, in the metric's units: mean and standard deviation over folds, and an interval.

    >>> Comparison("accuracy", (0.02, 0.0), 0.01, 0.014, -0.1, 0.12)
    accuracy better by 0.0100 (95 %: -0.1000 to +0.1200), SD 0.0140 over 2 folds
    """

    metric: str
    differences: tuple[float, ...]
    mean: float
    sd: float
    low: float
    high: float

    def __repr__(self) -> str:
        how = f"{'better' if self.mean > 0 else 'worse'} by {abs(self.mean):.4f}" if self.mean else "neither better nor worse"
        interval = f"95 %: {self.low:+.4f} to {self.high:+.4f}{', above 0 is better' if self.mean <= 0 else ''}"
        return f"{self.metric} {how} ({interval}), SD {self.sd:.4f} over {len(self.differences)} folds"


def compare(run: OutOfFold, baseline: OutOfFold, metric: Metric) -> Comparison:
    """Compare two runs fold by fold; positive differences mean that `run` is better.

    The interval is the 95 % interval of Student's t, with the variance corrected for training rows that folds share (Nadeau and Bengio,
    "Inference for the Generalization Error", 2003): without the correction it is far too narrow. More repeats make it narrower.
    Raises `ArgumentError` unless both runs have the same folds and targets.

    >>> from mlxfp.app.kaggle.validation.folds import kfold
    >>> from mlxfp.app.kaggle.validation.scoring import METRICS
    >>> folds, targets = kfold(40, count=4, seed=0), np.arange(40) % 2
    >>> good, poor = (
    ...     out_of_fold(folds, targets, [fold_predictions(fold, values[fold.valid]) for fold in folds])
    ...     for values in (targets, np.where(np.arange(40) < 8, 1 - targets, targets))
    ... )
    >>> compare(good, poor, METRICS["accuracy"])
    accuracy better by 0.2000 (95 %: ... to ...), SD ... over 4 folds
    """
    check_types(Metric, metric=metric)
    check_same((run, baseline))
    return compare_scores(score(run, metric), score(baseline, metric), metric, run.folds)


def compare_scores(run: Score, baseline: Score, metric: Metric, folds: Folds) -> Comparison:
    """Compare the scores of two runs in the same folds, as `compare` does."""
    sign = 1 if metric.greater_is_better else -1
    differences = np.subtract(run.folds, baseline.folds) * sign
    count = len(differences)
    if np.isnan(differences).any():
        place = int(np.argmax(np.isnan(differences)))
        raise DataError(
            f"{metric.name} is undefined on fold {place + 1}, so it cannot compare the runs. Choose another metric, or stratify."
        )
    if count < 2:
        raise DataError("A comparison needs at least two folds, got one. Use more folds.")
    shared = np.mean([len(fold.valid) / len(fold.train) for fold in folds])
    t = optional("scipy.stats", extra="kaggle", needed_by="compare").t.ppf(0.975, count - 1)
    mean, sd = float(differences.mean()), float(differences.std(ddof=1))
    half = float(t * sd * np.sqrt(1 / count + shared))
    return Comparison(metric.name, tuple(differences.tolist()), mean, sd, mean - half, mean + half)


def check_same(oofs: Iterable[OutOfFold]) -> None:
    """Raise `ArgumentError` unless folds and targets are the same: else one model has trained on the validation rows of another."""
    first, *others = oofs
    for other in others:
        if other.folds.fingerprint != first.folds.fingerprint:
            raise ArgumentError(
                f"Out-of-fold predictions are of different folds: {first.folds!r} ({first.folds.fingerprint}) and {other.folds!r} "
                f"({other.folds.fingerprint}). Run both with the same folds."
            )
        if not np.array_equal(first.targets, other.targets):
            row = int(np.argmax(first.targets != other.targets))
            raise ArgumentError(f"Out-of-fold predictions are of different targets, first in row {row}. Run both on the same rows.")
