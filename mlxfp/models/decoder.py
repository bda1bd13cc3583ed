"""A causal transformer: rotary positions, grouped-query attention, gated layers, and a cache of keys and values to generate with."""

import mlx.core as mx
from attrs import field, frozen
from mlx import nn

from mlxfp.core.checks import check_not_negative, check_positive
from mlxfp.core.errors import ArgumentError
from mlxfp.models.activations import silu
from mlxfp.models.attention import (
    Bias,
    Rotation,
    attend,
    bias_of,
    check_length,
    earlier,
    join_heads,
    positions_of,
    rotate,
    rotation_of,
    split_heads,
    visible,
)
from mlxfp.models.layers import Dropout, check_above_zero, check_rates, check_rotary, check_sizes, draw_weights
from mlxfp.settings.registries import Registry

Stored = tuple[mx.array, mx.array]  # the keys and values of a block: [B, kv_heads, capacity, size] each


@frozen(kw_only=True)
class DecoderConfig:
    """The sizes of a `Decoder`. The width must be a multiple of twice the number of heads, and that one of `kv_heads`.

    `kv_heads` is how many heads of keys and values there are: each serves `heads` / `kv_heads` heads of queries. `feed` is the inner
    width of the gated feed-forward layers, `base` that of the rotary positions. `dropout` acts on embeddings and on what each layer
    adds, `attention_dropout` on the weights of attention. `qkv_bias` gives queries, keys and values biases, as in Qwen2.

    >>> DecoderConfig(vocabulary=1000, width=64, heads=4, kv_heads=2).depth
    4
    """

    vocabulary: int
    width: int = 128
    depth: int = 4
    heads: int = 4
    kv_heads: int = 2
    feed: int = 384
    max_length: int = 2048
    base: float = 10_000.0
    dropout: float = 0.0
    attention_dropout: float = 0.0
    qkv_bias: bool = False
    eps: float = 1e-5

    activation = "silu"
    biased = False

    def __attrs_post_init__(self) -> None:
        """Check the sizes."""
        sizes = {"vocabulary": self.vocabulary, "depth": self.depth, "feed": self.feed, "max_length": self.max_length}
        check_sizes(width=self.width, heads=self.heads, **sizes)
        check_rotary(width=self.width, heads=self.heads)
        check_positive(kv_heads=self.kv_heads)
        if self.heads % self.kv_heads:
            raise ArgumentError(f"heads must be a multiple of kv_heads, got heads={self.heads} and kv_heads={self.kv_heads}.")
        check_above_zero(base=self.base, eps=self.eps)
        check_rates(dropout=self.dropout, attention_dropout=self.attention_dropout)


# Base is that of SmolLM2 (135 million parameters with its vocabulary); the others are ours.
DECODER_SIZES: Registry[dict[str, int]] = Registry(
    "size",
    {
        "tiny": {"width": 128, "depth": 4, "heads": 4, "kv_heads": 2, "feed": 384},
        "mini": {"width": 256, "depth": 6, "heads": 4, "kv_heads": 2, "feed": 768},
        "small": {"width": 384, "depth": 12, "heads": 6, "kv_heads": 2, "feed": 1024},
        "base": {"width": 576, "depth": 30, "heads": 9, "kv_heads": 3, "feed": 1536},
    },
)


@frozen(eq=False)
class Cache:
    """The keys and values of the tokens so far, and which of these are real: made by `Decoder.cache`, and a new one by each `extend`.

    A value: a cache can be extended several times, in several ways. Its arrays have room for `capacity` tokens from the start.

    >>> Decoder(DecoderConfig(vocabulary=10, width=16, depth=1, heads=2)).cache(1, capacity=8).capacity
    8
    """

    blocks: tuple[Stored, ...] = field(repr=False)
    real: mx.array = field(repr=False)  # bool[B, length]
    length: int
    capacity: int


