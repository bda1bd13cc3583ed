"""Adapters are written as mlx-lm reads them: the same layers, with the same rank and scale, compute the same."""

import json
import re

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten, tree_unflatten

import mlxfp as fp
from mlxfp.models.adapters import LoRALinear, load_adapters, lora, merge_adapters, save_adapters
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError


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
        (Blocks(), "The model has no adapters: Blocks has no layer with lora_a and lora_b. Add adapters before training: with models.lora"),
        (mixed, "All adapters in a file need the same rank, got 2 in 'head' and 3 in 'layers.0.first'. Create all adapters with one call"),
        (open_too, "4 trainable arrays besides the adapters, such as 'layers.1.first.bias'. These arrays would be lost"),
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


def decoder(*, quantized=False):
    model = fp.models.create("decoder", size="tiny", head="causal_lm", vocab_size=64)
    if quantized:
        nn.quantize(model, group_size=32, bits=8)
    return model.eval()


def trained(model, seed=0):
    """Give the factors of a model other numbers, as training does."""
    names = [name for name, _ in tree_flatten(model.trainable_parameters())]
    drawn = np.random.default_rng(seed)
    arrays = dict(tree_flatten(model.parameters()))
    model.update(tree_unflatten([(name, mx.array(drawn.normal(size=arrays[name].shape).astype(np.float32) / 20)) for name in names]))
    return model


IDS = mx.arange(12)[None]
own_models = pytest.mark.parametrize("make", [decoder, lambda: decoder(quantized=True)], ids=["plain", "quantized"])


@own_models
def test_lora_returns_a_copy_that_computes_the_same_and_trains_its_factors_alone(make):
    model = make()
    before = dict(tree_flatten(model.parameters()))
    trainable = dict(tree_flatten(model.trainable_parameters())).keys()
    adapted = lora(model, rank=3, layers=["*.query", "*.feed_out"], seed=1)
    assert np.array_equal(np.array(adapted(IDS)), np.array(model(IDS)))
    names = dict(tree_flatten(adapted.trainable_parameters()))
    assert {name.rpartition(".")[0] for name in names} == {
        name for name, module in model.named_modules() if name.endswith((".query", ".feed_out"))
    }
    assert {name.rpartition(".")[2] for name in names} == {"lora_a", "lora_b"}
    after = dict(tree_flatten(model.parameters()))
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
    assert dict(tree_flatten(model.trainable_parameters())).keys() == trainable
    assert not adapted.training
    same, other = (lora(model, rank=3, layers=["*.query"], seed=seed) for seed in (1, 2))
    found = [dict(each.named_modules()) for each in (adapted, same, other)]
    name = next(name for name in found[1] if name.endswith(".query"))
    assert mx.array_equal(found[0][name].lora_a, found[1][name].lora_a)
    assert not mx.array_equal(found[1][name].lora_a, found[2][name].lora_a)


@own_models
def test_a_merged_model_computes_what_the_adapted_one_does(make):
    adapted = trained(lora(make(), rank=4))
    merged = merge_adapters(adapted)
    assert not any(isinstance(module, LoRALinear) for _, module in merged.named_modules())
    assert not mx.allclose(adapted(IDS), make()(IDS), atol=1e-2)
    np.testing.assert_allclose(np.array(merged(IDS)), np.array(adapted(IDS)), atol=2e-4)
    with pytest.raises(ArgumentError, match="no adapters to merge: CausalLM has"):
        merge_adapters(merged)


