"""Events are frozen, comparable values."""

import inspect

import attrs
import pytest

from mlxfp.core.execution import iterate
from mlxfp.training.loop import events
from mlxfp.training.loop.events import Event, RunStarted
from mlxfp.training.steps.state import TrainState
from tests.training.samples import dataset

KINDS = [kind for _, kind in inspect.getmembers(events, inspect.isclass) if issubclass(kind, Event) and kind.__module__ == events.__name__]
STATE = TrainState({}, {}, {}, step=7, seed=0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_is_a_frozen_value_with_a_state_a_cursor_and_an_epoch(kind):
    _, cursor = next(iter(iterate(dataset())))
    rest = {field.name: None for field in attrs.fields(kind) if field.default is attrs.NOTHING and field.name not in ("state", "epoch")}
    event = kind(**{**rest, "state": STATE, "cursor": cursor, "epoch": 2})
    assert event.step == 7
    assert event == attrs.evolve(event)
    assert event != attrs.evolve(event, epoch=3)
    assert "steer" not in repr(event)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.epoch = 3


def test_steering_what_does_not_run_does_nothing():
    RunStarted(STATE, None, 0, None).steer(lambda state: None, "for nothing")
