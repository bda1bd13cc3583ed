"""What out-of-fold predictions say about a model, as numbers: confusion, calibration, the worst mistakes."""

from typing import Any

import numpy as np
from attrs import frozen

from mlxfp.app.kaggle.validation.scoring import Numbers
from mlxfp.app.reports.reading import Scored
from mlxfp.support.html import number

_BINS = 10


@frozen
class Bin:
    """Predictions of about the same probability: the mean of them, how often they were right, and how many there are."""

    predicted: float
    observed: float
    count: int


@frozen
class Mistake:
    """A row that the model got wrong: its number and id, the truth, the prediction, and how sure or how far off that was."""

    row: int
    id: str
    truth: str
    prediction: str
    size: float


def confusion(scored: Scored) -> dict[tuple[int, int], int]:
    """Count the rows of each pair of a class and the class that was predicted, of the pairs that there are."""
    pairs, counts = np.unique(np.stack([scored.targets, scored.labels]).astype(np.int64), axis=1, return_counts=True)
    return {(truth, made): count for truth, made, count in zip(*pairs.tolist(), counts.tolist(), strict=True)}


def calibration(scored: Scored) -> list[Bin]:
    """Compare probabilities with what happened, in ten intervals: of class 1 of two, of the likeliest class of several."""
    if not scored.single:
        chances, happened = scored.predictions[scored.known].ravel(), scored.targets.ravel()
    elif scored.chances.shape[1] == 2:
        chances, happened = scored.chances[:, 1], scored.targets
    else:
        chances, happened = scored.chances.max(axis=1), scored.chances.argmax(axis=1) == scored.targets
    places = np.clip((chances * _BINS).astype(np.int64), 0, _BINS - 1)
    inside = [places == place for place in range(_BINS)]
    return [Bin(float(chances[rows].mean()), float(happened[rows].mean()), int(rows.sum())) for rows in inside if rows.any()]


def calibration_error(bins: list[Bin]) -> float:
    """Return the mean distance of probabilities from what happened, weighted by rows (expected calibration error)."""
    return sum(each.count * abs(each.predicted - each.observed) for each in bins) / max(1, sum(each.count for each in bins))


def class_counts(scored: Scored) -> dict[str, int]:
    """Count the rows of each class; of several labels, the rows that have each."""
    targets = scored.oof.targets
    if not scored.spec.task.one_class:
        return dict(zip(scored.spec.target, targets.sum(axis=0).astype(int).tolist(), strict=True))
    counts = np.bincount(targets.astype(np.int64), minlength=len(scored.spec.classes))
    return dict(zip(scored.spec.classes, counts.tolist(), strict=True))


def mistakes(scored: Scored, count: int) -> list[Mistake]:
    """Find the worst mistakes: wrong classes that the model was most sure of, values that are farthest off; the worst first."""
    sizes, names = row_losses(scored), scored.spec.classes
    rows = np.flatnonzero(scored.known)
    order = np.argsort(-sizes, kind="stable")
    if scored.single:
        wrong = scored.labels != scored.targets
        order = order[wrong[order]]
    truths, made = scored.targets, scored.predictions[scored.known]

    def said(place: int) -> tuple[str, str]:
        if scored.single:
            label = int(scored.labels[place])
            return names[int(truths[place])], f"{names[label]} ({scored.chances[place, label]:.3f})"
        return _values(truths[place]), _values(made[place])

    return [Mistake(int(rows[place]), scored.ids[rows[place]], *said(place), float(sizes[place])) for place in order[:count]]


def row_losses(scored: Scored) -> Numbers:
    """Return how wrong each prediction is, of rows with one: float64[n]; 1 minus the probability of the truth, or the distance from it."""
    if scored.single:
        return 1 - scored.chances[np.arange(len(scored.targets)), scored.targets.astype(np.int64)]
    distance = np.abs(scored.predictions[scored.known] - scored.targets)
    return np.asarray(distance if distance.ndim == 1 else distance.max(axis=1))


def _values(values: Any) -> str:
    shown = np.atleast_1d(np.asarray(values, np.float64))[:8].tolist()
    said = ", ".join(number(int(value) if value.is_integer() else value) for value in shown)
    return said + (", …" if np.size(values) > 8 else "")
