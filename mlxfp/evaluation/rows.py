"""Checks, weights and likelihoods of rows, as losses and metrics use them."""

import mlx.core as mx

from mlxfp.models.bounds import Bound, checked
from mlxfp.support.errors import ArgumentError, ArgumentTypeError


def class_labels(  # noqa: PLR0913  # what every loss of classes has
    function: str, logits: mx.array, labels: mx.array, ignore_index: int, example_weights: mx.array | None, *, classes: int | None = None
) -> tuple[mx.array, mx.array]:
    """Return labels as int32 and their weights: those of their examples, and 0 for `ignore_index`, which becomes label 0.

    Raises `BoundError` for labels that count and are not classes: there are as many as the logits have, or `classes`.
    """
    if logits.shape[:-1] != labels.shape:
        raise ArgumentError(
            f"{function} needs one label for each row of logits, got logits of shape {logits.shape} and labels of shape {labels.shape}. "
            "The logits have one axis more than the labels: the classes, last."
        )
    if mx.issubdtype(labels.dtype, mx.inexact):
        raise ArgumentTypeError(f"{function} needs integer labels, got {labels.dtype}. Use losses.mse for targets that are numbers.")
    weights = broadcast_weights(function, example_weights, labels.shape)
    checked(labels, Bound("classes", logits.shape[-1] if classes is None else classes, ignore_index), weights=example_weights)
    labels = labels.astype(mx.int32)  # in an unsigned type, -100 would wrap around to a class
    counts = mx.where(labels == ignore_index, 0, weights)
    return mx.where(counts == 0, 0, labels), counts


def check_same_shape(function: str, predictions: mx.array, targets: mx.array) -> tuple[mx.array, mx.array]:
    """Return both as float32 if their shapes are equal: [B, 1] and [B] would broadcast to [B, B] and train on nonsense."""
    if predictions.shape != targets.shape:
        raise ArgumentError(
            f"{function} needs predictions and targets of one shape, got {predictions.shape} and {targets.shape}. "
            "A model with one output gives [B, 1]: take [:, 0] of it."
        )
    return predictions.astype(mx.float32), targets.astype(mx.float32)


def broadcast_weights(function: str, example_weights: mx.array | None, shape: tuple[int, ...]) -> mx.array:
    """Give every value of `shape` the weight of its example, float32; ones if there are no weights.

    `example_weights` are [B], or have an axis for each of the first axes of the values.
    """
    if example_weights is None:
        return mx.ones(shape)
    if example_weights.shape != shape[: example_weights.ndim]:
        raise ArgumentError(
            f"{function} needs one example weight for each example, got {example_weights.shape} for values of shape {shape}. "
            "Take the column `weight` of the batch: one number a row."
        )
    axes = (1,) * (len(shape) - example_weights.ndim)
    return mx.broadcast_to(example_weights.astype(mx.float32).reshape(*example_weights.shape, *axes), shape)


def add(each: mx.array, weights: mx.array) -> tuple[mx.array, mx.array]:
    """Add up values by weight: (sum, sum of the weights). A value of weight 0 does not count, even NaN."""
    return mx.where(weights == 0, 0, each * weights).sum(), weights.sum()


def at_labels(table: mx.array, labels: mx.array) -> mx.array:
    """Pick from the last axis the value at each label, NaN where a label is not a class: `table` is [C], or [..., C].

    NaN, because a compiled function cannot raise an error for labels that it computes, and must not hide it: see `models.bounds`.
    """
    known = (labels >= 0) & (labels < table.shape[-1])
    places = mx.where(known, labels, 0)
    picked = table[places] if table.ndim == 1 else mx.take_along_axis(table, places[..., None], axis=-1).squeeze(-1)
    return mx.where(known, picked, mx.nan)


def surprise(logits: mx.array, labels: mx.array) -> mx.array:
    """Give the negative log-likelihood of each label under the softmax of its logits: float32, in the shape of the labels."""
    logits = logits.astype(mx.float32)
    return mx.logsumexp(logits, axis=-1) - at_labels(logits, labels)
