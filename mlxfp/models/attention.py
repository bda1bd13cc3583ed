"""Attention layers, attention masks and rotary positions. Arrays are [B, heads, L, size] unless stated otherwise."""

from functools import reduce
from typing import Literal

import mlx.core as mx
from mlx import nn

from mlxfp.models.banded import HIDDEN, Band, band_of
from mlxfp.models.exponentials import is_better, softmax
from mlxfp.models.layers import Dropout
from mlxfp.support.errors import ArgumentError

Bias = mx.array | Band | Literal["causal"] | None
Rotation = tuple[mx.array, mx.array]


def visible(mask: mx.array | None, segment_ids: mx.array | None) -> mx.array | None:
    """Return the attention mask, bool[B, 1, 1 or L, L]: each token sees the real tokens of its segment. Return None if all are visible.

    `mask`, [B, L], is nonzero on real tokens. `segment_ids`, int[B, L], are the document numbers of packed rows, as `pack` writes them.
    """
    real = None if mask is None else (mask != 0)[:, None, None, :]
    same_segment = None if segment_ids is None else segment_ids[:, None, :, None] == segment_ids[:, None, None, :]
    return _all(real, same_segment)


def nearby(length: int, window: int) -> mx.array | None:
    """Return a mask, bool[1, 1, L, L]: True for pairs of tokens at most `window` positions apart. Return None if every pair is True."""
    positions = mx.arange(length)
    return None if length <= window + 1 else (mx.abs(positions[:, None] - positions) <= window)[None, None]


def earlier(queries: int, keys: int) -> mx.array:
    """Return the causal mask for queries of the last tokens, bool[1, 1, queries, keys]. Each query sees its own token and earlier tokens.

    >>> earlier(2, 3).squeeze().tolist()
    [[True, True, False], [True, True, True]]
    """
    return (mx.arange(keys) <= mx.arange(keys - queries, keys)[:, None])[None, None]


def bias_of(dtype: mx.Dtype, *seen: mx.array | None) -> mx.array | None:
    """Return the array that `attend` adds to the attention scores: 0 if every mask is True, else `HIDDEN`. A mask of None is ignored."""
    combined = _all(*seen)
    return None if combined is None else mx.where(combined, 0.0, HIDDEN).astype(dtype)


def bias_within(hidden: mx.array, mask: mx.array | None, segment_ids: mx.array | None, *, reach: int | None, causal: bool = False) -> Bias:
    """Return the mask for `attend` that hides padding and the tokens of other segments.

    The mask has the dtype of the hidden states `hidden`, [B, L, D]. The mask also hides tokens more than `reach` positions away (None: no
    limit) and, if `causal=True`, later tokens. For long rows with a short reach, the result is a `Band`: a mask for attention in blocks.
    """
    length = hidden.shape[1]
    band = None if reach is None else band_of(hidden.dtype, length, mask, segment_ids, reach=reach, causal=causal)
    if band is not None:
        return band
    seen = _all(visible(mask, segment_ids), None if reach is None else nearby(length, reach))
    # Metal has a faster kernel for "causal" than for an equivalent mask.
    return "causal" if causal and seen is None else bias_of(hidden.dtype, seen, earlier(length, length) if causal else None)


def positions_of(mask: mx.array | None, length: int) -> mx.array:
    """Return the positions of real tokens, counted from 0 in each row: int[B or 1, L]. Padding on either side does not count."""
    return mx.arange(length)[None] if mask is None else mx.maximum(mx.cumsum((mask != 0).astype(mx.int32), axis=1) - 1, 0)


def rotation_of(positions: mx.array, size: int, base: float) -> Rotation:
    """Return the cosines and sines of rotary positions, float32[B, 1, L, size / 2], for positions [B, L].

    Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021. As in GPT-NeoX, the first half of a vector is paired
    with the second half.
    """
    frequencies = 1.0 / base ** (mx.arange(0, size, 2, mx.float32) / size)
    angles = positions[:, None, :, None].astype(mx.float32) * frequencies
    return mx.cos(angles), mx.sin(angles)


