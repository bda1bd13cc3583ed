"""Requests to change the state of a running `fit`, for example the learning rate."""

from collections import deque
from collections.abc import Callable

from mlxfp.support.checks import check_callable, check_text
from mlxfp.training.steps.state import TrainState

Change = Callable[[TrainState], TrainState]


class Control:
    """A queue of change requests for one run. Pass the same object to `fit(..., control=control)` and to the observers.

    Before the next step, the run applies the requested changes in order and yields a `StateChanged` event for each change. The run drops
    requests made before its start. A change function returns a new state, for example with `attrs.evolve`.

    >>> from attrs import evolve
    >>> control = Control()
    >>> control.request(lambda state: evolve(state, seed=1), "another seed")
    >>> [reason for change, reason in control.take()], [*control.take()]
    (['another seed'], [])
    """

    def __init__(self) -> None:
        """Create an empty queue."""
        self._requests: deque[tuple[Change, str]] = deque()

    def request(self, change: Change, reason: str) -> None:
        """Ask the run to replace its state by `change(state)` before the next step. The `StateChanged` event repeats `reason`."""
        check_callable(change=change)
        check_text(reason=reason)
        self._requests.append((change, reason))

    def take(self) -> tuple[tuple[Change, str], ...]:
        """Return all pending requests in order, and clear the queue."""
        requests = tuple(self._requests)
        self._requests.clear()
        return requests
