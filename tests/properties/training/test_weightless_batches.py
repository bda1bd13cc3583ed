"""A batch of weight 0 changes nothing but the count of steps, whatever the optimizer and the options keep."""

from functools import cache

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import optimizers

import mlxfp as fp
from mlxfp.support.trees import flatten
from mlxfp.training.steps.state import same_arrays, trees_of
from tests.training.samples import deep, group, net, setting

OPTIONS = {
    "plain": {},
    "clip": {"clip_norm": 1.0},
    "ema": {"ema": 0.9},
    "skip": {"skip_nonfinite": True},
    "half": {"compute_dtype": mx.float16, "model": deep(rate=0.0)},
    "ranks": {"ranks": fp.distributed.connect()},
    "momentum": {"optimizer": optimizers.SGD(0.1, momentum=0.9, weight_decay=0.1)},
    "accumulate": {"accumulate": 2, "ema": 0.9},
}


@cache
def made(name):
    """A step, compiled once for all tests, and its first state; weights decay, and the rate follows a schedule."""
    options = {
        "model": net(rate=0.0),
        "optimizer": fp.optimizers.adamw(fp.schedules.linear_decay(0.1, steps=50, warmup=5), weight_decay=0.1),
    } | OPTIONS[name]
    step, state = setting(**options)
    return step, step.start(state)


def weightless(seed):
    return {**group(seed=seed), "label": mx.full(6, -100)}


def changed(state, other):
    return [name for name, tree in trees_of(state).items() if not same_arrays(tree, trees_of(other)[name])]


@pytest.mark.parametrize("name", sorted(OPTIONS))
@given(st.lists(st.booleans(), min_size=1, max_size=6))
@settings(max_examples=15)
def test_training_with_such_batches_is_training_without_them(name, weighs):
    step, state = made(name)
    places = step._options.accumulate
    expected = state
    for seed, counts in enumerate(weighs):
        for place in range(places):  # with accumulation, all batches of an update
            batch = group(seed=10 * seed + place)
            state, metrics = step(state, batch if counts else weightless(10 * seed + place))
            assert metrics["weight"].item() == 6 * counts
            assert counts or metrics.get("skipped", mx.array(0)).item() == 0
            if counts:
                expected, _ = step(expected, batch)
    assert changed(state, expected) == []
    assert state.step == places * len(weighs)


def test_in_an_update_of_several_batches_those_that_weigh_nothing_add_nothing():
    step, state = setting(model=deep(rate=0.0), accumulate=3, ema=0.9)
    state = step.start(state)
    one, _ = setting(model=deep(rate=0.0), ema=0.9)
    after = state
    for batch in (weightless(0), group(), weightless(1)):
        after, _ = step(after, batch)
    expected, _ = one(attrs.evolve(state, extra={"average": state.extra["average"]}), group())
    for ours, theirs in zip(flatten([after.params, after.opt])[1], flatten([expected.params, expected.opt])[1], strict=True):
        assert np.allclose(np.array(ours), np.array(theirs), atol=1e-6)
    assert after.extra["average"]["updates"].item() == 1
    assert not same_arrays(after.params, state.params)


def test_a_loss_whose_numbers_are_not_finite_changes_nothing_either_where_it_weighs_nothing():
    step, state = setting(model=net(rate=0.0))
    step._loss = lambda model, batch: (model(batch["x"]).sum() * mx.nan, 0)
    after, _ = step(state, group())
    assert after == attrs.evolve(state, step=1)


def test_the_scale_of_half_precision_is_learned_from_batches_that_weigh_something():
    step, state = made("half")
    after, metrics = step(state, weightless(0))
    assert after.extra["scale"]["finite"].item() == state.extra["scale"]["finite"].item()
    assert metrics["loss_scale"].item() == state.extra["scale"]["factor"].item()


def test_a_run_counts_them_and_its_means_leave_them_out():
    step, state = made("plain")
    end = fp.last(fp.fit(step, state, [group(), weightless(1), group()], log_every=3))
    assert (end.step, end.state.opt["step"].item()) == (3, 2)
    *_, epoch, _ = fp.fit(step, state, [group(), weightless(1)])
    assert epoch.metrics["weight"] == 3.0
    assert epoch.metrics["loss"] == step(state, group())[1]["loss"].item()


def test_weights_of_examples_count_like_labels():
    def weighted(model, batch):
        return fp.losses.mse(model(batch["x"])[:, 0], batch["label"], example_weights=batch["weight"])

    step, state = setting(model=net(rate=0.0))
    step._loss = weighted
    assert step(state, {**group(), "weight": mx.zeros(6)})[0] == attrs.evolve(state, step=1)
    assert changed(step(state, {**group(), "weight": mx.array([1.0, 0, 0, 0, 0, 0])})[0], state) == ["params", "buffers", "opt"]
