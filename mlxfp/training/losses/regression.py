"""Losses for numbers."""

import mlx.core as mx

from mlxfp.evaluation.rows import add, broadcast_weights, check_same_shape
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import ArgumentError


@explain_call
def mse(predictions: mx.array, targets: mx.array, *, example_weights: mx.array | None = None) -> tuple[mx.array, mx.array]:
    """Add up the squared differences: (sum, values counted), two float32 scalars.

    Each value counts as much as its example in `example_weights`, [B]: 1 if there are none. Raises `ArgumentError` unless the shapes
    are equal: [B, 1] and [B] would broadcast to [B, B] and train on nonsense.

    >>> total, weight = mse(mx.array([1.0, 2.0]), mx.array([1.0, 4.0]))
    >>> total.item(), weight.item()
    (4.0, 2.0)
    """
    predictions, targets = check_same_shape("mse", predictions, targets)
    return add((predictions - targets).square(), broadcast_weights("mse", example_weights, targets.shape))


@explain_call
def huber(
    predictions: mx.array, targets: mx.array, *, delta: float = 1.0, example_weights: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Add up d² / 2 of differences up to `delta`, and delta (|d| - delta / 2) of larger ones; arguments as those of `mse`.

    Huber, "Robust Estimation of a Location Parameter", 1964.

    >>> total, weight = huber(mx.array([1.0, 2.0]), mx.array([2.0, 5.0]))
    >>> total.item(), weight.item()
    (3.0, 2.0)
    """
    if not delta > 0:
        raise ArgumentError(f"delta must be above 0, got delta={delta!r}.")
    predictions, targets = check_same_shape("huber", predictions, targets)
    size = (predictions - targets).abs()
    near = mx.minimum(size, delta)  # so that a huge difference is not squared
    return add(near * (size - near / 2), broadcast_weights("huber", example_weights, targets.shape))
