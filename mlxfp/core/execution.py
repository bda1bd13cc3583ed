"""Running a pipeline: one loop feeds stages, for everything that runs them.

While a source chunk is pushed through the steps of a plan, the position before it and the states before it are remembered. The cursor of
the n-th item that comes out is (that snapshot, n). To resume: restore the states, read from the position, drop n items. So the work that
is done again is bounded by one source chunk, for every pipeline.

A function that watches a run, or changes how the parts are called (`profile`, `on_error`, `row_origins`, ...), gives hooks.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.checks import check_not_negative
from mlxfp.core.chunks import RecordBatch, number_rows, to_rows
from mlxfp.core.cursors import Cursor, Snapshot
from mlxfp.core.errors import ArgumentTypeError, CursorError, CursorMismatchError, PipelineError, without_generated_frames
from mlxfp.core.examples import Examples
from mlxfp.core.identity import difference
from mlxfp.core.nodes import Item, Pipeline, check_dataset, children, decoders, known_length
from mlxfp.core.running.runners import RUNNER, Runner
from mlxfp.core.running.segments import Job, OnGroups, Segment, Through, keep_nothing, leading, on_groups
from mlxfp.core.running.showing import Showing
from mlxfp.core.running.silence import Silence
from mlxfp.core.running.steps import NO_HOOKS, Calls, Hooks, Plan, push
from mlxfp.core.sources import Held, Source, Task, check_ends, warn_redrawn
from mlxfp.core.stages import State

__tracebackhide__ = True  # pytest leaves the frames of this module out, and IPython those of functions with this name among their locals
# Chunks to feed, to these calls; the rows read for them, and the position after; what reads them again, if the first calls are done.
_Read = tuple[Sequence[Any], Calls, int, Any, Callable[[], Any] | None]
_ROWS_AT_ONCE = 256  # rows made into dicts at a time: an early stop wastes little, and Arrow's cost per call is shared


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
    >>> import asyncio
    >>> async def total():
    ...     return sum([item["x"] async for item, _ in aiterate(from_examples([{"x": 1}, {"x": 2}]))])
    >>> asyncio.run(total())
    3
    """
    return in_a_thread(iterate(dataset, cursor, epoch=epoch))


async def in_a_thread(items: Any) -> AsyncIterator[Any]:
    """Yield what a generator yields, each item made in one thread of its own."""
    import asyncio  # with its sockets and TLS, it takes as long to import as all of core

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
    __tracebackhide__ = True
    with without_generated_frames():
        plan: Plan = dataset.plan
    try:
        yield from execute(plan, cursor, dataset.hooks)
    except Exception as error:
        if not children(plan.source):  # the innermost source is named, once
            error.add_note(f"reading from {plan.text}, epoch {cursor.epoch}")
        raise


def execute(plan: Plan, cursor: Cursor, hooks: Hooks = NO_HOOKS) -> Iterator[tuple[Any, Cursor]]:
    """Run a plan from a cursor on: yield chunks (batches after `collate`), each with the cursor after it."""
    runner = RUNNER.get()
    if runner is not None and (parts := on_groups(plan, hooks)) is not None:
        return _execute_groups(runner, plan, parts, cursor, hooks)
    return _execute(plan, cursor, hooks)


