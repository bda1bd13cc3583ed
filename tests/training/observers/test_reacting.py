"""Functions of one's own see the events that they asked for."""

import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError
from tests.training.observers.runs import names, run


def test_a_function_sees_every_event_of_its_kind_before_it_is_passed_on():
    for kind, expected in ((fp.events.EpochEnded, 2), (fp.events.Event, 8)):
        seen = []
        for place, event in enumerate(fp.observers.on_event(kind, seen.append)(run())):
            assert not isinstance(event, kind) or seen[-1] is event, place
        assert len(seen) == expected, names(seen)


def test_its_error_ends_the_run():
    with pytest.raises(ZeroDivisionError):
        list(fp.observers.on_event(fp.events.EpochEnded, lambda event: 1 / 0)(run()))


def test_mistakes_are_named_when_the_observer_is_made():
    with pytest.raises(ArgumentTypeError, match="kind must be type, got str"):
        fp.observers.on_event("EpochEnded", print)
    with pytest.raises(ArgumentTypeError, match=r"an event class of mlxfp\.events, got int\. For all events pass events\.Event"):
        fp.observers.on_event(int, print)
    with pytest.raises(ArgumentTypeError, match="function must be a function"):
        fp.observers.on_event(fp.events.Event, None)
