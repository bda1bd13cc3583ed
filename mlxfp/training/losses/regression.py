"""Regression losses."""

import mlx.core as mx

from mlxfp.evaluation.rows import add, differences
from mlxfp.support.checks import check_number, explain_call
from mlxfp.support.errors import ArgumentError


@explain_call
def mse(predictions: mx.array, targets: mx.array, *, example_weights: mx.array | None = None) -> tuple[mx.array, mx.array]:
    """Return two float32 scalars: the sum of the squared differences, and the number of values.

    The argument `example_weights`, [B], gives each example a weight in both scalars. Integers above 2**24 are rounded to float32.
    Raises `ArgumentError` for different shapes, because [B, 1] and [B] would broadcast to [B, B] and give a wrong loss.

    >>> total, weight = mse(mx.array([1.0, 2.0]), mx.array([1.0, 4.0]))
    >>> total.item(), weight.item()
    (4.0, 2.0)
    """
    errors, weights = differences("mse", predictions, targets, example_weights)
    return add(errors.square(), weights)


@explain_call
def huber(
    predictions: mx.array, targets: mx.array, *, delta: float = 1.0, example_weights: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Sum the Huber loss of the differences d: d² / 2 if |d| is at most `delta`, else delta (|d| - delta / 2). Arguments as in `mse`.

    Huber, "Robust Estimation of a Location Parameter", 1964.

    >>> total, weight = huber(mx.array([1.0, 2.0]), mx.array([2.0, 5.0]))
    >>> total.item(), weight.item()
    (3.0, 2.0)
    """
    check_number(delta=delta)
    if not delta > 0:
        raise ArgumentError(f"delta must be above 0, got delta={delta!r}.")
    errors, weights = differences("huber", predictions, targets, example_weights)
    size = errors.abs()
    near = mx.minimum(size, float(delta))  # only small differences are squared, because the square of a huge difference is infinite
    return add(near * (size - near / 2), weights)
