"""Functions of one's own see the events that they asked for."""

import pytest

from mlxfp.support.errors import ArgumentTypeError
from mlxfp.training.loop.events import EpochEnded, Event
from mlxfp.training.observers.reacting import on_event
from tests.training.observers.runs import names, run


def test_a_function_sees_every_event_of_its_kind_before_it_is_passed_on():
    for kind, expected in ((EpochEnded, 2), (Event, 8)):
        seen = []
        for place, event in enumerate(on_event(kind, seen.append)(run())):
            assert not isinstance(event, kind) or seen[-1] is event, place
        assert len(seen) == expected, names(seen)


def test_its_error_ends_the_run():
    with pytest.raises(ZeroDivisionError):
        list(on_event(EpochEnded, lambda event: 1 / 0)(run()))


def test_mistakes_are_named_when_the_observer_is_made():
    with pytest.raises(ArgumentTypeError, match="kind must be type, got str"):
        on_event("EpochEnded", print)
    with pytest.raises(ArgumentTypeError, match=r"an event class of mlxfp\.events, got int\. For all events pass events\.Event"):
        on_event(int, print)
    with pytest.raises(ArgumentTypeError, match="function must be a function"):
        on_event(Event, None)
