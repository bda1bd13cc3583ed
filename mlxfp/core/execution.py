"""Execution of pipelines: a loop reads source chunks and passes each chunk through the stages.

Before each source chunk, the loop records a snapshot: the source position and the states of all stages. A cursor consists of the last
snapshot and the number of items since the snapshot. To resume, the loop restores the snapshot and skips these items. At most one source
chunk is therefore processed again.

Functions such as `profile` and `on_error` use hooks: functions that run around or instead of the methods of sources and stages.
"""

from collections import defaultdict
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, NamedTuple

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import RecordBatch, number_rows, to_rows
from mlxfp.core.cursors import Cursor, Recorded, Snapshot
from mlxfp.core.examples import Examples
from mlxfp.core.identity import difference
from mlxfp.core.nodes import Item, Pipeline, check_dataset, children, decoders, known_length
from mlxfp.core.resharding import resharded
from mlxfp.core.running.forged import resumed
from mlxfp.core.running.runners import RUNNER, Jobs, Runner
from mlxfp.core.running.segments import Job, Result, RowTask, Segment, keep_nothing
from mlxfp.core.running.steps import NO_HOOKS, Calls, Hooks, Plan, Step, are_costly, push
from mlxfp.core.sources import ChunkTask, Position, Source, Task, check_ends, contents, warn_redrawn
from mlxfp.core.stages import State
from mlxfp.support.checks import check_not_negative
from mlxfp.support.errors import ArgumentTypeError, CursorError, CursorMismatchError, PipelineError, without_generated_frames
from mlxfp.support.progress import Progress

__tracebackhide__ = True  # pytest omits all frames of this module from tracebacks
_ROWS_BY_NUMBER = 1024  # number of rows per job for a source with random access
_ROWS_AT_ONCE = 256  # Number of rows converted to dicts in one Arrow call. A loop that stops early wastes the remaining rows.


def iterate(dataset: Pipeline[Item], cursor: Cursor | None = None, *, epoch: int = 0) -> Iterator[tuple[Item, Cursor]]:
    """Yield pairs of an item and the cursor after the item. Pass the argument `cursor` to continue after the item of an earlier run.

    Items are dicts before `batch`, `Examples` after `batch`, and `dict[str, mx.array]` after `collate`. `epoch` determines the order and
    the random numbers of a new run. A run with a cursor continues in the epoch of the cursor.

    A run can continue with another number of ranks (`shard`) and yields the same global batches. Raises `CursorMismatchError` for a cursor
    of another pipeline, and `ArgumentError` if the size of the global batches has changed. Warns if the set of rows differs between epochs,
    because `take`, `skip` or `select` follows a `shuffle`.

    >>> import mlxfp as fp
    >>> numbers = fp.from_examples([{"x": i} for i in range(4)])
    >>> items = list(fp.iterate(numbers))
    >>> cursor = fp.Cursor.from_bytes(items[1][1].to_bytes())
    >>> [item for item, _ in fp.iterate(numbers, cursor)]
    [{'x': 2}, {'x': 3}]

    See also: `aiterate` for `async for`.
    """
    check_dataset(dataset, iterate)
    check_not_negative(epoch=epoch)
    if epoch:
        warn_redrawn(dataset, stacklevel=2)
    if cursor is None:
        return _items(dataset, beginning(dataset, epoch=epoch))
    was_read = isinstance(getattr(cursor, "owner", None), Recorded)
    cursor = _continued(dataset, cursor)
    items = _items(dataset, Cursor(cursor.base, cursor.done, dataset))
    return resumed(items, dataset) if was_read else items


def beginning(dataset: Pipeline[Any], *, epoch: int = 0) -> Cursor:
    """Return the cursor at the start of an epoch, before the first item."""
    return Cursor(Snapshot(epoch), 0, dataset)


def aiterate(dataset: Pipeline[Item], cursor: Cursor | None = None, *, epoch: int = 0) -> AsyncIterator[tuple[Item, Cursor]]:
    """Yield the items and cursors of `iterate` for a loop with `async for`. A separate thread creates the items.

    For items without cursors, write `async for item in dataset`.

    >>> import mlxfp as fp
    >>> import asyncio
    >>> async def total():
    ...     return sum([item["x"] async for item, _ in fp.aiterate(fp.from_examples([{"x": 1}, {"x": 2}]))])
    >>> asyncio.run(total())
    3
    """
    return in_a_thread(iterate(dataset, cursor, epoch=epoch))


