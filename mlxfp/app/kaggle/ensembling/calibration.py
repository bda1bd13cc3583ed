"""Calibration of probabilities and tuning of decisions, learned from out-of-fold predictions."""

from functools import partial
from typing import Any

import numpy as np
from attrs import frozen

from mlxfp.app.kaggle.ensembling.stacking import Combine, Learn
from mlxfp.app.kaggle.validation.scoring import Metric, Numbers
from mlxfp.support.checks import check_types
from mlxfp.support.errors import ArgumentError
from mlxfp.support.optional import optional

_CANDIDATES = 200
# Candidate factors for the weight of a class. The search keeps the factor with the best score.
_FACTORS = tuple(2.0**power for power in (-2, -1, -0.5, 0.5, 1, 2))
_PASSES = 2
_ROWS = 5000  # class weights are tuned on at most 5,000 evenly spaced rows, which limits the time for computing the metric


def platt() -> Learn:
    """Return a learner for `second_stage` that fits a logistic curve to the log-odds of predictions.

    The curve has two parameters and needs a few hundred rows. For several classes, one curve is fitted per class, and the probabilities of
    a row are scaled to sum to 1.

    Source: Platt, "Probabilistic Outputs for Support Vector Machines", 1999.

    >>> chances = np.linspace(0.05, 0.95, 50)
    >>> calibrated = platt()((chances > 0.5).astype(float), (chances,))
    >>> calibrated((np.array([0.2, 0.8]),)).round(2).tolist()
    [0.0, 1.0]
    """
    return _calibrate


def threshold(metric: Metric) -> Learn:
    """Return a function for `second_stage` that learns the best probability threshold of class 1 for `metric`, for example F1.

    Up to 200 quantiles of the probabilities are tried. The middle of all equally good thresholds is returned.

    >>> import mlxfp as fp
    >>> learned = threshold(fp.kaggle.METRICS["f1"])(np.array([0.0, 0.0, 1.0, 1.0]), (np.array([0.1, 0.2, 0.3, 0.4]),))
    >>> learned
    Threshold(value=0.25)
    """
    _check_labels(metric, "A threshold needs", "the threshold")
    return partial(_tune, metric)


@frozen
class Threshold:
    """Probability threshold learned by `threshold`. Rows with a higher probability have class 1.

    >>> Threshold(0.3)((np.array([0.2, 0.3, 0.4]),)).tolist()
    [0.0, 0.0, 1.0]
    """

    value: float

    def __call__(self, predictions: tuple[Numbers, ...]) -> Numbers:
        """Return labels, float64[n]: 1.0 for probabilities of class 1 above the threshold, otherwise 0.0."""
        return (_positive(predictions) > self.value).astype(np.float64)


def class_weights(metric: Metric) -> Learn:
    """Return a function for `second_stage` that learns the best factor of each class for `metric`, for example macro F1.

    The factors multiply the class probabilities. Without factors, the prediction is the likeliest class, as accuracy requires.
    Metrics such as macro F1 are often higher if rare classes are predicted more often. All factors start at 1. The search makes two
    passes over the classes. Each factor is multiplied by six values between 1/4 and 4, and the factor with the best score is kept.

    >>> import mlxfp as fp
    >>> chances = np.array([[0.5, 0.3, 0.2], [0.5, 0.2, 0.3], [0.6, 0.4, 0.0], [0.7, 0.1, 0.2]])
    >>> learned = class_weights(fp.kaggle.METRICS["f1_macro"])(np.array([1.0, 2.0, 1.0, 0.0]), (chances,))
    >>> learned((chances,)).argmax(axis=1).tolist()
    [1, 2, 1, 0]

    See also: `threshold`, for two classes.
    """
    _check_labels(metric, "Class weights need", "the class weights")
    return partial(_weigh, metric)


@frozen
class ClassWeights:
    """One weight for each class, learned by `class_weights`. The weights multiply the predicted class probabilities.

    >>> ClassWeights((1.0, 3.0, 1.0))((np.array([[0.5, 0.25, 0.25]]),)).round(3).tolist()
    [[0.333, 0.5, 0.167]]
    """

    factors: tuple[float, ...]

    def __call__(self, predictions: tuple[Numbers, ...]) -> Numbers:
        """Multiply each class probability of one model, float64[n, C], by the factor of its class, and scale each row to sum to 1."""
        return _normalized(_of_classes(predictions) * np.array(self.factors))


def _check_labels(metric: Metric, subject: str, remove: str) -> None:
    check_types(Metric, metric=metric)
    if metric.needs != "labels":
        raise ArgumentError(f"{subject} a metric that scores labels, but {metric.name} scores {metric.needs}. Remove {remove}.")


