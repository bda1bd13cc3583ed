"""Tiny models of every architecture and head, and rows for them. Everything is small: compiling takes longer than running."""

import mlx.core as mx
import numpy as np
from attrs import evolve

from mlxfp.models import (
    Bert,
    BertConfig,
    CausalLM,
    Classifier,
    Decoder,
    DecoderConfig,
    Encoder,
    EncoderConfig,
    MaskedLM,
    ModernBert,
    ModernBertConfig,
    Regressor,
    TextCNN,
    TextCNNConfig,
    TokenClassifier,
)

VOCABULARY = 20

SMALL = {"vocab_size": VOCABULARY, "hidden_size": 8, "max_position_embeddings": 24}
CONFIGS = {
    "bert": BertConfig(**SMALL, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12, pooler=True),
    "decoder": DecoderConfig(**SMALL, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=12),
    "encoder": EncoderConfig(**SMALL, num_attention_heads=2),
    "modernbert": ModernBertConfig(
        **SMALL, num_hidden_layers=3, num_attention_heads=2, intermediate_size=6, local_attention=4, global_attn_every_n_layers=2
    ),
    "text_cnn": TextCNNConfig(**SMALL, kernel_sizes=(2, 3)),
}
CLASSES = {"bert": Bert, "decoder": Decoder, "encoder": Encoder, "modernbert": ModernBert, "text_cnn": TextCNN}
PACKED = ("bert", "decoder", "modernbert")  # the bodies that know segments
DROPOUTS = {
    "bert": {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2},
    "decoder": {"hidden_dropout_prob": 0.3, "attention_dropout": 0.2},
    "encoder": {"hidden_dropout_prob": 0.3},
    "modernbert": {"embedding_dropout": 0.1, "attention_dropout": 0.2, "mlp_dropout": 0.3},
    "text_cnn": {},
}


def body(name, *, seed=0, **changes):
    """A body whose weights are larger than usual, so that all of them matter."""
    model = CLASSES[name](evolve(CONFIGS[name], **changes), seed=seed)
    model.update({"tokens": {"weight": 20 * model.tokens.weight}})
    return model.eval()


def models():
    """One of every pair of body and head, by name, and heads in all their forms."""
    made = {}
    for name in CONFIGS:
        made |= {
            f"{name}": body(name),
            f"{name} mean": Classifier(body(name), 3),
            f"{name} max": Classifier(body(name), 3, pooling="max", transform=True, multi_label=True),
            f"{name} first": Classifier(body(name), 2, pooling="first", dropout=0.2),
            f"{name} last": Classifier(body(name), 2, pooling="last", bias=False),
            f"{name} regressor": Regressor(body(name)),
            f"{name} regressor of two": Regressor(body(name), outputs=2, pooling="first", transform=True),
            f"{name} tokens": TokenClassifier(body(name), 3, transform=name != "bert"),
            f"{name} masked": MaskedLM(body(name)),
            f"{name} causal": CausalLM(body(name)),
            f"{name} untied": CausalLM(body(name), tie_word_embeddings=False),
        }
    made["bert pooler"] = Classifier(body("bert"), 3, pooling="pooler")
    return {name: model.eval() for name, model in made.items()}


def rows(lengths, *, width=None, side="right", filler=0, seed=0):
    """Rows of random tokens, the same for the same number and seed, padded to a width with any filler: ids and mask."""
    random = np.random.default_rng(seed)
    tokens = [random.integers(1, VOCABULARY, 24)[:length] for length in lengths]
    width = width or max(lengths)
    ids, mask = np.full((len(lengths), width), filler), np.zeros((len(lengths), width), np.int32)
    for row, real in enumerate(tokens):
        place = slice(0, len(real)) if side == "right" else slice(width - len(real), width)
        ids[row, place], mask[row, place] = real, 1
    return mx.array(ids), mx.array(mask)


def real_outputs(outputs, mask):
    """Outputs at real tokens, in order, for models that answer for tokens; all outputs of others."""
    values, mask = np.array(outputs), np.array(mask)
    return values[mask != 0] if values.shape[:2] == mask.shape and values.ndim == 3 else values


def gap(a, b):
    """The largest difference."""
    return float(abs(np.array(a, np.float64) - np.array(b, np.float64)).max())
