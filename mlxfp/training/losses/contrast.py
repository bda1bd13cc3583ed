"""The contrastive loss of pairs."""

import mlx.core as mx

from mlxfp.core.errors import ArgumentError
from mlxfp.evaluation.rows import broadcast_weights
from mlxfp.training.losses.classification import cross_entropy


def contrastive(
    queries: mx.array, keys: mx.array, *, temperature: float = 0.05, example_weights: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Add up the cross-entropy of finding the key of each query among those of the batch (InfoNCE): (sum, queries), two float32 scalars.

    Row i of `queries` and of `keys`, float[B, D] both, are a pair, and all other rows are negatives. Cosines divided by
    `temperature` are the logits of a cross-entropy. Examples of weight 0, which pad a batch, are not negatives either. For both
    directions, as in CLIP, add those of (queries, keys) and of (keys, queries). Raises `ArgumentError` if the shapes do not fit.

    The negatives come from the batch, so unlike all other losses this one depends on the size of the batch.
    van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding", 2018.

    >>> total, weight = contrastive(mx.eye(3), 2 * mx.eye(3), temperature=1.0)
    >>> round((total / weight).item(), 4)  # log(e + 2) - 1
    0.5514
    """
    if queries.ndim != 2 or queries.shape != keys.shape:
        raise ArgumentError(f"contrastive needs queries and keys of one shape, [B, D], got {queries.shape} and {keys.shape}.")
    if not temperature > 0:
        raise ArgumentError(f"temperature must be above 0, got temperature={temperature!r}.")
    size = queries.shape[0]
    weights = broadcast_weights("contrastive", example_weights, (size,))
    logits = _directions(queries) @ _directions(keys).T / temperature
    seen = (weights != 0) | mx.eye(size, dtype=mx.bool_)
    return cross_entropy(mx.where(seen, logits, -mx.inf), mx.arange(size), example_weights=weights)


def _directions(rows: mx.array) -> mx.array:
    rows = rows.astype(mx.float32)
    return rows * mx.rsqrt(rows.square().sum(axis=-1, keepdims=True) + 1e-12)  # a row of zeros stays one, and its gradient finite
