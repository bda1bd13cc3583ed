"""Thresholds of binary decisions, tuned on out-of-fold predictions."""

from functools import partial

import numpy as np
from attrs import frozen

from mlxfp.core.checks import check_types
from mlxfp.core.errors import ArgumentError
from mlxfp.kaggle.ensembling.stacking import Combine, Learn, only
from mlxfp.kaggle.validation.scoring import Metric, Numbers

_CANDIDATES = 200


def threshold(metric: Metric) -> Learn:
    """Find the probability above which a row is of class 1, so that `metric`, a metric of labels, is best; for `second_stage`.

    Up to 200 quantiles of the probabilities are tried; of equally good ones the middle one is chosen.

    >>> from mlxfp.kaggle.validation.scoring import METRICS
    >>> learned = threshold(METRICS["f1"])(np.array([0.0, 0.0, 1.0, 1.0]), (np.array([0.1, 0.2, 0.3, 0.4]),))
    >>> learned
    Threshold(value=0.25)
    """
    check_types(Metric, metric=metric)
    if metric.needs != "labels":
        raise ArgumentError(
            f"A threshold changes metrics of labels, got {metric.name}, a metric of {metric.needs}. Leave the threshold out."
        )
    return partial(_tune, metric)


@frozen
class Threshold:
    """The probability above which a row is of class 1; learned by `threshold`.

    >>> Threshold(0.3)((np.array([0.2, 0.3, 0.4]),)).tolist()
    [0.0, 0.0, 1.0]
    """

    value: float

    def __call__(self, predictions: tuple[Numbers, ...]) -> Numbers:
        """Turn probabilities of class 1 into labels, float64[n]."""
        return (_positive(predictions) > self.value).astype(np.float64)


def _positive(predictions: tuple[Numbers, ...]) -> Numbers:
    """Return the probabilities of class 1 of two, [n], from one array [n] or [n, 2]."""
    chances = only("A threshold", predictions)
    if chances.ndim == 2 and chances.shape[1] != 2:
        raise ArgumentError(f"A threshold is for two classes, got {chances.shape[1]}.")
    chances = chances[:, 1] if chances.ndim == 2 else chances
    if len(chances) and not (chances.min() >= 0 and chances.max() <= 1):
        raise ArgumentError(f"A threshold needs probabilities, got values from {chances.min():g} to {chances.max():g}.")
    return chances


def _tune(metric: Metric, targets: Numbers, predictions: tuple[Numbers, ...]) -> Combine:
    chances = _positive(predictions)
    levels = np.unique(np.quantile(chances, np.linspace(0, 1, _CANDIDATES + 1), method="nearest"))
    between = (levels[1:] + levels[:-1]) / 2 if len(levels) > 1 else np.array([0.5])
    scores = np.array([metric(targets, chances > each) for each in between])
    best = scores.max() if metric.greater_is_better else scores.min()
    equal = between[scores == best]
    return Threshold(float(equal[len(equal) // 2]))
