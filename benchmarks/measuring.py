"""How to measure: alternate several runs of each function in one process, and compare their times."""

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
    """A line of the table: the work, our result and that of the other library, the number to judge, and the bar that it should meet.

    The number is the ratio of the two results, or our result if there is no other library; None if nothing could be measured, and `peer`
    says why. Without a bar, the line is there for what it says.
    """

    id: str
    work: str
    ours: str
    peer: str
    number: float | None
    bar: float | None
    sense: Literal["at least", "at most"] = "at least"

    @property
    def verdict(self) -> str:
        """Say whether the bar is met."""
        if self.number is None:
            return "not measured"
        if self.bar is None:
            return "no bar"
        met = self.number >= self.bar if self.sense == "at least" else self.number <= self.bar
        return "met" if met else "MISSED"


def best(runs: Sequence[Run], *, repeats: int = 5) -> list[float]:
    """Run functions in turns, `repeats` times each, and return the shortest time of each in seconds.

    Other work on the machine can only add to a time, so the shortest is the best estimate. The functions take turns so that a busy moment
    affects all of them.
    """
    times = [float("inf")] * len(runs)
    for _ in range(repeats):
        for place, run in enumerate(runs):
            times[place] = min(times[place], _timed(run))
    return times


def medians(runs: Sequence[Run], *, repeats: int) -> list[float]:
    """Run short functions in turns, in the opposite order every other time, and return the median time of each in seconds."""
    times: list[list[float]] = [[] for _ in runs]
    gc.collect()
    gc.disable()  # it would slow down some runs and not others
    for turn in range(repeats):
        for place in range(len(runs))[:: 1 if turn % 2 else -1]:
            began = perf_counter()
            runs[place]()
            times[place].append(perf_counter() - began)
    gc.enable()
    return [median(each) for each in times]


def installed(*modules: str) -> bool:
    """Tell whether other libraries are installed."""
    try:
        for module in modules:
            import_module(module)
    except ImportError:
        return False
    return True


def against(  # noqa: PLR0913  # the columns of a row
    work: str, name: str, *, ours: Run, theirs: Sequence[Run] | None, rows: int, repeats: int = 5
) -> tuple[str, str, str, float | None]:
    """Compare rows per second: (work, ours, peer, ratio). The fastest of `theirs`, several ways to use the peer, counts."""
    mine, *others = best([ours, *(theirs or ())], repeats=repeats)
    if not others:
        return work, f"{rows / mine:,.0f} rows/s", f"{name}: not installed", None
    return work, f"{rows / mine:,.0f} rows/s", f"{name} {rows / min(others):,.0f} rows/s", min(others) / mine


def _timed(run: Run) -> float:
    gc.collect()
    began = perf_counter()
    run()
    return perf_counter() - began
