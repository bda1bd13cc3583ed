"""The tables of transformers for BERT, ModernBERT, Llama and Qwen2; and the encoder that is ours alone, in the same way."""

from collections.abc import Collection
from typing import Any

from attrs import evolve

from mlxfp.core.errors import DataError
from mlxfp.models.bert import BertConfig
from mlxfp.models.decoder import DecoderConfig
from mlxfp.models.encoder import EncoderConfig
from mlxfp.models.formats import Format, HeadFormat, Json, activation_name, count_labels, read_rows
from mlxfp.models.modernbert import ModernBertConfig
from mlxfp.settings.registries import Registry


def _classifier_dropout(json: Json, otherwise: object) -> float:
    rate = json.get("classifier_dropout")
    return float(otherwise if rate is None else rate)  # type: ignore[arg-type]  # a number


def _masked_lm(json: Json) -> tuple[str, dict[str, Any]]:
    for key in ("tie_word_embeddings", "decoder_bias"):
        if not json.get(key, True):
            raise DataError(f"{key} is false, and the language models of mlxfp use their embedding backwards, with a bias.")
    return "masked_lm", {}


_BERT_MASKED_LM = {
    "transform.linear": "cls.predictions.transform.dense",
    "transform.norm": "cls.predictions.transform.LayerNorm",
    "": "cls.predictions",
}

BERT = Format(
    model_type="bert",
    classes="Bert",
    prefix="bert.",
    config=BertConfig,
    keys={
        "vocabulary": "vocab_size",
        "width": "hidden_size",
        "depth": "num_hidden_layers",
        "heads": "num_attention_heads",
        "feed": "intermediate_size",
        "max_length": "max_position_embeddings",
        "types": "type_vocab_size",
        "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "eps": "layer_norm_eps",
    },
    defaults={"vocabulary": 30522},
    fixed={
        "is_decoder": (False,),
        "add_cross_attention": (False,),
        "position_embedding_type": ("absolute", None),
    },
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
        "ForMaskedLM": HeadFormat(("masked_lm",), _BERT_MASKED_LM, _masked_lm),
        "ForPreTraining": HeadFormat((), _BERT_MASKED_LM, _masked_lm),  # without the next sentence
        "ForSequenceClassification": HeadFormat(
            ("classifier", "regressor"),
            {"output": "classifier"},
            lambda json: read_rows(
                json,
                pooling="pooler",
                dropout=_classifier_dropout(json, json.get("hidden_dropout_prob", 0.1)),
                transform=False,
                bias=True,
            ),
        ),
        "ForTokenClassification": HeadFormat(
            ("token_classifier",),
            {"output": "classifier"},
            lambda json: (
                "token_classifier",
                {
                    "outputs": count_labels(json),
                    "dropout": _classifier_dropout(json, json.get("hidden_dropout_prob", 0.1)),
                    "transform": False,
                },
            ),
        ),
    },
    read_rest=lambda json, weights: {"pooler": any(name.endswith("pooler.dense.weight") for name in weights)},
    write_rest=lambda config: {},
    # As checkpoints of TensorFlow were converted; the bias of the output layer was in the file twice.
    renamed={r"\.gamma$": ".weight", r"\.beta$": ".bias", r"^cls\.predictions\.decoder\.bias$": "cls.predictions.bias"},
    dropped=(r"\.position_ids$", r"^cls\.predictions\.decoder\.weight$", r"^cls\.seq_relationship\."),
)


def _read_modernbert(json: Json, weights: Collection[str]) -> dict[str, Any]:
    ropes = json.get("rope_parameters") or {}
    global_base = _rotary_base(ropes.get("full_attention") or {}, json.get("global_rope_theta"), 160_000.0)
    local_base = _rotary_base(ropes.get("sliding_attention") or {}, json.get("local_rope_theta"), 10_000.0)
    if json.get("classifier_activation", "gelu") != json.get("hidden_activation", "gelu"):
        raise DataError(f"classifier_activation is {json.get('classifier_activation', 'gelu')!r}, not that of the layers")
    kinds = json.get("layer_types")
    every = json.get("global_attn_every_n_layers", 3)
    if kinds is not None:
        every = next((place for place, kind in enumerate(kinds) if place and kind == "full_attention"), len(kinds))
        if kinds != _layer_types(len(kinds), every):
            raise DataError(f"layer_types has global layers at no fixed distance: {kinds}")
    return {"global_base": global_base, "local_base": local_base, "global_every": every}


def _write_modernbert(config: ModernBertConfig) -> dict[str, Any]:
    kinds = {"full_attention": config.global_base, "sliding_attention": config.local_base}
    return {
        "global_rope_theta": config.global_base,
        "local_rope_theta": config.local_base,
        "rope_parameters": {kind: {"rope_theta": base, "rope_type": "default"} for kind, base in kinds.items()},
        "global_attn_every_n_layers": config.global_every,
        "layer_types": _layer_types(config.depth, config.global_every),
        "classifier_activation": activation_name(config.activation),
    }


def _layer_types(depth: int, global_every: int) -> list[str]:
    return ["sliding_attention" if place % global_every else "full_attention" for place in range(depth)]


def _rotary_base(rope: Json, given: float | None, default: float) -> float:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise DataError(f"its rotary positions are of the type {kind!r}, not 'default'")
    return float(rope.get("rope_theta", default if given is None else given))


_MODERNBERT_TRANSFORM = {"transform.linear": "head.dense", "transform.norm": "head.norm"}

