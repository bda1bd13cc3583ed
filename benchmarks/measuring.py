"""How things are measured: interleaved in one process, the best of several runs each, and only ratios count."""

import gc
from collections.abc import Callable, Sequence
from importlib import import_module
from time import perf_counter
from types import ModuleType
from typing import Any, Literal

from attrs import frozen


@frozen
class Row:
    """A line of the table: what was done, how long each took, the ratio, and the bar that it should meet."""

    id: str
    work: str
    ours: str
    peer: str
    ratio: float | None
    bar: float
    sense: Literal["at least", "at most"] = "at least"

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None where there is nothing to compare with."""
        if self.ratio is None:
            return None
        return self.ratio >= self.bar if self.sense == "at least" else self.ratio <= self.bar


def best(functions: Sequence[Callable[[], Any]], *, repeats: int = 7) -> list[float]:
    """Run the functions in turns, `repeats` times each, and return the shortest time of each in seconds.

    The shortest, because what else happens on the machine only ever adds to it; in turns, so that a busy moment hits all alike.
    """
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for place, function in enumerate(functions):
            gc.collect()
            began = perf_counter()
            function()
            times[place] = min(times[place], perf_counter() - began)
    return times


def peer(module: str) -> ModuleType | None:
    """Import another library, or None where it is not installed: the table then says so."""
    try:
        return import_module(module)
    except ImportError:
        return None


def absent(row: str, work: str, ours: str, name: str, bar: float) -> Row:
    """Make the row for a library that is not installed."""
    return Row(row, work, ours, f"{name}: not installed", None, bar)
