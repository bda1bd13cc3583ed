"""Prefetch: work ahead in a thread."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from attrs import frozen

from mlxfp.core.checks import check_positive
from mlxfp.core.cursors import Cursor, run, start
from mlxfp.core.datasets import Combinator, Dataset, Position, Wrapper

Item = TypeVar("Item")


def prefetch(depth: int) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Prepare up to `depth` items (before `batch`: chunks) ahead, in one thread.

    Values, order and cursors are the same as without it; an error comes out at the same place. The thread ends when the consumer stops,
    fails or lets go of the iterator.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> list(pipe(from_examples([{"x": 1}, {"x": 2}]), prefetch(2)))
    [{'x': 1}, {'x': 2}]
    """
    check_positive(depth=depth)
    return Combinator(_Prefetch, {"depth": depth})


@frozen(repr=False)
class _Prefetch(Wrapper):
    depth: int

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        line = _Line(self.depth)
        worker = threading.Thread(target=_work, args=(self.dataset, start(epoch, position), line), name="mlxfp-prefetch", daemon=True)
        worker.start()
        try:
            yield from line
        finally:
            line.close()
            worker.join()


def _work(dataset: Dataset[Any], cursor: Cursor, line: "_Line") -> None:
    """Fill the line until the dataset ends, fails, or nobody reads any more."""
    items = run(dataset, cursor)
    try:
        for item in items:
            if not line.put(item):
                return
        line.end(None)
    except BaseException as error:  # noqa: BLE001  # delivered to the consumer, in its place in the order
        line.end(error)
    finally:
        items.close()


class _Line:
    """A bounded queue between two threads that either side can end. Running machinery, never part of a value."""

    def __init__(self, depth: int) -> None:
        self._items: deque[Any] = deque()
        self._depth = depth
        self._changed = threading.Condition()
        self._ended = self._closed = False
        self._error: BaseException | None = None

    def put(self, item: Any) -> bool:
        """Wait for room and add an item; False once the reader has gone."""
        with self._changed:
            while len(self._items) >= self._depth and not self._closed:
                self._changed.wait()
            self._items.append(item)
            self._changed.notify()
            return not self._closed

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

    def __iter__(self) -> Iterator[Any]:
        while True:
            with self._changed:
                while not self._items and not self._ended:
                    self._changed.wait()
                if not self._items:
                    break
                item = self._items.popleft()
                self._changed.notify()
            yield item
        if self._error is not None:
            raise self._error
