"""Attention: which tokens a token sees, rotary positions, and the weighted sum. Arrays are [B, heads, L, size] unless said otherwise."""

from functools import reduce
from operator import and_
from typing import Literal

import mlx.core as mx
from mlx import nn

from mlxfp.models.layers import Dropout
from mlxfp.support.errors import ArgumentError

Bias = mx.array | Literal["causal"] | None
Rotation = tuple[mx.array, mx.array]

# Added to the score of a hidden token. Not -inf: a row of only padding must not become NaN. The smallest float16 is -65504.
_HIDDEN = -1e4


def visible(mask: mx.array | None, segment_ids: mx.array | None) -> mx.array | None:
    """Return which tokens each token sees, bool[B, 1, 1 or L, L]: the real tokens of its own segment. None means all of them.

    `mask`, [B, L], is not 0 on real tokens; `segment_ids`, int[B, L], number the documents of a packed row, as `pack` does.
    """
    real = None if mask is None else (mask != 0)[:, None, None, :]
    own = None if segment_ids is None else segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    return _all(real, own)


def nearby(length: int, window: int) -> mx.array | None:
    """Return which tokens are at most `window` places away, bool[1, 1, L, L]; None if all are."""
    places = mx.arange(length)
    return None if length <= window + 1 else (mx.abs(places[:, None] - places) <= window)[None, None]


def earlier(queries: int, keys: int) -> mx.array:
    """Return which tokens the last `queries` of all `keys` tokens see, bool[1, 1, queries, keys]: themselves and those before them.

    >>> earlier(2, 3).squeeze().tolist()
    [[True, True, False], [True, True, True]]
    """
    return (mx.arange(keys) <= mx.arange(keys - queries, keys)[:, None])[None, None]


def bias_of(dtype: mx.Dtype, *seen: mx.array | None) -> mx.array | None:
    """Turn conditions of visibility, which must all hold, into the bias that `attend` adds to the scores."""
    both = _all(*seen)
    return None if both is None else mx.where(both, 0.0, _HIDDEN).astype(dtype)


def positions_of(mask: mx.array | None, length: int) -> mx.array:
    """Assign numbers from 0 to the real tokens of each row, so that padding on either side changes no position: int[B or 1, L]."""
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


def attend(queries: mx.array, keys: mx.array, values: mx.array, bias: Bias, dropout: Dropout | None = None) -> mx.array:
    """Average the values, weighted by how well their keys match each query; `dropout` acts on the weights.

    There may be fewer heads of keys and values than of queries: several heads of queries then share each of them (Ainslie et al.,
    "GQA", 2023).
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


class Attention(nn.Module):
    """Attention among the tokens of a row: layers for queries, keys and values, the average, and a layer for the output.

    One layer makes queries, keys and values, or, with `key_value_heads`, three layers do. `dropout` is the rate on the weights of
    attention; None, for models that have no such dropout.
    """

    def __init__(  # noqa: PLR0913  # all that architectures differ in, and all named
        self,
        hidden_size: int,
        heads: int,
        *,
        key_value_heads: int | None = None,
        bias: bool = True,
        output_bias: bool = True,
        dropout: float | None = None,
    ) -> None:
        """Make the layers; the model that they belong to draws their weights."""
        super().__init__()
        self.heads = heads
        self.key_value_heads = key_value_heads or heads
        if key_value_heads is None:
            self.inputs = nn.Linear(hidden_size, 3 * hidden_size, bias=bias)
        else:
            self.query = nn.Linear(hidden_size, hidden_size, bias=bias)
            self.key = nn.Linear(hidden_size, hidden_size // heads * key_value_heads, bias=bias)
            self.value = nn.Linear(hidden_size, hidden_size // heads * key_value_heads, bias=bias)
        self.dropout = None if dropout is None else Dropout(dropout)
        self.output = nn.Linear(hidden_size, hidden_size, bias=output_bias)

    def __call__(self, hidden: mx.array, bias: Bias, rotation: Rotation | None = None) -> mx.array:
        """Mix the vectors of a row, float[B, L, hidden_size]."""
        return self.mix(*self.project(hidden, rotation), bias)

    def project(self, hidden: mx.array, rotation: Rotation | None = None) -> tuple[mx.array, mx.array, mx.array]:
        """Compute queries, keys and values, the first two rotated by their positions if there is a rotation."""
        one = "inputs" in self
        parts = mx.split(self.inputs(hidden), 3, axis=-1) if one else (self.query(hidden), self.key(hidden), self.value(hidden))
        counts = (self.heads, self.key_value_heads, self.key_value_heads)
        queries, keys, values = (mx.unflatten(part, 2, (count, -1)).swapaxes(1, 2) for part, count in zip(parts, counts, strict=True))
        return (queries, keys, values) if rotation is None else (rotate(queries, rotation), rotate(keys, rotation), values)

    def mix(self, queries: mx.array, keys: mx.array, values: mx.array, bias: Bias) -> mx.array:
        """Attend, join the heads and apply the output layer."""
        mixed: mx.array = self.output(attend(queries, keys, values, bias, self.dropout).swapaxes(1, 2).flatten(2))
        return mixed


def check_length(model: str, length: int, limit: int) -> None:
    """Raise `ArgumentError` for rows that are longer than the number of positions of a model."""
    if length > limit:
        raise ArgumentError(f"The {model} has {limit} positions, got rows of {length} tokens. Truncate them in tokenize.")


def _all(*conditions: mx.array | None) -> mx.array | None:
    known = [condition for condition in conditions if condition is not None]
    return reduce(and_, known) if known else None
