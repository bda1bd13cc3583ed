"""Small bidirectional transformer encoder with learned positions and pre-norm blocks."""

import mlx.core as mx
from attrs import frozen
from mlx import nn

from mlxfp.models.attention import Attention, bias_of, check_length, positions_of, visible
from mlxfp.models.formats import Architecture, Format
from mlxfp.models.layers import Body, Config, Dropout, Embedding, draw_weights, size_table
from mlxfp.support.checks import explain_class


@explain_class
@frozen(kw_only=True)
class EncoderConfig(Config):
    """Sizes of an `Encoder`. `hidden_size` must be a multiple of `num_attention_heads`.

    >>> EncoderConfig(vocab_size=1000, hidden_size=64).num_attention_heads
    4
    """

    vocab_size: int
    hidden_size: int = 128
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    max_position_embeddings: int = 512
    hidden_dropout_prob: float = 0.1


ENCODER_SIZES = size_table(
    ("hidden_size", "num_hidden_layers", "num_attention_heads"),
    tiny=(64, 2, 4),
    mini=(128, 2, 4),
    small=(256, 4, 8),
)


class Encoder(Body):
    """Bidirectional transformer backbone: maps token ids to one vector per token. Each token sees all real tokens of the row.

    The blocks normalize their input (pre-norm: Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020). Their ReLU
    layers have four times the width of the hidden states. The inputs are token embeddings plus learned position embeddings. `seed`
    initializes the weights.

    >>> encoder = Encoder(EncoderConfig(vocab_size=100, hidden_size=16), seed=0)
    >>> encoder(mx.array([[5, 6, 7]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: EncoderConfig, *, seed: int = 0) -> None:
        """Create and initialize the layers."""
        super().__init__(config, "relu", eps=1e-5)
        self.positions = Embedding(config.max_position_embeddings, config.hidden_size, table="positions")
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.blocks = [_Block(config) for _ in range(config.num_hidden_layers)]
        self.norm = nn.LayerNorm(config.hidden_size)
        draw_weights(self, seed)

    def __call__(self, ids: mx.array, mask: mx.array | None = None) -> mx.array:
        """Encode `ids`, int[B, L], to float[B, L, hidden_size]. `mask`, [B, L], is 1 on real tokens; None means no padding.

        Raises `ArgumentError` for rows longer than `max_position_embeddings`, and `DataError` for ids outside the vocabulary. The vectors
        of padding tokens are undefined.
        """
        length = ids.shape[1]
        check_length("encoder", length, self.config.max_position_embeddings)
        hidden = self.dropout(self.tokens(ids) + self.positions.weight[positions_of(mask, length)])
        bias = bias_of(hidden.dtype, visible(mask, None))
        for block in self.blocks:
            hidden = block(hidden, bias)
        encoded: mx.array = self.norm(hidden)
        return encoded


class _Block(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.attention = Attention(config.hidden_size, config.num_attention_heads)
        self.attention_dropout = Dropout(config.hidden_dropout_prob)
        self.feed_norm = nn.LayerNorm(config.hidden_size)
        self.feed_in = nn.Linear(config.hidden_size, 4 * config.hidden_size)
        self.feed_out = nn.Linear(4 * config.hidden_size, config.hidden_size)
        self.feed_dropout = Dropout(config.hidden_dropout_prob)

    def __call__(self, hidden: mx.array, bias: mx.array | None) -> mx.array:
        hidden = hidden + self.attention_dropout(self.attention(self.attention_norm(hidden), bias))
        # On a CPU, the GELU of `activations` takes four times as long as ReLU, and the GELU of MLX thirty times as long.
        return hidden + self.feed_dropout(self.feed_out(nn.relu(self.feed_in(self.feed_norm(hidden)))))


_FORMAT = Format(model_type="mlxfp_encoder", classes="MlxfpEncoder", prefix="body.", config=EncoderConfig)

ENCODER = Architecture(Encoder, EncoderConfig, ENCODER_SIZES, 30522, formats=(_FORMAT,))
