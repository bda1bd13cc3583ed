"""Running a pipeline: one loop feeds stages, for everything that runs them.

While a source chunk is pushed through the steps of a plan, the position before it and the states before it are remembered. The cursor of
the n-th item that comes out is (that snapshot, n). To resume: restore the states, read from the position, drop n items. So the work that
is done again is bounded by one source chunk, for every pipeline.

A function that watches a run, or changes how the parts are called (`profile`, `on_error`, `row_origins`, ...), gives hooks.
"""

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from math import inf
from time import monotonic
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.checks import check_not_negative
from mlxfp.core.chunks import RecordBatch, Schema, number_as, number_rows, to_rows
from mlxfp.core.cursors import Cursor, Snapshot
from mlxfp.core.errors import ArgumentTypeError, CursorError, CursorMismatchError, PipelineError
from mlxfp.core.examples import Examples
from mlxfp.core.identity import difference
from mlxfp.core.nodes import Item, Pipeline, check_dataset, children
from mlxfp.core.sources import Position, Source, check_ends, warn_redrawn
from mlxfp.core.stages import Level, Stage, State

__tracebackhide__ = True  # pytest leaves the frames of this module out; what is of interest is the user's function behind them
ALL_STAGES = 1 << 30  # more than any pipeline has
_SILENT_ROWS, _SILENT_SECONDS = 100_000, 20.0  # without an item, after which a stage that leaves all rows out is named: a second or more
_ROWS_AT_ONCE = 256  # rows made into dicts at a time: an early stop wastes little, and Arrow's cost per call is shared

Read = Callable[[int, Position], Iterator[tuple[Any, Position]]]
Take = Callable[[int, NDArray[np.int64]], RecordBatch]
Fed = tuple[State, Iterable[Any]]
Calls = Sequence[tuple["Step", Callable[[State, Any], Fed]]]
Rows = Callable[[], Iterator[RecordBatch]]


@frozen
class Step:
    """One call for each chunk: a stage, or one that does the work of several neighbouring stages.

    `place` and `stop` say which stages of the pipeline these are; the state is kept at `place`. `schema` is what comes out if nothing
    is left out. `text` is how these stages were written.
    """

    stage: Stage
    place: int
    stop: int
    schema: Schema
    text: str


@frozen(eq=False)
class Plan:
    """What runs in place of a pipeline as it was written; with the same items and cursors. See `planning.py`.

    `stages` are those of the pipeline, each with its schema declared: their states are what a cursor holds, whatever the steps are.
    """

    source: Source
    steps: tuple[Step, ...]
    stages: tuple[Stage, ...]
    level: Level
    schema: Schema  # of the chunks that come out; after `collate`: of the groups that go in
    text: str  # the source as it was written, for errors
    rewrites: tuple[str, ...] = ()  # what was changed, for `explain`


@frozen
class Hooks:
    """How the parts of a pipeline are called while it runs: each method returns the function to call.

    These change nothing. Subclasses override what they change, and leave the rest to the hooks that they are put around (`inner`).
    """

    inner: "Hooks | None" = None

    @property
    def as_written(self) -> int:
        """How many stages, from the first, run as they were written: each a step, on all columns of the source."""
        return 0 if self.inner is None else self.inner.as_written

    @property
    def fuses(self) -> bool:
        """Whether stages in a row that turn each row into one row may run as one step."""
        return self.inner is None or self.inner.fuses

    @property
    def marks(self) -> str:
        """The hidden column that they add to rows: rows that are kept with it are kept apart from those without."""
        return "" if self.inner is None else self.inner.marks

    def schema(self, source: Source) -> Callable[[], Schema]:
        """Return what finds the schema of a source."""
        return source.schema if self.inner is None else self.inner.schema(source)

    def read(self, source: Source) -> Read:
        """Return what reads a source."""
        return source.read if self.inner is None else self.inner.read(source)

    def take(self, source: Source) -> Take:
        """Return what takes rows of a source by number."""
        return source.take if self.inner is None else self.inner.take(source)

    def exact_length(self, source: Source) -> Callable[[], int | None]:
        """Return what counts the rows of a source, reading those that are kept if need be."""
        return source.exact_length if self.inner is None else self.inner.exact_length(source)

    def head(self, source: Source) -> Callable[[], Iterator[RecordBatch]]:
        """Return what reads the first rows of a source, which schemas are inferred from."""
        return source.head if self.inner is None else self.inner.head(source)

    def infer(self, stage: Stage, place: int) -> Callable[[Schema, Rows], Stage]:
        """Return what declares the schema of the stage at a place."""
        return stage.infer if self.inner is None else self.inner.infer(stage, place)

    def step(self, step: Step) -> Callable[[State, Any], Fed]:
        """Return what feeds a chunk to a step."""
        return step.stage.step if self.inner is None else self.inner.step(step)

    def finish(self, step: Step) -> Callable[[State], Iterable[Any]]:
        """Return what ends a step."""
        return step.stage.finish if self.inner is None else self.inner.finish(step)


