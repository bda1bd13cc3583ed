"""Classification losses: cross-entropy, binary cross-entropy and contrastive loss."""

from collections.abc import Sequence

import mlx.core as mx

from mlxfp.evaluation.rows import add, at_labels, broadcast_weights, check_same_shape, class_labels, sum_of
from mlxfp.models.bounds import Bound, checked
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import ArgumentError


@explain_call
def cross_entropy(  # noqa: PLR0913  # common options of other libraries, keyword-only
    logits: mx.array,
    labels: mx.array,
    *,
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] | None = None,
    ignore_index: int = -100,
    example_weights: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Sum the negative log-likelihood of the labels: (sum, weight), two float32 scalars.

    `logits` are float[..., C], `labels` int[...]. Labels equal to `ignore_index` are not counted. The weight of any other label is 1, times
    the weight of its class in `class_weights` (C numbers), times the weight of its example in `example_weights` ([B]). `label_smoothing` s
    assigns the probability 1 - s to the label and distributes s evenly over all classes (Szegedy et al., "Rethinking the Inception
    Architecture", 2016). sum / weight equals PyTorch's `cross_entropy`.

    Computed in float32 for all dtypes of `logits`. Raises `ArgumentError` if the shapes do not fit, `ArgumentTypeError` if the labels are
    not integers, and `DataError` if a counted label is outside [0, C). If a compiled function computes the labels, no error can be
    raised, and an invalid label makes the sum NaN.

    >>> total, weight = cross_entropy(mx.zeros((3, 2)), mx.array([0, 1, -100]))
    >>> round(total.item(), 4), weight.item()
    (1.3863, 2.0)

    See also: `binary_cross_entropy` for labels that do not exclude each other.
    """
    labels, counts = class_labels("cross_entropy", logits, labels, ignore_index, example_weights)
    if not 0 <= label_smoothing < 1:
        raise ArgumentError(f"label_smoothing must be at least 0 and below 1, got label_smoothing={label_smoothing!r}.")
    classes = logits.shape[-1]
    weights = None if class_weights is None else _class_weights(classes, class_weights)
    logits = logits.astype(mx.float32)
    sums = mx.logsumexp(logits, axis=-1)
    losses, weight = sums - at_labels(logits, labels), sum_of(counts)
    if weights is not None:
        label_weights = at_labels(weights, labels)
        losses, weight = label_weights * losses, add(label_weights, counts)[0]
    if label_smoothing:
        shares, mean_weight = (mx.full(classes, 1 / classes), 1) if weights is None else (weights / weights.sum(), weights.mean())
        losses = (1 - label_smoothing) * losses + label_smoothing * mean_weight * (sums - logits @ shares)
    return add(losses, counts)[0], weight


@explain_call
def binary_cross_entropy(logits: mx.array, labels: mx.array, *, example_weights: mx.array | None = None) -> tuple[mx.array, mx.array]:
    """Sum the negative log-likelihood of independent binary labels: (sum, weight), two float32 scalars.

    `logits` are float[...]: [B] for a single label, [B, C] for several labels that do not exclude each other. `labels` have the same
    shape and are 0, 1 or a probability. The weight is the number of labels, weighted by `example_weights`, [B]. Raises `ArgumentError` if
    the shapes do not fit, and `DataError` for other labels. If a compiled function computes the labels, invalid labels make the sum NaN
    instead.

    >>> total, weight = binary_cross_entropy(mx.array([[0.0, 100.0], [-100.0, 0.0]]), mx.array([[1, 1], [0, 0]]))
    >>> round(total.item(), 4), weight.item()
    (1.3863, 4.0)
    """
    given = labels
    logits, labels = check_same_shape("binary_cross_entropy", logits, given)
    weights = broadcast_weights("binary_cross_entropy", example_weights, labels.shape)
    checked(given, Bound("classes", None), weights=example_weights)
    losses = mx.logaddexp(logits, 0) - logits * labels
    losses = mx.where((labels >= 0) & (labels <= 1), losses, mx.nan)
    return add(losses, weights)


@explain_call
def contrastive(
    queries: mx.array, keys: mx.array, *, temperature: float | mx.array = 0.05, example_weights: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Return the summed loss of matching each query to its key in the batch (InfoNCE), and the number of queries: two float32 scalars.

    Row i of `queries` and row i of `keys`, both float[B, D], are a positive pair. All other pairs of rows are negatives. The logits are
    cosine similarities divided by `temperature`. With `example_weights`, the second result is the sum of these weights, and examples with
    weight 0 (padding) are not used as negatives.

    For a symmetric loss as in CLIP, add the losses of (queries, keys) and (keys, queries). A learned temperature is a positive scalar
    array, for example `mx.exp(model.log_temperature)`. Raises `ArgumentError` if the shapes do not fit.

    The negatives come from the batch, so the loss depends on the batch size, unlike all other losses. Source: van den Oord, Li and Vinyals,
    "Representation Learning with Contrastive Predictive Coding", 2018.

    >>> total, weight = contrastive(mx.eye(3), 2 * mx.eye(3), temperature=1.0)
    >>> round((total / weight).item(), 4)  # log(e + 2) - 1
    0.5514
    """
    if queries.ndim != 2 or queries.shape != keys.shape:
        raise ArgumentError(f"contrastive needs queries and keys of the same shape, [B, D], got {queries.shape} and {keys.shape}.")
    if isinstance(temperature, mx.array):  # An array may have no value yet while a function is traced.
        if temperature.size != 1:
            raise ArgumentError(f"temperature must be one number for all pairs, got an array of shape {temperature.shape}.")
    elif not temperature > 0:
        raise ArgumentError(f"temperature must be above 0, got temperature={temperature!r}.")
    size = queries.shape[0]
    weights = broadcast_weights("contrastive", example_weights, (size,))
    logits = _normalized(queries) @ _normalized(keys).T / temperature
    seen = (weights != 0) | mx.eye(size, dtype=mx.bool_)
    return cross_entropy(mx.where(seen, logits, -mx.inf), mx.arange(size), example_weights=weights)


def _class_weights(classes: int, class_weights: Sequence[float]) -> mx.array:
    if len(class_weights) != classes or not all(weight >= 0 for weight in class_weights) or not any(class_weights):
        raise ArgumentError(
            f"cross_entropy needs {classes} class weights of at least 0, and at least one weight above 0, got {list(class_weights)!s:.80}."
        )
    return mx.array(list(class_weights), mx.float32)


def _normalized(rows: mx.array) -> mx.array:
    rows = rows.astype(mx.float32)
    return rows * mx.rsqrt(rows.square().sum(axis=-1, keepdims=True) + 1e-12)  # 1e-12 keeps the gradient finite for rows of zeros
