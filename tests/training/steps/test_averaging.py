"""The averaged parameters are the weighted mean of those after every update."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten
from mlxfp.training.steps.averaging import ema_weights, first_average, next_average
from mlxfp.training.steps.state import same_arrays
from tests.training.samples import deep, group, setting


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30), st.floats(0.001, 0.99999))
@settings(max_examples=60)
def test_an_average_is_the_weighted_mean_of_all_values(values, decay):
    average = first_average({"w": mx.array(1e6)})  # what was before the first does not count
    for value in values:
        average = next_average(average, {"w": mx.array(value)}, decay)
    weights = decay ** np.arange(len(values), dtype=np.float64)[::-1]
    expected = (weights * values).sum() / weights.sum()
    assert average["params"]["w"].item() == pytest.approx(expected, rel=1e-4, abs=1e-3)
    assert average["updates"].item() == len(values)


def test_the_first_average_is_what_the_first_update_made_whatever_the_decay():
    for decay in (0.1, 0.999, 0.9999999):
        average = next_average(first_average({"w": mx.array(5.0)}), {"w": mx.array(2.0)}, decay)
        assert average["params"]["w"].item() == 2.0


def test_a_step_averages_its_own_parameters():
    step, state = setting(model=deep(), ema=0.5)
    seen = []
    for seed in range(4):
        state, _ = step(state, group(seed=seed))
        seen.append(np.array(state.params["first"]["bias"]))
    weights = 0.5 ** np.arange(4)[::-1]
    expected = np.tensordot(weights, np.stack(seen), 1) / weights.sum()
    assert np.allclose(np.array(ema_weights(state).params["first"]["bias"]), expected, atol=1e-6)


def test_averaging_changes_nothing_of_the_training():
    (plain, state), (averaging, other) = setting(), setting(ema=0.9)
    for seed in range(3):
        (state, _), (other, _) = plain(state, group(seed=seed)), averaging(other, group(seed=seed))
    for ours, theirs in zip(flatten(other.params)[1], flatten(state.params)[1], strict=True):
        assert np.allclose(np.array(ours), np.array(theirs), atol=1e-6)


def test_only_updates_are_averaged():
    step, state = setting(model=deep(), ema=0.5, accumulate=3)
    counts = []
    for seed in range(7):
        state, _ = step(state, group(seed=seed))
        counts.append(state.extra["average"]["updates"].item())
    assert counts == [0, 0, 1, 1, 1, 2, 2]


@pytest.mark.filterwarnings("ignore:Small updates of parameters")
def test_low_precision_is_averaged_in_float32():
    model = nn.Linear(1, 1)
    model.weight, model.bias = mx.zeros((1, 1), mx.bfloat16), mx.zeros(1, mx.bfloat16)
    step, state = setting(model=model, optimizer=optimizers.SGD(1.0), ema=0.99)
    step._loss = lambda model, batch: (-model.bias.sum(), 1)
    for _ in range(3):
        state, _ = step(state, group())
    assert state.extra["average"]["params"]["bias"].item() == pytest.approx(2.0067, abs=1e-3)
    assert ema_weights(state).params["bias"].dtype == mx.bfloat16


def test_averaged_parameters_are_evaluated_and_saved_with_the_state():
    check = fp.evaluate(deep(), lambda model, batch: {"accuracy": fp.metrics.accuracy(model(batch["x"]), batch["label"])})
    step, state = setting(model=deep(), ema=0.9)
    for seed in range(3):
        state, _ = step(state, group(seed=seed))
    assert 0 <= check(ema_weights(state), [group()])["accuracy"] <= 1
    assert not same_arrays(ema_weights(state).params, state.params)
    assert same_arrays(ema_weights(state).extra, state.extra)


def test_a_state_without_averages_is_refused():
    _, state = setting()
    with pytest.raises(ArgumentError, match=r"The state has no averaged parameters\. Build the step with train_step\(\.\.\., ema=0\.999\)"):
        ema_weights(state)
