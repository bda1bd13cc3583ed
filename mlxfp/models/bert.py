"""BERT: a bidirectional encoder with learned positions, types of tokens, and blocks that normalise after each sum."""

import mlx.core as mx
from attrs import frozen
from mlx import nn

from mlxfp.core.checks import check_choice
from mlxfp.core.errors import ArgumentError
from mlxfp.models.activations import ACTIVATIONS, Activation
from mlxfp.models.attention import attend, bias_of, check_length, join_heads, positions_of, split_heads, visible
from mlxfp.models.layers import Dropout, check_above_zero, check_rates, check_sizes, draw_weights
from mlxfp.settings.registries import Registry


@frozen(kw_only=True)
class BertConfig:
    """The sizes of a `Bert`; those of BERT base unless given. The width must be a multiple of the number of heads.

    `feed` is the inner width of the feed-forward layers, `types` how many kinds of tokens there are (`token_type_ids`: 0 and 1, for
    the two texts of a pair). `dropout` acts on embeddings and on what each layer adds, `attention_dropout` on the weights of attention.
    `pooler` adds the layer that BERT classifies with: tanh of a linear layer on the vector of the first token.

    >>> BertConfig(vocabulary=1000, width=64, heads=2).depth
    12
    """

    vocabulary: int
    width: int = 768
    depth: int = 12
    heads: int = 12
    feed: int = 3072
    max_length: int = 512
    types: int = 2
    activation: Activation = "gelu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    eps: float = 1e-12
    pooler: bool = False

    biased = True

    def __attrs_post_init__(self) -> None:
        """Check the sizes."""
        sizes = {"vocabulary": self.vocabulary, "depth": self.depth, "feed": self.feed, "max_length": self.max_length, "types": self.types}
        check_sizes(width=self.width, heads=self.heads, **sizes)
        check_choice(ACTIVATIONS, activation=self.activation)
        check_above_zero(eps=self.eps)
        check_rates(dropout=self.dropout, attention_dropout=self.attention_dropout)


# Tiny to medium are those of Turc et al., "Well-Read Students Learn Better", 2019; base and large those of the paper.
BERT_SIZES: Registry[dict[str, int]] = Registry(
    "size",
    {
        "tiny": {"width": 128, "depth": 2, "heads": 2, "feed": 512},
        "mini": {"width": 256, "depth": 4, "heads": 4, "feed": 1024},
        "small": {"width": 512, "depth": 4, "heads": 8, "feed": 2048},
        "medium": {"width": 512, "depth": 8, "heads": 8, "feed": 2048},
        "base": {"width": 768, "depth": 12, "heads": 12, "feed": 3072},
        "large": {"width": 1024, "depth": 24, "heads": 16, "feed": 4096},
    },
)


class Bert(nn.Module):
    """Turn token ids into one vector a token, each seeing every real token of its row.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2019. Weights are drawn from
    `seed`. Put a head of `mlxfp.models` on it, or your own.

    >>> bert = Bert(BertConfig(vocabulary=100, width=16, heads=2, depth=1, feed=32), seed=0).eval()
    >>> bert(mx.array([[5, 6, 0]]), mx.array([[1, 1, 0]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: BertConfig, *, seed: int = 0) -> None:
        """Make the layers and draw their weights."""
        super().__init__()
        self.config = config
        self.width = config.width
        self.tokens = nn.Embedding(config.vocabulary, config.width)
        self.positions = nn.Embedding(config.max_length, config.width)
        self.types = nn.Embedding(config.types, config.width)
        self.norm = nn.LayerNorm(config.width, config.eps)
        self.dropout = Dropout(config.dropout)
        self.blocks = [_Block(config) for _ in range(config.depth)]
        if config.pooler:
            self.pooler = nn.Linear(config.width, config.width)
        draw_weights(self, seed)

    def __call__(
        self,
        ids: mx.array,
        mask: mx.array | None = None,
        *,
        token_type_ids: mx.array | None = None,
        segment_ids: mx.array | None = None,
        positions: mx.array | None = None,
    ) -> mx.array:
        """Encode `ids`, int[B, L], to float[B, L, width]; `mask`, [B, L], is 1 on real tokens, None where all are.

        Tokens are of type 0 without `token_type_ids`, int[B, L]. `segment_ids` and `positions`, int[B, L], are those of packed rows:
        tokens see their own segment only. Without `positions` the real tokens of each row are counted.

        Raises `ArgumentError` for rows longer than `max_length`, and for segments without positions. Vectors at padding mean nothing.
        """
        length = ids.shape[1]
        check_length("BERT", length, self.config.max_length)
        if segment_ids is not None and positions is None:
            raise ArgumentError("BERT has learned positions, got segment_ids without positions. Pass both, as pack makes them.")
        places = positions_of(mask, length) if positions is None else positions
        types = mx.zeros((1, 1), mx.int32) if token_type_ids is None else token_type_ids
        hidden = self.dropout(self.norm(self.tokens(ids) + self.types(types) + self.positions(places)))
        bias = bias_of(hidden.dtype, visible(mask, segment_ids))
        for block in self.blocks:
            hidden = block(hidden, bias)
        return hidden

    def pool(self, hidden: mx.array) -> mx.array:
        """Apply BERT's pooler to the vectors of first tokens: float[B, width] to float[B, width]."""
        if not self.config.pooler:
            raise ArgumentError('This BERT has no pooler. Make it with BertConfig(pooler=True), or choose another pooling, such as "mean".')
        return mx.tanh(self.pooler(hidden))


class _Block(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = _Attention(config)
        self.attention_dropout = Dropout(config.dropout)
        self.attention_norm = nn.LayerNorm(config.width, config.eps)
        self.activation = ACTIVATIONS[config.activation]
        self.feed_in = nn.Linear(config.width, config.feed)
        self.feed_out = nn.Linear(config.feed, config.width)
        self.feed_dropout = Dropout(config.dropout)
        self.feed_norm = nn.LayerNorm(config.width, config.eps)

    def __call__(self, hidden: mx.array, bias: mx.array | None) -> mx.array:
        hidden = self.attention_norm(hidden + self.attention_dropout(self.attention(hidden, bias)))
        fed = self.feed_out(self.activation(self.feed_in(hidden)))
        normed: mx.array = self.feed_norm(hidden + self.feed_dropout(fed))
        return normed


class _Attention(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.query = nn.Linear(config.width, config.width)
        self.key = nn.Linear(config.width, config.width)
        self.value = nn.Linear(config.width, config.width)
        self.dropout = Dropout(config.attention_dropout)
        self.output = nn.Linear(config.width, config.width)

    def __call__(self, hidden: mx.array, bias: mx.array | None) -> mx.array:
        queries, keys, values = (split_heads(layer(hidden), self.heads) for layer in (self.query, self.key, self.value))
        return self.output(join_heads(attend(queries, keys, values, bias, self.dropout)))