@own_models
def test_adapters_that_are_written_are_read_back(make, tmp_path):
    adapted = trained(lora(make(), rank=4, scale=3.0, dropout=0.1, layers=["*.value", "*.output"]))
    save_adapters(tmp_path, adapted)
    loaded = load_adapters(tmp_path, make())
    assert np.array_equal(np.array(loaded(IDS)), np.array(adapted(IDS)))
    assert dict(tree_flatten(loaded.trainable_parameters())).keys() == dict(tree_flatten(adapted.trainable_parameters())).keys()
    save_adapters(tmp_path / "again", loaded)
    for name in ("adapters.safetensors", "adapter_config.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / name).read_bytes()


def test_a_step_trains_the_factors_and_leaves_the_model_as_it_is():
    model = decoder(quantized=True)
    adapted, optimizer = lora(model, rank=2, dropout=0.1).train(), fp.optimizers.adamw(0.01)
    step, start = fp.train_step(adapted, fp.losses.causal_lm, optimizer), fp.train_state(adapted, optimizer)
    collate = fp.collate(fp.collators.causal(pad_id=0))
    batches = fp.pipe(fp.from_examples([{"input_ids": [5, 6, 7, 8]}] * 4), fp.batch(2), collate)
    end = fp.last(fp.fit(step, start, batches, epochs=5)).state
    adapted.update(end.params)
    adapted.eval()
    asked = mx.array([[5, 6, 7]])
    logits, before = (nn.log_softmax(each(asked), axis=-1)[0, -1, 8].item() for each in (adapted, model))
    assert logits > before
    assert {name.rpartition(".")[2] for name, _ in tree_flatten(end.params)} == {"lora_a", "lora_b"}


def test_layers_that_are_shared_stay_shared():
    model = Blocks()
    model.layers[1] = model.layers[0]
    adapted = lora(model, rank=2)
    assert adapted.layers[1] is adapted.layers[0]
    assert adapted.layers[1].first is not adapted.layers[2].first


def test_what_lora_cannot_adapt_is_refused():
    for call, message in (
        (lambda: lora(Blocks(), layers=["*.third"]), "layers: no linear layer is named '*.third'"),
        (lambda: lora(nn.Linear(2, 2)), "has no such layers. Linear layers of the model: ''. Name the layers to adapt in layers=[...]."),
        (lambda: lora(lora(Blocks())), "The model already has adapters, for example in 'layers."),
        (lambda: lora(Blocks(), dropout=1.0), "dropout must be at least 0 and less than 1, got dropout=1.0"),
        (lambda: lora(Blocks(), rank=0), "rank must be at least 1"),
    ):
        with pytest.raises(ArgumentError, match=re.escape(message)):
            call()


def test_adapters_that_do_not_fit_are_refused(tmp_path):
    save_adapters(tmp_path, lora(decoder(), rank=2))
    with pytest.raises(DataError, match=r"but the model has no linear layer with the name .*\. Pass the base model"):
        load_adapters(tmp_path, Blocks())
    wide = fp.models.create("decoder", size="mini", head="causal_lm", vocab_size=64)
    with pytest.raises(DataError, match=r"but the model has a linear layer of 256 inputs and \d+ outputs with the name"):
        load_adapters(tmp_path, wide)
    config = json.loads((tmp_path / "adapter_config.json").read_text("utf-8"))
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"fine_tune_type": "dora"}), "utf-8")
    with pytest.raises(DataError, match="must describe LoRA with a scale in lora_parameters, got fine_tune_type='dora'"):
        load_adapters(tmp_path, decoder())
    (tmp_path / "adapters.safetensors").unlink()
    with pytest.raises(MissingFileError, match=r"There is no adapters\.safetensors in"):
        load_adapters(tmp_path, decoder())


@pytest.mark.parametrize("quantized", [False, True])
def test_mlx_lm_reads_our_adapters_and_fuses_them_alike(quantized, tmp_path):
    base = llama(quantized=quantized)
    from mlx_lm.tuner.utils import load_adapters as load_theirs

    adapted = trained(lora(base, rank=4, scale=3.0))
    save_adapters(tmp_path, adapted)
    ids, theirs = mx.arange(12)[None], load_theirs(llama(quantized=quantized), str(tmp_path)).eval()
    assert np.array_equal(np.array(adapted.eval()(ids)), np.array(theirs(ids)))
    fused = [(name, module.fuse(dequantize=True)) for name, module in theirs.named_modules() if hasattr(module, "fuse")]
    theirs.update_modules(tree_unflatten(fused))
    merged = merge_adapters(adapted)
    ours, others = (dict(tree_flatten(each.parameters())) for each in (merged, theirs))
    assert ours.keys() == others.keys()
    for name in ours:
        np.testing.assert_allclose(np.array(ours[name]), np.array(others[name]), atol=1e-6)
    np.testing.assert_allclose(np.array(merged(ids)), np.array(adapted(ids)), atol=1e-4)
