"""Losses, as a sum and a weight, never a mean: so accumulation, partitions of a batch and data parallelism average by weight."""

import mlx.core as mx

from mlxfp.core.errors import ArgumentError
from mlxfp.evaluation.metrics import class_labels


def cross_entropy(logits: mx.array, labels: mx.array, *, ignore_index: int = -100) -> tuple[mx.array, mx.array]:
    """Add up the negative log-likelihood of the labels: (sum, labels counted), two float32 scalars.

    `logits` are float[..., C], `labels` int[...]; labels of `ignore_index` do not count. Computed in float32 whatever the logits are.
    A label outside [0, C) makes the sum NaN: a compiled step cannot raise, and must not go on as if nothing was wrong. Raises
    `ArgumentError` if the shapes do not fit and `ArgumentTypeError` for labels that are not integers.

    >>> total, weight = cross_entropy(mx.zeros((3, 2)), mx.array([0, 1, -100]))
    >>> round(total.item(), 4), weight.item()
    (1.3863, 2.0)
    """
    labels = class_labels("cross_entropy", logits, labels)
    classes = logits.shape[-1]
    logits = logits.astype(mx.float32)
    counts = labels != ignore_index
    known = (labels >= 0) & (labels < classes)
    picked = mx.take_along_axis(logits, mx.where(known, labels, 0)[..., None], axis=-1).squeeze(-1)
    each = mx.where(known, mx.logsumexp(logits, axis=-1) - picked, mx.nan)
    return mx.where(counts, each, 0).sum(), counts.astype(mx.float32).sum()


def mse(predictions: mx.array, targets: mx.array) -> tuple[mx.array, mx.array]:
    """Add up the squared differences: (sum, values counted), two float32 scalars.

    Raises `ArgumentError` unless the shapes are equal: [B, 1] and [B] would broadcast to [B, B] and train on nonsense.

    >>> total, weight = mse(mx.array([1.0, 2.0]), mx.array([1.0, 4.0]))
    >>> total.item(), weight.item()
    (4.0, 2.0)
    """
    if predictions.shape != targets.shape:
        raise ArgumentError(
            f"mse needs predictions and targets of one shape, got {predictions.shape} and {targets.shape}. "
            "A model with one output gives [B, 1]: take [:, 0] of it."
        )
    errors = predictions.astype(mx.float32) - targets.astype(mx.float32)
    return errors.square().sum(), mx.array(errors.size, mx.float32)
