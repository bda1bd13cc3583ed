"""Calibration of probabilities, learned from out-of-fold predictions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from attrs import field, frozen

from mlxfp.core._optional import optional
from mlxfp.core.identity import fingerprint
from mlxfp.kaggle.ensembling.stacking import Combine, Learn, only
from mlxfp.kaggle.validation.scoring import Numbers

Curve = Callable[[Numbers], Numbers]


def platt() -> Learn:
    """Fit a logistic curve to the log-odds of the predictions; for `second_stage`. It has two parameters, so a few hundred rows suffice.

    Platt, "Probabilistic Outputs for Support Vector Machines", 1999. Several classes are calibrated one by one and scaled to sum to 1.

    >>> chances = np.linspace(0.05, 0.95, 50)
    >>> calibrated = platt()((chances > 0.5).astype(float), (chances,))
    >>> calibrated((np.array([0.2, 0.8]),)).round(2).tolist()
    [0.0, 1.0]

    See also: `isotonic`, a curve of any rising shape, for thousands of rows.
    """
    return partial(_calibrate, _fit_platt)


def isotonic() -> Learn:
    """Fit a rising step function to the predictions; for `second_stage`. It has any rising shape, and needs a thousand rows or more.

    Zadrozny and Elkan, "Transforming Classifier Scores into Accurate Multiclass Probability Estimates", 2002; scikit-learn's
    IsotonicRegression. Several classes are calibrated one by one and scaled to sum to 1.

    >>> calibrated = isotonic()(np.array([0.0, 1.0, 0.0, 1.0]), (np.array([0.1, 0.2, 0.3, 0.4]),))
    >>> calibrated((np.array([0.1, 0.25, 0.9]),)).tolist()
    [0.0, 0.5, 1.0]
    """
    return partial(_calibrate, _fit_isotonic)


def _calibrate(fit: Callable[[Numbers, Numbers], Curve], targets: Numbers, predictions: tuple[Numbers, ...]) -> Combine:
    chances = only("Calibration", predictions)
    if chances.ndim == 1:
        return _Calibrated((fit(targets, chances),))
    return _Calibrated(tuple(fit((targets == kind).astype(float), column) for kind, column in enumerate(chances.T)))


@frozen
class _Calibrated:
    curves: tuple[Curve, ...]

    def __call__(self, predictions: tuple[Numbers, ...]) -> Numbers:
        chances = only("Calibration", predictions)
        if chances.ndim == 1:
            return self.curves[0](chances)
        each = np.stack([curve(column) for curve, column in zip(self.curves, chances.T, strict=True)], axis=1)
        total = each.sum(axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, each / np.where(total > 0, total, 1), 1 / each.shape[1]), np.float64)


@frozen
class _Platt:
    slope: float
    intercept: float

    def __call__(self, chances: Numbers) -> Numbers:
        return np.asarray(1 / (1 + np.exp(-np.clip(self.slope * _log_odds(chances) + self.intercept, -500, 500))), np.float64)


@frozen
class _Isotonic:
    knots: Numbers = field(eq=fingerprint)
    heights: Numbers = field(eq=fingerprint)

    def __call__(self, chances: Numbers) -> Numbers:
        return np.interp(chances, self.knots, self.heights)


def _fit_platt(targets: Numbers, chances: Numbers) -> Curve:
    model: Any = optional("sklearn.linear_model", extra="kaggle", needed_by="platt").LogisticRegression(C=1e6)
    model.fit(_log_odds(chances)[:, None], targets)
    return _Platt(float(model.coef_[0, 0]), float(model.intercept_[0]))


def _fit_isotonic(targets: Numbers, chances: Numbers) -> Curve:
    model: Any = optional("sklearn.isotonic", extra="kaggle", needed_by="isotonic").IsotonicRegression(y_min=0, y_max=1)
    model.fit(chances, targets)
    return _Isotonic(model.X_thresholds_, model.y_thresholds_)


def _log_odds(chances: Numbers) -> Numbers:
    inside = np.clip(chances, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(inside / (1 - inside)), np.float64)
