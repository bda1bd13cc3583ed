"""Diagnostics of out-of-fold predictions: confusion, calibration and the worst mistakes."""

from typing import Any

import numpy as np
from attrs import frozen

from mlxfp.app.kaggle.validation.scoring import Numbers
from mlxfp.app.reports.reading import Scored
from mlxfp.support.html import number

_BINS = 10


@frozen
class Bin:
    """Calibration bin: mean predicted probability, observed share of the class, and number of predictions."""

    predicted: float
    observed: float
    count: int


@frozen
class Mistake:
    """Wrongly predicted row: index, id, truth, prediction, and the probability of the wrong class or the size of the error."""

    row: int
    id: str
    truth: str
    prediction: str
    size: float


def confusion(scored: Scored) -> dict[tuple[int, int], int]:
    """Return the number of rows for each pair (true class, predicted class). Pairs without rows are left out."""
    pairs, counts = np.unique(np.stack([scored.targets, scored.labels]).astype(np.int64), axis=1, return_counts=True)
    return {(truth, predicted): count for truth, predicted, count in zip(*pairs.tolist(), counts.tolist(), strict=True)}


def calibration(scored: Scored) -> list[Bin]:
    """Return calibration bins for ten probability intervals.

    For two classes, the bins hold the probability of class 1. For more classes, the bins hold the probability of the likeliest class.
    """
    if not scored.single:
        chances, happened = scored.predictions[scored.known].ravel(), scored.targets.ravel()
    elif scored.chances.shape[1] == 2:
        chances, happened = scored.chances[:, 1], scored.targets
    else:
        chances, happened = scored.chances.max(axis=1), scored.chances.argmax(axis=1) == scored.targets
    bins = np.clip((chances * _BINS).astype(np.int64), 0, _BINS - 1)
    inside = [bins == index for index in range(_BINS)]
    return [Bin(float(chances[rows].mean()), float(happened[rows].mean()), int(rows.sum())) for rows in inside if rows.any()]


def calibration_error(bins: list[Bin]) -> float:
    """Return the expected calibration error: mean distance between predicted probability and observed share, weighted by rows."""
    return sum(value.count * abs(value.predicted - value.observed) for value in bins) / max(1, sum(value.count for value in bins))


def class_counts(scored: Scored) -> dict[str, int]:
    """Return the number of rows per class. Rows with several labels count once for each label."""
    targets = scored.oof.targets
    if not scored.spec.task.one_class:
        return dict(zip(scored.spec.target, targets.sum(axis=0).astype(int).tolist(), strict=True))
    counts = np.bincount(targets.astype(np.int64), minlength=len(scored.spec.classes))
    return dict(zip(scored.spec.classes, counts.tolist(), strict=True))


def mistakes(scored: Scored, count: int) -> list[Mistake]:
    """Return the worst mistakes: for classes, the wrong predictions with the highest confidence; for values, the largest errors."""
    names = scored.spec.classes
    sizes = scored.chances[np.arange(len(scored.labels)), scored.labels.astype(np.int64)] if scored.single else row_losses(scored)
    rows = np.flatnonzero(scored.known)
    order = np.argsort(-sizes, kind="stable")
    if scored.single:
        wrong = scored.labels != scored.targets
        order = order[wrong[order]]
    truths, predictions = scored.targets, scored.predictions[scored.known]

    def described(index: int) -> tuple[str, str]:
        if scored.single:
            label = int(scored.labels[index])
            return names[int(truths[index])], f"{names[label]} ({scored.chances[index, label]:.3f})"
        return _values(truths[index]), _values(predictions[index])

    return [Mistake(int(rows[index]), scored.ids[rows[index]], *described(index), float(sizes[index])) for index in order[:count]]


def row_losses(scored: Scored) -> Numbers:
    """Return the prediction error of each row with a prediction: float64[n].

    For class probabilities, the error is 1 minus the probability of the true class. Otherwise, the error is the largest distance
    between a prediction and its target, or between their logarithms for a metric of logarithms such as RMSLE.
    """
    if scored.single:
        return 1 - scored.chances[np.arange(len(scored.targets)), scored.targets.astype(np.int64)]
    values = [scored.predictions[scored.known], scored.targets]
    if scored.metric.errors == "logarithmic":
        values = [np.log1p(np.maximum(value, 0)) for value in values]
    distance = np.abs(values[0] - values[1])
    return np.asarray(distance if distance.ndim == 1 else distance.max(axis=1))


def _values(values: Any) -> str:
    shown = np.atleast_1d(np.asarray(values, np.float64))[:8].tolist()
    text = ", ".join(number(int(value) if value.is_integer() else value) for value in shown)
    return text + (", …" if np.size(values) > 8 else "")
