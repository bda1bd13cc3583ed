"""Classification losses: cross-entropy, cross-entropy for large vocabularies, binary cross-entropy and contrastive loss."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any

import mlx.core as mx
from attrs import frozen

from mlxfp.evaluation.rows import add, at_labels, broadcast_weights, check_arrays, check_same_shape, class_labels
from mlxfp.models.bounds import Bound, checked
from mlxfp.models.exponentials import logsumexp
from mlxfp.support.checks import check_number, check_positive, explain_call
from mlxfp.support.errors import ArgumentError

_LARGEST = float(mx.finfo(mx.float32).max)


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

    Computed in float32 for all dtypes of `logits`. A logit of -inf excludes a class; NaN and inf make the sum NaN. Raises `ArgumentError`
    if the shapes do not fit, `ArgumentTypeError` if the labels are not integers, and `DataError` if a counted label is outside [0, C). If a
    compiled function computes the labels, no error can be raised, and an invalid label makes the sum NaN.

    >>> total, weight = cross_entropy(mx.zeros((3, 2)), mx.array([0, 1, -100]))
    >>> round(total.item(), 4), weight.item()
    (1.3863, 2.0)

    See also: `linear_cross_entropy` for vocabularies, `binary_cross_entropy` for labels that do not exclude each other.
    """
    logits, labels, counts = class_labels("cross_entropy", logits, labels, ignore_index, example_weights)
    rules = _rules("cross_entropy", logits.shape[-1], label_smoothing, class_weights)
    logits = logits.astype(mx.float32)
    average = rules.average(logits) if label_smoothing else None
    return rules.add(labels, counts, logsumexp(logits), at_labels(logits, labels), average)


@explain_call
def linear_cross_entropy(  # noqa: PLR0913  # arguments of `cross_entropy` and of a linear layer
    hidden: mx.array,
    matrix: mx.array,
    labels: mx.array,
    *,
    bias: mx.array | None = None,
    chunk: int = 4096,
    label_smoothing: float = 0.0,
    class_weights: Sequence[float] | None = None,
    ignore_index: int = -100,
    example_weights: mx.array | None = None,
) -> tuple[mx.array, mx.array]:
    """Compute `cross_entropy` of the logits `hidden @ matrix.T + bias` in chunks of `chunk` classes, without storing all logits.

    `hidden` is float[..., D], `matrix` float[C, D] (weights of an embedding or a linear layer), `bias` float[C]. Sums and gradients equal
    `cross_entropy` up to rounding. The gradient computes the logits of each chunk again, at the cost of one more matrix product. For N
    rows, memory holds N x chunk numbers at a time instead of two or three times N x C (Wijmans et al., "Cut Your Losses in
    Large-Vocabulary Language Models", 2025). Other arguments as in `cross_entropy`.

    >>> hidden, matrix, labels = mx.ones((3, 4)), mx.ones((10, 4)), mx.array([0, 9, -100])
    >>> total, weight = linear_cross_entropy(hidden, matrix, labels, chunk=3)
    >>> mx.allclose(total, cross_entropy(hidden @ matrix.T, labels)[0]).item(), weight.item()
    (True, 2.0)
    """
    check_positive(chunk=chunk)
    check_arrays("linear_cross_entropy", hidden=hidden, matrix=matrix, labels=labels)
    bias = mx.zeros(matrix.shape[:1]) if bias is None else bias
    check_arrays("linear_cross_entropy", bias=bias)
    if matrix.ndim != 2 or (*labels.shape, matrix.shape[1]) != hidden.shape or bias.shape != matrix.shape[:1]:
        raise ArgumentError(
            "linear_cross_entropy needs hidden [..., D], labels [...], matrix [C, D] and bias [C], "
            f"got {hidden.shape}, {labels.shape}, {matrix.shape} and {bias.shape}. The matrix has a row for each class."
        )
    classes, width = matrix.shape
    hidden, labels, counts = class_labels("linear_cross_entropy", hidden, labels, ignore_index, example_weights, classes=classes)
    rules = _rules("linear_cross_entropy", classes, label_smoothing, class_weights)
    sums = _logsumexp_of_products(hidden.reshape(-1, width), matrix, bias, chunk).reshape(labels.shape)
    rows = matrix[mx.clip(labels, 0, classes - 1)]  # `at_labels` makes the score of an invalid label NaN, so clipping hides no error
    scores = (hidden.astype(mx.float32) * rows.astype(mx.float32)).sum(axis=-1) + at_labels(bias.astype(mx.float32), labels)
    average = hidden @ (rules.shares @ matrix) + rules.average(bias) if label_smoothing else None
    return rules.add(labels, counts, sums, scores, average)


