"""Counters of time and rows for `profile`. Worker processes return their counts together with their results."""

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any

_numbers = itertools.count()  # source of new ids for `Meter` objects
_lock = threading.Lock()
_read: "weakref.WeakValueDictionary[int, Meter]" = weakref.WeakValueDictionary()  # maps ids to the `Meter` objects of this process
_copies: "dict[int, Meter]" = {}  # In a worker process, `_copies` maps ids to copies of the `Meter` objects of the parent process.

Counts = tuple[float, int, int]


class Meter:
    """Counter of the seconds, rows and items of one part of a pipeline."""

    def __init__(self) -> None:
        """Start with zero counts."""
        self.number = next(_numbers)
        self._own = threading.Lock()
        self.reset()
        with _lock:
            _read[self.number] = self

    def __reduce__(self) -> Any:
        return _copy, (self.number,)

    def reset(self) -> None:
        self.seconds, self.rows, self.items = 0.0, 0, 0

    def add(self, seconds: float, rows: int = 0, items: int = 0) -> None:
        with self._own:
            self.seconds, self.rows, self.items = self.seconds + seconds, self.rows + rows, self.items + items

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function and add its run time to the counter."""
        begin = perf_counter()
        try:
            return function(*arguments)
        finally:
            self.add(perf_counter() - begin)

    def pass_on(self, items: Iterable[Any], chunk_of: Callable[[Any], Any] = lambda item: item) -> Iterator[Any]:
        """Yield the items of an iterable, and count the items, their rows and the time of each `next`."""
        source, end = iter(items), object()
        while (item := self.call(next, source, end)) is not end:
            self.add(0.0, getattr(chunk_of(item), "num_rows", 0), 1)
            yield item


def take_counts() -> dict[int, Counts]:
    """Return the seconds, rows and items counted in this worker process, by id of the `Meter`. Set the counts to zero."""
    copies = list(_copies.items())
    counts = {number: (meter.seconds, meter.rows, meter.items) for number, meter in copies if meter.items or meter.seconds}
    for _, meter in copies:
        meter.reset()
    return counts


def add_counts(counts: dict[int, Counts]) -> None:
    """Add the counts of a worker process to the meters of this process."""
    for number, (seconds, rows, items) in counts.items():
        with _lock:
            meter = _read.get(number)
        if meter is not None:
            meter.add(seconds, rows, items)


def _copy(number: int) -> Meter:
    return _copies.get(number) or _copies.setdefault(number, Meter())


class QueueMeter:
    """Statistics of a `prefetch`: number of items that are ready at each request, and use of the workers."""

    def __init__(self) -> None:
        """Start with zero counts."""
        self.reset()

    def reset(self) -> None:
        self.asked, self.ready = 0, 0
        # Totals in seconds: elapsed time, working time of all workers, and CPU time of all workers.
        self.wall, self.busy, self.cpu = 0.0, 0.0, 0.0

    def watch(self, ready: int) -> None:
        """Record the number of items that are ready when the consumer requests an item."""
        self.asked, self.ready = self.asked + 1, self.ready + ready

    def worked(self, wall: float, busy: float, cpu: float) -> None:
        """Add to the totals: the elapsed seconds, the working seconds of all workers, and the CPU seconds of all workers."""
        self.wall, self.busy, self.cpu = self.wall + wall, self.busy + busy, self.cpu + cpu