@frozen
class AsWritten(Hooks):
    """Runs every stage as a step of its own, in the order and with the columns of the pipeline as it was written."""

    @property
    def as_written(self) -> int:
        """All of them."""
        return ALL_STAGES


NO_HOOKS = Hooks()


def iterate(dataset: Pipeline[Item], cursor: Cursor | None = None, *, epoch: int = 0) -> Iterator[tuple[Item, Cursor]]:
    """Yield every item with the cursor after it; a cursor that is given continues exactly where it stands.

    Items are dicts before `batch`, `Examples` after it, and `dict[str, mx.array]` after `collate`. `epoch` selects the order and the
    randomness of a fresh run; a cursor brings its own. Raises `CursorMismatchError` for a cursor of another pipeline. Warns where an epoch
    after the first has other rows, because `take`, `skip` or `select` stands behind a `shuffle`.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> numbers = from_examples([{"x": i} for i in range(4)])
    >>> items = list(iterate(numbers))
    >>> cursor = Cursor.from_bytes(items[1][1].to_bytes())
    >>> [item for item, _ in iterate(numbers, cursor)]
    [{'x': 2}, {'x': 3}]

    See also: `aiterate` for `async for`.
    """
    check_dataset(dataset, iterate)
    check_not_negative(epoch=epoch)
    if epoch:
        warn_redrawn(dataset, stacklevel=2)
    if cursor is None:
        return _items(dataset, beginning(dataset, epoch=epoch))
    _check_cursor(dataset, cursor)
    return _items(dataset, Cursor(cursor.base, cursor.done, dataset))


def beginning(dataset: Pipeline[Any], *, epoch: int = 0) -> Cursor:
    """Return the cursor at the start of an epoch, before the first item."""
    return Cursor(Snapshot(epoch), 0, dataset)


def aiterate(dataset: Pipeline[Item], cursor: Cursor | None = None, *, epoch: int = 0) -> AsyncIterator[tuple[Item, Cursor]]:
    """Yield what `iterate` yields, for `async for`: the work happens in one thread of its own. Without cursors: `async for x in dataset`.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> async def total():
    ...     return sum([item["x"] async for item, _ in aiterate(from_examples([{"x": 1}, {"x": 2}]))])
    >>> asyncio.run(total())
    3
    """
    return in_a_thread(iterate(dataset, cursor, epoch=epoch))


async def in_a_thread(items: Any) -> AsyncIterator[Any]:
    """Yield what a generator yields, each item made in one thread of its own."""
    loop, end = asyncio.get_running_loop(), object()
    with ThreadPoolExecutor(1, "mlxfp-aiterate") as worker:  # one thread: MLX arrays that are not evaluated must not change threads
        try:
            while (item := await loop.run_in_executor(worker, next, items, end)) is not end:
                yield item
        finally:
            with suppress(RuntimeError):  # from submit: Python exits, and the thread has ended
                worker.submit(items.close).result()


def run(dataset: Pipeline[Any], cursor: Cursor) -> Generator[tuple[Any, Cursor], None, None]:
    """Yield chunks (batches after `collate`), each with the cursor after it. Sources that hold datasets are built on this."""
    plan: Plan = dataset.plan
    try:
        yield from execute(plan, cursor, dataset.hooks)
    except Exception as error:
        if not children(plan.source):  # the innermost source is named, once
            error.add_note(f"reading from {plan.text}, epoch {cursor.epoch}")
        raise


