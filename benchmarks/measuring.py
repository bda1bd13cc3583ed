"""How things are measured: side by side in one process, in turns, several runs each, and only ratios count."""

import gc
from collections.abc import Callable, Sequence
from importlib import import_module
from statistics import median
from time import perf_counter
from typing import Any, Literal

from attrs import frozen

Run = Callable[[], Any]


@frozen
class Row:
    """A line of the table: what was done, how it went with us and elsewhere, the number that counts, and the bar that it should meet.

    The number is a ratio, or where there is no peer, a measure of its own; None where nothing could be measured, and `peer` says why.
    """

    id: str
    work: str
    ours: str
    peer: str
    number: float | None
    bar: float
    sense: Literal["at least", "at most"] = "at least"

    @property
    def verdict(self) -> str:
        """Say whether the bar is met."""
        if self.number is None:
            return "not measured"
        met = self.number >= self.bar if self.sense == "at least" else self.number <= self.bar
        return "met" if met else "MISSED"


def best(runs: Sequence[Run], *, repeats: int = 5) -> list[float]:
    """Run functions in turns, `repeats` times each, and return the shortest time of each in seconds.

    The shortest, because what else happens on the machine only ever adds to it; in turns, so that a busy moment hits all alike.
    """
    times = [float("inf")] * len(runs)
    for _ in range(repeats):
        for place, run in enumerate(runs):
            times[place] = min(times[place], _timed(run))
    return times


def medians(runs: Sequence[Run], *, repeats: int) -> list[float]:
    """Run short functions in turns, every other time the other way round, and return the median time of each in seconds."""
    times: list[list[float]] = [[] for _ in runs]
    gc.collect()
    gc.disable()  # it would strike some runs and not others
    for turn in range(repeats):
        for place in range(len(runs))[:: 1 if turn % 2 else -1]:
            began = perf_counter()
            runs[place]()
            times[place].append(perf_counter() - began)
    gc.enable()
    return [median(each) for each in times]


def installed(*modules: str) -> bool:
    """Say whether other libraries are here; a line of the table says so where they are not."""
    try:
        for module in modules:
            import_module(module)
    except ImportError:
        return False
    return True


def against(  # noqa: PLR0913  # the columns of a row
    work: str, name: str, *, ours: Run, theirs: Sequence[Run] | None, rows: int, repeats: int = 5
) -> tuple[str, str, str, float | None]:
    """Compare how many rows are done in a second: (work, ours, peer, ratio). Of several ways of a peer, its fastest counts."""
    mine, *others = best([ours, *(theirs or ())], repeats=repeats)
    if not others:
        return work, f"{rows / mine:,.0f} rows/s", f"{name}: not installed", None
    return work, f"{rows / mine:,.0f} rows/s", f"{name} {rows / min(others):,.0f} rows/s", min(others) / mine


def _timed(run: Run) -> float:
    gc.collect()
    began = perf_counter()
    run()
    return perf_counter() - began