class Decoder(nn.Module):
    """Turn token ids into one vector a token, each seeing itself and the tokens before it.

    The architecture of Touvron et al., "LLaMA", 2023, with the grouped-query attention of Ainslie et al., "GQA", 2023. Weights are
    drawn from `seed`. `CausalLM` predicts the next token with it.

    >>> decoder = Decoder(DecoderConfig(vocabulary=100, width=16, depth=1, feed=32), seed=0)
    >>> decoder(mx.array([[5, 6, 7]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: DecoderConfig, *, seed: int = 0) -> None:
        """Make the layers and draw their weights."""
        super().__init__()
        self.config = config
        self.width = config.width
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = [_Block(config) for _ in range(config.depth)]
        self.norm = nn.RMSNorm(config.width, config.eps)
        draw_weights(self, seed, narrowed=(".output", ".feed_out"), narrowing=(2 * config.depth) ** -0.5)

    def __call__(
        self,
        ids: mx.array,
        mask: mx.array | None = None,
        *,
        segment_ids: mx.array | None = None,
        positions: mx.array | None = None,
    ) -> mx.array:
        """Encode `ids`, int[B, L], to float[B, L, width]; `mask`, [B, L], is 1 on real tokens, None where all are.

        `segment_ids`, int[B, L], number the documents of packed rows, as `pack` does: tokens see their own only. `positions`,
        int[B, L], can be left out: only their differences count.

        Raises `ArgumentError` for rows longer than `max_length`. Vectors at padding mean nothing.
        """
        length = ids.shape[1]
        check_length("decoder", length, self.config.max_length)
        hidden = self.dropout(self.tokens(ids))
        seen = visible(mask, segment_ids)
        # Metal has a faster kernel for "causal" than for the array that says the same.
        bias: Bias = "causal" if seen is None else bias_of(hidden.dtype, seen, earlier(length, length))
        rotation = self._rotation(positions_of(mask, length) if positions is None else positions)
        for block in self.blocks:
            hidden = block(hidden, bias, rotation)
        encoded: mx.array = self.norm(hidden)
        return encoded

    def cache(self, rows: int, capacity: int) -> Cache:
        """Make an empty cache for so many rows, of up to `capacity` tokens with their padding."""
        check_not_negative(rows=rows)
        check_positive(capacity=capacity)
        check_length("decoder", capacity, self.config.max_length)
        config = self.config
        empty = mx.zeros((rows, config.kv_heads, capacity, config.width // config.heads), self.norm.weight.dtype)
        return Cache(((empty, empty),) * config.depth, mx.zeros((rows, 0), mx.bool_), 0, capacity)

    def extend(self, ids: mx.array, cache: Cache, mask: mx.array | None = None) -> tuple[mx.array, Cache]:
        """Encode the tokens that follow those in a cache: (float[B, L, width], the cache with them in it).

        `ids` and `mask`, [B, L], are as in a call, and so is what comes out: as if all tokens were encoded at once. Rows may be padded
        on either side, also between one extension and the next. Raises `ArgumentError` where the cache is full.
        """
        rows, length = ids.shape
        after = cache.length + length
        if after > cache.capacity:
            raise ArgumentError(f"The cache has room for {cache.capacity} tokens, got {length} after {cache.length}. Make a larger one.")
        hidden = self.dropout(self.tokens(ids))
        real = mx.concatenate([cache.real, mx.ones((rows, length), mx.bool_) if mask is None else mask != 0], axis=1)
        bias = bias_of(hidden.dtype, visible(real, None), earlier(length, after))
        rotation = self._rotation(positions_of(real, after)[:, cache.length :])
        blocks = []
        for block, stored in zip(self.blocks, cache.blocks, strict=True):
            hidden, more = block.extend(hidden, stored, cache.length, bias, rotation)
            blocks.append(more)
        return self.norm(hidden), Cache(tuple(blocks), real, after, cache.capacity)

    def _rotation(self, positions: mx.array) -> Rotation:
        return rotation_of(positions, self.config.width // self.config.heads, self.config.base)


class _Block(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, config.eps)
        self.attention = _Attention(config)
        self.attention_dropout = Dropout(config.dropout)
        self.feed_norm = nn.RMSNorm(config.width, config.eps)
        self.feed_gate = nn.Linear(config.width, config.feed, bias=False)
        self.feed_in = nn.Linear(config.width, config.feed, bias=False)
        self.feed_out = nn.Linear(config.feed, config.width, bias=False)
        self.feed_dropout = Dropout(config.dropout)

    def __call__(self, hidden: mx.array, bias: Bias, rotation: Rotation) -> mx.array:
        return self._feed(hidden, self.attention.mix(*self.attention.inputs(self.attention_norm(hidden), rotation), bias))

    def extend(self, hidden: mx.array, stored: Stored, start: int, bias: mx.array | None, rotation: Rotation) -> tuple[mx.array, Stored]:
        """Do what a call does, for tokens after those whose keys and values are stored; return these with the new ones too."""
        queries, *new = self.attention.inputs(self.attention_norm(hidden), rotation)
        keys, values = (mx.slice_update(old, more, mx.array([start]), axes=(2,)) for old, more in zip(stored, new, strict=True))
        end = start + hidden.shape[1]
        return self._feed(hidden, self.attention.mix(queries, keys[:, :, :end], values[:, :, :end], bias)), (keys, values)

    def _feed(self, hidden: mx.array, mixed: mx.array) -> mx.array:
        hidden = hidden + self.attention_dropout(mixed)
        normed = self.feed_norm(hidden)
        return hidden + self.feed_dropout(self.feed_out(silu(self.feed_gate(normed)) * self.feed_in(normed)))


class _Attention(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.kv_heads = config.kv_heads
        shared = config.width // config.heads * config.kv_heads
        self.query = nn.Linear(config.width, config.width, bias=config.qkv_bias)
        self.key = nn.Linear(config.width, shared, bias=config.qkv_bias)
        self.value = nn.Linear(config.width, shared, bias=config.qkv_bias)
        self.dropout = Dropout(config.attention_dropout)
        self.output = nn.Linear(config.width, config.width, bias=False)

    def inputs(self, hidden: mx.array, rotation: Rotation) -> tuple[mx.array, mx.array, mx.array]:
        """Compute queries, keys and values, the first two rotated by their positions."""
        queries, keys = split_heads(self.query(hidden), self.heads), split_heads(self.key(hidden), self.kv_heads)
        return rotate(queries, rotation), rotate(keys, rotation), split_heads(self.value(hidden), self.kv_heads)

    def mix(self, queries: mx.array, keys: mx.array, values: mx.array, bias: Bias) -> mx.array:
        """Attend, and join the heads."""
        return self.output(join_heads(attend(queries, keys, values, bias, self.dropout)))
