"""Adapters are written as mlx-lm reads them: the same layers, with the same rank and scale, compute the same."""

import json
import re

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten

from mlxfp.core.errors import ArgumentError
from mlxfp.models.adapters import save_adapters


class Lora(nn.Module):
    """A layer with an adapter, as mlx-lm writes it."""

    def __init__(self, layer, rank, scale=2.0, dropout=0.05):
        super().__init__()
        self.linear, self.dropout, self.scale = layer, nn.Dropout(dropout), scale
        self.lora_a, self.lora_b = mx.ones((4, rank)), mx.ones((rank, 4))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)


class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [Block() for _ in range(3)]
        self.head = nn.Linear(4, 4)


def adapted(names, **settings):
    """Give a model adapters in the layers of these names; all else is frozen."""
    model = Blocks().freeze()
    found = dict(model.named_modules())
    model.update_modules(tree_unflatten([(name, Lora(found[name], **{"rank": 2} | settings)) for name in names]))
    return model


def saved(folder, model):
    save_adapters(folder, model)
    config = json.loads((folder / "adapter_config.json").read_text("utf-8"))
    return config["num_layers"], config["lora_parameters"].pop("keys"), config["lora_parameters"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["layers.2.first"], (1, ["first"])),
        (["layers.1.first", "layers.1.second", "layers.2.first", "layers.2.second"], (2, ["first", "second"])),
        (["layers.2.second", "head"], (1, ["head", "second"])),
        (["head"], (3, ["head"])),
        (["layers.0.first", "layers.2.first"], (3, ["layers.0.first", "layers.2.first"])),  # not those of the last blocks
        (["layers.1.first", "layers.2.second"], (2, ["layers.1.first", "layers.2.second"])),
    ],
)
def test_layers_are_named_within_blocks_where_that_names_no_others(names, expected, tmp_path):
    count, keys, settings = saved(tmp_path, adapted(names))
    assert (count, keys) == expected
    assert settings == {"rank": 2, "scale": 2.0, "dropout": 0.05}


def test_the_arrays_of_adapters_alone_are_written_whether_they_are_frozen_or_not(tmp_path):
    names = {f"head.{leaf}" for leaf in ("lora_a", "lora_b")}
    for model in (adapted(["head"]), adapted(["head"]).freeze()):
        save_adapters(tmp_path, model)
        assert set(mx.load(str(tmp_path / "adapters.safetensors"))) == names


def test_what_a_file_of_adapters_cannot_hold_is_refused(tmp_path):
    mixed = adapted(["head"])
    mixed.layers[0].first = Lora(nn.Linear(4, 4).freeze(), 3)
    open_too = adapted(["head"])
    open_too.layers[1].unfreeze()
    for model, message in (
        (Blocks(), "The model has no adapters: Blocks holds no layer with lora_a and lora_b. Before training, call model.freeze()"),
        (mixed, "adapters of a file have one rank, got 2 in 'head' and 3 in 'layers.0.first'. Make all of them with one call"),
        (open_too, "4 trainable arrays in addition to its adapters, such as 'layers.1.first.bias': mlx-lm does not read them"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(message)):
            save_adapters(tmp_path, model)
    assert list(tmp_path.iterdir()) == []


def llama(*, quantized=False):
    models = pytest.importorskip("mlx_lm.models.llama", reason="mlx-lm is not installed: pip install 'mlxfp[mlx-lm]'")
    mx.random.seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "intermediate_size": 64, "num_attention_heads": 4, "rms_norm_eps": 1e-5}
    model = models.Model(models.ModelArgs(model_type="llama", vocab_size=64, tie_word_embeddings=False, **sizes))
    if quantized:
        nn.quantize(model, group_size=32, bits=4)
    mx.eval(model.parameters())
    return model.freeze()


@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize(
    ("layers", "keys", "dora"),
    [
        (3, None, False),
        (1, None, False),
        (2, ["self_attn.q_proj", "mlp.up_proj"], True),
        (1, ["self_attn.q_proj", "model.embed_tokens", "lm_head"], False),
        (1, ["self_attn.q_proj", "model.layers.0.mlp.down_proj"], False),
    ],
)
def test_a_model_with_loaded_adapters_computes_as_the_one_that_was_saved(layers, keys, dora, quantized, tmp_path):
    model = llama(quantized=quantized)
    from mlx_lm.tuner.utils import linear_to_lora_layers, load_adapters

    settings = {"rank": 4, "scale": 3.0, "dropout": 0.1} | ({"keys": set(keys)} if keys else {})
    linear_to_lora_layers(model, layers, settings, use_dora=dora)
    trained = [(name, mx.random.normal(array.shape)) for name, array in tree_flatten(model.trainable_parameters())]
    model.update(tree_unflatten(trained))
    save_adapters(tmp_path, model)
    loaded, ids = load_adapters(llama(quantized=quantized), str(tmp_path)), mx.arange(12)[None]
    assert dict(tree_flatten(loaded.parameters())).keys() == dict(tree_flatten(model.parameters())).keys()
    assert np.array_equal(np.array(model.eval()(ids)), np.array(loaded.eval()(ids)))
    assert not np.array_equal(np.array(llama(quantized=quantized)(ids)), np.array(loaded(ids)))
