"""Half precision inside the loss, float32 outside; and the naive version that never learns."""

from typing import ClassVar

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten
from mlxfp.training.steps.precision import cast_floating, first_scale, lower_inputs, next_scale
from mlxfp.training.steps.state import same_arrays, train_state
from tests.training.samples import deep, group, net, setting

HALVES = pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=["bfloat16", "float16"])


class Recording(nn.Module):
    """A layer that notes the dtypes that it computes in, for all its copies."""

    seen: ClassVar = set()

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def __call__(self, x):
        result = self.inner(x)
        self.seen.update(str(array.dtype).removeprefix("mlx.core.") for array in (x, self.inner.weight, result))
        return result


@HALVES
def test_the_model_computes_in_half_precision_and_the_state_stays_float32(dtype):
    model, targets = Recording(), []
    model.seen.clear()

    def loss(model, batch):
        targets.append(batch["x"].dtype)
        return fp.losses.cross_entropy(model(batch["x"]), batch["label"])

    step = fp.train_step(model, loss, fp.optimizers.adamw(0.01), compute_dtype=dtype)
    state = train_state(model, fp.optimizers.adamw(0.01))
    after, _ = step(state, group())
    assert {leaf.dtype for leaf in flatten([after.params, after.opt["inner"]])[1]} == {mx.float32}
    assert model.seen == {str(dtype).removeprefix("mlx.core.")}
    assert targets == [mx.float32]  # the loss sees the batch as it came


def test_bfloat16_at_a_small_rate_learns_with_float32_masters_and_not_without():
    def trained(model, **options):
        def loss(model, batch):
            return fp.losses.mse(model(batch["x"]), mx.ones((6, 2), batch["x"].dtype))

        step, state = fp.train_step(model, loss, fp.optimizers.adamw(1e-4), **options), train_state(model, fp.optimizers.adamw(1e-4))
        before = state
        for _ in range(30):
            state, _ = step(state, {"x": group()["x"].astype(next(iter(flatten(state.params)[1])).dtype)})
        return before.params, state.params

    def model():
        layer = nn.Linear(3, 2)
        layer.weight, layer.bias = mx.full((2, 3), 0.5), mx.full(2, 0.5)
        return layer

    naive = model()
    naive.set_dtype(mx.bfloat16)
    with pytest.warns(
        RuntimeWarning, match=r"round to nothing, .* got weight mlx\.core\.bfloat16.* model\.set_dtype\(mx\.float32\)"
    ) as caught:
        assert same_arrays(*trained(naive))  # 0.5 - 1e-4 rounds to 0.5, thirty times over
    assert caught[0].filename == __file__
    before, after = trained(model(), compute_dtype=mx.bfloat16)
    moved = np.abs(np.array(after["weight"]) - np.array(before["weight"]))
    assert (moved > 20e-4).all()


@HALVES
def test_updates_are_near_those_of_float32(dtype):
    options = {"model": deep(rate=0.0), "optimizer": optimizers.SGD(0.1)}
    (exact, state), (half, _) = setting(**options), setting(**options, compute_dtype=dtype)
    expected, after = exact(state, group())[0], half(state, group())[0]
    ours, theirs, before = (
        np.concatenate([np.array(leaf).ravel() for leaf in flatten(each.params)[1]]) for each in (after, expected, state)
    )
    assert np.linalg.norm(ours - theirs) < (0.02 if dtype == mx.bfloat16 else 0.002) * np.linalg.norm(theirs - before)


def test_gradients_that_vanish_in_float16_are_saved_by_the_scale():
    def loss(model, batch):
        return (model(batch["x"]).astype(mx.float32) * 1e-7).sum(), 1.0

    model = nn.Linear(3, 1)
    step, state = fp.train_step(model, loss, optimizers.SGD(1.0), compute_dtype=mx.float16), train_state(model, optimizers.SGD(1.0))
    naive = mx.grad(lambda bias: (bias.astype(mx.float16).astype(mx.float32) * 1e-8).sum())(mx.zeros(1))
    assert naive.item() == 0.0
    after, _ = step(state, {"x": group()["x"]})
    assert after.opt["step"].item() == 1
    assert (state.params["bias"] - after.params["bias"]).item() == pytest.approx(6e-7, rel=0.1)


