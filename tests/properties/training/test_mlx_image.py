"""Models of mlx-image that leave out layers at random, EfficientNet and Swin, train with our step."""

from functools import cache
from itertools import islice

import attrs
import mlx.core as mx
import numpy as np
import pytest
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.models.layers import draw_weights
from mlxfp.support.trees import flatten
from mlxfp.testing.laws import assert_compiled_equals_eager, assert_pure_step

MISSING = "mlx-image is not installed, and needs older versions of MLX and numpy than we do: pip install --no-deps mlx-image"
SIDE = 32


def efficientnet():
    """One of a few layers, with batch normalization, stochastic depth, and dropout before its head."""
    model = pytest.importorskip("mlxim.model.efficientnet.efficientnet", reason=MISSING)
    blocks = pytest.importorskip("mlxim.model.efficientnet._blocks", reason=MISSING)
    settings = [blocks.MBConvConfig(1, 3, 2, 8, 8, 1), blocks.MBConvConfig(2, 3, 2, 8, 8, 2)]
    return model.EfficientNet(settings, 0.2, stochastic_depth_prob=0.8, num_classes=3, last_channel=16)


def swin():
    """One of a few layers, with shifted windows and stochastic depth."""
    model = pytest.importorskip("mlxim.model.swin_transformer.swin_transformer", reason=MISSING)
    return model.SwinTransformer([4, 4], 8, [1, 2], [1, 2], [4, 4], mlp_ratio=1.0, stochastic_depth_prob=0.8, num_classes=3)


CASES = {"EfficientNet": efficientnet, "Swin": swin}


@cache  # compiled once for all tests
def made(name):
    model, optimizer = CASES[name](), optimizers.AdamW(1e-3)
    draw_weights(model, 0)
    model.train()
    return model, fp.train_step(model, loss, optimizer), fp.train_state(model, optimizer, seed=3)


def loss(model, batch):
    return fp.losses.cross_entropy(model(batch["images"]), batch["labels"])


def batches():
    draw = np.random.default_rng(0)
    for _ in range(4):
        images = draw.standard_normal((4, SIDE, SIDE, 3)).astype(np.float32)
        yield {"images": mx.array(images), "labels": mx.array(draw.integers(0, 3, 4).astype(np.int32))}


@pytest.mark.parametrize("name", CASES)
def test_a_step_of_a_model_of_mlx_image_is_pure_and_compiled_equals_eager(name):
    _, step, state = made(name)
    batch = next(batches())
    assert_pure_step(step, state, batch)
    assert_compiled_equals_eager(step, state, batch, tolerance=1e-4)  # batch normalization of four pictures amplifies rounding


@pytest.mark.parametrize("name", CASES)
def test_layers_of_a_model_of_mlx_image_are_left_out_anew_in_each_step(name):
    _, step, state = made(name)
    batch = next(batches())
    found = [step(attrs.evolve(state, step=number), batch)[1]["loss"].item() for number in (0, 1, 2, 0)]
    assert len(set(found)) == 3
    assert found[0] == found[3]


@pytest.mark.parametrize("name", CASES)
def test_a_run_of_a_model_of_mlx_image_continues_exactly(name, tmp_path):
    _, step, state = made(name)
    whole = fp.last(fp.fit(step, state, list(batches()), epochs=1)).state
    half = fp.last(fp.fit(step, state, list(islice(batches(), 2)), epochs=1)).state
    fp.save_state(tmp_path / "half.safetensors", half)
    resumed = fp.load_state(tmp_path / "half.safetensors", state).state
    assert fp.last(fp.fit(step, resumed, list(islice(batches(), 2, None)), epochs=1)).state == whole
    (_, ours), (_, first) = flatten(whole.params), flatten(state.params)
    assert not all(np.array_equal(a, b) for a, b in zip(ours, first, strict=True))


def test_efficientnet_has_buffers_that_follow_the_batches():
    model, step, state = made("EfficientNet")
    assert any(isinstance(module, nn.BatchNorm) for module in model.modules())
    after, _ = step(state, next(batches()))
    (_, before), (_, now) = flatten(state.buffers), flatten(after.buffers)
    assert any(not np.array_equal(a, b) for a, b in zip(before, now, strict=True))
