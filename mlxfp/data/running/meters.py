"""Adding up time and rows, wherever the work is done: what is counted in another process comes back with what was made."""

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any

_numbers = itertools.count()  # of the meters of this process
_lock = threading.Lock()
_read: "weakref.WeakValueDictionary[int, Meter]" = weakref.WeakValueDictionary()  # the meters that are read in this process, by number
_copies: "dict[int, Meter]" = {}  # in a worker process: copies of meters of the process that it works for

Counts = tuple[float, int, int]


class Meter:
    """Seconds, rows and items that a part of a pipeline has made. Running machinery, never part of a value."""

    def __init__(self) -> None:
        """Start from nothing."""
        self.number = next(_numbers)
        self._own = threading.Lock()
        self.reset()
        with _lock:
            _read[self.number] = self

    def __reduce__(self) -> Any:
        return _copy, (self.number,)

    def reset(self) -> None:
        """Start again from nothing."""
        self.seconds, self.rows, self.items = 0.0, 0, 0

    def add(self, seconds: float, rows: int = 0, items: int = 0) -> None:
        """Add to what was counted."""
        with self._own:
            self.seconds, self.rows, self.items = self.seconds + seconds, self.rows + rows, self.items + items

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Add the time of a call."""
        begin = perf_counter()
        try:
            return function(*arguments)
        finally:
            self.add(perf_counter() - begin)

    def pass_on(self, items: Iterable[Any], chunk_of: Callable[[Any], Any] = lambda item: item) -> Iterator[Any]:
        """Pass items on, adding their number and the time that making them takes."""
        source, end = iter(items), object()
        while (item := self.call(next, source, end)) is not end:
            self.add(0.0, getattr(chunk_of(item), "num_rows", 0), 1)
            yield item


def take_counts() -> dict[int, Counts]:
    """In a worker process: return what was counted since the last time, by the number of the meter."""
    copies = list(_copies.items())
    found = {number: (meter.seconds, meter.rows, meter.items) for number, meter in copies if meter.items or meter.seconds}
    for _, meter in copies:
        meter.reset()
    return found


def add_counts(counts: dict[int, Counts]) -> None:
    """Add what a worker process has counted to the meters of this one."""
    for number, (seconds, rows, items) in counts.items():
        with _lock:
            meter = _read.get(number)
        if meter is not None:
            meter.add(seconds, rows, items)


def _copy(number: int) -> Meter:
    return _copies.get(number) or _copies.setdefault(number, Meter())


class QueueMeter:
    """What a `prefetch` tells: how many items stood ready when one was asked for, and how busy its workers were."""

    def __init__(self) -> None:
        """Start from nothing."""
        self.reset()

    def reset(self) -> None:
        """Start again from nothing."""
        self.asked, self.ready = 0, 0
        self.wall, self.busy, self.cpu = 0.0, 0.0, 0.0  # seconds: since the workers began, of work of all workers, of which on a processor

    def watch(self, ready: int) -> None:
        """Add how many items stand ready when one is asked for."""
        self.asked, self.ready = self.asked + 1, self.ready + ready

    def worked(self, wall: float, busy: float, cpu: float) -> None:
        """Add what workers did in a time."""
        self.wall, self.busy, self.cpu = self.wall + wall, self.busy + busy, self.cpu + cpu
