"""ModernBERT: bidirectional encoder with rotary positions, alternating local and global attention, gated layers and no biases."""

from typing import Any

import mlx.core as mx
from attrs import frozen
from mlx import nn

from mlxfp.models.activations import ACTIVATIONS, Activation
from mlxfp.models.attention import Attention, Bias, Rotation, bias_within, check_length, positions_of, rotation_of
from mlxfp.models.banded import check_documents
from mlxfp.models.formats import Architecture, Format, Json, classifier_dropout, classifier_heads, masked_head, rotary_base
from mlxfp.models.layers import Body, Config, Dropout, Input, draw_weights, size_table
from mlxfp.support.checks import explain_class
from mlxfp.support.errors import DataError


@explain_class
@frozen(kw_only=True)
class ModernBertConfig(Config):
    """Sizes of a `ModernBert`, named as in the config.json of transformers. The defaults are the sizes of ModernBERT base.

    `hidden_size` must be a multiple of 2 * `num_attention_heads`. `intermediate_size` is the inner width of the gated feed-forward layers.
    The first block and every `global_attn_every_n_layers`-th block after the first see the whole row. Other blocks see only tokens at most
    `local_attention` // 2 positions away. `global_rope_theta` and `local_rope_theta` are the bases of the rotary positions.

    >>> ModernBertConfig(vocab_size=1000, hidden_size=64, num_attention_heads=2).local_attention
    128
    """

    rotary = True
    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 22
    num_attention_heads: int = 12
    intermediate_size: int = 1152
    max_position_embeddings: int = 8192
    global_attn_every_n_layers: int = 3
    local_attention: int = 128
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    hidden_activation: Activation = "gelu"
    embedding_dropout: float = 0.0
    attention_dropout: float = 0.0
    mlp_dropout: float = 0.0
    norm_eps: float = 1e-5


# Sizes mini to medium are the sizes of Ettin (17 to 68 million parameters; Weller et al., "Seq vs Seq", 2025).
# Sizes base and large are the sizes in the ModernBERT paper. Size tiny is specific to mlxfp, for small data on a CPU.
MODERNBERT_SIZES = size_table(
    ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
    tiny=(128, 4, 4, 192),
    mini=(256, 7, 4, 384),
    small=(384, 10, 6, 576),
    medium=(512, 19, 8, 768),
    base=(768, 22, 12, 1152),
    large=(1024, 28, 16, 2624),
)