def rotate(x: mx.array, rotation: Rotation) -> mx.array:
    """Rotate queries or keys by the positions."""
    cosines, sines = rotation
    first, second = mx.split(x.astype(mx.float32), 2, axis=-1)
    rotated = mx.concatenate([first * cosines - second * sines, second * cosines + first * sines], axis=-1)
    return rotated.astype(x.dtype)


def attend(queries: mx.array, keys: mx.array, values: mx.array, bias: Bias, dropout: Dropout | None = None) -> mx.array:
    """Return scaled dot-product attention. `dropout` applies to the attention weights. If `bias` is a `Band`, attention runs in blocks.

    Keys and values may have fewer heads than queries. Several query heads then share a key and a value head ("GQA", Ainslie et al., 2023).
    """
    rows, heads, length, size = queries.shape
    if isinstance(bias, Band):
        blocks = bias.blocks
        return blocks.join(attend(blocks.cut(queries), blocks.spread(keys), blocks.spread(values), bias.bias_of_rows(rows), dropout))
    scale = size**-0.5
    dropout = None if dropout is None or not dropout.training or dropout.rate == 0 else dropout
    if dropout is None and not is_better(rows * heads * length * keys.shape[2]):
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=bias)
    groups = keys.shape[1]
    scores = (queries * scale).reshape(rows, groups, heads // groups, length, size) @ keys[:, :, None].swapaxes(-1, -2)
    if bias is not None:
        seen = bias_of(scores.dtype, earlier(length, keys.shape[2])) if isinstance(bias, str) else bias
        scores = scores + seen[:, None]  # type: ignore[index]  # an array: there is a condition
    weights = softmax(scores) if dropout is None else dropout(softmax(scores))
    return (weights @ values[:, :, None]).reshape(rows, heads, length, size)


class Attention(nn.Module):
    """Self-attention layer: query, key and value projections, attention and output projection.

    One linear layer computes queries, keys and values together. With `key_value_heads`, there are three linear layers. `dropout` is the
    dropout rate of the attention weights. None means no dropout layer.
    """

    def __init__(  # noqa: PLR0913
        self,
        hidden_size: int,
        heads: int,
        *,
        key_value_heads: int | None = None,
        bias: bool = True,
        output_bias: bool = True,
        dropout: float | None = None,
    ) -> None:
        """Create the layers. The containing model initializes the weights."""
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
        """Apply self-attention to hidden states, float[B, L, hidden_size]."""
        return self.mix(*self.project(hidden, rotation), bias)

    def project(self, hidden: mx.array, rotation: Rotation | None = None) -> tuple[mx.array, mx.array, mx.array]:
        """Return queries, keys and values. With a rotation, queries and keys are rotated by position."""
        one = "inputs" in self
        parts = mx.split(self.inputs(hidden), 3, axis=-1) if one else (self.query(hidden), self.key(hidden), self.value(hidden))
        counts = (self.heads, self.key_value_heads, self.key_value_heads)
        queries, keys, values = (mx.unflatten(part, 2, (count, -1)).swapaxes(1, 2) for part, count in zip(parts, counts, strict=True))
        return (queries, keys, values) if rotation is None else (rotate(queries, rotation), rotate(keys, rotation), values)

    def mix(self, queries: mx.array, keys: mx.array, values: mx.array, bias: Bias) -> mx.array:
        """Compute attention, merge the heads and apply the output layer."""
        mixed: mx.array = self.output(attend(queries, keys, values, bias, self.dropout).swapaxes(1, 2).flatten(2))
        return mixed


def check_length(model: str, length: int, limit: int) -> None:
    """Raise `ArgumentError` if rows have more tokens than the model has positions."""
    if length > limit:
        raise ArgumentError(
            f"The {model} has {limit} positions, got rows of {length} tokens. Truncate the rows: tokenize(..., max_length={limit})."
        )


def _all(*conditions: mx.array | None) -> mx.array | None:
    known = [condition for condition in conditions if condition is not None]
    # Under mx.vmap, `&` of a mapped and an unmapped array is wrong (MLX 0.32.4).
    return reduce(mx.logical_and, known) if known else None
