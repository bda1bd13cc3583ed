"""BERT: bidirectional encoder with learned positions, token types and post-norm blocks."""

import mlx.core as mx
from attrs import evolve, frozen
from mlx import nn

from mlxfp.models.activations import ACTIVATIONS, Activation
from mlxfp.models.attention import Attention, Bias, bias_within, check_length, positions_of
from mlxfp.models.banded import check_documents
from mlxfp.models.formats import Architecture, Format, classifier_dropout, classifier_heads, masked_head
from mlxfp.models.layers import Body, Config, Dropout, Embedding, Input, draw_weights, size_table
from mlxfp.support.checks import explain_class
from mlxfp.support.errors import ArgumentError


@explain_class
@frozen(kw_only=True)
class BertConfig(Config):
    """Sizes of a `Bert`, named as in the config.json of transformers. The defaults are the sizes of BERT base.

    `hidden_size` must be a multiple of `num_attention_heads`. `type_vocab_size` is the number of token types (`token_type_ids`: 0 and 1 for
    the two texts of a pair). `hidden_dropout_prob` is the dropout rate of embeddings and layer outputs, `attention_probs_dropout_prob` the
    rate of attention weights. `pooler=True` adds BERT's pooler for classification: tanh of a linear layer on the first token's vector.

    >>> BertConfig(vocab_size=1000, hidden_size=64, num_attention_heads=2).num_hidden_layers
    12
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: Activation = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    layer_norm_eps: float = 1e-12
    pooler: bool = False


# Sizes tiny to medium: Turc et al., "Well-Read Students Learn Better", 2019. Sizes base and large: the BERT paper.
BERT_SIZES = size_table(
    ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    tiny=(128, 2, 2, 512),
    mini=(256, 4, 4, 1024),
    small=(512, 4, 8, 2048),
    medium=(512, 8, 8, 2048),
    base=(768, 12, 12, 3072),
    large=(1024, 24, 16, 4096),
)


class Bert(Body):
    """BERT backbone: maps token ids to one vector per token. Each token sees all real tokens of the row.

    Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding", 2019. `seed` initializes the weights.
    Combine the backbone with a head of `mlxfp.models` or with your own head.

    >>> config = BertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    >>> bert = Bert(config, seed=0).eval()
    >>> bert(mx.array([[5, 6, 0]]), mx.array([[1, 1, 0]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: BertConfig, *, seed: int = 0) -> None:
        """Create and initialize the layers."""
        super().__init__(config, config.hidden_act, eps=config.layer_norm_eps)
        self.positions = Embedding(config.max_position_embeddings, config.hidden_size, table="positions")
        self.types = Embedding(config.type_vocab_size, config.hidden_size, table="token types")
        self.norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.blocks = [_Block(config) for _ in range(config.num_hidden_layers)]
        if config.pooler:
            self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        draw_weights(self, seed)

    def __call__(  # noqa: PLR0913  # the columns of a batch
        self,
        ids: mx.array,
        mask: Input = None,
        *,
        token_type_ids: Input = None,
        segment_ids: Input = None,
        positions: Input = None,
        longest: int | None = None,
    ) -> mx.array:
        """Encode `ids`, int[B, L], to float[B, L, hidden_size]. `mask`, [B, L], is 1 on real tokens; None means no padding.

        Without `token_type_ids`, int[B, L], all tokens have type 0. `segment_ids`, int[B, L], are the document numbers of packed rows:
        tokens see only their own document. Without `positions`, int[B, L], the real tokens of each row are numbered from 0. `longest` is
        the largest number of tokens of a document: attention to long packed rows then takes less time and memory, with equal results.

        Raises `ArgumentError` for rows longer than `max_position_embeddings` and for `segment_ids` without `positions`. Raises `DataError`
        for ids, token types and positions beyond the sizes in the config, and for documents with more than `longest` tokens. The vectors of
        padding tokens are undefined.
        """
        length = ids.shape[1]
        check_length("BERT", length, self.config.max_position_embeddings)
        if segment_ids is not None and positions is None:
            raise ArgumentError(
                "BERT has learned positions, so segment_ids need positions, got None. Pass both arrays from the output of pack."
            )
        # Positions and token types computed here need no check, because they are always inside their embedding tables.
        position_vectors = self.positions.weight[positions_of(mask, length)] if positions is None else self.positions(positions)
        types = self.types.weight[mx.zeros((1, 1), mx.int32)] if token_type_ids is None else self.types(token_type_ids)
        hidden = self.dropout(self.norm(self.tokens(ids) + types + position_vectors))
        if longest is not None:
            hidden = check_documents(hidden, segment_ids, positions, longest)
        bias = bias_within(hidden, mask, segment_ids, reach=longest)
        for block in self.blocks:
            hidden = block(hidden, bias)
        return hidden

    def pool(self, hidden: mx.array) -> mx.array:
        """Apply BERT's pooler to the vectors of first tokens, float[B, hidden_size]. The result has the same shape."""
        if not self.config.pooler:
            raise ArgumentError(
                'This BERT has no pooler. Create the model with BertConfig(pooler=True), or choose another pooling, such as "mean".'
            )
        return mx.tanh(self.pooler(hidden))


class _Block(nn.Module):
    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        heads = config.num_attention_heads
        self.attention = Attention(config.hidden_size, heads, key_value_heads=heads, dropout=config.attention_probs_dropout_prob)
        self.attention_dropout = Dropout(config.hidden_dropout_prob)
        self.attention_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.feed_in = nn.Linear(config.hidden_size, config.intermediate_size)
        self.feed_out = nn.Linear(config.intermediate_size, config.hidden_size)
        self.feed_dropout = Dropout(config.hidden_dropout_prob)
        self.feed_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def __call__(self, hidden: mx.array, bias: Bias) -> mx.array:
        hidden = self.attention_norm(hidden + self.attention_dropout(self.attention(hidden, bias)))
        fed = self.feed_out(self.activation(self.feed_in(hidden)))
        normed: mx.array = self.feed_norm(hidden + self.feed_dropout(fed))
        return normed


_MASKED_LM = masked_head(
    {
        "transform.linear": "cls.predictions.transform.dense",
        "transform.norm": "cls.predictions.transform.LayerNorm",
        "": "cls.predictions",
    }
)
_FORMAT = Format(
    model_type="bert",
    classes="Bert",
    prefix="bert.",
    config=BertConfig,
    modules={
        "tokens": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "types": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
        "blocks.{}.attention.query": "encoder.layer.{}.attention.self.query",
        "blocks.{}.attention.key": "encoder.layer.{}.attention.self.key",
        "blocks.{}.attention.value": "encoder.layer.{}.attention.self.value",
        "blocks.{}.attention.output": "encoder.layer.{}.attention.output.dense",
        "blocks.{}.attention_norm": "encoder.layer.{}.attention.output.LayerNorm",
        "blocks.{}.feed_in": "encoder.layer.{}.intermediate.dense",
        "blocks.{}.feed_out": "encoder.layer.{}.output.dense",
        "blocks.{}.feed_norm": "encoder.layer.{}.output.LayerNorm",
        "pooler": "pooler.dense",
    },
    heads={
        "ForMaskedLM": _MASKED_LM,
        "ForPreTraining": evolve(_MASKED_LM, kinds=()),  # models in this format are read without the next-sentence head, and never written
        **classifier_heads(
            {"output": "classifier"},
            lambda json: {"dropout": classifier_dropout(json, json.get("hidden_dropout_prob", 0.1)), "transform": False},
            lambda json: {"pooling": "pooler", "bias": True},
        ),
    },
    defaults={"vocab_size": 30522},
    allowed={
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "position_embedding_type": ("absolute", None),
        "hidden_act": tuple(ACTIVATIONS),
    },
    detected={"pooler": "pooler.dense.weight"},
    # Weight names of checkpoints converted from TensorFlow. Files may contain the bias of the output layer under two names.
    renamed={r"\.gamma$": ".weight", r"\.beta$": ".bias", r"^cls\.predictions\.decoder\.bias$": "cls.predictions.bias"},
    dropped=(r"\.position_ids$", r"^cls\.predictions\.decoder\.weight$", r"^cls\.seq_relationship\."),
)

BERT = Architecture(Bert, BertConfig, BERT_SIZES, 30522, rows={"pooling": "pooler"}, formats=(_FORMAT,))
