"""Changes that observers request and a run makes: events only go out of a run, so requests go in by an argument of `fit`."""

from collections import deque
from collections.abc import Callable

from mlxfp.support.checks import check_callable, check_text
from mlxfp.training.steps.state import TrainState

Change = Callable[[TrainState], TrainState]


class Control:
    """A mailbox of one run: pass it to `fit(..., control=control)` and to the observers that change the run.

    Before its next step the run makes the changes that were requested, in order, and yields a `StateChanged` event for each. Requests
    from before a run begins are dropped. For the state itself, which nobody may edit, there is `attrs.evolve`.

    >>> from attrs import evolve
    >>> control = Control()
    >>> control.request(lambda state: evolve(state, seed=1), "another seed")
    >>> [reason for change, reason in control.take()], [*control.take()]
    (['another seed'], [])
    """

    def __init__(self) -> None:
        """Begin without requests."""
        self._requests: deque[tuple[Change, str]] = deque()

    def request(self, change: Change, reason: str) -> None:
        """Ask for `state = change(state)` before the next step; the event will give the reason."""
        check_callable(change=change)
        check_text(reason=reason)
        self._requests.append((change, reason))

    def take(self) -> tuple[tuple[Change, str], ...]:
        """Return the requests so far, in order, and forget them."""
        requests = tuple(self._requests)
        self._requests.clear()
        return requests
