"""Prefetch: work ahead in a thread."""

import atexit
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from sys import getsizeof
from time import perf_counter
from typing import Any, Literal, TypeVar

from attrs import evolve, field, frozen

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Combinator, Dataset, Wrapper
from mlxfp.core.execution import run, start
from mlxfp.core.nodes import children
from mlxfp.core.running.runners import RUNNER
from mlxfp.core.sources import Position, SourceTraits
from mlxfp.data.rows.calling import context_until
from mlxfp.data.running.meters import QueueMeter
from mlxfp.data.running.pools import Pool, Threads
from mlxfp.data.running.processes import Processes
from mlxfp.support.checks import check_choice, check_positive, explain_call
from mlxfp.support.errors import MlxfpError
from mlxfp.support.optional import optional

Item = TypeVar("Item")
Kind = Literal["threads", "processes"]

_POOLS: dict[str, Callable[[int], Pool]] = {"threads": Threads, "processes": Processes}


@explain_call
def prefetch(
    depth: int, *, workers: int = 1, kind: Kind = "threads", max_bytes: int | None = None
) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Prepare up to `depth` items (before `batch`: chunks) ahead, in one thread, or with several workers.

    With more than one of `workers`, or with `kind="processes"`, they share the work of everything before this stage that has no state:
    reading files that are rows (images, sounds), `map`, `filter`, `template`, `tokenize` and the like, wherever they stand: below a
    shuffle or a mixture, and while `cache` is written. What has a state, as `batch` and `pack` have, runs in one thread. Threads are for
    functions that release Python's lock (decoding, numpy, Arrow) or wait for a network, as in `prefetch(64, workers=32)`; processes are for
    Python code (extra `processes`: loky and cloudpickle). Functions are sent to processes by value where they cannot be imported, so
    lambdas work, and a script needs no `if __name__ == "__main__"`. Workers start when iterating begins, and end with it.

    With `max_bytes`, nothing more is prepared while the items that wait hold that many bytes: so at most one item goes beyond it.
    Values, order and cursors are the same as without it; an error comes out at the same place. No argument is part of the
    fingerprint: a run may continue with others. Threads and processes end when the consumer stops, fails or lets go of the iterator, and
    before Python exits. Raises `WorkerError` where a process ends, as when the system kills it for its memory, naming the rows that it
    worked on, and for what cannot be sent to one, naming the stage.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), fp.prefetch(2)))
    [{'x': 1}, {'x': 2}]

    See also: `profile`, which says how full the queue was and how busy the workers were.
    """
    check_positive(depth=depth, workers=workers)
    check_choice(tuple(_POOLS), kind=kind)
    if max_bytes is not None:
        check_positive(max_bytes=max_bytes)
    if kind == "processes":
        optional("loky", extra="processes", needed_by='prefetch(kind="processes")')
    given = {"workers": (workers, 1), "kind": (kind, "threads"), "max_bytes": (max_bytes, None)}
    return Combinator(Prefetch, {"depth": depth} | {name: value for name, (value, default) in given.items() if value != default})


@frozen(repr=False)
class Prefetch(Wrapper):
    """The dataset, read ahead in a thread. Its position is the dataset's cursor."""

    depth: int = field(eq=False)  # this field and the next ones change how the dataset runs, not its items
    workers: int = field(default=1, eq=False)
    kind: Kind = field(default="threads", eq=False)
    max_bytes: int | None = field(default=None, eq=False)
    watch: QueueMeter | None = field(default=None, eq=False, repr=False)

    @property
    def traits(self) -> SourceTraits:
        """The items of the dataset that is held."""
        return evolve(super().traits, keeps_rows=True, same_items=True)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Start the thread, and yield its items."""
        _ = self.dataset.plan  # schemas are inferred before the thread reads: both may read the first rows of one source
        __tracebackhide__ = True  # pytest and IPython leave this frame out; the cause is in a later frame
        line = _Line(self.depth, self.max_bytes, self.watch)
        pool = self._pool()
        context = context_until(line.is_closed)  # the caller's context: numpy's errstate, the precision of decimals
        if pool is not None:
            context.run(RUNNER.set, pool)
        job = context.run, _work, self.dataset, start(epoch, position), line
        worker = threading.Thread(target=job[0], args=job[1:], name="mlxfp-prefetch", daemon=True)
        consumer, begin = threading.get_ident(), perf_counter()
        stopped = False

        def stop() -> None:
            nonlocal stopped
            line.close()
            if pool is not None:  # before joining the thread, which waits for the pool
                pool.close()
            worker.join()
            if pool is not None and self.watch is not None:
                self.watch.worked(perf_counter() - begin, pool.busy, pool.cpu)
            stopped = True

        worker.start()
        atexit.register(stop)  # a thread in Arrow or MLX while Python takes itself down would abort the process
        try:
            yield from line
        finally:
            if not stopped:  # else Python exits, and its modules may be empty by now
                atexit.unregister(stop)
                line.close()
                if threading.get_ident() == consumer:  # else the garbage collector runs in another one, maybe in that very worker
                    stop()
                elif pool is not None:
                    threading.Thread(target=stop, name="mlxfp-prefetch-end").start()

    def _pool(self) -> Pool | None:
        """Make the workers, if there is more than the one thread."""
        return _POOLS[self.kind](self.workers) if self.workers > 1 or self.kind == "processes" else None

    @property
    def runs_in(self) -> tuple[str, str]:
        """The thread of this stage, and its workers."""
        alone = self.workers == 1 and self.kind == "threads"
        return "the thread of prefetch", "" if alone else "1 process" if self.workers == 1 else f"{self.workers} {self.kind}"

    def notes(self) -> tuple[str, ...]:
        """Say how much is held, and what workers do."""
        held = "1 item" if self.depth == 1 else f"{self.depth:,} items"
        ahead = f"holds up to {held} ahead" + ("" if self.max_bytes is None else f", or {self.max_bytes:,} bytes and one more")
        if self.workers == 1 and self.kind == "threads":
            return (ahead,)
        shared = "nothing: no stage before it works without a state"
        with suppress(MlxfpError, OSError):  # the lines about columns say what is wrong
            shared = ", ".join(_shared(self.dataset)) or shared
        who = f"{self.workers} {self.kind} share" if self.workers > 1 else "a process does"
        return (ahead, f"{who} {shared}")


def _shared(dataset: Dataset[Any]) -> Iterator[str]:
    """Yield the texts of the parts that workers run: child datasets, the source, the leading stages."""
    plan = dataset.plan
    source = plan.source
    for held in children(source):
        yield from _shared(held)
    if not children(source) and source.traits.costly():
        yield repr(source)
    yield from (step.text for step in plan.segment if step.text)
    for step in plan.host:
        if step.text:
            yield step.text if step.stop > step.index else f"{step.stage!r} for collate"


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

    def __init__(self, depth: int, max_bytes: int | None, watch: QueueMeter | None) -> None:
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
                self._watch.watch(len(self._items))
            self._changed.wait_for(lambda: self._closed or self._items or self._ended)
            if self._closed:  # as Python exits, and who reads is in another thread than the main one, which this ends without a word
                raise SystemExit
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