@explain_call
def binary_cross_entropy(logits: mx.array, labels: mx.array, *, example_weights: mx.array | None = None) -> tuple[mx.array, mx.array]:
    """Sum the negative log-likelihood of independent binary labels: (sum, weight), two float32 scalars.

    `logits` are float[...]: [B] for a single label, [B, C] for several labels that do not exclude each other. `labels` have the shape of
    `logits` and are 0, 1 or a probability. The weight is the number of labels, weighted by `example_weights`, [B]. An infinite logit gives
    the loss 0 for a correct answer, and inf otherwise. Raises `ArgumentError` if the shapes do not fit, and `DataError` for labels outside
    [0, 1]. If a compiled function computes the labels, invalid labels make the sum NaN instead.

    >>> total, weight = binary_cross_entropy(mx.array([[0.0, 100.0], [-100.0, 0.0]]), mx.array([[1, 1], [0, 0]]))
    >>> round(total.item(), 4), weight.item()
    (1.3863, 4.0)
    """
    check_arrays("binary_cross_entropy", logits=logits, labels=labels)
    given = labels
    logits, labels = check_same_shape("binary_cross_entropy", logits, given)
    weights = broadcast_weights("binary_cross_entropy", example_weights, labels.shape)
    checked(given, Bound("classes", None), weights=example_weights)
    logits, labels = (mx.where(weights == 0, 0, values) for values in (logits, labels))  # a NaN here would make the gradient NaN
    # `wrong` is the logit of the less probable answer, and `shares` is the probability of the less probable answer.
    # Where `shares` is 0, the logits in `factors` must be finite, because 0 * inf is NaN.
    sure = labels > 0.5
    wrong, shares = mx.where(sure, -logits, logits), mx.where(sure, 1 - labels, labels)
    factors = mx.clip(wrong, mx.where(shares == 0, -_LARGEST, -mx.inf), _LARGEST)
    losses = mx.logaddexp(wrong, 0) - shares * factors
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
    check_arrays("contrastive", queries=queries, keys=keys)
    if queries.ndim != 2 or queries.shape != keys.shape:
        raise ArgumentError(f"contrastive needs queries and keys of the same shape, [B, D], got {queries.shape} and {keys.shape}.")
    if isinstance(temperature, mx.array):  # While a function is traced, an array has no value yet, so the sign is not checked.
        if temperature.size != 1:
            raise ArgumentError(f"temperature must be one number for all pairs, got an array of shape {temperature.shape}.")
    else:
        check_number(temperature=temperature)
        if not temperature > 0:
            raise ArgumentError(f"temperature must be above 0, got temperature={temperature!r}.")
        temperature = float(temperature)
    size = queries.shape[0]
    weights = broadcast_weights("contrastive", example_weights, (size,))
    if not size:
        return add(weights, weights)
    logits = _normalized(queries) @ _normalized(keys).T / temperature
    seen = (weights != 0) | mx.eye(size, dtype=mx.bool_)
    return cross_entropy(mx.where(seen, logits, -mx.inf), mx.arange(size), example_weights=weights)


@frozen
class _Rules:
    """Label smoothing and class weights. `shares` are the class weights divided by their sum, float32[C]."""

    smoothing: float
    class_weights: mx.array | None
    shares: mx.array

    def average(self, logits: mx.array) -> mx.array:
        """Return the weighted mean of the logits. A class with weight 0 does not count, even if its logit is -inf."""
        return (logits if self.class_weights is None else mx.where(self.shares == 0, 0, logits)) @ self.shares

    def add(
        self, labels: mx.array, counts: mx.array, sums: mx.array, scores: mx.array, average: mx.array | None
    ) -> tuple[mx.array, mx.array]:
        """Return (sum of losses, weight) from three values per label: logsumexp `sums`, label logit `scores` and mean logit `average`."""
        weights = counts if self.class_weights is None else mx.where(counts == 0, 0, counts * at_labels(self.class_weights, labels))
        losses, weight = add(sums - scores, weights)
        if average is not None:
            mean_weight = 1 if self.class_weights is None else self.class_weights.mean()
            losses = (1 - self.smoothing) * losses + self.smoothing * mean_weight * add(sums - average, counts)[0]
        return losses, weight


