"""Shared helpers of losses and metrics: argument checks, example weights and likelihoods."""

import mlx.core as mx

from mlxfp.models.bounds import Bound, checked
from mlxfp.models.exponentials import logsumexp
from mlxfp.support.checks import check_integer
from mlxfp.support.errors import ArgumentError, ArgumentTypeError

_BLOCK = 4096
_CLASS_BLOCK = 1 << 20
_INT32 = (1 << 31) - 1


def class_labels(  # noqa: PLR0913  # common arguments of classification losses
    function: str, logits: mx.array, labels: mx.array, ignore_index: int, example_weights: mx.array | None, *, classes: int | None = None
) -> tuple[mx.array, mx.array, mx.array]:
    """Return the logits, int32 labels and the weight of each label. `ignore_index` becomes label 0 with weight 0.

    If the arrays have no rows, the results have one row with weight 0.
    Raises `BoundError` if a label with a nonzero weight is not a class. The number of classes is `classes`, or the last axis of the logits.
    """
    check_arrays(function, logits=logits, labels=labels)
    check_integer(ignore_index=ignore_index)
    if abs(ignore_index) > _INT32:
        raise ArgumentError(f"ignore_index must be a 32-bit integer, got ignore_index={ignore_index}. The usual value is -100.")
    if not logits.ndim or not logits.shape[-1] or logits.shape[:-1] != labels.shape:
        one_hot = " For one-hot labels, pass labels.argmax(axis=-1)." if labels.shape == logits.shape else ""
        remedy = " The logits come first, and then the labels." if labels.shape[:-1] == logits.shape else one_hot
        raise ArgumentError(
            f"{function} needs one label for each row of logits, got logits of shape {logits.shape} and labels of shape {labels.shape}. "
            f"Logits need one axis more than labels: the last axis for classes.{remedy}"
        )
    if mx.issubdtype(labels.dtype, mx.inexact):
        raise ArgumentTypeError(f"{function} needs integer labels, got {labels.dtype}. Use losses.mse for numeric targets.")
    weights = broadcast_weights(function, example_weights, labels.shape)
    checked(labels, Bound("classes", logits.shape[-1] if classes is None else classes, ignore_index), weights=example_weights)
    if not labels.size:  # MLX cannot reduce empty arrays, but one row with weight 0 gives the same sums
        return mx.zeros((1, logits.shape[-1]), logits.dtype), mx.zeros(1, mx.int32), mx.zeros(1)
    labels = _as_int32(labels)
    counts = mx.where(labels == ignore_index, 0, weights)
    return logits, mx.where(counts == 0, 0, labels), counts


def check_arrays(function: str, **arrays: object) -> None:
    """Raise `ArgumentTypeError` unless every value is an MLX array."""
    for name, array in arrays.items():
        if not isinstance(array, mx.array):
            raise ArgumentTypeError(
                f"{function} needs MLX arrays, got {name}={array!r:.80} ({type(array).__name__}). Pass mx.array({name})."
            )


def check_same_shape(function: str, predictions: mx.array, targets: mx.array) -> tuple[mx.array, mx.array]:
    """Return both arrays as float32. Raise `ArgumentError` for different shapes, because [B, 1] and [B] would broadcast to [B, B]."""
    check_arrays(function, predictions=predictions, targets=targets)
    if predictions.shape != targets.shape:
        raise ArgumentError(
            f"{function} needs predictions and targets of the same shape, got {predictions.shape} and {targets.shape}. "
            "If the model returns [B, 1], pass predictions[:, 0]."
        )
    return predictions.astype(mx.float32), targets.astype(mx.float32)


def differences(function: str, predictions: mx.array, targets: mx.array, example_weights: mx.array | None) -> tuple[mx.array, mx.array]:
    """Return predictions minus targets, and the weight of each value, both as float32 in the shape of the targets.

    The difference is 0 for values with weight 0, for example for missing targets (NaN). The gradient is then 0 too. `add` would also
    ignore such a value, but the gradient of `add` would be 0 * NaN, which is NaN.
    """
    predictions, targets = check_same_shape(function, predictions, targets)
    weights = broadcast_weights(function, example_weights, targets.shape)
    return mx.where(weights == 0, 0, predictions - targets), weights


def broadcast_weights(function: str, example_weights: mx.array | None, shape: tuple[int, ...]) -> mx.array:
    """Return one float32 weight for each value of an array of the given shape. Without `example_weights`, all weights are 1.

    `example_weights` has one weight per example, [B], or the shape of the first axes of the array.
    """
    if example_weights is None:
        return mx.ones(shape)
    check_arrays(function, example_weights=example_weights)
    if example_weights.shape != shape[: example_weights.ndim]:
        raise ArgumentError(
            f"{function} needs one weight per example, got weights of shape {example_weights.shape} for values of shape {shape}. "
            "Pass the column `weight` of the batch, with one number per row."
        )
    axes = (1,) * (len(shape) - example_weights.ndim)
    return mx.broadcast_to(example_weights.astype(mx.float32).reshape(*example_weights.shape, *axes), shape)


def add(values: mx.array, weights: mx.array) -> tuple[mx.array, mx.array]:
    """Return the weighted sum and the sum of the weights. Values with weight 0 are ignored, even if a value is NaN."""
    return sum_of(mx.where(weights == 0, 0, values * weights)), sum_of(weights)


def sum_of(values: mx.array) -> mx.array:
    """Return the sum of all values. Blocks are summed first, because a running float32 sum of ones stops growing at 2^24 on a CPU."""
    values = values.reshape(-1)
    while values.size > _BLOCK:
        whole = values.size - values.size % _BLOCK
        sums = values[:whole].reshape(-1, _BLOCK).sum(axis=-1)
        values = sums if whole == values.size else mx.concatenate([sums, values[whole:].sum(keepdims=True)])
    return values.sum()


def sums_by_class(labels: mx.array, weights: mx.array, classes: int) -> mx.array:
    """Return the sum of the weights of each class, float32[classes]. For precision, the function adds up blocks of rows, as in `sum_of`."""
    blocks = mx.arange(labels.size) // _CLASS_BLOCK
    sums = mx.zeros((-(-labels.size // _CLASS_BLOCK), classes)).at[blocks, labels.reshape(-1)].add(weights.reshape(-1))
    return sums.sum(axis=0)


def at_labels(table: mx.array, labels: mx.array) -> mx.array:
    """Return `table[..., label]` for each label: the value in the last axis of `table` at the index `label`. `table` is [C] or [..., C].

    For a label outside the last axis, the value is NaN, because a compiled function cannot check array values and raise an error.
    """
    known = (labels >= 0) & (labels < table.shape[-1])
    indices = mx.where(known, labels, 0)
    picked = table[indices] if table.ndim == 1 else mx.take_along_axis(table, indices[..., None], axis=-1).squeeze(-1)
    return mx.where(known, picked, mx.nan)


def _as_int32(labels: mx.array) -> mx.array:
    """Return labels as int32. A label beyond int32 becomes the largest or smallest int32, which is not a class."""
    if labels.dtype in (mx.uint32, mx.uint64):
        labels = mx.minimum(labels, _INT32)
    elif labels.dtype == mx.int64:
        labels = mx.clip(labels, -_INT32 - 1, _INT32)
    return labels.astype(mx.int32)


def negative_log_likelihood(logits: mx.array, labels: mx.array) -> mx.array:
    """Return the negative log-likelihood of each label under the softmax of the logits, float32 in the shape of the labels."""
    return logsumexp(logits) - at_labels(logits.astype(mx.float32), labels)
