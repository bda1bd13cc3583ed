"""Block-banded attention: queries are cut into blocks, and each block sees only the key blocks within reach.

A mask of a whole row has L x L values for each head. In packed rows and in local attention, most of these values hide a token. Time and
memory of banded attention grow linearly with the row length.
"""

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from attrs import field, frozen

from mlxfp.models.bounds import Bound, checked
from mlxfp.support.checks import check_positive
from mlxfp.support.errors import ArgumentError

# Number added to the attention scores of masked tokens. The number is finite, because -inf gives NaN if all tokens are masked.
HIDDEN = -1e4


@frozen
class Blocks:
    """Blocks of `size` tokens in rows of `length` tokens.

    The queries of a block see the keys of their own block, of `before` earlier blocks and of `after` later blocks.

    >>> Blocks(length=8, size=2, before=1, after=0).join(Blocks(8, 2, 1, 0).cut(mx.ones((3, 5, 8, 4)))).shape
    (3, 5, 8, 4)
    """

    length: int
    size: int
    before: int
    after: int

    @property
    def count(self) -> int:
        """Number of blocks into which each row is cut. The last block of a row may contain padding."""
        return -(-self.length // self.size)

    @property
    def span(self) -> int:
        """Number of keys that a block of queries can see."""
        return (self.before + 1 + self.after) * self.size

    def cut(self, queries: mx.array) -> mx.array:
        """Cut queries, [B, heads, length, D], into blocks, [B * count, heads, size, D]."""
        rows, heads, _, width = queries.shape
        padded = mx.pad(queries, [(0, 0), (0, 0), (0, self.count * self.size - self.length), (0, 0)])
        return padded.reshape(rows, heads, self.count, self.size, width).swapaxes(1, 2).reshape(-1, heads, self.size, width)

    def spread(self, keys: mx.array) -> mx.array:
        """Copy the visible keys (or values) of each block of queries. [B, heads, length, D] becomes [B * count, heads, span, D]."""
        rows, heads, _, width = keys.shape
        ends = self.before * self.size, (self.count + self.after) * self.size - self.length
        blocks = mx.pad(keys, [(0, 0), (0, 0), ends, (0, 0)]).reshape(rows, heads, -1, self.size, width)
        shifted = [blocks[:, :, start : start + self.count] for start in range(self.before + 1 + self.after)]
        return mx.concatenate(shifted, axis=3).swapaxes(1, 2).reshape(-1, heads, self.span, width)

    def join(self, blocks: mx.array) -> mx.array:
        """Join blocks, [B * count, heads, size, D], to rows: [B, heads, length, D]."""
        _, heads, _, width = blocks.shape
        rows = blocks.reshape(-1, self.count, heads, self.size, width).swapaxes(1, 2).reshape(-1, heads, self.count * self.size, width)
        return rows[:, :, : self.length]

    def seen(self, mask: mx.array | None, segment_ids: mx.array | None, *, reach: int, causal: bool) -> mx.array:
        """Return True for each query and key if the query sees the key: bool[B or 1, count, size, span]. See `band_of` for arguments."""
        distances = mx.arange(self.size)[:, None] + self.before * self.size - mx.arange(self.span)
        near = (distances >= 0) & (distances <= reach) if causal else mx.abs(distances) <= reach
        real = mx.ones((1, self.length), mx.bool_) if mask is None else mask != 0
        seen = mx.logical_and(near, self._labels(self.spread, real))  # under mx.vmap, `&` gives wrong results (MLX 0.32.4)
        if segment_ids is None:
            return seen
        same = self._labels(self.cut, segment_ids).swapaxes(-1, -2) == self._labels(self.spread, segment_ids)
        return mx.logical_and(seen, same)

    def _labels(self, arrange: Any, labels: mx.array) -> mx.array:
        """Cut an array with one number per token, [B, length], into blocks. The argument `arrange` is the method `cut` or `spread`."""
        return mx.unflatten(arrange(labels[:, None, :, None])[..., 0], 0, (-1, self.count))


@frozen(eq=False)
class Band:
    """Attention mask for rows that are cut into blocks. `attend` adds the array `bias` to the attention scores.

    The axes of `bias`, float[B or 1, count, size, span], are rows, blocks, queries of a block, and keys that the block can see.
    """

    blocks: Blocks
    bias: mx.array = field(repr=False)

    def bias_of_rows(self, rows: int) -> mx.array:
        """Repeat the mask for `rows` rows. The first axis holds the blocks of all rows: float[rows * count, 1, size, span]."""
        _, *shape = self.bias.shape
        return mx.broadcast_to(self.bias, (rows, *shape)).reshape(-1, 1, *shape[1:])


def blocks_within(length: int, reach: int, *, causal: bool) -> Blocks | None:
    """Return a division of rows into blocks, for tokens that see other tokens at a distance of at most `reach` positions.

    Returns None if attention over whole rows is faster.
    """
    size = 64 if reach <= 128 else 128
    distant = -(-reach // size)
    blocks = Blocks(length, size, distant, 0 if causal else distant)
    # On a CPU, with rows of 512 tokens and 256 keys per block, attention in blocks is 1.6 times as fast as attention over whole rows.
    # With 384 keys per block, attention in blocks is slower than attention over whole rows.
    return blocks if 2 * blocks.span <= length else None


def band_of(  # noqa: PLR0913  # the parts of a mask
    dtype: mx.Dtype, length: int, mask: mx.array | None, segment_ids: mx.array | None, *, reach: int, causal: bool
) -> Band | None:
    """Return a mask for attention in blocks. Returns None if attention over whole rows is faster.

    Each token sees only real tokens of its own segment, at a distance of at most `reach` positions. `causal=True` also hides later tokens.
    The arguments `mask` and `segment_ids`, [B, length], are as in `visible`.
    """
    blocks = blocks_within(length, reach, causal=causal)
    if blocks is None:
        return None
    return Band(blocks, mx.where(blocks.seen(mask, segment_ids, reach=reach, causal=causal), 0.0, HIDDEN).astype(dtype))


def check_documents(hidden: mx.array, segment_ids: mx.array | None, positions: mx.array | None, longest: int) -> mx.array:
    """Return the hidden states, [B, L, D], unchanged if no document in the packed rows has more than `longest` tokens.

    Raises `BoundError`, a `DataError`, for a longer document. Raises `ArgumentError` if `segment_ids` or `positions` is missing.

    Positions that are computed inside a compiled function have no values to check. In this case, the hidden states of all tokens beyond the
    first `longest` tokens of a document become NaN.
    """
    check_positive(longest=longest)
    if segment_ids is None or positions is None:
        raise ArgumentError(
            f"longest={longest} is for packed rows, but segment_ids or positions are missing. Pass both arrays from the output of pack."
        )
    if checked(positions, Bound("documents", longest)):
        return hidden
    return mx.where((positions < longest)[..., None], hidden, mx.nan).astype(hidden.dtype)


def call_packed(model: Any, batch: Mapping[str, Any], *, longest: int | None = None) -> mx.array:
    """Call a language model of mlx-lm with packed rows. Return the logits, float[B, L, vocab_size].

    `batch` is a batch of `collators.causal(packed=True)`. Tokens see only their own document, so logits and gradients equal those of the
    single documents. The model is not changed. `longest` is the maximum number of tokens in a document. For long rows, `longest` saves time
    and memory. The logits stay the same.

    All layers of the model must have attention and rotary positions, as in Llama, Mistral, Qwen2, Qwen3, Gemma and Gemma 3. Raises
    `ArgumentError` for a model with other layers, and `BoundError`, a `DataError`, for a document with more than `longest` tokens.

    >>> from mlx import nn
    >>> class Tiny(nn.Embedding):  # in place of the model from mlx_lm.load
    ...     layers = ()
    ...
    ...     def __call__(self, ids, cache):
    ...         return super().__call__(ids)
    >>> rows = {"input_ids": [[5, 6, 7]], "segment_ids": [[1, 1, 2]], "positions": [[0, 1, 0]]}
    >>> call_packed(Tiny(10, 10), {name: mx.array(values) for name, values in rows.items()}, longest=512).shape
    (1, 3, 10)

    See also: `losses.causal_lm`, which has `longest` for models of mlxfp.
    """
    _check_layers(model)
    ids, segments = batch["input_ids"], batch["segment_ids"]
    length = ids.shape[1]
    zeros = mx.zeros((*ids.shape, 1))
    invalid = (
        zeros if longest is None else check_documents(zeros, segments, batch["positions"], longest)
    )  # added to the logits: NaN at invalid tokens, otherwise 0
    reach = length if longest is None else longest - 1
    documents = _Documents(blocks_within(length, reach, causal=True) or Blocks(length, length, 0, 0), segments, reach)
    blocks = documents.blocks
    logits = model(blocks.cut(ids[:, None, :, None])[:, 0, :, 0], cache=[documents] * len(model.layers))
    return blocks.join(logits[:, None])[:, 0] + invalid.astype(logits.dtype)


@frozen(eq=False)
class _Documents:
    """Replacement for the key-value cache of an mlx-lm model, for attention in blocks of packed rows. Stores no keys."""

    blocks: Blocks
    segments: mx.array
    reach: int

    @property
    def offset(self) -> mx.array:
        """First position of each block in its row, int32[B * count]."""
        return mx.tile(mx.arange(self.blocks.count) * self.blocks.size, len(self.segments))

    def make_mask(self, length: int, *, return_array: bool = False, window_size: int | None = None) -> mx.array:
        """Return the mask of each block, bool[B * count, 1, size, span]. True means that a query sees a key.

        mlx-lm calls this method for every layer. `window_size` is the window of a layer with a sliding window.
        """
        reach = self.reach if window_size is None else min(self.reach, window_size - 1)
        return self.blocks.seen(None, self.segments, reach=reach, causal=True).flatten(0, 1)[:, None]

    def update_and_fetch(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Return the keys and values of all tokens that a block can see, for each block: [B * count, heads, span, D].

        The arguments hold only the keys and values of the block's own tokens, [B * count, heads, size, D].
        """
        if self.blocks.count == 1:
            return keys, values
        return self.blocks.spread(self.blocks.join(keys)), self.blocks.spread(self.blocks.join(values))


# Model types of mlx-lm that call_packed does not support: their attention code needs masks of another shape.
_OTHER_SCORES = ("gear", "gemma2", "olmo", "phi3small")


def _check_layers(model: Any) -> None:
    """Raise `ArgumentError` for a model of mlx-lm that `call_packed` does not support.

    All layers must be attention layers whose cache is a `KVCache` or a `RotatingKVCache`.
    """
    kinds = {type(cache).__name__ for cache in model.make_cache()} if hasattr(model, "make_cache") else set()
    name = getattr(model, "model_type", type(model).__name__)
    if not hasattr(model, "layers") or name in _OTHER_SCORES or kinds - {"KVCache", "RotatingKVCache"}:
        raise ArgumentError(
            f"call_packed supports models of mlx-lm with rotary attention in all layers, got a model of type {name!r}. "
            "Use rows without packing for this model."
        )
