"""Learning rates are found in the state of any optimizer, and nothing else is touched when they are scaled."""

import mlx.core as mx
import pytest
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp.training.observers.rate_plateaus import scaled_rates
from mlxfp.training.optimization.learning_rates import learning_rates
from mlxfp.training.steps.state import TrainState, same_arrays, train_state

PARAMS = {"learning_rate": mx.ones(2), "layers": [{"w": mx.zeros((2, 2))}, {"w": mx.ones((2, 2))}]}  # an unlucky name among them
OPTIMIZERS = {
    "sgd": lambda: optimizers.SGD(0.5, momentum=0.9),
    "adam": lambda: optimizers.Adam(0.5),
    "adafactor": lambda: optimizers.Adafactor(0.5, relative_step=False),
    "lion": lambda: optimizers.Lion(0.5),
    "groups": lambda: optimizers.MultiOptimizer([optimizers.Adam(0.5), optimizers.SGD(0.5)], [lambda name, _: "layers" in name]),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_rate_is_found_and_scaled_and_nothing_else_is(name):
    params = PARAMS if name == "groups" else {"layers": PARAMS["layers"]}
    opt = fp.optimizers.start(OPTIMIZERS[name](), params)
    rates = learning_rates(opt)
    assert rates == [0.5] * (2 if name == "groups" else 1)
    scaled = scaled_rates(opt, 0.25)
    assert learning_rates(scaled) == [0.125] * len(rates)
    assert learning_rates(opt) == rates
    assert same_arrays(scaled_rates(scaled, 4.0), opt)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_events_of_a_run_have_the_rates_of_their_states(name):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    optimizer = OPTIMIZERS[name]()
    step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer)
    batches = [{"x": mx.ones((4, 2)), "y": mx.ones((4, 1))}] * 3
    for event in fp.fit(step, train_state(model, optimizer), batches):
        assert event.learning_rates == learning_rates(event.state.opt) == [0.5] * (2 if name == "groups" else 1)
        assert event.derive(fp.events.Warned, "").learning_rates == event.learning_rates


def test_a_parameter_of_that_name_is_not_a_rate():
    state = TrainState({"learning_rate": mx.ones(1)}, {"learning_rate": mx.ones(1)}, {"learning_rate": mx.array(0.5)}, 7, 0)
    assert fp.events.Stepped(state, None, 0, {}).learning_rates == [0.5]


def test_a_state_without_a_rate_has_none():
    assert learning_rates({}) == []
    assert same_arrays(scaled_rates({"m": [mx.ones(2)]}, 0.5), {"m": [mx.ones(2)]})
