"""A batch whose loss or gradients are not finite changes nothing, where that is asked for."""

import attrs
import mlx.core as mx
import numpy as np
import pytest
from mlx import nn, optimizers

from mlxfp.support.trees import flatten
from mlxfp.training.steps.averaging import ema_weights
from mlxfp.training.steps.state import same_arrays, trees_of
from tests.training.samples import deep, group, net, setting

BAD = [mx.nan, mx.inf, -mx.inf]


def bad(value=mx.nan, seed=0):
    batch = group(seed=seed)
    return {**batch, "x": mx.concatenate([batch["x"][:-1], mx.full((1, 3), value)])}


def assert_skips(step, state, batch):
    """Law: nothing of the state changes but the number of steps, and the metric says so."""
    after, metrics = step(state, batch)
    assert metrics["skipped"].item() == 1, f"the batch was not skipped: {metrics}"
    changed = [name for name, tree in trees_of(state).items() if not same_arrays(tree, trees_of(after)[name])]
    assert not changed, f"a skipped batch changed {', '.join(changed)}"
    assert after.step == state.step + 1
    return after


@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("options", [{}, {"ema": 0.9, "clip_norm": 1.0}, {"accumulate": 2}, {"accumulate": 2, "ema": 0.9}])
def test_nothing_of_the_state_changes(value, options):
    step, state = setting(skip_nonfinite=True, **options)
    for seed in range(4):  # two updates at least, so that there are moments, statistics and averages to spoil
        state, metrics = step(state, group(seed=seed))
        assert metrics["skipped"].item() == 0
    for seed in range(2):
        state = assert_skips(step, state, bad(value, seed))
    after, _ = step(state, group())
    assert not same_arrays(after.buffers, state.buffers)


def test_the_law_catches_a_step_that_does_not_skip():
    step, state = setting()

    def naive(state, batch):
        after, metrics = step(state, batch)
        return after, {**metrics, "skipped": mx.array(1.0)}

    with pytest.raises(AssertionError, match="a skipped batch changed params, buffers, opt"):
        assert_skips(naive, state, bad())


def test_gradients_that_are_not_finite_count_as_the_loss_does():
    model = nn.Linear(3, 1)
    step, state = setting(model=model, optimizer=optimizers.SGD(0.1), skip_nonfinite=True)
    step._loss = lambda model, batch: (mx.sqrt(mx.abs(model(batch["x"]) * 0)).sum(), 6)  # 0, with a slope of infinity
    _, metrics = step(state, group())
    assert metrics["loss"].item() == 0.0
    assert_skips(step, state, group())


def test_a_finite_gradient_whose_norm_overflows_is_no_reason_to_skip():
    step, state = setting(model=nn.Linear(3, 1), optimizer=optimizers.SGD(1e-30), skip_nonfinite=True)
    step._loss = lambda model, batch: ((model(batch["x"]) * 1e25).sum(), 1)
    _, metrics = step(state, group())
    assert metrics["skipped"].item() == 0


def test_with_accumulation_the_other_batches_of_the_update_count():
    options = {"model": deep(rate=0.0), "optimizer": optimizers.SGD(0.5)}
    (one, state), (three, _) = setting(**options), setting(**options, accumulate=3, skip_nonfinite=True)
    expected, _ = one(state, group())
    for batch in (bad(), group(), bad(mx.inf)):
        state, _ = three(state, batch)
    for ours, theirs in zip(flatten(state.params)[1], flatten(expected.params)[1], strict=True):
        assert np.allclose(np.array(ours), np.array(theirs), atol=1e-6)


def test_an_update_of_skipped_batches_alone_is_no_update():
    step, state = setting(model=deep(), accumulate=2, skip_nonfinite=True, ema=0.5)
    for seed in range(2):
        state, _ = step(state, group(seed=seed))
    before = state
    for value in BAD[:2]:
        state, _ = step(state, bad(value))
    assert state == attrs.evolve(before, step=4)
    assert ema_weights(state) == ema_weights(attrs.evolve(before, step=4))


def test_skipping_changes_no_finite_step():
    (plain, state), (guarded, _) = setting(), setting(skip_nonfinite=True)
    for seed in range(3):
        expected, _ = plain(state, group(seed=seed))
        state, _ = guarded(state, group(seed=seed))
        for ours, theirs in zip(flatten(trees_of(state))[1], flatten(trees_of(expected))[1], strict=True):
            assert np.allclose(np.array(ours), np.array(theirs), atol=1e-6)


def test_without_it_a_step_goes_on_with_what_came():
    step, state = setting(model=net())
    after, metrics = step(state, bad())
    assert np.isnan(metrics["loss"].item())
    assert np.isnan(np.array(after.params["first"]["weight"])).any()
    assert "skipped" not in metrics


class Counting(nn.Module):
    """A large frozen weight, and a large statistic that is changed in place."""

    def __init__(self):
        super().__init__()
        self.linear, self.frozen, self.seen = nn.Linear(3, 2), mx.zeros(9999), mx.zeros(9999)
        self.freeze(keys=["frozen", "seen"], recurse=False)

    def __call__(self, x):
        self.seen += 1
        return self.linear(x) + self.frozen.sum()


@pytest.mark.parametrize("options", [{}, {"skip_nonfinite": True}])
def test_what_is_changed_in_place_is_never_lost_and_frozen_weights_are_passed_on(options):
    step, state = setting(model=Counting(), **options)
    after, _ = step(state, group())
    assert after.buffers["seen"].max().item() == 1
    assert same_arrays(after.buffers["frozen"], state.buffers["frozen"])


@pytest.mark.parametrize("options", [{}, {"accumulate": 2, "ema": 0.9}])
def test_frozen_weights_are_not_copied(options):
    model = nn.Sequential(nn.Linear(3, 1_000_000), nn.Linear(1_000_000, 2))
    for layer in model.layers:
        layer.freeze(keys=["weight"])
    step, state = setting(model=model, optimizer=optimizers.SGD(0.1), skip_nonfinite=True, **options)
    for _ in range(2):
        state, metrics = step(state, group(size=1))
        mx.eval(metrics, trees_of(state))
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    after, metrics = step(state, group(size=1))
    mx.eval(metrics, trees_of(after))
    assert same_arrays(after.buffers, state.buffers)
    assert mx.get_peak_memory() - before < 40e6  # the frozen weights are 20 MB, those that train and what is made of them 4 MB each
