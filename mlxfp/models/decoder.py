"""Causal transformer: rotary positions, grouped-query attention, gated layers, and a key-value cache for text generation."""

from typing import Any

import mlx.core as mx
from attrs import evolve, field, frozen
from mlx import nn

from mlxfp.models.activations import silu
from mlxfp.models.attention import (
    Attention,
    Bias,
    Rotation,
    bias_of,
    bias_within,
    check_length,
    earlier,
    positions_of,
    rotation_of,
    visible,
)
from mlxfp.models.banded import check_documents
from mlxfp.models.formats import Architecture, Format, HeadFormat, Json, classifier_dropout, classifier_heads, rotary_base
from mlxfp.models.layers import Body, Config, Dropout, Input, draw_weights, size_table
from mlxfp.support.checks import check_not_negative, check_positive, explain_class
from mlxfp.support.errors import ArgumentError, DataError

Stored = tuple[mx.array, mx.array]  # the keys and the values of a block: two arrays [B, num_key_value_heads, capacity, head_dim]


@explain_class
@frozen(kw_only=True)
class DecoderConfig(Config):
    """Sizes of a `Decoder`, named as in the config.json of Llama and Qwen2.

    `hidden_size` must be a multiple of 2 * `num_attention_heads`, and `num_attention_heads` a multiple of `num_key_value_heads`, because
    groups of query heads share a key and value head. `intermediate_size` is the inner width of the gated feed-forward layers,
    `rope_theta` the base of the rotary positions. `hidden_dropout_prob` is the dropout rate of embeddings and layer outputs,
    `attention_dropout` the rate of attention weights. `qkv_bias=True` adds biases to queries, keys and values, as in Qwen2.

    >>> DecoderConfig(vocab_size=1000, hidden_size=64, num_attention_heads=4, num_key_value_heads=2).head_dim
    16
    """

    rotary = True
    vocab_size: int
    hidden_size: int = 128
    num_hidden_layers: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    intermediate_size: int = 384
    max_position_embeddings: int = 2048
    rope_theta: float = 10_000.0
    hidden_dropout_prob: float = 0.0
    attention_dropout: float = 0.0
    qkv_bias: bool = False
    rms_norm_eps: float = 1e-5

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        heads, shared = self.num_attention_heads, self.num_key_value_heads
        if heads % shared:
            given = f"got num_attention_heads={heads} and num_key_value_heads={shared}"
            raise ArgumentError(f"num_attention_heads must be a multiple of num_key_value_heads, {given}. Change one of these numbers.")


# Size "base" is the size of SmolLM2 (135 million parameters with its vocabulary). The other sizes are specific to mlxfp.
DECODER_SIZES = size_table(
    ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size"),
    tiny=(128, 4, 4, 2, 384),
    mini=(256, 6, 4, 2, 768),
    small=(384, 12, 6, 2, 1024),
    base=(576, 30, 9, 3, 1536),
)


@frozen(eq=False)
class Cache:
    """Cached keys and values of the tokens so far, with a mask of the real tokens.

    `Decoder.cache` returns an empty cache, and `Decoder.extend` returns a new cache. A cache is immutable, so several extensions with
    different tokens may start from the same cache. The arrays have room for `capacity` tokens from the start.

    >>> Decoder(DecoderConfig(vocab_size=10, hidden_size=16, num_hidden_layers=1, num_attention_heads=2)).cache(1, capacity=8).capacity
    8
    """

    blocks: tuple[Stored, ...] = field(repr=False)
    real: mx.array = field(repr=False)  # bool[B, length]
    length: int
    capacity: int


