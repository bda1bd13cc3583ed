"""Prefetch: work ahead in a thread."""

import atexit
import threading
from collections import deque
from collections.abc import Callable, Iterator
from sys import getsizeof
from typing import Any, TypeVar

from attrs import field, frozen

from mlxfp.core.checks import check_positive, explain_call
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Combinator, Dataset, Wrapper
from mlxfp.core.execution import run, start
from mlxfp.core.sources import Position
from mlxfp.data.rows.thread_map import context_until

Item = TypeVar("Item")


@explain_call
def prefetch(depth: int, *, max_bytes: int | None = None) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Prepare up to `depth` items (before `batch`: chunks) ahead, in one thread.

    With `max_bytes`, nothing more is prepared while the items that wait hold that many bytes: so at most one item goes beyond it.
    Values, order and cursors are the same as without it; an error comes out at the same place. Neither argument is part of the
    fingerprint: a run may continue with others. The thread ends when the consumer stops, fails or lets go of the iterator, and before
    Python exits.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> list(pipe(from_examples([{"x": 1}, {"x": 2}]), prefetch(2)))
    [{'x': 1}, {'x': 2}]

    See also: `profile`, which says how full the queue was; `map(workers=)` for several threads.
    """
    check_positive(depth=depth)
    if max_bytes is not None:
        check_positive(max_bytes=max_bytes)
    return Combinator(Prefetch, {"depth": depth} | ({} if max_bytes is None else {"max_bytes": max_bytes}))


@frozen(repr=False)
class Prefetch(Wrapper):
    """The dataset, read ahead in a thread. Its position is the dataset's cursor."""

    keeps_rows = True
    depth: int = field(eq=False)  # how it runs, not what it gives
    max_bytes: int | None = field(default=None, eq=False)
    watch: Callable[[int], None] | None = field(default=None, eq=False, repr=False)  # told how many items wait when one is asked for

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Start the thread, and yield what it makes."""
        _ = self.dataset.plan  # schemas are found here, not while the thread reads: they may need the first rows of the same source
        __tracebackhide__ = True  # pytest and IPython leave this frame out: what failed comes after it
        line = _Line(self.depth, self.max_bytes, self.watch)
        work = context_until(line.is_closed).run  # the caller's context: numpy's errstate, the precision of decimals
        worker = threading.Thread(target=work, args=(_work, self.dataset, start(epoch, position), line), name="mlxfp-prefetch", daemon=True)

        consumer = threading.get_ident()

        def stop() -> None:
            line.close()
            worker.join()

        worker.start()
        atexit.register(stop)  # a thread in Arrow or MLX while Python takes itself down would abort the process
        try:
            yield from line
        finally:
            atexit.unregister(stop)
            line.close()
            if threading.get_ident() == consumer:  # not so where the garbage collector runs in another thread, maybe in that very worker
                worker.join()

    def notes(self) -> tuple[str, ...]:
        """Say how much is held."""
        held = "1 item" if self.depth == 1 else f"{self.depth:,} items"
        return (f"holds up to {held} ahead" + ("" if self.max_bytes is None else f", or {self.max_bytes:,} bytes and one more"),)


def _work(dataset: Dataset[Any], cursor: Cursor, line: "_Line") -> None:
    """Fill the line until the dataset ends, fails, or nobody reads any more."""
    __tracebackhide__ = True
    items = run(dataset, cursor)
    try:
        while line.wait() and (item := next(items, None)) is not None:
            line.put(item)
        line.end(None)
    except BaseException as error:  # noqa: BLE001  # delivered to the consumer, in its place in the order
        line.end(error)
    finally:
        items.close()


class _Line:
    """A bounded queue between two threads that either side can end. Running machinery, never part of a value."""

    def __init__(self, depth: int, max_bytes: int | None, watch: Callable[[int], None] | None) -> None:
        self._items: deque[tuple[Any, int]] = deque()
        self._depth, self._max_bytes, self._bytes = depth, max_bytes, 0
        self._watch = watch
        self._changed = threading.Condition()
        self._ended = self._closed = False
        self._error: BaseException | None = None

    def wait(self) -> bool:
        """Wait until there is room; False once the reader has gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._full())
            return not self._closed

    def put(self, item: Any) -> None:
        """Add an item."""
        size = 0 if self._max_bytes is None else _size(item[0])
        with self._changed:
            self._items.append((item, size))
            self._bytes += size
            self._changed.notify()

    def end(self, error: BaseException | None) -> None:
        """Say that no more items come, and why."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify()

    def close(self) -> None:
        """Say that nobody reads any more."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify()

    def is_closed(self) -> bool:
        """Whether the reader has gone."""
        return self._closed

    def _full(self) -> bool:
        return len(self._items) >= self._depth or (self._max_bytes is not None and self._bytes >= self._max_bytes)

    def __iter__(self) -> Iterator[Any]:
        __tracebackhide__ = True
        while (item := self._next()) is not None:
            yield item
        if self._error is not None:
            raise self._error

    def _next(self) -> Any:
        with self._changed:
            if self._watch is not None:
                self._watch(len(self._items))
            # Who waits while the line is closed is in another thread than the main one as Python exits: it ends there, without an error.
            self._changed.wait_for(lambda: not self._closed and (self._items or self._ended))
            if not self._items:
                return None
            item, size = self._items.popleft()
            self._bytes -= size
            self._changed.notify()
            return item


def _size(item: Any) -> int:
    """Return about how many bytes a chunk holds, or a batch: arrays, and tuples of strings."""
    if not isinstance(item, dict):
        return int(item.nbytes)
    return sum(int(value.nbytes) if hasattr(value, "nbytes") else sum(map(getsizeof, value)) for value in item.values())