async def in_a_thread(items: Any) -> AsyncIterator[Any]:
    """Yield the items of a generator, which runs in one separate thread."""
    import asyncio  # an import at the top of the file would double the import time of `mlxfp.core`

    loop, end = asyncio.get_running_loop(), object()
    with ThreadPoolExecutor(1, "mlxfp-aiterate") as worker:  # a single thread, because lazy MLX arrays must not change threads
        try:
            while (item := await loop.run_in_executor(worker, next, items, end)) is not end:
                yield item
        finally:
            with suppress(RuntimeError):  # `submit` raises RuntimeError if Python exits and the thread has ended.
                worker.submit(items.close).result()


def run(dataset: Pipeline[Any], cursor: Cursor) -> Generator[tuple[Any, Cursor], None, None]:
    """Yield chunks (batches after `collate`), each with the cursor after the chunk. Sources call this function for their inner dataset."""
    __tracebackhide__ = True
    with without_generated_frames():
        plan: Plan = dataset.plan
    try:
        yield from execute(plan, cursor, dataset.hooks)
    except Exception as error:
        if not children(plan.source):  # a source that reads other datasets adds no note, because the inner source adds one
            error.add_note(f"reading from {plan.text}, epoch {cursor.epoch}")
        raise


def execute(plan: Plan, cursor: Cursor, hooks: Hooks = NO_HOOKS) -> Iterator[tuple[Any, Cursor]]:
    """Run a plan from a cursor: yield chunks (batches after `collate`), each with the cursor after the chunk."""
    runner = RUNNER.get()
    return _execute(plan, plan.steps, cursor, hooks) if runner is None or not plan.groups else _execute_groups(runner, plan, cursor, hooks)


def _execute(plan: Plan, steps: Sequence[Step], cursor: Cursor, hooks: Hooks) -> Generator[tuple[Any, Cursor], None, None]:
    __tracebackhide__ = True
    base, done, owner = cursor.base, cursor.done, cursor.owner
    by_row, whole = plan.level == "examples", not steps and plan.level != "examples"
    states = first_states(plan, cursor)
    calls = [(step, hooks.step(step)) for step in steps]
    with closing(_read(_Run(plan, hooks, calls, states), base)) as chunks:
        for fed in chunks:
            if fed.before is not None:
                base = Snapshot(base.epoch, fed.before, base.rows, base.states, base.items)
            if whole and not done:  # the chunk is a complete item, so the cursor needs only the position after the chunk
                base = Snapshot(base.epoch, fed.after, base.rows + fed.rows, base.states, base.items + 1)
                yield fed.chunks[0], Cursor(base, 0, owner)
                continue
            try:
                count = yield from _emit(push(fed.calls, states, fed.chunks), base, done, owner, by_row=by_row)
                done = max(0, done - count)
            except Exception as error:
                if (file := plan.source.traits.file_of(base.position)) is not None:
                    error.add_note(f"with rows of {file}")
                raise
            base = Snapshot(base.epoch, fed.after, base.rows + fed.rows, tuple(states), base.items + count)
    yield from _emit(_flush(calls, states, hooks), base, done, owner, by_row=by_row)


def first_states(plan: Plan, cursor: Cursor) -> list[State]:
    """Return the stage states that a cursor contains, or the initial states at the start of an epoch."""
    base = cursor.base
    return [stage.start(base.epoch) for stage in plan.declared] if base.states is None else list(base.states)


@frozen
class _Run:
    """Run of a plan, with the function and the current state of each step."""

    plan: Plan
    hooks: Hooks
    calls: Calls
    states: list[State]


class _Fed(NamedTuple):
    """Chunks made from the next `rows` source rows, and the steps (`calls`) that this process still runs on the chunks."""

    chunks: Sequence[Any]
    calls: Calls
    rows: int
    after: Position  # source position after the rows; a run can continue there
    before: Position | None = None  # source position before the rows; None: the position after the previous rows


def _read(run: _Run, base: Snapshot) -> Generator[_Fed, None, None]:
    """Yield the source chunks for the steps of a plan. If workers run the leading steps, yield the output of these steps instead."""
    __tracebackhide__ = True
    runner, source, arrow = RUNNER.get(), run.plan.source, run.plan.source.traits.level != "batches"
    costly = are_costly(run.plan.segment) or (source.traits.costly() and type(source).tasks is not Source.tasks)
    if runner is not None and arrow and costly:
        yield from _read_ahead(run, base, runner)
        return
    epoch, rows, before = base.epoch, base.rows, source.traits.before
    by_row = source.traits.level == "examples"
    for chunk, after in run.hooks.source(source).read(epoch, base.position):
        count = chunk.num_rows if arrow else 0
        fed = number_rows(chunk, epoch, rows) if arrow else chunk
        yield _Fed((fed,), run.calls, count, after, before(chunk, after) if by_row and after is not None else None)
        rows += count