class Decoder(Body):
    """Causal transformer backbone: maps token ids to one vector per token. Each token sees itself and earlier tokens.

    Architecture of Touvron et al., "LLaMA", 2023, with grouped-query attention of Ainslie et al., "GQA", 2023. `seed` initializes the
    weights. The head `CausalLM` predicts the next token.

    >>> decoder = Decoder(DecoderConfig(vocab_size=100, hidden_size=16, num_hidden_layers=1, intermediate_size=32), seed=0)
    >>> decoder(mx.array([[5, 6, 7]])).shape
    (1, 3, 16)
    """

    def __init__(self, config: DecoderConfig, *, seed: int = 0) -> None:
        """Create and initialize the layers."""
        super().__init__(config, "silu", eps=config.rms_norm_eps, bias=False)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.blocks = [_Block(config) for _ in range(config.num_hidden_layers)]
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        draw_weights(self, seed, narrowed=(".output", ".feed_out"), narrowing=(2 * config.num_hidden_layers) ** -0.5)

    def __call__(
        self, ids: mx.array, mask: Input = None, *, segment_ids: Input = None, positions: Input = None, longest: int | None = None
    ) -> mx.array:
        """Encode `ids`, int[B, L], to float[B, L, hidden_size]. `mask`, [B, L], is 1 on real tokens; None means no padding.

        `segment_ids`, int[B, L], are the document numbers of packed rows, as `pack` writes them: tokens see only their own document.
        `positions`, int[B, L], are optional; only differences of positions matter. `longest` is the largest number of tokens of a document:
        attention to long packed rows then takes less time and memory, with equal results.

        Raises `ArgumentError` for rows longer than `max_position_embeddings`, and `DataError` for ids outside the vocabulary and for
        documents with more than `longest` tokens. The vectors of padding tokens are undefined.
        """
        length = ids.shape[1]
        check_length("decoder", length, self.config.max_position_embeddings)
        hidden = self.dropout(self.tokens(ids))
        if longest is not None:
            hidden = check_documents(hidden, segment_ids, positions, longest)
        bias = bias_within(hidden, mask, segment_ids, reach=longest, causal=True)
        rotation = self._rotation(positions_of(mask, length) if positions is None else positions)
        for block in self.blocks:
            hidden = block(hidden, bias, rotation)
        encoded: mx.array = self.norm(hidden)
        return encoded

    def cache(self, rows: int, capacity: int) -> Cache:
        """Return an empty cache for `rows` rows of up to `capacity` tokens, including padding."""
        check_not_negative(rows=rows)
        check_positive(capacity=capacity)
        check_length("decoder", capacity, self.config.max_position_embeddings)
        config = self.config
        empty = mx.zeros((rows, config.num_key_value_heads, capacity, config.head_dim), self.norm.weight.dtype)
        return Cache(((empty, empty),) * config.num_hidden_layers, mx.zeros((rows, 0), mx.bool_), 0, capacity)

    def extend(self, ids: mx.array, cache: Cache, mask: mx.array | None = None) -> tuple[mx.array, Cache]:
        """Encode tokens that follow the tokens in a cache. Return float[B, L, hidden_size] and the extended cache.

        `ids` and `mask`, [B, L], are the arguments of `model(ids, mask)`. Several extensions give the same vectors as a single call with
        all tokens. Each extension may pad rows on either side. Raises `ArgumentError` if the capacity of the cache is exceeded.
        """
        rows, length = ids.shape
        after = cache.length + length
        if after > cache.capacity:
            raise ArgumentError(
                f"The cache has room for {cache.capacity} tokens, got {length} after {cache.length}. Increase capacity in Decoder.cache."
            )
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
        return rotation_of(positions, self.config.head_dim, self.config.rope_theta)