def execute(plan: Plan, cursor: Cursor, hooks: Hooks = NO_HOOKS) -> Iterator[tuple[Any, Cursor]]:
    """Run a plan from a cursor on: yield chunks (batches after `collate`), each with the cursor after it."""
    source, steps = plan.source, plan.steps
    base, done, owner = cursor.base, cursor.done, cursor.owner
    by_row, arrow = plan.level == "examples", source.level != "batches"
    states = [stage.start(base.epoch) for stage in plan.stages] if base.states is None else list(base.states)
    calls = [(step, hooks.step(step)) for step in steps]
    rows, silence = base.rows, _Silence(calls)
    for chunk, after in hooks.read(source)(base.epoch, base.position):
        numbered = number_rows(chunk, base.epoch, rows) if arrow else chunk
        rows += chunk.num_rows if arrow else 0
        before, base = base, Snapshot(base.epoch, after, rows, tuple(states))
        if steps or by_row or done:
            try:
                came = yield from _emit(_push(silence.calls, states, (numbered,)), before, done, owner, by_row=by_row)
                if came:
                    done, silence.rows = max(0, done - came), 0
                else:
                    silence.lasts(numbered, plan, base.epoch)
            except Exception as error:
                if (file := source.file_of(before.position)) is not None:
                    error.add_note(f"with rows of {file}")
                raise
            base = Snapshot(base.epoch, after, rows, tuple(states))
        else:  # one chunk is one item, so the cursor is the position itself
            yield numbered, Cursor(base, 0, owner)
    yield from _emit(_flush(calls, states, hooks), base, done, owner, by_row=by_row)


def start(epoch: int, position: Cursor | None) -> Cursor:
    """Say where a source that holds a dataset lets it begin: at the position, else at the start of the epoch."""
    return Cursor(Snapshot(epoch), 0) if position is None else position


def read_all(dataset: Pipeline[Any], *, epoch: int = 0) -> Generator[Any, None, None]:
    """Yield the chunks of an epoch, or its batches after `collate`. Raises `PipelineError` where an epoch is known to have no end."""
    check_ends(dataset, "This function")
    with closing(run(dataset, start(epoch, None))) as items:
        for item, _ in items:
            yield item


