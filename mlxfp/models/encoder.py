"""A small bidirectional transformer encoder: learned positions, pre-norm blocks, padding masked out."""

import mlx.core as mx
from attrs import frozen
from mlx import nn

from mlxfp.models.attention import attend, bias_of, check_length, join_heads, positions_of, split_heads, visible
from mlxfp.models.layers import Dropout, check_rates, check_sizes, draw_weights
from mlxfp.settings.registries import Registry


@frozen(kw_only=True)
class EncoderConfig:
    """The sizes of an `Encoder`. The width must be a multiple of the number of heads.

    >>> EncoderConfig(vocabulary=1000, width=64).heads
    4
    """

    vocabulary: int
    width: int = 128
    depth: int = 2
    heads: int = 4
    max_length: int = 512
    dropout: float = 0.1

    activation = "relu"
    biased = True
    eps = 1e-5

    def __attrs_post_init__(self) -> None:
        """Check the sizes."""
        check_sizes(width=self.width, heads=self.heads, vocabulary=self.vocabulary, depth=self.depth, max_length=self.max_length)
        check_rates(dropout=self.dropout)


ENCODER_SIZES: Registry[dict[str, int]] = Registry(
    "size",
    {
        "tiny": {"width": 64, "depth": 2, "heads": 4},
        "mini": {"width": 128, "depth": 2, "heads": 4},
        "small": {"width": 256, "depth": 4, "heads": 8},
    },
)


class Encoder(nn.Module):
    """Turn token ids into one vector a token, each seeing every real token of its row.

    Pre-norm blocks (Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020) of attention and a ReLU layer four
    times as wide, over token plus learned position embeddings. Weights are drawn from `seed`.

    >>> encoder = Encoder(EncoderConfig(vocabulary=100, width=16), seed=0)
    >>> encoder(mx.array([[5, 6, 7]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: EncoderConfig, *, seed: int = 0) -> None:
        """Make the layers and draw their weights."""
        super().__init__()
        self.config = config
        self.width = config.width
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.max_length, config.width)
        self.dropout = Dropout(config.dropout)
        self.blocks = [_Block(config) for _ in range(config.depth)]
        self.norm = nn.LayerNorm(config.width)
        draw_weights(self, seed)

    def __call__(self, ids: mx.array, mask: mx.array | None = None) -> mx.array:
        """Encode `ids`, int[B, L], to float[B, L, width]; `mask`, [B, L], is 1 on real tokens, None where all are.

        Raises `ArgumentError` for rows longer than `max_length`. Vectors at padding mean nothing.
        """
        length = ids.shape[1]
        check_length("encoder", length, self.config.max_length)
        hidden = self.dropout(self.tokens(ids) + self.positions(positions_of(mask, length)))
        bias = bias_of(hidden.dtype, visible(mask, None))
        for block in self.blocks:
            hidden = block(hidden, bias)
        encoded: mx.array = self.norm(hidden)
        return encoded


class _Block(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = _Attention(config)
        self.attention_dropout = Dropout(config.dropout)
        self.feed_norm = nn.LayerNorm(config.width)
        self.feed_in = nn.Linear(config.width, 4 * config.width)
        self.feed_out = nn.Linear(4 * config.width, config.width)
        self.feed_dropout = Dropout(config.dropout)

    def __call__(self, hidden: mx.array, bias: mx.array | None) -> mx.array:
        hidden = hidden + self.attention_dropout(self.attention(self.attention_norm(hidden), bias))
        # ReLU: on a CPU, the GELU of `activations` takes four times as long and that of MLX thirty times.
        return hidden + self.feed_dropout(self.feed_out(nn.relu(self.feed_in(self.feed_norm(hidden)))))


class _Attention(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.inputs = nn.Linear(config.width, 3 * config.width)  # queries, keys and values in one product
        self.output = nn.Linear(config.width, config.width)

    def __call__(self, hidden: mx.array, bias: mx.array | None) -> mx.array:
        queries, keys, values = (split_heads(part, self.heads) for part in mx.split(self.inputs(hidden), 3, axis=-1))
        return self.output(join_heads(attend(queries, keys, values, bias)))
