"""A state is a value."""

from concurrent.futures import ThreadPoolExecutor
from copy import copy

import attrs
import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from mlxfp.core.errors import ArgumentError
from mlxfp.core.trees import flatten
from mlxfp.training.optimization.optimizers import adamw
from mlxfp.training.steps.state import TrainState, leaves_of, same_arrays, train_state, trees_of
from mlxfp.training.steps.transforms import functional
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
    assert "params=<66 numbers in 6 arrays>, buffers=<16 numbers in 2 arrays>" in repr(train_state(net(), adamw(0.1)))


def test_a_state_is_frozen_and_has_no_hash():
    state = train_state(nn.Linear(1, 1), adamw(0.1))
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        state.step = 3
    with pytest.raises(TypeError):
        hash(state)


def made_by_a_step():
    step, state = setting()
    return step(state, group())[0]


def test_a_state_that_holds_leaves_alone_is_like_any_other():
    whole = made_by_a_step()
    assert [*trees_of(whole)] == ["params", "buffers", "opt", "extra"]  # its trees are there now
    for read in (
        repr,
        copy,
        lambda state: attrs.evolve(state, seed=9),
        lambda state: leaves_of(state)[0],
        lambda state: state.opt.keys(),
    ):
        assert read(made_by_a_step()) == read(whole)
    assert made_by_a_step() == made_by_a_step() == whole
    with pytest.raises(AttributeError, match="nothing"):
        _ = made_by_a_step().nothing


def test_a_tree_that_was_looked_at_is_the_state():
    step, state = setting()
    state, _ = step(state, group())
    state.params["first"]["bias"] = mx.full(8, 100.0)  # nobody should, but it must not be ignored
    after, _ = step(state, group())
    assert after.params["first"]["bias"].min().item() > 99


def test_a_state_can_be_looked_at_from_several_threads():
    state = made_by_a_step()
    with ThreadPoolExecutor(8) as workers:
        seen = list(workers.map(lambda name: getattr(state, name), ["params", "opt", "buffers"] * 20))
    assert all(same_arrays(tree, getattr(state, name)) for tree, name in zip(seen, ["params", "opt", "buffers"] * 20, strict=True))


def test_training_changes_neither_the_model_nor_the_optimizer_that_it_began_with():
    model, optimizer = net(), adamw(0.1)
    state = train_state(model, optimizer)
    step, _ = setting()
    step(state, group())
    assert train_state(model, optimizer) == state
    assert optimizer.step.item() == 0


def test_editing_the_model_in_place_leaves_the_state_as_it_was():
    model = net()
    state = train_state(model, adamw(0.1))
    before = np.array(state.params["first"]["bias"])
    model.first.bias += 1
    model.norm.running_mean += 1
    assert np.array_equal(np.array(state.params["first"]["bias"]), before)
    assert not np.array_equal(np.array(model.first.bias), before)
    assert state.buffers["norm"]["running_mean"].tolist() == [0] * 8


def test_states_are_evaluated_so_another_thread_can_read_them():
    def read(tree):
        with ThreadPoolExecutor(1) as worker:
            return worker.submit(lambda: [np.array(leaf) for leaf in flatten(tree)[1]]).result()

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
    bound = functional(net()).bind(state.params, state.buffers)
    updated = net()
    updated.update(state.params)
    assert bound.first(mx.ones((1, 3))).tolist() == updated.first(mx.ones((1, 3))).tolist()


def test_a_negative_seed_is_refused():
    with pytest.raises(ArgumentError, match="seed must be at least 0, got seed=-1"):
        train_state(net(), adamw(0.1), seed=-1)
