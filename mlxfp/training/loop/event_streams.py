"""The event stream returned by `fit`, with warnings for an unused stream and for an interrupted run."""

import dis
import sys
import warnings
from collections.abc import Iterable, Iterator
from typing import NoReturn

from mlxfp.training.loop.events import Event

_CURE = "it trains nothing until its events are consumed. Write `for event in fit(...)`, or `end = last(fit(...))`."


class EventStream(Iterator[Event]):
    """The events of a run, as an iterator for one pass.

    Warns (`RuntimeWarning`) if a statement discards the stream before the first event, as in a bare `fit(...)`.

    >>> EventStream(iter(()))
    <a run that has not begun: it trains nothing until its events are consumed. Write `for event in fit(...)`, or ...>
    """

    def __init__(self, events: Iterator[Event]) -> None:
        """Store the iterator `events`. The run starts at the first call of `next`."""
        self._events = events
        self._begun = False

    def __getattr__(self, name: str) -> NoReturn:
        advice = " fit yields events, and last(fit(...)) is the last event with state, cursor and metrics."
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.{advice}", name=name, obj=self)

    def __iter__(self) -> "EventStream":
        return self

    def __next__(self) -> Event:
        self._begun = True
        return next(self._events)

    def close(self) -> None:
        """Stop the run and the preparation of batches."""
        self._begun = True
        getattr(self._events, "close", lambda: None)()

    def __repr__(self) -> str:
        return "<the events of a run>" if self._begun else f"<a run that has not begun: {_CURE}>"

    def __del__(self) -> None:
        if not self._begun and not sys.is_finalizing() and _is_dropped_by_a_statement():
            warnings.warn(f"fit was called, and {_CURE}", RuntimeWarning, stacklevel=2)


def _is_dropped_by_a_statement() -> bool:
    """Return True if the program called `fit(...)` as a statement, without using the events."""
    frame = sys._getframe(1).f_back  # noqa: SLF001  # no public API names the caller of `__del__`
    if frame is None:
        return False
    instructions = list(dis.get_instructions(frame.f_code))
    index = next((index for index, instruction in enumerate(instructions) if instruction.offset == frame.f_lasti), 0)
    called, dropped = instructions[index - 1].opname, instructions[index].opname
    # In bytecode, CALL and POP_TOP discard the result of a call. A `with` block ends with POP_TOP without CALL.
    return dropped == "POP_TOP" and called.startswith("CALL")


def stop_interrupted(function: str, events: Iterable[Event], returned: Event) -> None:
    """Stop a run interrupted by Ctrl-C. Warn (`RuntimeWarning`) that the program continues with the next statement."""
    getattr(events, "close", lambda: None)()
    warnings.warn(
        f"The run was interrupted. {function} returns the event after step {returned.step}, and the program continues. To continue the "
        "run, pass the state, cursor and running of the event to fit. To end the program, press Ctrl-C again.",
        RuntimeWarning,
        stacklevel=4,
    )
