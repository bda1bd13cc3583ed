"""Evaluations come when they should, under the name that they were given."""

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from tests.training.observers.runs import run, state


def test_evaluations_come_after_every_epoch_or_every_few_steps():
    for steps, expected in ((None, [2, 4]), (3, [3]), (1, [1, 2, 3, 4])):
        events = fp.pipe(run(), fp.observers.evaluate_every(lambda state: {"step": state.step}, steps=steps))
        assert [(event.step, event.metrics) for event in events if isinstance(event, fp.events.Evaluated)] == [
            (at, {"step": at}) for at in expected
        ]


def test_metrics_are_floats_whatever_they_were():
    [event] = [
        event
        for event in fp.observers.evaluate_every(lambda state: {"loss": np.float32(0.5)})(run(epochs=1))
        if isinstance(event, fp.events.Evaluated)
    ]
    assert type(event.metrics["loss"]) is float


def test_several_validation_datasets_have_names():
    def check(state):
        return {"loss": 0.5}

    events = fp.pipe(run(epochs=1), fp.observers.evaluate_every(check), fp.observers.evaluate_every(check, name="hard"))
    assert sorted(name for event in events if isinstance(event, fp.events.Evaluated) for name in event.metrics) == ["hard/loss", "loss"]


@pytest.mark.parametrize("name", [None, "hard"])
def test_an_evaluation_that_was_due_when_the_run_stopped_is_made_unless_the_history_has_it(name):
    metric = f"{name}/loss" if name else "loss"
    for history, expected in (
        ((), [4]),
        ((fp.events.Evaluation(2, {metric: 0.5}),), [4]),
        ((fp.events.Evaluation(4, {"other/loss": 0.5}),), [4]),
        ((fp.events.Evaluation(4, {metric: 0.5}),), []),
    ):
        for steps, first in (
            (2, fp.events.RunStarted(state(4), None, 0, None, history)),
            (None, fp.events.RunStarted(state(3), None, 0, None, history)),
        ):
            ended = fp.events.EpochEnded(state(4), None, 0, {})
            events = fp.observers.evaluate_every(lambda state: {"loss": 0.5}, steps=steps, name=name)([first, ended])
            assert [event.step for event in events if isinstance(event, fp.events.Evaluated)] == expected
    start = [fp.events.RunStarted(state(0), None, 0, None)]
    assert list(fp.observers.evaluate_every(lambda state: {"loss": 0.5}, steps=2)(start)) == start


def test_mistakes_are_named_when_the_observer_is_made():
    with pytest.raises(ArgumentTypeError, match="evaluate_every takes a function of the state"):
        fp.observers.evaluate_every({})
    with pytest.raises(ArgumentError, match="steps must be at least 1"):
        fp.observers.evaluate_every(len, steps=0)
    with pytest.raises(ArgumentTypeError, match="name must be a string"):
        fp.observers.evaluate_every(len, name=3)


@pytest.mark.parametrize("validate", [lambda state: None, lambda state: 0.5, lambda state: {"e": "x"}, lambda state, batches: {"e": 0.5}])
def test_an_error_in_a_validation_says_where_it_was_and_what_it_should_be(validate):
    with pytest.raises((TypeError, ValueError)) as raised:
        list(fp.pipe(run(), fp.observers.evaluate_every(validate)))
    [note] = raised.value.__notes__
    assert note.startswith(
        "while running validate(state) of evaluate_every at step 2. validate takes a state and returns numbers by name. "
        "With check = evaluate(...), pass lambda state: check(state, batches)."
    )