MODERNBERT = Format(
    model_type="modernbert",
    classes="ModernBert",
    prefix="model.",
    config=ModernBertConfig,
    keys={
        "vocabulary": "vocab_size",
        "width": "hidden_size",
        "depth": "num_hidden_layers",
        "heads": "num_attention_heads",
        "feed": "intermediate_size",
        "max_length": "max_position_embeddings",
        "window": "local_attention",
        "activation": "hidden_activation",
        "embedding_dropout": "embedding_dropout",
        "attention_dropout": "attention_dropout",
        "feed_dropout": "mlp_dropout",
        "eps": "norm_eps",
    },
    defaults={"vocabulary": 50368},
    fixed={
        "norm_bias": (False,),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "classifier_bias": (False,),
    },
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
        "ForMaskedLM": HeadFormat(("masked_lm",), _MODERNBERT_TRANSFORM | {"": "decoder"}, _masked_lm),
        "ForSequenceClassification": HeadFormat(
            ("classifier", "regressor"),
            _MODERNBERT_TRANSFORM | {"output": "classifier"},
            lambda json: read_rows(
                json,
                pooling="mean" if json.get("classifier_pooling") == "mean" else "first",
                dropout=_classifier_dropout(json, 0.0),
                transform=True,
                bias=True,
            ),
        ),
        "ForTokenClassification": HeadFormat(
            ("token_classifier",),
            _MODERNBERT_TRANSFORM | {"output": "classifier"},
            lambda json: (
                "token_classifier",
                {"outputs": count_labels(json), "dropout": _classifier_dropout(json, 0.0), "transform": True},
            ),
        ),
    },
    read_rest=_read_modernbert,
    write_rest=_write_modernbert,
    dropped=(r"^decoder\.weight$",),
)


def _read_llama(json: Json, weights: Collection[str]) -> dict[str, Any]:
    heads, width = json.get("num_attention_heads", 32), json.get("hidden_size", 4096)
    size = json.get("head_dim") or width // heads
    if size * heads != width:
        raise DataError(f"head_dim is {size}, not hidden_size / num_attention_heads = {width // heads}")
    rope = json.get("rope_parameters") or json.get("rope_scaling") or {}
    return {"kv_heads": json.get("num_key_value_heads") or heads, "base": _rotary_base(rope, json.get("rope_theta"), 10_000.0)}


def _write_llama(config: DecoderConfig) -> dict[str, Any]:
    rope = {"rope_theta": config.base, "rope_type": "default"}
    return {"num_key_value_heads": config.kv_heads, "rope_theta": config.base, "rope_parameters": rope, "hidden_act": "silu"}


LLAMA = Format(
    model_type="llama",
    classes="Llama",
    prefix="model.",
    config=DecoderConfig,
    keys={
        "vocabulary": "vocab_size",
        "width": "hidden_size",
        "depth": "num_hidden_layers",
        "heads": "num_attention_heads",
        "feed": "intermediate_size",
        "max_length": "max_position_embeddings",
        "attention_dropout": "attention_dropout",
        "eps": "rms_norm_eps",
    },
    defaults={"vocabulary": 32000, "width": 4096, "depth": 32, "heads": 32, "feed": 11008, "max_length": 2048, "eps": 1e-6},
    fixed={"hidden_act": ("silu", "swish"), "attention_bias": (False,), "mlp_bias": (False,)},
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
            ("causal_lm",), {"output": "lm_head"}, lambda json: ("causal_lm", {"tied": bool(json.get("tie_word_embeddings", False))})
        ),
        "ForSequenceClassification": HeadFormat(
            ("classifier", "regressor"),
            {"output": "score"},
            lambda json: read_rows(json, pooling="last", dropout=0.0, transform=False, bias=False),
        ),
        "ForTokenClassification": HeadFormat(
            ("token_classifier",),
            {"output": "score"},
            lambda json: (
                "token_classifier",
                {"outputs": count_labels(json), "dropout": _classifier_dropout(json, 0.1), "transform": False},
            ),
        ),
    },
    read_rest=_read_llama,
    write_rest=_write_llama,
    dropped=(r"\.rotary_emb\.inv_freq$", r"^lm_head\.weight$"),
)

QWEN2 = evolve(
    LLAMA,
    model_type="qwen2",
    classes="Qwen2",
    defaults=LLAMA.defaults | {"vocabulary": 151936, "feed": 22016, "max_length": 32768},  # type: ignore[operator]  # a dict
    fixed={"hidden_act": ("silu", "swish"), "use_sliding_window": (False,)},
    read_rest=lambda json, weights: _read_llama(json, weights) | {"qkv_bias": True},
)

ENCODER = Format(
    model_type="mlxfp_encoder",
    classes="MlxfpEncoder",
    prefix="body.",
    config=EncoderConfig,
    keys={"vocabulary": "vocab_size"},
    defaults={},
    fixed={},
    modules={},
    heads={},
    read_rest=lambda json, weights: {},
    write_rest=lambda config: {},
)

FORMATS: Registry[Format] = Registry("model_type", {format.model_type: format for format in (BERT, MODERNBERT, LLAMA, QWEN2, ENCODER)})


def format_of(config: object) -> Format:
    """Return the format that a body with this config is written in."""
    if isinstance(config, DecoderConfig):
        return QWEN2 if config.qkv_bias else LLAMA
    return next(format for format in (BERT, MODERNBERT, ENCODER) if isinstance(config, format.config))  # type: ignore[arg-type]  # classes