class ModernBert(Body):
    """ModernBERT backbone: maps token ids to one vector per token. Depending on the block, tokens see the whole row or only nearby tokens.

    Warner et al., "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder", 2024. `seed` initializes the weights.

    >>> config = ModernBertConfig(vocab_size=100, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
    >>> body = ModernBert(config, seed=0)
    >>> body(mx.array([[5, 6, 0]]), mx.array([[1, 1, 0]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: ModernBertConfig, *, seed: int = 0) -> None:
        """Create and initialize the layers."""
        super().__init__(config, config.hidden_activation, eps=config.norm_eps, bias=False)
        self.tokens_norm = _norm(config)
        self.dropout = Dropout(config.embedding_dropout)
        self.blocks = [_Block(config, first=index == 0) for index in range(config.num_hidden_layers)]
        self.norm = _norm(config)
        draw_weights(self, seed, narrowed=(".output", ".feed_out"), narrowing=(2 * config.num_hidden_layers) ** -0.5)

    def __call__(
        self, ids: mx.array, mask: Input = None, *, segment_ids: Input = None, positions: Input = None, longest: int | None = None
    ) -> mx.array:
        """Encode `ids`, int[B, L], to float[B, L, hidden_size]. `mask`, [B, L], is 1 on real tokens; None means no padding.

        Rows may be padded on either side, or contain several documents without padding. In packed rows, `segment_ids`, int[B, L], are the
        document numbers, and tokens see only their own document. `positions`, int[B, L], are optional; only differences of positions
        matter. `longest` is the largest number of tokens of a document: attention to long packed rows then takes less time and memory, with
        equal results.

        Raises `ArgumentError` for rows longer than `max_position_embeddings`, and `DataError` for ids outside the vocabulary and for
        documents with more than `longest` tokens. The vectors of padding tokens are undefined.
        """
        config, length = self.config, ids.shape[1]
        check_length("ModernBERT", length, config.max_position_embeddings)
        hidden = self.dropout(self.tokens_norm(self.tokens(ids)))
        if longest is not None:
            hidden = check_documents(hidden, segment_ids, positions, longest)
        real_positions = positions_of(mask, length) if positions is None else positions
        window = min(config.local_attention // 2, longest or length)
        whole, local = (bias_within(hidden, mask, segment_ids, reach=reach) for reach in (longest, window))
        global_rotation, local_rotation = (
            rotation_of(real_positions, config.head_dim, base) for base in (config.global_rope_theta, config.local_rope_theta)
        )
        for index, block in enumerate(self.blocks):
            is_local = index % config.global_attn_every_n_layers
            hidden = block(hidden, *((local, local_rotation) if is_local else (whole, global_rotation)))
        encoded: mx.array = self.norm(hidden)
        return encoded


class _Block(nn.Module):
    def __init__(self, config: ModernBertConfig, *, first: bool) -> None:
        super().__init__()
        self.attention_norm = nn.Identity() if first else _norm(config)  # the input of the first block is already normalized
        self.attention = Attention(
            config.hidden_size, config.num_attention_heads, bias=False, output_bias=False, dropout=config.attention_dropout
        )
        self.attention_dropout = Dropout(config.attention_dropout)
        self.feed_norm = _norm(config)
        # The first half of the output enters the activation, the second half is the gate.
        self.feed_in = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.activation = ACTIVATIONS[config.hidden_activation]
        self.feed_dropout = Dropout(config.mlp_dropout)
        self.feed_out = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def __call__(self, hidden: mx.array, bias: Bias, rotation: Rotation) -> mx.array:
        hidden = hidden + self.attention_dropout(self.attention(self.attention_norm(hidden), bias, rotation))
        active, gate = mx.split(self.feed_in(self.feed_norm(hidden)), 2, axis=-1)
        return hidden + self.feed_out(self.feed_dropout(self.activation(active) * gate))


def _norm(config: ModernBertConfig) -> nn.LayerNorm:
    return nn.LayerNorm(config.hidden_size, config.norm_eps, bias=False)


def _read_more(json: Json) -> dict[str, Any]:
    ropes = json.get("rope_parameters") or {}
    global_base = rotary_base(ropes.get("full_attention") or {}, json.get("global_rope_theta"), 160_000.0)
    local_base = rotary_base(ropes.get("sliding_attention") or {}, json.get("local_rope_theta"), 10_000.0)
    if json.get("classifier_activation", "gelu") != json.get("hidden_activation", "gelu"):
        raise DataError(f"classifier_activation is {json.get('classifier_activation', 'gelu')!r}, but must be equal to hidden_activation")
    kinds, every = json.get("layer_types"), json.get("global_attn_every_n_layers")
    every = 3 if every is None else every
    if kinds is not None and kinds != _layer_types(len(kinds), every):
        every = next((index for index, kind in enumerate(kinds) if index and kind == "full_attention"), len(kinds))
        if kinds != _layer_types(len(kinds), every):
            raise DataError(f"layer_types must have 'full_attention' at equal intervals, such as every third layer, got {kinds}")
    return {"global_rope_theta": global_base, "local_rope_theta": local_base, "global_attn_every_n_layers": every}


def _write_more(config: ModernBertConfig) -> dict[str, Any]:
    bases = {"full_attention": config.global_rope_theta, "sliding_attention": config.local_rope_theta}
    return {
        "rope_parameters": {kind: {"rope_theta": base, "rope_type": "default"} for kind, base in bases.items()},
        "layer_types": _layer_types(config.num_hidden_layers, config.global_attn_every_n_layers),
        "classifier_activation": config.hidden_activation,
    }


def _layer_types(depth: int, global_every: int) -> list[str]:
    return ["sliding_attention" if index % global_every else "full_attention" for index in range(depth)]


_TRANSFORM = {"transform.linear": "head.dense", "transform.norm": "head.norm"}
_FORMAT = Format(
    model_type="modernbert",
    classes="ModernBert",
    prefix="model.",
    config=ModernBertConfig,
    modules={
        "tokens": "embeddings.tok_embeddings",
        "tokens_norm": "embeddings.norm",
        "blocks.{}.attention_norm": "layers.{}.attn_norm",
        "blocks.{}.attention.inputs": "layers.{}.attn.Wqkv",
        "blocks.{}.attention.output": "layers.{}.attn.Wo",
        "blocks.{}.feed_norm": "layers.{}.mlp_norm",
        "blocks.{}.feed_in": "layers.{}.mlp.Wi",
        "blocks.{}.feed_out": "layers.{}.mlp.Wo",
        "norm": "final_norm",
    },
    heads={
        "ForMaskedLM": masked_head(_TRANSFORM | {"": "decoder"}),
        **classifier_heads(
            _TRANSFORM | {"output": "classifier"},
            lambda json: {"dropout": classifier_dropout(json, 0.0), "transform": True},
            lambda json: {"pooling": "mean" if json.get("classifier_pooling") == "mean" else "first", "bias": True},
        ),
    },
    defaults={"vocab_size": 50368},
    allowed={
        "norm_bias": (False,),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "classifier_bias": (False,),
        "hidden_activation": tuple(ACTIVATIONS),
    },
    read_more=_read_more,
    write_more=_write_more,
    dropped=(r"^decoder\.weight$",),
)

_HEADS = {"transform": True, "dropout": 0.0}
MODERNBERT = Architecture(ModernBert, ModernBertConfig, MODERNBERT_SIZES, 50368, rows=_HEADS, tokens=_HEADS, formats=(_FORMAT,))