def _normalized(weights: Numbers) -> Numbers:
    """Scale each row of non-negative weights, float64[n, C], to the sum 1. In a row of zeros, each value becomes 1 / C."""
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(np.where(total > 0, weights / np.where(total > 0, total, 1), 1 / weights.shape[1]))


def _of_classes(predictions: tuple[Numbers, ...]) -> Numbers:
    chances = _single_model("Class weights", predictions)
    if chances.ndim != 2:
        raise ArgumentError(f"Class weights need probabilities of every class, [N, C], got {list(chances.shape)}.")
    return chances


def _weigh(metric: Metric, targets: Numbers, predictions: tuple[Numbers, ...]) -> Combine:
    chances = _of_classes(predictions)
    rows = np.unique(np.linspace(0, len(chances) - 1, min(len(chances), _ROWS)).astype(np.int64))
    known, truth, factors = chances[rows], targets[rows], np.ones(chances.shape[1])
    best = metric(truth, known.argmax(axis=1))
    for kind in [*range(len(factors))] * _PASSES:
        candidates = np.repeat(factors[None], len(_FACTORS), axis=0)
        candidates[:, kind] *= _FACTORS
        for candidate in candidates:
            if metric.better(value := metric(truth, (known * candidate).argmax(axis=1)), best):
                best, factors = value, candidate
    return ClassWeights(tuple(factors.tolist()))


def _single_model(function: str, predictions: tuple[Numbers, ...]) -> Numbers:
    if len(predictions) != 1:
        raise ArgumentError(
            f"{function} takes predictions of one model, got {len(predictions)} models. Combine the predictions first: ensembles.mean."
        )
    return predictions[0]


def _calibrate(targets: Numbers, predictions: tuple[Numbers, ...]) -> Combine:
    chances = _single_model("Calibration", predictions)
    if chances.ndim == 1:
        return Calibrated((_fit_curve(targets, chances),))
    return Calibrated(tuple(_fit_curve((targets == kind).astype(float), column) for kind, column in enumerate(chances.T)))


@frozen
class Calibrated:
    """Calibration learned by `platt`: a single curve, or one curve per class."""

    curves: tuple["Logistic", ...]

    def __call__(self, predictions: tuple[Numbers, ...]) -> Numbers:
        """Calibrate the probabilities of one model, float64[n] or [n, C]."""
        chances = _single_model("Calibration", predictions)
        if chances.ndim == 1:
            return np.asarray(self.curves[0](chances))
        return _normalized(np.stack([curve(column) for curve, column in zip(self.curves, chances.T, strict=True)], axis=1))


@frozen
class Logistic:
    """Logistic curve of the log-odds."""

    slope: float
    intercept: float

    def __call__(self, chances: Numbers) -> Numbers:
        return np.asarray(1 / (1 + np.exp(-np.clip(self.slope * _log_odds(chances) + self.intercept, -500, 500))), np.float64)


def _fit_curve(targets: Numbers, chances: Numbers) -> Logistic:
    model: Any = optional("sklearn.linear_model", extra="kaggle", needed_by="platt").LogisticRegression(C=1e6)
    model.fit(_log_odds(chances)[:, None], targets)
    return Logistic(float(model.coef_[0, 0]), float(model.intercept_[0]))


def _log_odds(chances: Numbers) -> Numbers:
    inside = np.clip(chances, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(inside / (1 - inside)), np.float64)


def _positive(predictions: tuple[Numbers, ...]) -> Numbers:
    """Return the probabilities of class 1, [n], from a single array [n] or [n, 2]."""
    chances = _single_model("A threshold", predictions)
    if chances.ndim == 2 and chances.shape[1] != 2:
        raise ArgumentError(f"A threshold needs two classes, got {chances.shape[1]} classes. For more than two classes, use class_weights.")
    chances = chances[:, 1] if chances.ndim == 2 else chances
    if len(chances) and not (chances.min() >= 0 and chances.max() <= 1):
        raise ArgumentError(f"A threshold needs probabilities, got values from {chances.min():g} to {chances.max():g}.")
    return chances


def _tune(metric: Metric, targets: Numbers, predictions: tuple[Numbers, ...]) -> Combine:
    chances = _positive(predictions)
    levels = np.unique(np.quantile(chances, np.linspace(0, 1, _CANDIDATES + 1), method="nearest"))
    between = (levels[1:] + levels[:-1]) / 2 if len(levels) > 1 else np.array([0.5])
    scores = np.array([metric(targets, chances > level) for level in between])
    best = scores.max() if metric.greater_is_better else scores.min()
    equal = between[scores == best]
    return Threshold(float(equal[len(equal) // 2]))
