"""Time measurement: run several functions alternately in one process and compare the times."""

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
    """Line of the results table: work, result of mlxfp, result of the peer, number to judge, and bar.

    The number is the ratio of both results, or the result of mlxfp without a peer. Without a measurement, the number is None and `peer`
    gives the reason. A line without a bar is informative only.
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
        """Verdict: met, MISSED, no bar, or not measured."""
        if self.number is None:
            return "not measured"
        if self.bar is None:
            return "no bar"
        met = self.number >= self.bar if self.sense == "at least" else self.number <= self.bar
        return "met" if met else "MISSED"


def best(runs: Sequence[Run], *, repeats: int = 5) -> list[float]:
    """Run functions alternately, `repeats` times each, and return the shortest time of each function in seconds.

    The shortest time is the best estimate, because other work on the machine can only add time. Alternation spreads busy moments over all
    functions.
    """
    times = [float("inf")] * len(runs)
    for _ in range(repeats):
        for place, run in enumerate(runs):
            times[place] = min(times[place], _timed(run))
    return times


def medians(runs: Sequence[Run], *, repeats: int) -> list[float]:
    """Run short functions alternately, reversing the order in every second round, and return the median times in seconds."""
    times: list[list[float]] = [[] for _ in runs]
    gc.collect()
    gc.disable()  # a collection would slow down single runs
    for turn in range(repeats):
        for place in range(len(runs))[:: 1 if turn % 2 else -1]:
            began = perf_counter()
            runs[place]()
            times[place].append(perf_counter() - began)
    gc.enable()
    return [median(each) for each in times]


def installed(*modules: str) -> bool:
    """Return True if all given modules can be imported."""
    try:
        for module in modules:
            import_module(module)
    except ImportError:
        return False
    return True


def against(  # noqa: PLR0913  # the columns of a row
    work: str, name: str, *, ours: Run, theirs: Sequence[Run] | None, rows: int, repeats: int = 5
) -> tuple[str, str, str, float | None]:
    """Compare rows per second and return (work, ours, peer, ratio). `theirs` are several ways to use the peer, and the fastest counts."""
    mine, *others = best([ours, *(theirs or ())], repeats=repeats)
    if not others:
        return work, f"{rows / mine:,.0f} rows/s", f"{name}: not installed", None
    return work, f"{rows / mine:,.0f} rows/s", f"{name} {rows / min(others):,.0f} rows/s", min(others) / mine


def _timed(run: Run) -> float:
    gc.collect()
    began = perf_counter()
    run()
    return perf_counter() - began
