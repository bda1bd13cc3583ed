"""Stage `prefetch`, which prepares items ahead in a background thread."""

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from sys import getsizeof
from time import perf_counter
from typing import Any, Literal, TypeVar

from attrs import evolve, field, frozen

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Combinator, Dataset, Wrapper
from mlxfp.core.execution import run, start
from mlxfp.core.nodes import children
from mlxfp.core.running.runners import RUNNER
from mlxfp.core.sources import Position, SourceTraits
from mlxfp.data.rows.calling import context_until
from mlxfp.data.running.meters import QueueMeter
from mlxfp.data.running.pools import Pool, Threads, unstarted
from mlxfp.data.running.processes import Processes
from mlxfp.support.checks import check_choice, check_positive, explain_call, not_none
from mlxfp.support.errors import MlxfpError, WorkerError
from mlxfp.support.optional import optional

Item = TypeVar("Item")
Kind = Literal["threads", "processes"]

_POOLS: dict[str, Callable[[int], Pool]] = {"threads": Threads, "processes": Processes}


@explain_call
def prefetch(
    depth: int, *, workers: int = 1, kind: Kind = "threads", max_bytes: int | None = None
) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Prepare up to `depth` items ahead in a background thread, optionally with several workers.

    Items are groups or batches. If `prefetch` comes before `batch`, items are chunks of rows.

    The argument `kind` selects threads or processes as workers. Workers run if `workers` is greater than 1, or with `kind="processes"`:

    - Workers run all earlier stateless stages, such as `map`, `filter`, `template` and `tokenize`, also those before a shuffle or mixture.
    - Workers read files that hold one example each (images, sounds), and help `cache` to write its files.
    - Stages that combine rows, such as `batch` and `pack`, run in the background thread.

    Use threads for functions that release the GIL (decoding, NumPy, Arrow) or wait for a network, as in `prefetch(64, workers=32)`. Use
    processes for Python code (extra `processes`: loky and cloudpickle). Lambdas and functions of a script work without
    `if __name__ == "__main__"`.

    Preparation pauses while the prepared items hold at least `max_bytes` bytes. Values, order, errors and cursors are the same as without
    `prefetch`. A resumed run may use other arguments. Threads and processes end when the iteration ends, fails or is abandoned, and before
    Python exits.

    Raises `WorkerError` if a worker process dies, for example when killed for its memory use. The message names the rows in work. Raises
    `WorkerError` if a stage cannot be sent to a process. The message names the stage.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), fp.prefetch(2)))
    [{'x': 1}, {'x': 2}]

    See also: `profile`, which says how full the queue was and how busy the workers were.
    """
    check_positive(depth=depth, workers=workers, **not_none(max_bytes=max_bytes))
    check_choice(tuple(_POOLS), kind=kind)
    if kind == "processes":
        optional("loky", extra="processes", needed_by='prefetch(kind="processes")')
    given = {"workers": (workers, 1), "kind": (kind, "threads"), "max_bytes": (max_bytes, None)}
    return Combinator(Prefetch, {"depth": depth} | {name: value for name, (value, default) in given.items() if value != default})


@frozen(repr=False)
class Prefetch(Wrapper):
    """Source that reads a dataset ahead in a thread. A resume position is a cursor of the wrapped dataset."""

    depth: int = field(eq=False)  # Equality ignores `depth` and all fields below, because these fields do not change the items.
    workers: int = field(default=1, eq=False)
    kind: Kind = field(default="threads", eq=False)
    max_bytes: int | None = field(default=None, eq=False)
    watch: QueueMeter | None = field(default=None, eq=False, repr=False)

    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, keeps_rows=True, same_items=True)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Start the thread and yield the items that it prepares."""
        # Infer schemas before the thread starts. Otherwise both threads could read the first rows of a source at the same time.
        _ = self.dataset.plan
        __tracebackhide__ = True  # Hide this frame in pytest and IPython, because the cause of the error is in a later frame.
        line = _Line(self.depth, self.max_bytes, self.watch)
        pool = self._pool()
        context = context_until(line.is_closed)  # The thread takes over the caller's NumPy error state and decimal precision.
        if pool is not None:
            context.run(RUNNER.set, pool)
        job = context.run, _work, self.dataset, start(epoch, position), line
        worker = threading.Thread(target=job[0], args=job[1:], name="mlxfp-prefetch", daemon=True)
        consumer, begin = threading.get_ident(), perf_counter()
        stopped = False

        def stop() -> None:
            nonlocal stopped
            if line.is_forked():  # After a fork, the thread and the workers exist only in the parent process.
                return
            line.close()
            if pool is not None:  # The thread may be waiting for a result of the pool. Closing the pool ends this wait.
                pool.close()
            worker.join()
            if pool is not None and self.watch is not None:
                self.watch.worked(perf_counter() - begin, pool.busy, pool.cpu)
            stopped = True

        _start_thread(worker, pool, self.workers)
        atexit.register(stop)  # End the thread before Python exits: a thread inside Arrow or MLX would abort the process.
        try:
            yield from line
        finally:
            if not stopped and not line.is_forked():  # While Python exits, globals of this module may already be deleted.
                atexit.unregister(stop)
                line.close()
                # Garbage collection may end this generator in another thread, even in the prefetch thread. No thread can join itself.
                if threading.get_ident() == consumer:
                    stop()
                elif pool is not None:
                    threading.Thread(target=stop, name="mlxfp-prefetch-end").start()

    def before(self, chunk: RecordBatch, after: Position) -> Position:
        """Return the position of the first row of a chunk. `after` is the position after the last row."""
        return after.back(chunk.num_rows)

    def _pool(self) -> Pool | None:
        """Return a pool of workers, or None if a single thread is enough."""
        return _POOLS[self.kind](self.workers) if self.workers > 1 or self.kind == "processes" else None

    @property
    def runs_in(self) -> tuple[str, str]:
        """Names of the thread and of the workers, for `explain`."""
        alone = self.workers == 1 and self.kind == "threads"
        return "the thread of prefetch", "" if alone else "1 process" if self.workers == 1 else f"{self.workers} {self.kind}"

    def notes(self) -> tuple[str, ...]:
        """Return notes for `explain`: the number of items that are prepared ahead, and the stages that run in workers."""
        items = "1 item" if self.depth == 1 else f"{self.depth:,} items"
        ahead = f"holds up to {items} ahead" + ("" if self.max_bytes is None else f", or {self.max_bytes:,} bytes and one more")
        if self.workers == 1 and self.kind == "threads":
            return (ahead,)
        shared = "nothing: no earlier stage is stateless"
        with suppress(MlxfpError, OSError):  # Ignore errors of the dataset here, because `explain` reports such errors elsewhere.
            shared = ", ".join(_shared(self.dataset)) or shared
        who = f"{self.workers} {self.kind} share" if self.workers > 1 else "a process does"
        return (ahead, f"{who} {shared}")


