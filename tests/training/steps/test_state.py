"""A state is a value."""

from concurrent.futures import ThreadPoolExecutor
from copy import copy

import attrs
import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

import mlxfp as fp
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten
from mlxfp.training.steps.state import TrainState, train_state, trees_of
from tests.training.samples import group, net, setting


def test_states_are_equal_if_their_arrays_are_bit_for_bit():
    state = TrainState({"w": mx.array([0.0, mx.nan])}, {}, {}, 0, 0)
    assert state == TrainState({"w": mx.array([0.0, mx.nan])}, {}, {}, 0, 0)
    for other in ([-0.0, mx.nan], [0.0, 1.0], [0.0]):
        assert state != attrs.evolve(state, params={"w": mx.array(other)})
    assert state != attrs.evolve(state, params={"w": mx.array([0.0, mx.nan], mx.bfloat16)})
    assert state != attrs.evolve(state, params=({"w": mx.array([0.0, mx.nan])},))
    assert state != attrs.evolve(state, step=1)
    assert state != 0


def test_a_state_prints_its_size_not_its_numbers():
    assert "params=<66 numbers in 6 arrays>, buffers=<16 numbers in 2 arrays>" in repr(train_state(net(), fp.optimizers.adamw(0.1)))


def test_a_state_is_frozen_and_has_no_hash():
    state = train_state(nn.Linear(1, 1), fp.optimizers.adamw(0.1))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        state.step = 3
    with pytest.raises(TypeError):
        hash(state)


def test_a_state_from_a_step_is_like_any_other():
    step, state = setting()
    after, again = (step(state, group())[0] for _ in range(2))
    assert after == again == copy(after)
    assert [*trees_of(after)] == ["params", "buffers", "opt", "extra"]
    assert flatten(trees_of(after))[0] == flatten(trees_of(step.start(state)))[0]
    assert attrs.evolve(after, seed=9).params is after.params


def test_an_edit_inside_a_state_is_not_ignored():
    step, state = setting()
    state, _ = step(state, group())
    state.params["first"]["bias"] = mx.full(8, 100.0)  # nobody should
    after, _ = step(state, group())
    assert after.params["first"]["bias"].min().item() > 99


def test_training_changes_neither_the_model_nor_the_optimizer_that_it_began_with():
    model, optimizer = net(), fp.optimizers.adamw(0.1)
    state = train_state(model, optimizer)
    step, _ = setting()
    step(state, group())
    assert train_state(model, optimizer) == state
    assert optimizer.step.item() == 0


def test_editing_the_model_in_place_leaves_the_state_as_it_was():
    model = net()
    state = train_state(model, fp.optimizers.adamw(0.1))
    before = np.array(state.params["first"]["bias"])
    model.first.bias += 1
    model.norm.running_mean += 1
    assert np.array_equal(np.array(state.params["first"]["bias"]), before)
    assert not np.array_equal(np.array(model.first.bias), before)
    assert state.buffers["norm"]["running_mean"].tolist() == [0] * 8


def test_states_are_evaluated_so_another_thread_can_read_them():
    def read(tree):
        with ThreadPoolExecutor(1) as worker:
            # not np.array(leaf): with MLX 0.32.0, that ends the process where tolist() raises
            return worker.submit(lambda: [np.array(leaf.tolist()) for leaf in flatten(tree)[1]]).result()

    step, state = setting(clip_norm=1.0)
    after, metrics = step(state, group())
    assert all(np.isfinite(values).all() for values in read([trees_of(state), trees_of(after), metrics]))
    lazy = mx.zeros(3) + 1
    mx.eval(attrs.evolve(state, params=lazy))  # does nothing: MLX does not know attrs values
    with pytest.raises(RuntimeError):
        read(lazy)


def test_trained_weights_go_back_into_a_module():
    step, state = setting(rate=0.0)
    state, _ = step(state, group())
    bound = fp.functional(net()).bind(state.params, state.buffers)
    updated = net()
    updated.update(state.params)
    assert bound.first(mx.ones((1, 3))).tolist() == updated.first(mx.ones((1, 3))).tolist()


def test_a_negative_seed_is_refused():
    with pytest.raises(ArgumentError, match="seed must be at least 0, got seed=-1"):
        train_state(net(), fp.optimizers.adamw(0.1), seed=-1)
