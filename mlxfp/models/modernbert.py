"""ModernBERT: a bidirectional encoder with rotary positions, local and global attention in turn, gated layers and no biases."""

import mlx.core as mx
from attrs import frozen
from mlx import nn

from mlxfp.core.checks import check_choice, check_positive
from mlxfp.models.activations import ACTIVATIONS, Activation
from mlxfp.models.attention import (
    Rotation,
    attend,
    bias_of,
    check_length,
    join_heads,
    nearby,
    positions_of,
    rotate,
    rotation_of,
    split_heads,
    visible,
)
from mlxfp.models.layers import Dropout, check_above_zero, check_rates, check_rotary, check_sizes, draw_weights
from mlxfp.settings.registries import Registry


@frozen(kw_only=True)
class ModernBertConfig:
    """The sizes of a `ModernBert`; those of ModernBERT base unless given. The width must be a multiple of twice the number of heads.

    `feed` is the inner width of the gated feed-forward layers. Of the blocks, the first and every `global_every`-th from there see the
    whole row; the others only tokens at most `window` // 2 places away. `global_base` and `local_base` are the bases of their rotary
    positions.

    >>> ModernBertConfig(vocabulary=1000, width=64, heads=2).window
    128
    """

    vocabulary: int
    width: int = 768
    depth: int = 22
    heads: int = 12
    feed: int = 1152
    max_length: int = 8192
    global_every: int = 3
    window: int = 128
    global_base: float = 160_000.0
    local_base: float = 10_000.0
    activation: Activation = "gelu"
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    feed_dropout: float = 0.0
    eps: float = 1e-5

    biased = False

    def __attrs_post_init__(self) -> None:
        """Check the sizes."""
        sizes = {"vocabulary": self.vocabulary, "depth": self.depth, "feed": self.feed, "max_length": self.max_length}
        check_sizes(width=self.width, heads=self.heads, **sizes)
        check_rotary(width=self.width, heads=self.heads)
        check_positive(global_every=self.global_every, window=self.window)
        check_choice(ACTIVATIONS, activation=self.activation)
        check_above_zero(global_base=self.global_base, local_base=self.local_base, eps=self.eps)
        rates = {"attention_dropout": self.attention_dropout, "feed_dropout": self.feed_dropout}
        check_rates(embedding_dropout=self.embedding_dropout, **rates)


# Mini to medium are those of Weller et al., "Seq vs Seq: An Open Suite of Paired Encoders and Decoders" (Ettin, 17 to 68 million
# parameters), 2025; base and large those of ModernBERT. Tiny is ours, for small data on a CPU.
MODERNBERT_SIZES: Registry[dict[str, int]] = Registry(
    "size",
    {
        "tiny": {"width": 128, "depth": 4, "heads": 4, "feed": 192},
        "mini": {"width": 256, "depth": 7, "heads": 4, "feed": 384},
        "small": {"width": 384, "depth": 10, "heads": 6, "feed": 576},
        "medium": {"width": 512, "depth": 19, "heads": 8, "feed": 768},
        "base": {"width": 768, "depth": 22, "heads": 12, "feed": 1152},
        "large": {"width": 1024, "depth": 28, "heads": 16, "feed": 2624},
    },
)


class ModernBert(nn.Module):
    """Turn token ids into one vector a token, each seeing the real tokens of its row, or those nearby.

    Warner et al., "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder", 2024. Weights are drawn from `seed`.

    >>> body = ModernBert(ModernBertConfig(vocabulary=100, width=16, heads=2, depth=2, feed=32), seed=0)
    >>> body(mx.array([[5, 6, 0]]), mx.array([[1, 1, 0]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: ModernBertConfig, *, seed: int = 0) -> None:
        """Make the layers and draw their weights."""
        super().__init__()
        self.config = config
        self.width = config.width
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.tokens_norm = _norm(config)
        self.dropout = Dropout(config.embedding_dropout)
        self.blocks = [_Block(config, first=place == 0) for place in range(config.depth)]
        self.norm = _norm(config)
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

        Rows may be padded, on either side, or hold several documents without padding: then `segment_ids`, int[B, L], number the
        documents of each row, and tokens see their own only. `positions`, int[B, L], can be left out: only their differences count.

        Raises `ArgumentError` for rows longer than `max_length`. Vectors at padding mean nothing.
        """
        config, length = self.config, ids.shape[1]
        check_length("ModernBERT", length, config.max_length)
        hidden = self.dropout(self.tokens_norm(self.tokens(ids)))
        seen = visible(mask, segment_ids)
        places = positions_of(mask, length) if positions is None else positions
        size = config.width // config.heads
        whole = bias_of(hidden.dtype, seen), rotation_of(places, size, config.global_base)
        local = bias_of(hidden.dtype, seen, nearby(length, config.window // 2)), rotation_of(places, size, config.local_base)
        for place, block in enumerate(self.blocks):
            hidden = block(hidden, *(local if place % config.global_every else whole))
        encoded: mx.array = self.norm(hidden)
        return encoded


class _Block(nn.Module):
    def __init__(self, config: ModernBertConfig, *, first: bool) -> None:
        super().__init__()
        self.attention_norm = nn.Identity() if first else _norm(config)  # what goes into the first block is normalised already
        self.attention = _Attention(config)
        self.attention_dropout = Dropout(config.attention_dropout)
        self.feed_norm = _norm(config)
        self.feed_in = nn.Linear(config.width, 2 * config.feed, bias=False)  # what is activated, then what it is multiplied with
        self.activation = ACTIVATIONS[config.activation]
        self.feed_dropout = Dropout(config.feed_dropout)
        self.feed_out = nn.Linear(config.feed, config.width, bias=False)

    def __call__(self, hidden: mx.array, bias: mx.array | None, rotation: Rotation) -> mx.array:
        hidden = hidden + self.attention_dropout(self.attention(self.attention_norm(hidden), bias, rotation))
        active, gate = mx.split(self.feed_in(self.feed_norm(hidden)), 2, axis=-1)
        return hidden + self.feed_out(self.feed_dropout(self.activation(active) * gate))


class _Attention(nn.Module):
    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.inputs = nn.Linear(config.width, 3 * config.width, bias=False)  # queries, keys and values in one product
        self.dropout = Dropout(config.attention_dropout)
        self.output = nn.Linear(config.width, config.width, bias=False)

    def __call__(self, hidden: mx.array, bias: mx.array | None, rotation: Rotation) -> mx.array:
        queries, keys, values = (split_heads(part, self.heads) for part in mx.split(self.inputs(hidden), 3, axis=-1))
        queries, keys = rotate(queries, rotation), rotate(keys, rotation)
        return self.output(join_heads(attend(queries, keys, values, bias, self.dropout)))


def _norm(config: ModernBertConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.width, config.eps, bias=False)
