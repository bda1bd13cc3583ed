"""What parity with transformers is measured on: configs, batches, and the same numbers computed on both sides.

The number that gradients are taken of is the sum of all outputs at real tokens, each times a fixed number between -1 and 1.
"""

from tempfile import TemporaryDirectory

import mlx.core as mx
import numpy as np
from mlx import nn

from mlxfp.models import load, save

SHAPES = {
    "Bert": {
        "vocab_size": 12,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 14,
        "num_labels": 3,
    },
    "ModernBert": {
        "vocab_size": 12,
        "hidden_size": 8,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 6,
        "max_position_embeddings": 14,
        "local_attention": 4,
        "num_labels": 3,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": None,
        "cls_token_id": None,
        "sep_token_id": None,
    },
    "Llama": {
        "vocab_size": 12,
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 12,
        "max_position_embeddings": 14,
        "num_labels": 3,
        "pad_token_id": 0,
        "bos_token_id": None,
        "eos_token_id": None,
    },
}
SHAPES["Qwen2"] = SHAPES["Llama"]


def batch(padding="right", *, lengths=(9, 5, 1), vocabulary=12, types=False):
    """Random rows, padded: ids, mask, and types where the model knows any. Id 0 is padding, and nothing but padding."""
    random = np.random.default_rng(0)
    width = max(lengths)
    ids, mask = np.zeros((2, len(lengths), width), np.int32)
    for row, length in enumerate(lengths):
        place = slice(0, length) if padding == "right" else slice(width - length, width)
        ids[row, place], mask[row, place] = random.integers(1, vocabulary, length), 1
    given = {"ids": ids, "mask": None if padding == "none" else mask}
    if padding == "none":
        given["ids"] = random.integers(1, vocabulary, ids.shape).astype(np.int32)
    return given | ({"token_type_ids": random.integers(0, 2, ids.shape).astype(np.int32)} if types else {})


def probe(shape, mask):
    """The numbers that outputs are multiplied with: 0 at padding."""
    numbers = np.cos(1.0 + np.arange(np.prod(shape))).reshape(shape).astype(np.float32)
    return numbers * mask[..., None] if mask is not None and len(shape) == 3 else numbers


def ours(folder, given, *, dtype=mx.float32):
    """Outputs, and gradients by the names in the files of transformers, of the model in a folder."""
    model = load(folder, dtype=dtype).eval()
    arrays = {name: mx.array(value) for name, value in given.items() if value is not None}

    def measure(model):
        outputs = model(**arrays)
        return (outputs.astype(mx.float32) * mx.array(probe(outputs.shape, given["mask"]))).sum(), outputs

    (_, outputs), gradients = nn.value_and_grad(model, measure)(model)
    model.update(gradients)
    with TemporaryDirectory() as place:
        save(place, model)
        named = {name: to_numpy(array) for name, array in mx.load(f"{place}/model.safetensors").items()}
    return to_numpy(outputs), named


def to_numpy(array):
    return np.array(array.astype(mx.float32))


def largest_differences(mine, other, mask):
    """The largest differences of outputs at real tokens and of gradients. Weights that the outputs do not depend on have none, or zeros."""
    (outputs, gradients), (expected, wanted) = mine, other
    assert outputs.shape == expected.shape
    assert set(wanted) <= set(gradients)
    assert all(not gradient.any() for name, gradient in gradients.items() if name not in wanted)
    real = mask[..., None] if mask is not None and outputs.ndim == 3 else 1
    return float(abs((outputs - expected) * real).max()), float(max(abs(gradients[name] - wanted[name]).max() for name in wanted))


def theirs(folder, name, given, *, weights="float32", dtype="float64"):
    """The same of transformers, with the weights rounded to one dtype and everything computed in another."""
    import torch
    import transformers

    model = getattr(transformers, name).from_pretrained(folder, dtype=getattr(torch, weights), attn_implementation="sdpa").eval()
    model = model.to(getattr(torch, dtype))
    inputs = {"input_ids": torch.tensor(given["ids"]).long()}
    if given["mask"] is not None:
        inputs["attention_mask"] = torch.tensor(given["mask"])
        # BERT of transformers counts padding on the left as tokens, unless it is told the positions.
        inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)
    if "token_type_ids" in given:
        inputs["token_type_ids"] = torch.tensor(given["token_type_ids"]).long()
    outputs = model(**inputs)[0]
    (outputs.double() * torch.tensor(probe(outputs.shape, given["mask"]))).sum().backward()
    gradients = {name: weight.grad.double().numpy() for name, weight in model.named_parameters() if weight.grad is not None}
    return outputs.detach().double().numpy(), gradients


def write_theirs(folder, name, *, seed=0, **changes):
    """Make a model of transformers with random weights and write it to a folder; larger weights than usual, so that all of them matter."""
    import torch
    import transformers

    torch.manual_seed(seed)
    kind = next(kind for kind in SHAPES if name.startswith(kind))
    config = getattr(transformers, f"{kind}Config")(**SHAPES[kind] | changes)
    model = getattr(transformers, name)(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape) * 0.3)
    model.save_pretrained(folder)