def _start_thread(thread: threading.Thread, pool: Pool | None, workers: int) -> None:
    """Start a thread. Raises `WorkerError` and closes the pool if the system refuses another thread."""
    try:
        thread.start()
    except RuntimeError as error:
        if pool is not None:
            pool.close()
        raise unstarted("thread", workers, error) from error


def _shared(dataset: Dataset[Any]) -> Iterator[str]:
    """Yield the names of the stages that workers run and of the sources that workers read, including child datasets."""
    plan = dataset.plan
    source = plan.source
    for child in children(source):
        yield from _shared(child)
    if not children(source) and source.traits.costly():
        yield repr(source)
    yield from (step.text for step in plan.segment if step.text)
    for step in plan.host:
        if step.text:
            yield step.text if step.stop > step.index else f"{step.stage!r} for collate"


def _work(dataset: Dataset[Any], cursor: Cursor, line: "_Line") -> None:
    """Fill the queue until the dataset ends, the dataset fails, or the consumer stops."""
    __tracebackhide__ = True
    items = run(dataset, cursor)
    try:
        while line.wait() and (item := next(items, None)) is not None:
            line.put(item)
        line.end(None)
    except BaseException as error:  # noqa: BLE001  # raised in the consumer, after the earlier items
        line.end(error)
    finally:
        items.close()


class _Line:
    """Bounded queue between two threads. Both threads can close the queue."""

    def __init__(self, depth: int, max_bytes: int | None, watch: QueueMeter | None) -> None:
        self._items: deque[tuple[Any, int]] = deque()
        self._depth, self._max_bytes, self._bytes = depth, max_bytes, 0
        self._watch, self._process = watch, os.getpid()
        self._changed = threading.Condition()
        self._ended = self._closed = False
        self._error: BaseException | None = None

    def wait(self) -> bool:
        """Wait for a free place in the queue. Return False if the consumer has stopped."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._full())
            return not self._closed

    def put(self, item: Any) -> None:
        size = 0 if self._max_bytes is None else _size(item[0])
        with self._changed:
            self._items.append((item, size))
            self._bytes += size
            self._changed.notify()

    def end(self, error: BaseException | None) -> None:
        """Mark the end of the items. `error` is the error that ended the items, or None."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify()

    def close(self) -> None:
        """Mark that the consumer has stopped."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify()

    def is_forked(self) -> bool:
        """Return True in a forked child of the process that made the queue. Threads do not survive a fork."""
        return os.getpid() != self._process

    def is_closed(self) -> bool:
        """Return True if the consumer has stopped."""
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
        if self.is_forked():
            raise WorkerError(
                f"An iterator with prefetch began in process {self._process} and was used in the forked process {os.getpid()}, "
                "which has no prefetch thread. Begin the iterator after the fork, with iterate(dataset, cursor)."
            )
        with self._changed:
            if self._watch is not None:
                self._watch.watch(len(self._items))
            self._changed.wait_for(lambda: self._closed or self._items or self._ended)
            if self._closed:  # Python is exiting. SystemExit ends the current thread without an error message.
                raise SystemExit
            if not self._items:
                return None
            item, size = self._items.popleft()
            self._bytes -= size
            self._changed.notify()
            return item


def _size(item: Any) -> int:
    """Return the approximate number of bytes of a chunk, or of a batch of arrays and tuples of strings."""
    if not isinstance(item, dict):
        return int(item.nbytes)
    return sum(int(value.nbytes) if hasattr(value, "nbytes") else sum(map(getsizeof, value)) for value in item.values())
