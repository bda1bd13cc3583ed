"""Regression metrics."""

from math import sqrt
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen

from mlxfp.evaluation.metrics.totals import Measured, added, joined, mean
from mlxfp.evaluation.rows import add, broadcast_weights, check_same_shape, differences
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import DataError


@explain_call
def mae(predictions: mx.array, targets: mx.array, *, example_weights: mx.array | None = None) -> tuple[mx.array, mx.array]:
    """Sum the absolute differences of predictions and targets. Return a pair (sum, number of values) of float32 scalars.

    `predictions` and `targets` are arrays of the same shape, [...]. `example_weights`, [B], contains a weight for each example. With
    weights, the second scalar is the sum of the weights of all values. Computed in float32, which rounds integers beyond 2**24. `mae` is
    also usable as a loss. Raises `ArgumentError` for arrays of different shapes.

    >>> total, values = mae(mx.array([1.0, 2.0]), mx.array([1.0, 4.0]))
    >>> total.item(), values.item()
    (2.0, 2.0)
    """
    errors, weights = differences("mae", predictions, targets, example_weights)
    return add(errors.abs(), weights)


@explain_call
def rmse(predictions: mx.array, targets: mx.array, *, example_weights: mx.array | None = None) -> "RootOfMean":
    """Sum the squared differences of a batch for the root mean squared error (RMSE). `compute` returns the RMSE.

    The arguments are the same as for `mae`. With `mx.log1p(predictions)` and `mx.log1p(targets)` as arguments, the result is RMSLE.

    >>> import mlxfp as fp
    >>> fp.metrics.compute({"rmse": fp.metrics.rmse(mx.array([1.0, 2.0]), mx.array([1.0, 4.0]))})
    {'rmse': 1.4142135623730951}
    """
    errors, weights = differences("rmse", predictions, targets, example_weights)
    return RootOfMean(*add(errors.square(), weights))


@explain_call
def r2(predictions: mx.array, targets: mx.array, *, example_weights: mx.array | None = None) -> "Explained":
    """Collect predictions and targets of a batch for the coefficient of determination (R2). `compute` returns R2.

    R2 is the explained share of the target variance: 1 is perfect, 0 is as good as predicting the mean. The arguments are the same as
    for `mae`. Arrays of any shape are flattened. `compute` raises `DataError` if all targets are equal.

    All values are kept in memory, 24 bytes each, until `compute` knows the mean. Sums of squares would need less memory, but lose the
    variance of large targets by rounding.

    >>> import mlxfp as fp
    >>> fp.metrics.compute({"r2": fp.metrics.r2(mx.array([1.0, 2.0, 4.0]), mx.array([1.0, 2.0, 3.0]))})
    {'r2': 0.5}
    """
    predictions, targets = check_same_shape("r2", predictions, targets)
    return Explained(predictions.reshape(-1), targets.reshape(-1), broadcast_weights("r2", example_weights, targets.shape).reshape(-1))


@frozen
class RootOfMean(Measured):
    """Totals for `rmse`: the weighted sum of the squared differences, and the sum of the weights."""

    total: Any
    weight: Any

    join = staticmethod(added)

    def value(self, name: str) -> float:
        """Return the root of the mean squared difference."""
        return sqrt(mean(name, self.total, self.weight))


@frozen
class Explained(Measured):
    """Arrays collected for `r2`: predictions, targets and weights of all examples, float[N] each.

    >>> Explained(np.array([1.0, 2.0]), np.array([1.0, 2.0]), np.ones(2)).value("r2")
    1.0
    """

    predictions: Any
    targets: Any
    weights: Any

    join = staticmethod(joined)

    def value(self, name: str) -> float:
        """Return R2: 1 - (squared errors of the predictions) / (squared distances of the targets from their mean)."""
        kept = self.weights != 0
        predictions, targets, weights = self.predictions[kept], self.targets[kept], self.weights[kept]
        if len(np.unique(targets)) < 2:
            raise DataError(f"The metric {name!r} needs different targets, got {len(targets)} equal targets. Evaluate on more examples.")
        around = targets - np.average(targets, weights=weights)
        return float(1 - np.sum(weights * (predictions - targets) ** 2) / np.sum(weights * around**2))