def _read_ahead(run: _Run, base: Snapshot, runner: Runner) -> Generator[_Fed, None, None]:
    """Run the leading stateless steps of the plan (the segment) in workers.

    If a worker cannot complete a job, this process repeats the job, so errors are the same as without workers. If a step keeps rows for the
    next chunk, this process runs all steps, because the workers do not have the kept rows.
    """
    __tracebackhide__ = True
    segment, traits = Segment(run.plan.segment, run.hooks), run.plan.source.traits
    whole = traits.level != "examples"
    with closing(runner.map(source_jobs(run.plan.source, base, segment), whole=whole)) as results:
        for (job, after), result in results:
            task = job.task
            before = traits.before(task.chunk, after) if isinstance(task, ChunkTask) and not whole and after is not None else None
            if result.complete and keep_nothing(run.states[step.index] for step in segment.steps):
                yield _Fed(result.chunks, run.calls[len(segment.steps) :], task.rows, after, before)
            else:
                chunk = job.read()
                yield _Fed((chunk,), run.calls, task.rows, after, before)
                if result.error is not None:
                    raise result.error


def source_jobs(source: Source, base: Snapshot, segment: Segment) -> Jobs:
    """Yield a job for each source task after `base.position`, with the source position after the job."""
    rows = base.rows
    with closing(segment.hooks.source(source).tasks(base.epoch, base.position)) as tasks:
        for task, after in tasks:
            yield Job(task, base.epoch, rows, segment), after
            rows += task.rows


