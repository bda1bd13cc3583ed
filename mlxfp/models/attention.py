"""Attention: who sees whom, rotary positions, and the sum over what is seen. Arrays are [B, heads, L, size] unless said otherwise."""

from functools import reduce
from operator import and_
from typing import Literal

import mlx.core as mx

from mlxfp.core.errors import ArgumentError
from mlxfp.models.layers import Dropout

Bias = mx.array | Literal["causal"] | None
Rotation = tuple[mx.array, mx.array]

# What is added to the score of a hidden token. Not -inf: a row of nothing but padding must not become NaN; float16 ends at -65504.
_HIDDEN = -1e4


def visible(mask: mx.array | None, segment_ids: mx.array | None) -> mx.array | None:
    """Say which tokens [B, 1, 1 or L, L] a token sees: real ones, and of its own segment; None: all of them.

    `mask`, [B, L], is not 0 on real tokens; `segment_ids`, int[B, L], number the documents of a packed row, as `pack` does.

    >>> visible(mx.array([[1, 1, 0]]), None).squeeze().tolist()
    [True, True, False]
    """
    real = None if mask is None else (mask != 0)[:, None, None, :]
    own = None if segment_ids is None else segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    return _all(real, own)


def nearby(length: int, window: int) -> mx.array | None:
    """Say which tokens [1, 1, L, L] are at most `window` places away; None if all are."""
    places = mx.arange(length)
    return None if length <= window + 1 else (mx.abs(places[:, None] - places) <= window)[None, None]


def earlier(queries: int, keys: int) -> mx.array:
    """Say which of all tokens [1, 1, queries, keys] the last `queries` ones see: themselves and those before them.

    >>> earlier(2, 3).squeeze().tolist()
    [[True, True, False], [True, True, True]]
    """
    return (mx.arange(keys) <= mx.arange(keys - queries, keys)[:, None])[None, None]


def bias_of(dtype: mx.Dtype, *seen: mx.array | None) -> mx.array | None:
    """Turn what is visible, conditions that must all hold, into what `attend` adds to the scores."""
    both = _all(*seen)
    return None if both is None else mx.where(both, 0.0, _HIDDEN).astype(dtype)


def positions_of(mask: mx.array | None, length: int) -> mx.array:
    """Count the real tokens of each row, so that padding moves none, wherever it stands: int[B or 1, L].

    >>> positions_of(mx.array([[0, 0, 1, 1, 1]]), 5).tolist()
    [[0, 0, 0, 1, 2]]
    """
    return mx.arange(length)[None] if mask is None else mx.maximum(mx.cumsum((mask != 0).astype(mx.int32), axis=1) - 1, 0)


def rotation_of(positions: mx.array, size: int, base: float) -> Rotation:
    """Compute the cosines and sines of rotary positions, float32[B, 1, L, size / 2], for positions [B, L].

    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021; the halves of a vector are paired, as in GPT-NeoX.
    """
    frequencies = 1.0 / base ** (mx.arange(0, size, 2, mx.float32) / size)
    angles = positions[:, None, :, None].astype(mx.float32) * frequencies
    return mx.cos(angles), mx.sin(angles)


def rotate(x: mx.array, rotation: Rotation) -> mx.array:
    """Rotate queries or keys by their positions."""
    cosines, sines = rotation
    first, second = mx.split(x.astype(mx.float32), 2, axis=-1)
    rotated = mx.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)
    return rotated.astype(x.dtype)


def split_heads(x: mx.array, heads: int) -> mx.array:
    """Turn [B, L, heads * size] into [B, heads, L, size]."""
    rows, length, width = x.shape
    return x.reshape(rows, length, heads, width // heads).swapaxes(1, 2)


def join_heads(x: mx.array) -> mx.array:
    """Turn [B, heads, L, size] into [B, L, heads * size]."""
    rows, heads, length, size = x.shape
    return x.swapaxes(1, 2).reshape(rows, length, heads * size)


def attend(queries: mx.array, keys: mx.array, values: mx.array, bias: Bias, dropout: Dropout | None = None) -> mx.array:
    """Average the values, weighted by how well their keys fit each query; `dropout` acts on the weights.

    There may be fewer heads of keys and values than of queries: each then serves several (Ainslie et al., "GQA", 2023).
    """
    rows, heads, length, size = queries.shape
    scale = size**-0.5
    if dropout is None or not dropout.training or dropout.rate == 0:
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=bias)
    groups = keys.shape[1]
    scores = (queries * scale).reshape(rows, groups, heads // groups, length, size) @ keys[:, :, None].swapaxes(-1, -2)
    if bias is not None:
        seen = bias_of(scores.dtype, earlier(length, keys.shape[2])) if isinstance(bias, str) else bias
        scores = scores + seen[:, None]  # type: ignore[index]  # an array: there is a condition
    weights = dropout(mx.softmax(scores, axis=-1, precise=True))
    return (weights @ values[:, :, None]).reshape(rows, heads, length, size)


def check_length(model: str, length: int, max_length: int) -> None:
    """Raise `ArgumentError` for rows that are longer than a model has positions for."""
    if length > max_length:
        raise ArgumentError(f"The {model} has {max_length} positions, got rows of {length} tokens. Truncate them in tokenize.")


def _all(*conditions: mx.array | None) -> mx.array | None:
    known = [condition for condition in conditions if condition is not None]
    return reduce(and_, known) if known else None
