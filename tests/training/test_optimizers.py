"""Every optimizer of MLX as a pure function gives what it gives as an object."""

import copy

import mlx.core as mx
import pytest
from mlx import optimizers

from mlxfp.core.errors import ArgumentError, ArgumentTypeError
from mlxfp.core.trees import flatten
from mlxfp.training.optimizers import adamw, start, update
from mlxfp.training.schedules import cosine_decay
from mlxfp.training.state import same_arrays

MAKERS = {
    "sgd": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: optimizers.Adam(0.1),
    "adamw": lambda: adamw(0.1),
    "scheduled": lambda: adamw(cosine_decay(0.1, steps=4, warmup=2)),
    "adafactor": optimizers.Adafactor,
    "lion": lambda: optimizers.Lion(0.1),
    "rmsprop": lambda: optimizers.RMSprop(0.1),
    "adagrad": lambda: optimizers.Adagrad(0.1),
    "adadelta": lambda: optimizers.AdaDelta(0.1),
    "adamax": lambda: optimizers.Adamax(0.1),
    "muon": lambda: optimizers.Muon(0.1),
    "several": lambda: optimizers.MultiOptimizer([adamw(0.1), optimizers.SGD(0.2)], [lambda name, value: value.ndim > 1]),
}


def params():
    return {"z": {"weight": mx.arange(6).reshape(2, 3) / 3, "empty": {}}, "a": [{"bias": mx.ones(3)}, {}], "m": {"scale": mx.ones(())}}


def gradients(step):
    weight = mx.arange(6).reshape(2, 3) / 7 - step
    return {"z": {"weight": weight, "empty": {}}, "a": [{"bias": mx.ones(3) * step}, {}], "m": {"scale": mx.ones(())}}


@pytest.mark.parametrize("name", MAKERS)
def test_pure_updates_equal_those_of_the_object_and_change_nothing(name):
    stateful, optimizer = MAKERS[name](), MAKERS[name]()
    theirs, ours, state = params(), params(), start(optimizer, params())
    configuration = copy.deepcopy(optimizer.state)
    stateful.init(theirs)
    for step in range(3):
        theirs = stateful.apply_gradients(gradients(step), theirs)
        inputs = [gradients(step), state, ours]
        before = copy.deepcopy(inputs)
        after, following = update(optimizer, *inputs)
        assert same_arrays(inputs, before)
        assert flatten(after)[0] == flatten(ours)[0]
        assert flatten(following)[0] == flatten(state)[0]
        ours, state = after, following
        assert same_arrays(ours["z"]["weight"], theirs["z"]["weight"])
        assert same_arrays(ours["a"][0], theirs["a"][0])
        assert same_arrays(ours["m"], theirs["m"])
    assert same_arrays(optimizer.state, configuration)


def test_a_shallow_copy_of_the_optimizer_alone_edits_the_state_of_the_caller():
    optimizer = adamw(0.1)
    state = start(optimizer, params())
    before = copy.deepcopy(state)
    naive = copy.copy(optimizer)
    naive.state = state
    naive.apply_gradients(gradients(1), params())
    assert not same_arrays(state, before)


def test_adamw_corrects_its_bias_unlike_that_of_mlx():
    sizes = []
    for optimizer in (adamw(0.1, weight_decay=0.0), optimizers.AdamW(0.1, weight_decay=0.0)):
        first, _ = update(optimizer, {"w": mx.array(1.0)}, start(optimizer, {"w": mx.array(0.0)}), {"w": mx.array(0.0)})
        sizes.append(abs(first["w"].item()))
    assert sizes == pytest.approx([0.1, 0.3162], rel=1e-3)


def test_the_first_update_of_a_warmup_moves_the_weights():
    for schedule, moves in ((cosine_decay(0.1, steps=9, warmup=3), True), (optimizers.linear_schedule(0, 0.1, 3), False)):
        optimizer = optimizers.SGD(schedule)
        first, _ = update(optimizer, {"w": mx.array(1.0)}, start(optimizer, {"w": mx.array(0.0)}), {"w": mx.array(0.0)})
        assert (first["w"].item() != 0) == moves


def test_a_used_optimizer_is_refused():
    for optimizer in (adamw(0.1), MAKERS["several"]()):
        optimizer.apply_gradients(gradients(1), params())
        with pytest.raises(ArgumentError, match="has made 1 updates elsewhere"):
            start(optimizer, params())


def test_what_is_no_optimizer_is_refused():
    with pytest.raises(ArgumentTypeError, match=r"must be an mlx\.optimizers\.Optimizer, got float"):
        start(0.1, params())


def test_an_optimizer_that_grows_its_state_is_named():
    class Late(optimizers.SGD):
        def apply_single(self, gradient, parameter, state):
            state["late"] = gradient
            return parameter

    optimizer = Late(0.1)
    with pytest.raises(ArgumentError, match=r"Late changed the structure of its state in an update\. Unexpected: z\.weight\.late"):
        update(optimizer, gradients(0), start(optimizer, params()), params())


def test_a_state_that_is_not_arrays_is_named():
    class Counting(optimizers.SGD):
        def init_single(self, parameter, state):
            state["calls"] = 0

    with pytest.raises(ArgumentTypeError, match="state of an optimizer must be MLX arrays, got int"):
        start(Counting(0.1), params())