def test_an_overflow_is_skipped_and_halves_the_scale_until_the_gradients_fit():
    def loss(model, batch):
        return (model(batch["x"]).astype(mx.float32) * 8).sum(), 1.0

    model = nn.Linear(3, 1)
    optimizer = optimizers.SGD(1.0)
    step, state = fp.train_step(model, loss, optimizer, compute_dtype=mx.float16, ema=0.5), train_state(model, optimizer)
    seen = []
    for _ in range(6):
        before = state
        state, metrics = step(state, {"x": mx.ones((1, 3))})
        seen.append((metrics["loss_scale"].item(), metrics["skipped"].item()))
        assert same_arrays(before.params, state.params) == bool(metrics["skipped"].item())
        assert same_arrays(before.opt, state.opt) == bool(metrics["skipped"].item())
    # 8 times 2**13 is the first power of two above the largest float16, 65504.
    assert seen == [(2.0**16, 1), (2.0**15, 1), (2.0**14, 1), (2.0**13, 1), (2.0**12, 0), (2.0**12, 0)]
    assert state.extra["scale"]["finite"].item() == 2


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4500)), max_size=6))
@settings(max_examples=30)
def test_the_scale_follows_its_rule(runs):
    """Against the rule in Python: PyTorch's GradScaler, between bounds."""
    scale, factor, count = first_scale(), 2.0**16, 0
    for finite, length in runs:
        for _ in range(length if finite else min(length, 40)):
            if finite:
                factor, count = (min(factor * 2, 2.0**24), 0) if count + 1 == 2000 else (factor, count + 1)
            else:
                factor, count = max(factor / 2, 1.0), 0
        scale = _run(scale, finite, length if finite else min(length, 40))
    assert (scale["factor"].item(), scale["finite"].item()) == (factor, count)


def _run(scale, finite, times):
    for _ in range(times):
        if finite and scale["finite"].item() < 1990:  # as far as nothing but the count can change
            ahead = min(times, 1990 - scale["finite"].item())
            return _run({**scale, "finite": scale["finite"] + ahead}, finite, times - ahead)
        scale = next_scale(scale, mx.array(finite))
        times -= 1
        if finite and scale["finite"].item() == 0:
            return _run(scale, finite, times)
    return scale


def test_running_statistics_stay_float32():
    step, state = setting(model=net(), compute_dtype=mx.bfloat16)
    after, _ = step(state, group())
    assert {leaf.dtype for leaf in flatten(after.buffers)[1]} == {mx.float32}
    assert not same_arrays(after.buffers, state.buffers)


def test_lowering_casts_floating_point_arrays_alone():
    tree = {"x": mx.ones(2), "n": mx.ones(2, mx.int32), "mask": (mx.array(True), None, "causal", 1.5)}
    cast = cast_floating(tree, mx.float16)
    assert cast["x"].dtype == mx.float16
    assert cast["n"].dtype == mx.int32
    assert cast["mask"][1:] == (None, "causal", 1.5)
    model = nn.Linear(2, 2)
    model.set_dtype(mx.bfloat16)
    lower_inputs(model, mx.bfloat16)
    assert isinstance(model, nn.Linear)
    assert (type(model).__name__, model(mx.ones((1, 2))).dtype) == ("Linear", mx.bfloat16)


def test_parameters_in_half_precision_are_refused_by_name():
    model = deep()
    model.first.set_dtype(mx.bfloat16)
    with pytest.raises(
        ArgumentError, match=r"compute_dtype needs float32 parameters.*got first\.weight mlx\.core\.bfloat16, first\.bias .*set_dtype"
    ):
        setting(model=model, compute_dtype=mx.bfloat16)