def take_rows(dataset: Pipeline[Any], epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
    """Return rows of an indexable dataset by number, int64[N], through its stages, with the hidden columns."""
    plan: Plan = dataset.plan
    try:
        chunk = number_as(dataset.hooks.take(plan.source)(epoch, indices), epoch, indices)
        states = [stage.start(epoch) for stage in plan.stages]
        (chunk,) = _push([(step, dataset.hooks.step(step)) for step in plan.steps], states, (chunk,))
    except Exception as error:
        if not children(plan.source):  # the innermost source is named, once
            error.add_note(f"reading from {plan.text}, epoch {epoch}")
        raise
    return chunk


def row_count(dataset: Pipeline[Any]) -> int:
    """Return the number of rows of an indexable dataset."""
    count: int | None = dataset.hooks.exact_length(dataset.plan.source)()
    if count is None:
        raise PipelineError(f"{dataset.source!r} can take rows by number and must say how many there are: its length() returned None.")
    return count


def blame(error: Exception, stages: str) -> None:
    """Add a note to an error that names the stages it was raised in, unless it has one."""
    if not any(note.startswith("while running ") for note in getattr(error, "__notes__", ())):
        error.add_note(f"while running {stages}")


def _push(calls: Calls, states: list[State], chunks: Iterable[Any]) -> Iterable[Any]:
    """Feed chunks to the first step, and what comes out to the steps after it; `states` is updated in place.

    Lazy: a chunk is fed to a step when what comes out of it is asked for.
    """
    for step, call in calls:
        chunks = _feed(step, call, states, chunks)
    return chunks


def _feed(step: Step, call: Callable[[State, Any], Fed], states: list[State], chunks: Iterable[Any]) -> Iterator[Any]:
    place = step.place
    for chunk in chunks:
        try:
            states[place], out = call(states[place], chunk)
        except Exception as error:
            blame(error, step.text)
            raise
        yield from out


def _flush(calls: Calls, states: list[State], hooks: Hooks) -> Iterator[Any]:
    """Finish every step in turn, feeding what it still held to the steps after it."""
    for number, (step, _) in enumerate(calls, 1):
        yield from _push(calls[number:], states, hooks.finish(step)(states[step.place]))


def _emit(chunks: Iterable[Any], base: Snapshot, skip: int, owner: Any, *, by_row: bool) -> Generator[tuple[Any, Cursor], None, int]:
    """Yield the items that come out after a snapshot, leaving out the first `skip`; return how many came out, with these."""
    done = 0
    for chunk in chunks:
        size = chunk.num_rows if by_row else 1
        done += size
        if done > skip and size:
            fresh = min(size, done - skip)
            yield chunk if fresh == size else chunk.slice(size - fresh), Cursor(base, done, owner)
    return done


class _Silence:
    """Notices that no item comes out for long, and finds out why. Running machinery, never part of a value."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls  # what to feed the next chunk to
        self.rows = 0  # read since the last item came out
        self._plain, self._counts, self._since = calls, list[list[int]](), 0.0
        self._rows, self._seconds = float(_SILENT_ROWS), _SILENT_SECONDS

    def lasts(self, chunk: Any, plan: Plan, epoch: int) -> None:
        """Take note of a chunk of which nothing came out. After many or much time, count what each step makes of one chunk, and say it."""
        now = monotonic()
        self._since = self._since if self.rows else now
        self.rows += _size(chunk)
        if self._counts:
            self._explain(plan, epoch)
            self.calls, self._counts = self._plain, []
        elif self.rows >= self._rows or now - self._since >= self._seconds:
            self._counts = [[0, 0] for _ in self._plain]
            self.calls = [(step, partial(_counted, call, count)) for (step, call), count in zip(self._plain, self._counts, strict=True)]

    def _explain(self, plan: Plan, epoch: int) -> None:
        """Warn once, if a step leaves out all rows; if one holds them instead, look again when it took twice as long."""
        found = next((pair for pair in zip(self._plain, self._counts, strict=True) if pair[1][0] and not pair[1][1]), None)
        if found is None or found[0][0].stage.start(epoch) != ():
            self._rows, self._seconds = 2 * self._rows, 2 * self._seconds
            return
        self._rows = self._seconds = inf
        warnings.warn(
            f"Nothing came out of the last {self.rows:,} rows of {plan.text}, in epoch {epoch}: of the last {found[1][0]:,} that "
            f"reached it, {found[0][0].text} kept 0. Reading goes on to the end of the data; if rows should pass, preview those before it.",
            RuntimeWarning,
            stacklevel=2,
        )


def _counted(call: Callable[[State, Any], Fed], count: list[int], state: State, chunk: Any) -> Fed:
    """Make a call, and add the rows that go in and come out to a count."""
    state, out = call(state, chunk)
    made = list(out)
    count[:] = count[0] + _size(chunk), count[1] + sum(map(_size, made))
    return state, made


def _size(chunk: Any) -> int:
    return int(getattr(chunk, "num_rows", 1))  # a batch has none, and counts as one


def _items(dataset: Pipeline[Any], cursor: Cursor) -> Iterator[tuple[Any, Cursor]]:
    if dataset.level == "batches":
        yield from run(dataset, cursor)
    elif dataset.level == "groups":
        for chunk, after in run(dataset, cursor):
            yield Examples(chunk), after
    else:
        for chunk, after in run(dataset, cursor):
            for first in range(0, chunk.num_rows, _ROWS_AT_ONCE):
                done = after.done - chunk.num_rows + first
                for place, row in enumerate(to_rows(chunk.slice(first, _ROWS_AT_ONCE)), 1):
                    yield row, Cursor(after.base, done + place, cursor.owner)


def _check_cursor(dataset: Pipeline[Any], cursor: Cursor) -> None:
    if not isinstance(cursor, Cursor):
        raise ArgumentTypeError(
            f"A cursor is what iterate yields with each item, got {type(cursor).__name__}: {cursor!r:.60}. "
            "Of bytes, Cursor.from_bytes makes one; an epoch is named, as in epoch=1."
        )
    if cursor.owner is dataset:
        return
    found = difference(cursor.identity, dataset.identity)
    if found is not None:
        raise CursorMismatchError(
            f"The cursor belongs to another pipeline. First difference: the cursor has {found[0]}, the pipeline {found[1]}. "
            "Iterate over the pipeline that made the cursor, or start this one without a cursor."
        )
    states = cursor.base.states
    if states is not None and len(states) != len(dataset.stages):
        raise CursorError(f"The cursor holds the states of {len(states)} stages, and the pipeline has {len(dataset.stages)}: {dataset!r}.")