def _execute(plan: Plan, cursor: Cursor, hooks: Hooks) -> Generator[tuple[Any, Cursor], None, None]:
    __tracebackhide__ = True
    base, done, owner = cursor.base, cursor.done, cursor.owner
    by_row, whole = plan.level == "examples", not plan.steps and plan.level != "examples"
    states = [stage.start(base.epoch) for stage in plan.stages] if base.states is None else list(base.states)
    calls = [(step, hooks.step(step)) for step in plan.steps]
    silence = Silence(plan, calls)
    with closing(_read(_Run(plan, hooks, calls, states), base)) as chunks:
        for made, left, count, after, again in chunks:
            if whole and not done:  # one chunk is one item, so the cursor is the position itself
                base = Snapshot(base.epoch, after, base.rows + count, base.states)
                yield made[0], Cursor(base, 0, owner)
                continue
            before = tuple(states)
            try:
                came = yield from _emit(push(left, states, made), base, done, owner, by_row=by_row)
                if came:
                    done, silence.rows = max(0, done - came), 0
                else:
                    silence.lasts(count or 1, again or partial(_first, made), before, base.epoch)
            except Exception as error:
                if (file := plan.source.traits.file_of(base.position)) is not None:
                    error.add_note(f"with rows of {file}")
                raise
            base = Snapshot(base.epoch, after, base.rows + count, tuple(states))
    yield from _emit(_flush(calls, states, hooks), base, done, owner, by_row=by_row)


@frozen
class _Run:
    """A plan while it runs: what each step calls, and its state."""

    plan: Plan
    hooks: Hooks
    calls: Calls
    states: list[State]


def _read(run: _Run, base: Snapshot) -> Generator[_Read, None, None]:
    """Yield chunks of the source: those to feed to the calls that are left, the rows read for them, the position after these."""
    __tracebackhide__ = True
    runner, source = RUNNER.get(), run.plan.source
    if runner is not None and source.traits.level != "batches":
        segment = leading(run.plan.steps, run.hooks)
        if segment.costly or (source.traits.costly() and type(source).tasks is not Source.tasks):
            yield from _read_ahead(run, base, runner, segment)
            return
    epoch, rows, arrow = base.epoch, base.rows, source.traits.level != "batches"
    for chunk, after in run.hooks.read(source)(epoch, base.position):
        count = chunk.num_rows if arrow else 0
        yield (number_rows(chunk, epoch, rows) if arrow else chunk,), run.calls, count, after, None
        rows += count


def _read_ahead(run: _Run, base: Snapshot, runner: Runner, segment: Segment) -> Generator[_Read, None, None]:
    """Let a runner read the tasks of the source, and do the work of the first steps.

    What a worker fails on is done again here, whole, so an error is raised where and how it is without workers. So is what comes after a
    chunk of which a step has kept something.
    """
    __tracebackhide__ = True
    epoch, rows, told = base.epoch, base.rows, base.rows

    def job_of(task: Task, *, measured: bool) -> Job:
        nonlocal told
        job = Job(task, epoch, told, segment, measured)
        told += task.rows
        return job

    whole, source = run.plan.source.traits.level != "examples", run.plan.source
    with closing(runner.map(run.hooks.tasks(source)(epoch, base.position), job_of, whole=whole)) as found:
        for task, after, made, error in found:
            again = partial(_numbered, task, epoch, rows)
            if made is not None and keep_nothing(run.states[step.place] for step in segment.steps):
                yield made, run.calls[len(segment.steps) :], task.rows, after, again
            else:
                yield (again(),), run.calls, task.rows, after, None
                if error is not None:
                    raise error
            rows += task.rows


def _execute_groups(runner: Runner, plan: Plan, parts: OnGroups, cursor: Cursor, hooks: Hooks) -> Generator[tuple[Any, Cursor], None, None]:
    """Let a runner do the work of the steps that turn each group into one, and do here what comes before and after them."""
    __tracebackhide__ = True
    left, whole = ([(step, hooks.step(step)) for step in steps] for steps in (parts.left, parts.whole))
    with closing(_execute(attrs.evolve(plan, steps=parts.before, level="groups"), cursor, hooks)) as groups:
        tasks = ((Held(group), after) for group, after in groups)
        jobs = runner.map(tasks, partial(Job, epoch=cursor.epoch, first=0, segment=parts.segment), whole=True)
        with closing(jobs) as found:
            for task, after, made, error in found:
                for item in _finished(left, made) or push(whole, defaultdict(tuple), (task.read(),)):  # type: ignore[arg-type]  # read by place
                    yield item, after
                if error is not None:
                    raise error


