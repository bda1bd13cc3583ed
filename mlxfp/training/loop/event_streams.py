"""The stream of events that `fit` returns, and warnings if nobody consumes it, or Ctrl-C ends it."""

import dis
import sys
import warnings
from collections.abc import Iterable, Iterator

from mlxfp.training.loop.events import Event

_CURE = "it trains nothing until its events are consumed. Write `for event in fit(...)`, or `end = last(fit(...))`."


class EventStream(Iterator[Event]):
    """The events of a run, once. Warns (`RuntimeWarning`) where a statement drops it before the first event, as `fit(...)` alone does.

    >>> EventStream(iter(()))
    <a run that has not begun: it trains nothing until its events are consumed. Write `for event in fit(...)`, or ...>
    """

    def __init__(self, events: Iterator[Event]) -> None:
        """Begin nothing."""
        self._events = events
        self._begun = False

    def __iter__(self) -> "EventStream":
        return self

    def __next__(self) -> Event:
        self._begun = True
        return next(self._events)

    def close(self) -> None:
        """Stop the run, and what prepares its batches."""
        self._begun = True
        getattr(self._events, "close", lambda: None)()

    def __repr__(self) -> str:
        return "<the events of a run>" if self._begun else f"<a run that has not begun: {_CURE}>"

    def __del__(self) -> None:
        if not self._begun and not sys.is_finalizing() and _is_dropped_by_a_statement():
            warnings.warn(f"fit was called, and {_CURE}", RuntimeWarning, stacklevel=2)


def _is_dropped_by_a_statement() -> bool:
    """Tell whether the code that called `__del__` drops the result of a statement.

    What an error, a return or another assignment drops was not meant to run, or may have been: there a warning would be noise.
    """
    frame = sys._getframe(1).f_back  # noqa: SLF001  # there is no other way to ask who drops an object
    if frame is None:
        return False
    instructions = list(dis.get_instructions(frame.f_code))
    place = next((place for place, each in enumerate(instructions) if each.offset == frame.f_lasti), 0)
    called, dropped = instructions[place - 1].opname, instructions[place].opname
    return dropped == "POP_TOP" and called.startswith("CALL")  # after `with`, an error is dropped by POP_TOP too


def stop_interrupted(function: str, events: Iterable[Event], returned: Event) -> None:
    """Stop the run of events that Ctrl-C interrupted in a function, and warn (`RuntimeWarning`) that the program goes on."""
    getattr(events, "close", lambda: None)()
    warnings.warn(
        f"The run was interrupted, and {function} returns the event after step {returned.step}: what comes next in the program happens. "
        "To go on with the run, pass its state, cursor and running to fit; to end the program, interrupt it again.",
        RuntimeWarning,
        stacklevel=4,
    )
