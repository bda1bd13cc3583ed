"""Observers that call a function."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from mlxfp.support.checks import check_callable, check_types
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.training.loop.events import Event, Observer

E = TypeVar("E", bound=Event)


def on_event(kind: type[E], function: Callable[[E], object]) -> Observer:
    """Call `function(event)` for every event of type `kind`, before the event is passed on. `events.Event` matches all events.

    An error in the function ends the run. The result of the function is ignored. To add events or to end the run, write an observer: a
    generator function of the events.

    >>> import mlxfp as fp
    >>> events = [fp.events.Evaluated(fp.TrainState({}, {}, {}, 7, 0), None, 0, {"accuracy": 0.5})]
    >>> _ = list(fp.pipe(events, fp.observers.on_event(fp.events.Evaluated, lambda event: print(event.step, event.metrics))))
    7 {'accuracy': 0.5}
    """
    check_types(type, kind=kind)
    if not issubclass(kind, Event):
        raise ArgumentTypeError(f"kind must be an event class of mlxfp.events, got {kind.__name__}. For all events pass events.Event.")
    check_callable(function=function)
    return partial(_on_event, kind=kind, function=function)


def _on_event(events: Iterable[Event], *, kind: type[Event], function: Callable[[Any], object]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, kind):
            function(event)
        yield event