def row_jobs(dataset: Pipeline[Any], cursor: Cursor, rows: int) -> Iterator[tuple[Job, Cursor]]:
    """Yield pairs (job, cursor after the job) for the rows after `cursor`. All steps of the pipeline must be stateless.

    A job ends at the next row index that is a multiple of `rows`, or earlier. The cursors count source rows instead of items.
    """
    plan: Plan = dataset.plan
    segment, source = Segment(plan.segment, dataset.hooks), plan.source
    base, done = cursor.base, cursor.done
    if source.indexable:
        count = row_count(dataset)
        while done < count:
            stop = min(count, done + _ROWS_BY_NUMBER, (done // rows + 1) * rows)
            task = dataset.hooks.source(source).task(base.epoch, np.arange(done, stop))
            yield Job(task, base.epoch, done, segment), Cursor(base, stop, dataset)
            done = stop
        return
    for job, after in source_jobs(source, base, segment):
        count, stop = job.task.rows, job.first + job.task.rows
        next_base = Snapshot(base.epoch, after, stop, items=stop)
        while done < count:
            stop = min(count, ((job.first + done) // rows + 1) * rows - job.first)
            part = job if (done, stop) == (0, count) else job.part(done, stop) or _sliced(job, done, stop)
            yield part, Cursor(base, stop, dataset) if stop < count else Cursor(next_base, 0, dataset)
            done = stop
        base, done = next_base, done - count


def _sliced(job: Job, first: int, stop: int) -> Job:
    """Read all rows of `job` in this process, and return a job for the rows from `first` to `stop` (exclusive)."""
    task = ChunkTask(job.task.read().slice(first, stop - first))
    return Job(task, job.epoch, job.first + first, job.segment)


def _execute_groups(runner: Runner, plan: Plan, cursor: Cursor, hooks: Hooks) -> Generator[tuple[Any, Cursor], None, None]:
    """Process each group in workers, except for the steps that create MLX arrays. These steps run in this process."""
    __tracebackhide__ = True
    device, whole = ([(step, hooks.step(step)) for step in steps] for steps in (plan.device, plan.groups))
    segment = Segment(plan.host, hooks)
    with closing(_execute(plan, (*plan.segment, *plan.stages), cursor, hooks)) as groups:
        jobs = ((Job(ChunkTask(group), cursor.epoch, 0, segment), after) for group, after in groups)
        with closing(runner.map(jobs, whole=True)) as results:
            for (job, after), result in results:
                for item in _on_device(device, result) or push(whole, defaultdict(tuple), (job.task.read(),)):  # type: ignore[arg-type]  # read by index
                    yield item, after
                if result.error is not None:
                    raise result.error


def _on_device(calls: Calls, result: Result) -> list[Any]:
    """Run the steps that create MLX arrays. Return the items, or [] after an error."""
    try:
        return list(push(calls, defaultdict(tuple), result.chunks))  # type: ignore[arg-type]  # read by index
    except Exception:  # noqa: BLE001  # all steps run again, and raise the error
        return []


def start(epoch: int, position: Cursor | None) -> Cursor:
    """Return `position` unchanged if it is a cursor. Return the cursor at the start of the epoch if `position` is None."""
    return Cursor(Snapshot(epoch), 0) if position is None else position


def read_all(dataset: Pipeline[Any], *, epoch: int = 0, reader: str = "") -> Generator[Any, None, None]:
    """Yield the chunks of an epoch with the hidden columns `__row__` and `__key__`, or the batches after `collate`. Show a progress bar.

    `reader` is the name on the progress bar. Raises `PipelineError` for endless data.

    >>> import mlxfp as fp
    >>> [chunk.num_rows for chunk in read_all(fp.from_examples([{"x": 1}, {"x": 2}]))]
    [2]
    """
    check_ends(dataset, reader or "This function")
    with closing(run(dataset, start(epoch, None))) as items, progress_of(dataset, reader or "read") as progress:
        yield from progress.over(item for item, _ in items)


def progress_of(dataset: Pipeline[Any], text: str, *, epochs: int = 1) -> Progress:
    """Return a progress counter for `epochs` epochs. With `epochs=0`, the counter shows no total."""

    def total() -> int | None:
        items = known_length(dataset)
        return items * epochs if items and epochs else None

    return Progress(text, unit="rows" if dataset.level == "examples" else dataset.level, total=total)


def take_rows(dataset: Pipeline[Any], epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
    """Return the rows at `indices`, int64[N], of an indexable dataset after all stages, with the columns `__row__` and `__key__`."""
    __tracebackhide__ = True
    return row_task(dataset, epoch, indices).read()


def row_task(dataset: Pipeline[Any], epoch: int, indices: NDArray[np.int64]) -> Task:
    """Return a task that reads the rows at `indices`, int64[N], of an indexable dataset and runs all stages."""
    plan: Plan = dataset.plan
    text = "" if children(plan.source) else plan.text  # a source that reads other datasets adds no note, because the inner source adds one
    return RowTask(dataset.planned_calls.task(epoch, indices), epoch, indices, dataset.row_segment, text)


def row_count(dataset: Pipeline[Any]) -> int:
    """Return the number of rows of an indexable dataset."""
    __tracebackhide__ = True
    count: int | None = dataset.planned_calls.exact_length()
    if count is None:
        raise PipelineError(f"{dataset.source!r} is indexable, so its length() must return the number of rows, but returned None.")
    return count


def _flush(calls: Calls, states: list[State], hooks: Hooks) -> Iterator[Any]:
    """Finish every step in order. Pass the remaining rows of each step to the later steps."""
    for number, (step, _) in enumerate(calls, 1):
        yield from push(calls[number:], states, hooks.finish(step)(states[step.index]))


def _emit(chunks: Iterable[Any], base: Snapshot, skip: int, owner: Any, *, by_row: bool) -> Generator[tuple[Any, Cursor], None, int]:
    """Yield the items of `chunks` after the first `skip` items. The generator returns the number of items, including skipped items."""
    __tracebackhide__ = True
    done = 0
    for chunk in chunks:
        size = chunk.num_rows if by_row else 1
        done += size
        if done > skip and size:
            fresh = min(size, done - skip)
            yield chunk if fresh == size else chunk.slice(size - fresh), Cursor(base, done, owner)
    return done


def _items(dataset: Pipeline[Any], cursor: Cursor) -> Generator[tuple[Any, Cursor], None, None]:
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
                for count, row in enumerate(to_rows(chunk.slice(first, _ROWS_AT_ONCE)), 1):
                    yield row, Cursor(after.base, done + count, cursor.owner)


def _continued(dataset: Pipeline[Any], cursor: Cursor) -> Cursor:
    """Return the cursor, converted to the number of ranks of `dataset`. Raise an error if the cursor belongs to another pipeline."""
    if not isinstance(cursor, Cursor):
        raise ArgumentTypeError(
            f"The argument cursor must be a cursor from iterate, got {type(cursor).__name__}: {cursor!r:.60}. "
            "Convert bytes with Cursor.from_bytes(data). Pass an epoch by name, as in epoch=1."
        )
    if cursor.owner is dataset:
        return cursor
    cursor = resharded(dataset, cursor)
    mismatch = difference(cursor.identity, dataset.identity)
    if mismatch is not None:
        raise CursorMismatchError(
            f"The cursor belongs to another pipeline. First difference: the cursor has {mismatch[0]}, the pipeline {mismatch[1]}. "
            "Iterate over the pipeline that made the cursor, or start this pipeline without a cursor."
        )
    for before, now in zip(cursor.contents, contents(dataset), strict=False):
        if None not in (before, now) and before != now:
            raise CursorError(
                f"The files have changed since the cursor was made. Before: {before}. Now: {now}. Pipeline: {dataset!r}. "
                "Restore the files, or start without a cursor."
            )
    states = cursor.base.states
    if states is not None and len(states) != len(dataset.stages):
        raise CursorError(f"The cursor holds the states of {len(states)} stages, but the pipeline has {len(dataset.stages)}: {dataset!r}.")
    return cursor