def _finished(calls: Calls, made: Sequence[Any] | None) -> list[Any]:
    """Do what is left to do with what a worker has made; nothing where that fails, or the worker did."""
    try:
        return list(push(calls, defaultdict(tuple), made or ()))  # type: ignore[arg-type]  # read by place
    except Exception:  # noqa: BLE001  # the whole is done again, and says what is wrong
        return []


def _first(chunks: Sequence[Any]) -> Any:
    return chunks[0]


def _numbered(task: Task, epoch: int, first: int) -> RecordBatch:
    __tracebackhide__ = True
    return number_rows(task.read(), epoch, first)


def start(epoch: int, position: Cursor | None) -> Cursor:
    """Say where a source that holds a dataset lets it begin: at the position, else at the start of the epoch."""
    return Cursor(Snapshot(epoch), 0) if position is None else position


def read_all(dataset: Pipeline[Any], *, epoch: int = 0, reader: str = "") -> Generator[Any, None, None]:
    """Yield the chunks of an epoch, or its batches after `collate`, and show how far that is, with the name of the `reader`.

    Raises `PipelineError` where an epoch is known to have no end.
    """
    check_ends(dataset, reader or "This function")
    with closing(run(dataset, start(epoch, None))) as items, showing(dataset, reader or "read") as shown:
        yield from shown.over(item for item, _ in items)


def showing(dataset: Pipeline[Any], text: str, *, epochs: int = 1) -> Showing:
    """Return what shows how far the reading of so many epochs is; 0: of a part of one, of which it is not known how much it is."""

    def total() -> int | None:
        items = known_length(dataset)
        return items * epochs if items and epochs else None

    return Showing(text, unit="rows" if dataset.level == "examples" else dataset.level, total=total)


def take_rows(dataset: Pipeline[Any], epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
    """Return rows of an indexable dataset by number, int64[N], through its stages, with the hidden columns."""
    __tracebackhide__ = True
    return row_task(dataset, epoch, indices).read()


def row_task(dataset: Pipeline[Any], epoch: int, indices: NDArray[np.int64]) -> Task:
    """Return the task of taking rows of an indexable dataset by number, int64[N], through its stages."""
    plan: Plan = dataset.plan
    text = "" if children(plan.source) else plan.text  # the innermost source is named, once
    return Through(dataset.hooks.task(plan.source)(epoch, indices), epoch, indices, dataset.through, text)


def row_count(dataset: Pipeline[Any]) -> int:
    """Return the number of rows of an indexable dataset."""
    __tracebackhide__ = True
    count: int | None = dataset.hooks.exact_length(dataset.plan.source)()
    if count is None:
        raise PipelineError(f"{dataset.source!r} can take rows by number and must say how many there are: its length() returned None.")
    return count


def _flush(calls: Calls, states: list[State], hooks: Hooks) -> Iterator[Any]:
    """Finish every step in turn, feeding what it still held to the steps after it."""
    for number, (step, _) in enumerate(calls, 1):
        yield from push(calls[number:], states, hooks.finish(step)(states[step.place]))


def _emit(chunks: Iterable[Any], base: Snapshot, skip: int, owner: Any, *, by_row: bool) -> Generator[tuple[Any, Cursor], None, int]:
    """Yield the items that come out after a snapshot, leaving out the first `skip`; return how many came out, with these."""
    __tracebackhide__ = True
    done = 0
    for chunk in chunks:
        size = chunk.num_rows if by_row else 1
        done += size
        if done > skip and size:
            fresh = min(size, done - skip)
            yield chunk if fresh == size else chunk.slice(size - fresh), Cursor(base, done, owner)
    return done


def _items(dataset: Pipeline[Any], cursor: Cursor) -> Iterator[tuple[Any, Cursor]]:
    __tracebackhide__ = True
    if dataset.level == "batches":
        yield from run(dataset, cursor)
    elif dataset.level == "groups":
        known = decoders(dataset)
        for chunk, after in run(dataset, cursor):
            yield Examples(chunk, known), after
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
