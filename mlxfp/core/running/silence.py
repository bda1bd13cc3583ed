"""Noticing that no item comes out of a run for long, and finding out why."""

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from time import monotonic
from typing import Any

from mlxfp.core.running.steps import Calls, Fed, Plan, push
from mlxfp.core.stages import State, starts_empty

_SILENT_ROWS, _SILENT_SECONDS = 100_000, 20.0  # without an item, after which a stage that leaves all rows out is named: a second or more


class Silence:
    """What a run knows of its rows since the last item. Running machinery, never part of a value."""

    def __init__(self, plan: Plan, calls: Calls) -> None:
        """Watch a run of this plan, which makes these calls."""
        self._plan, self._calls = plan, calls
        self.rows = 0  # read since the last item came out
        self._since = 0.0
        self._rows, self._seconds = float(_SILENT_ROWS), _SILENT_SECONDS

    def lasts(self, rows: int, chunk: Callable[[], Any], states: Sequence[State], epoch: int) -> None:
        """Take note of a chunk of which nothing came out. After many or much time, feed it again to see what each step makes of it.

        Warn once, if a step leaves out all rows; if one holds them instead, look again when it took twice as long.
        """
        now = monotonic()
        self._since = self._since if self.rows else now
        self.rows += rows
        if self.rows < self._rows and now - self._since < self._seconds:
            return
        calls, counts = self._calls, [[0, 0] for _ in self._calls]
        counted = [(step, partial(_counted, call, count)) for (step, call), count in zip(calls, counts, strict=True)]
        for _ in push(counted, list(states), (chunk(),)):
            pass
        found = next((pair for pair in zip(calls, counts, strict=True) if pair[1][0] and not pair[1][1]), None)
        if found is None or not starts_empty(found[0][0].stage):
            self._rows, self._seconds = 2 * self._rows, 2 * self._seconds
            return
        self._rows = self._seconds = inf
        warnings.warn(
            f"Nothing came out of the last {self.rows:,} rows of {self._plan.text}, in epoch {epoch}: of the last {found[1][0]:,} that "
            f"reached it, {found[0][0].text} kept 0. Reading goes on to the end of the data; if rows should pass, preview those before it.",
            RuntimeWarning,
            stacklevel=2,
        )


def _counted(call: Callable[[State, Any], Fed], count: list[int], state: State, chunk: Any) -> Fed:
    """Make a call, and add the rows that go in and come out to a count."""
    state, out = call(state, chunk)
    made: Iterable[Any] = list(out)
    count[:] = count[0] + size(chunk), count[1] + sum(map(size, made))
    return state, made


def size(chunk: Any) -> int:
    """Return the number of rows of a chunk; a batch counts as one."""
    return int(getattr(chunk, "num_rows", 1))
