"""E19: a module changed between state and step is an error with the names, and a later change has no effect."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from mlx import nn, optimizers

import mlxfp as fp

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: optimizers.SGD(0.1),
    "adam": lambda: optimizers.Adam(0.1),
    "adafactor": lambda: optimizers.Adafactor(0.1),
    "groups": lambda: optimizers.MultiOptimizer([optimizers.Adam(0.1), optimizers.SGD(0.1)], [lambda name, weight: "bias" in name]),
}
BATCH = {"x": mx.ones((2, 2))}


def loss(model, batch):
    return model(batch["x"]).sum(), mx.array(1.0)


def frozen_model() -> Any:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    model.layers[0].freeze()
    return model


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("state_first", [True, False])
def test_e19_unfreeze_between_state_and_step_names_the_arrays(name: str, state_first: bool):
    model, optimizer = frozen_model(), OPTIMIZERS[name]()
    make = [lambda: fp.train_state(model, optimizer), lambda: fp.train_step(model, loss, optimizer)]
    first = make[not state_first]()
    model.unfreeze()
    second = make[state_first]()
    state, step = (first, second) if state_first else (second, first)
    with pytest.raises(fp.errors.ArgumentError, match=r"layers\[0\]\.weight.*Build the state with train_state"):
        step(state, BATCH)


def test_e19_a_change_of_the_module_after_the_step_has_no_effect():
    model, optimizer = frozen_model(), fp.optimizers.adamw(0.1)
    state, step = fp.train_state(model, optimizer), fp.train_step(model, loss, optimizer)
    before, _ = step(state, BATCH)
    model.unfreeze()
    model.layers.append(nn.Tanh())
    after, _ = step(state, BATCH)
    assert after == before