def _rules(function: str, classes: int, label_smoothing: float, class_weights: Sequence[float] | None) -> _Rules:
    check_number(label_smoothing=label_smoothing)
    if not 0 <= label_smoothing < 1:
        raise ArgumentError(f"label_smoothing must be at least 0 and below 1, got label_smoothing={label_smoothing!r}.")
    if class_weights is None:
        return _Rules(float(label_smoothing), None, mx.full(classes, 1 / classes))
    try:
        numbers = [] if isinstance(class_weights, str | Mapping) else [float(weight) for weight in class_weights]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) != classes or not all(0 <= number < inf for number in numbers) or not any(numbers):
        raise ArgumentError(
            f"{function} needs {classes} class weights of at least 0, and at least one weight above 0, got {class_weights!r:.80}. Pass a "
            "list with a number for each class."
        )
    weights = mx.array(numbers, mx.float32)
    return _Rules(float(label_smoothing), weights, weights / weights.sum())


def _logsumexp_of_products(hidden: mx.array, matrix: mx.array, bias: mx.array, chunk: int) -> mx.array:
    """Compute `logsumexp(hidden @ matrix.T + bias, axis=-1)` with at most `chunk` columns of the product in memory.

    `hidden` is float[N, D], `matrix` float[C, D], `bias` float[C], the result float32[N]. The gradient computes each chunk again.
    """
    edges = list(pairwise([*range(0, matrix.shape[0], chunk), matrix.shape[0]]))

    def products(hidden: mx.array, matrix: mx.array, bias: mx.array) -> mx.array:
        return (hidden @ matrix.T).astype(mx.float32) + bias

    @mx.custom_function
    def whole(hidden: mx.array, matrix: mx.array, bias: mx.array) -> mx.array:
        sums = mx.full(hidden.shape[:1], -mx.inf)
        for start, stop in edges:
            rows = _after(hidden, sums)
            sums = mx.logaddexp(sums, mx.logsumexp(products(rows, matrix[start:stop], bias[start:stop]), axis=-1))
        return sums

    @whole.vjp
    def gradients(inputs: Any, cotangent: mx.array, sums: mx.array) -> Any:
        hidden, matrix, bias = inputs
        of_hidden = mx.zeros(hidden.shape, mx.float32)
        of_matrix: list[mx.array] = []
        of_bias: list[mx.array] = []
        for start, stop in edges:
            rows = _after(hidden, of_hidden, *of_matrix[-1:])
            shares = mx.exp(products(rows, matrix[start:stop], bias[start:stop]) - sums[:, None]) * cotangent[:, None]
            of_bias.append(shares.sum(axis=0).astype(bias.dtype))
            shares = shares.astype(hidden.dtype)
            of_hidden = of_hidden + shares @ matrix[start:stop]
            of_matrix.append((shares.T @ rows).astype(matrix.dtype))
        return of_hidden.astype(hidden.dtype), mx.concatenate(of_matrix), mx.concatenate(of_bias)

    function: Any = whole  # `mx.custom_function` has no type annotations
    result: mx.array = function(hidden, matrix, bias)
    return result


def _after(array: mx.array, *others: mx.array) -> mx.array:
    """Return `array`, but compute the arrays `others` before `array`. Memory then holds only one large matrix product at a time."""
    after: list[mx.array] = mx.depends([array], list(others))
    return after[0]


def _normalized(rows: mx.array) -> mx.array:
    rows = rows.astype(mx.float32)
    rows = rows / mx.stop_gradient(mx.maximum(rows.abs().max(axis=-1, keepdims=True), 1))  # squares of huge numbers would be infinite
    return rows * mx.rsqrt(rows.square().sum(axis=-1, keepdims=True) + 1e-12)  # 1e-12 keeps the gradient finite for rows of zeros