class _Block(nn.Module):
    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attention = Attention(
            config.hidden_size,
            config.num_attention_heads,
            key_value_heads=config.num_key_value_heads,
            bias=config.qkv_bias,
            output_bias=False,
            dropout=config.attention_dropout,
        )
        self.attention_dropout = Dropout(config.hidden_dropout_prob)
        self.feed_norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.feed_gate = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.feed_in = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.feed_out = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.feed_dropout = Dropout(config.hidden_dropout_prob)

    def __call__(self, hidden: mx.array, bias: Bias, rotation: Rotation) -> mx.array:
        return self._feed(hidden, self.attention(self.attention_norm(hidden), bias, rotation))

    def extend(self, hidden: mx.array, stored: Stored, start: int, bias: mx.array | None, rotation: Rotation) -> tuple[mx.array, Stored]:
        """Apply the block to new tokens. Return the output, and the stored keys and values extended by the new tokens."""
        queries, *new = self.attention.project(self.attention_norm(hidden), rotation)
        keys, values = (mx.slice_update(old, more, mx.array([start]), axes=(2,)) for old, more in zip(stored, new, strict=True))
        end = start + hidden.shape[1]
        return self._feed(hidden, self.attention.mix(queries, keys[:, :, :end], values[:, :, :end], bias)), (keys, values)

    def _feed(self, hidden: mx.array, mixed: mx.array) -> mx.array:
        hidden = hidden + self.attention_dropout(mixed)
        normed = self.feed_norm(hidden)
        return hidden + self.feed_dropout(self.feed_out(silu(self.feed_gate(normed)) * self.feed_in(normed)))


def _read_more(json: Json) -> dict[str, Any]:
    heads, width = json.get("num_attention_heads", 32), json.get("hidden_size", 4096)
    size = json.get("head_dim") or width // heads
    if size * heads != width:
        raise DataError(f"head_dim is {size}, not hidden_size / num_attention_heads = {width // heads}")
    rope = json.get("rope_parameters") or json.get("rope_scaling") or {}
    base = rotary_base(rope, json.get("rope_theta"), 10_000.0)
    return {"num_key_value_heads": json.get("num_key_value_heads") or heads, "rope_theta": base}


_LLAMA = Format(
    model_type="llama",
    classes="Llama",
    prefix="model.",
    config=DecoderConfig,
    modules={
        "tokens": "embed_tokens",
        "blocks.{}.attention_norm": "layers.{}.input_layernorm",
        "blocks.{}.attention.query": "layers.{}.self_attn.q_proj",
        "blocks.{}.attention.key": "layers.{}.self_attn.k_proj",
        "blocks.{}.attention.value": "layers.{}.self_attn.v_proj",
        "blocks.{}.attention.output": "layers.{}.self_attn.o_proj",
        "blocks.{}.feed_norm": "layers.{}.post_attention_layernorm",
        "blocks.{}.feed_gate": "layers.{}.mlp.gate_proj",
        "blocks.{}.feed_in": "layers.{}.mlp.up_proj",
        "blocks.{}.feed_out": "layers.{}.mlp.down_proj",
        "norm": "norm",
    },
    heads={
        "ForCausalLM": HeadFormat(
            ("causal_lm",),
            {"output": "lm_head"},
            lambda json: ("causal_lm", {"tie_word_embeddings": bool(json.get("tie_word_embeddings", False))}),
        ),
        **classifier_heads(
            {"output": "score"},
            lambda json: {"dropout": classifier_dropout(json, 0.1), "transform": False},
            lambda json: {"pooling": "last", "dropout": 0.0, "bias": False},
        ),
    },
    defaults={
        "vocab_size": 32000,
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "intermediate_size": 11008,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
    },
    allowed={"hidden_act": ("silu", "swish"), "attention_bias": (False,), "mlp_bias": (False,)},
    constants={"qkv_bias": False},
    read_more=_read_more,
    write_more=lambda config: {"rope_parameters": {"rope_theta": config.rope_theta, "rope_type": "default"}},
    dropped=(r"\.rotary_emb\.inv_freq$", r"^lm_head\.weight$"),
)
_QWEN2 = evolve(
    _LLAMA,
    model_type="qwen2",
    classes="Qwen2",
    defaults={**_LLAMA.defaults, "vocab_size": 151936, "intermediate_size": 22016, "max_position_embeddings": 32768},
    allowed={"hidden_act": ("silu", "swish"), "use_sliding_window": (False,)},
    constants={"qkv_bias": True},
)

_ROWS = {"pooling": "last", "bias": False, "dropout": 0.0}
DECODER = Architecture(Decoder, DecoderConfig, DECODER_SIZES, 49152, rows=_ROWS, formats=(_LLAMA, _QWEN2))
