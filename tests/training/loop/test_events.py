"""Events are frozen, comparable values."""

import inspect
import pickle

import attrs
import pytest

import mlxfp as fp
from mlxfp.training.loop import events
from mlxfp.training.loop.running_metrics import RunningMetrics
from tests.training.samples import dataset, setting

KINDS = [
    kind
    for _, kind in inspect.getmembers(events, inspect.isclass)
    if issubclass(kind, fp.events.Event) and kind.__module__ == events.__name__
]
STATE = fp.TrainState({}, {}, {}, step=7, seed=0)
MOMENT = ("state", "cursor", "epoch")


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_is_a_frozen_value_with_a_state_a_cursor_and_an_epoch(kind):
    _, cursor = next(iter(fp.iterate(dataset())))
    rest = {field.name: None for field in attrs.fields(kind) if field.default is attrs.NOTHING and field.name not in ("state", "epoch")}
    event = kind(**{**rest, "state": STATE, "cursor": cursor, "epoch": 2})
    assert event.step == 7
    assert event == attrs.evolve(event)
    assert event != attrs.evolve(event, epoch=3)
    assert "running" not in repr(event)  # it may be long, and is shown by metrics
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        event.epoch = 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_that_is_derived_from_another_is_of_the_same_moment(kind):
    _, cursor = next(iter(fp.iterate(dataset())))
    running = RunningMetrics({"loss": (4.0, 8.0)}, ({"loss": 0.25},))
    own = {field.name: object() for field in attrs.fields(kind) if field.default is attrs.NOTHING and field.name not in MOMENT}
    event = fp.events.Event(STATE, cursor, 3, running=running).derive(kind, *own.values())
    assert type(event) is kind
    assert all(getattr(event, name) is value for name, value in own.items())
    assert (event.state, event.cursor, event.epoch, event.running) == (STATE, cursor, 3, running)


def test_no_event_holds_a_function():
    step, state = setting()
    control = fp.observers.Control()
    for event in fp.fit(step, state, dataset(), control=control):
        if isinstance(event, fp.events.Stepped) and event.step == 2:
            control.request(lambda state: state, "nothing")
        assert not [name for name, value in attrs.asdict(event, recurse=False).items() if callable(value)]
        assert pickle.loads(pickle.dumps(attrs.evolve(event, state=STATE, running=RunningMetrics()))) == attrs.evolve(event, state=STATE)
