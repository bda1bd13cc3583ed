"""Profiles of pipelines. Hooks in a copy of the pipeline measure the run time of each part."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from time import perf_counter
from typing import Any

import attrs
from attrs import field, frozen

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.datasets import Dataset, with_hooks
from mlxfp.core.execution import iterate
from mlxfp.core.nodes import check_dataset, children
from mlxfp.core.running.steps import Changes, Hooks, SourceCalls, Step
from mlxfp.core.sources import Source, Task, Tasks
from mlxfp.core.stages import State
from mlxfp.data.running.meters import Meter, QueueMeter
from mlxfp.data.running.prefetching import Prefetch
from mlxfp.support.checks import check_callable, check_positive, not_none
from mlxfp.support.html import clip, element, fragment, share_bar, table

# The profile names the GIL as the cause if threads are busy for over 75 % of the time, but use only about one core in total.
_BUSY, _ONE_CORE = 0.75, (0.7, 1.3)
_WAITING = (
    'Unless other programs use the cores, the threads wait for the GIL. Processes have no common GIL: prefetch(..., kind="processes").'
)
_STALLED = 0.02  # A consumer that waits for at most this share of the time is not slowed down by data loading.

_REST = "run loop"  # label of the time outside all parts, including the conversion of rows to dicts
_DICTS = "Rows become dicts one by one: batch(size) gives groups of whole columns."


def profile(dataset: Dataset[Any], *, items: int = 1000, consume: Callable[[Any], object] | None = None, epoch: int = 0) -> "Profile":
    """Run the first `items` examples, groups or batches of a pipeline, and return the time of each part, for printing.

    `consume` is called with each item, and the profile then shows how long the consumer waits for data. `TrainStep.consumer(state)`
    consumes each item in a training step, and the profile then shows the bytes sent to other ranks. Without `consume`, items are
    dropped. A copy of the pipeline runs from the start, so `load` loads its rows again.

    >>> import mlxfp as fp
    >>> profile = fp.inspect.profile(fp.pipe(fp.from_examples([{"x": i} for i in range(100)]), fp.batch(32)))
    >>> [(part.part, part.count) for part in profile.parts]
    [('from_examples(100 rows)', 100), ('batch(size=32)', 4), ('run loop', 4)]
    """
    check_dataset(dataset, profile)
    check_positive(items=items)
    check_callable(**not_none(consume=consume))
    timed = with_hooks(dataset, lambda child: _Timed(child.hooks, steps=tuple(Meter() for _ in child.stages)))
    for timed_dataset in _datasets(timed):  # Planning also reads some rows. These rows are not part of the run.
        _clock(timed_dataset).reset()
    begin, consumed, first, count = perf_counter(), 0.0, 0.0, 0
    run: Any = iterate(timed, epoch=epoch)
    with closing(run):  # `closing` stops the pipeline even if `consume` raises an error.
        for item, _ in islice(run, items):
            before = perf_counter()
            first = first or before - begin
            count += 1
            if consume is not None:
                consume(item)
                consumed += perf_counter() - before
    seconds = perf_counter() - begin
    parts, reading = _measured(timed)
    rest = PartProfile(_REST, count, max(0.0, seconds - consumed - reading), advice=_DICTS)
    return Profile((*parts, rest), count, seconds, first, consumed, getattr(consume, "bytes_sent", 0))


@frozen
class PartProfile:
    """Run time in seconds of one part of a pipeline, and the number of rows, groups or batches that the part made.

    For `prefetch`, `waited` is the time in seconds that the next part waited for items. `queue` is the mean number of items that were
    ready, at most `depth`. With several workers, `busy` is the mean share of time that a worker works, and `cores` is the mean number of
    busy CPU cores.
    """

    part: str
    count: int
    seconds: float
    waited: float | None = None
    queue: float | None = None
    depth: int | None = None
    workers: int | None = None
    busy: float | None = None
    cores: float | None = None
    advice: str = field(default="", eq=False, repr=False)  # suggestion for making this part of the pipeline faster


@frozen(repr=False)
class Profile:
    """Run time of each part of a pipeline, for printing. Parts before and after a `prefetch` run in parallel, so their times overlap.

    >>> import mlxfp as fp
    >>> fp.inspect.profile(fp.from_examples([{"x": 1}, {"x": 2}])).count
    2
    """

    parts: tuple[PartProfile, ...]
    count: int
    seconds: float
    first: float  # seconds until the first item
    consumed: float  # seconds spent in `consume`
    sent: int = 0  # average number of bytes that `consume` sends to other ranks for an item

    @property
    def stall(self) -> float:
        """Share of time that the consumer waited for data, not counting the time until the first item."""
        return max(0.0, 1 - self.consumed / (self.seconds - self.first))

    @property
    def verdict(self) -> str:
        """Slowest part of the pipeline, with advice."""
        if self.consumed and self.stall <= _STALLED:
            return f"The consumer limits: it waits {self.stall:.1%} of the time. A faster pipeline would change nothing."
        slowest = max(self.parts, key=lambda part: part.seconds)
        advice = [next((part.advice for part in self.parts if part.depth and part.advice), slowest.advice)]
        if self.consumed and not any(part.depth for part in self.parts):
            advice.append("prefetch(2) at the end prepares the next item while the consumer works.")
        return (
            f"{slowest.part} limits: it works {slowest.seconds / self.seconds:.0%} of the time. {' '.join(filter(None, advice))}".rstrip()
        )

    def __repr__(self) -> str:
        rows = [("part", "out", "out/s", "seconds", "share", ""), *map(self._row, self.parts)]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        table = [
            "  ".join((f"{name:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)), note)).rstrip()
            for name, *cells, note in rows
        ]
        rate = f"{self.count:,} items in {self.seconds:.3g} s ({self.count / self.seconds:,.0f}/s), the first after {self.first:.3g} s."
        waits = f" From then on the consumer waits {self.stall:.1%} of the time." if self.consumed else ""
        sends = f" For each, it sends {self.sent:,} bytes to other ranks." if self.sent else ""
        return "\n".join([*table, rate + waits + sends, self.verdict])

    def _repr_html_(self) -> str:
        """Return the profile as HTML for a notebook, with bars for the shares of time."""
        rows = [
            (
                element("code", clip(part.part, 200)),
                part.count,
                round(part.seconds, 3),
                share_bar(part.seconds / self.seconds),
                self._row(part)[-1],
            )
            for part in self.parts[:50]
        ]
        summary = repr(self).splitlines()[len(self.parts) + 1 :]
        return fragment(table(["part", "out", "seconds", "share", "note"], rows), *(element("p", clip(line, 500)) for line in summary))

    def _row(self, part: PartProfile) -> tuple[str, ...]:
        text = " ".join(part.part.split())
        name = text if len(text) <= 60 else f"{text[:57]}..."
        rate = f"{part.count / part.seconds:,.0f}" if part.seconds else ""
        note = "" if part.depth is None else f"{part.queue:.1f} of {part.depth} ready; {part.waited:.3g} s waited for"
        note += "" if part.busy is None else f"; {part.workers} workers busy {part.busy:.0%} of the time, on {part.cores:.1f} cores"
        return name, f"{part.count:,}", rate, f"{part.seconds:.3f}", f"{part.seconds / self.seconds:.0%}", note


@frozen(eq=False)
class _Timed(Hooks):
    """Hooks that measure every part of a dataset. Stages that could be merged are run and measured one by one."""

    meter: Meter = field(factory=Meter)  # meter of the source
    steps: tuple[Meter, ...] = ()  # one meter for each stage
    queue: QueueMeter = field(factory=QueueMeter)  # meter of a `prefetch`

    def reset(self) -> None:
        """Set all counts to zero."""
        for meter in (self.meter, *self.steps):
            meter.reset()
        self.queue.reset()

    @property
    def changes(self) -> Changes:
        return attrs.evolve(super().changes, fuses=False)

    def source(self, source: Source) -> SourceCalls:
        calls = super().source(attrs.evolve(source, watch=self.queue) if isinstance(source, Prefetch) else source)
        return attrs.evolve(
            calls,
            read=lambda epoch, position: self.meter.pass_on(calls.read(epoch, position), lambda item: item[0]),
            tasks=lambda epoch, position: _timed_tasks(calls.tasks(epoch, position), self.meter),
            task=lambda epoch, indices: _TimedTask(calls.task(epoch, indices), self.meter),
            # The time of the row count is measured, because `load` and `cache` may read all rows to count them.
            exact_length=lambda: self.meter.call(calls.exact_length),
        )

    def step(self, step: Step) -> Any:
        call = super().step(step)
        if self._belongs_to_a_view(step):
            return call
        meter, passed = self.steps[step.index], self._passed(step)

        def fed(state: State, chunk: Any) -> tuple[State, Iterable[Any]]:
            state, out = meter.call(call, state, chunk)
            return state, passed(out)

        return fed

    def finish(self, step: Step) -> Any:
        call = super().finish(step)
        if self._belongs_to_a_view(step):
            return call
        meter, passed = self.steps[step.index], self._passed(step)
        return lambda state: passed(meter.call(call, state))

    def _belongs_to_a_view(self, step: Step) -> bool:
        return step.index >= len(self.steps)

    def _passed(self, step: Step) -> Callable[[Iterable[Any]], Iterable[Any]]:
        """Measure the time for computing the results of `step`. For the last step of a stage, also count the results."""
        meter, counted = self.steps[step.index], step.stop > step.index or step.stage.emits == "batches"
        return meter.pass_on if counted else lambda out: meter.call(tuple, out)


@frozen(eq=False)
class _TimedTask(Task):
    """Task that reads a chunk and adds the run time to `meter`. The task may run in any thread."""

    task: Task
    meter: Meter

    @property
    def rows(self) -> int:
        return self.task.rows

    def read(self) -> RecordBatch:
        chunk: RecordBatch = self.meter.call(self.task.read)
        self.meter.add(0.0, chunk.num_rows, 1)
        return chunk

    def part(self, first: int, stop: int) -> Task | None:
        part = self.task.part(first, stop)
        return None if part is None else _TimedTask(part, self.meter)

    def sent_to(self, workers: str) -> Task:
        sent = self.meter.call(self.task.sent_to, workers)
        return _TimedTask(sent, self.meter)


def _timed_tasks(tasks: Tasks, meter: Meter) -> Tasks:
    """Yield tasks that measure their run time. Also measure the time for creating the tasks."""
    with closing(tasks):
        while (pair := meter.call(next, tasks, None)) is not None:
            task, after = pair
            yield _TimedTask(task, meter), after


def _datasets(dataset: Dataset[Any]) -> Iterator[Dataset[Any]]:
    """Yield the datasets that take part in the run, child datasets first."""
    for child in children(dataset.plan.source):
        yield from _datasets(child)
    yield dataset


def _clock(dataset: Dataset[Any]) -> _Timed:
    assert isinstance(dataset.hooks, _Timed)  # `profile` replaces the hooks of all datasets by `_Timed`.
    return dataset.hooks


def _of_prefetch(source: Prefetch, count: int, waited: float, queue: QueueMeter) -> PartProfile:
    part = PartProfile(repr(source), count, 0.0, waited, queue.ready / max(1, queue.asked), source.depth)
    if not queue.wall:
        return part
    busy, cores = queue.busy / queue.wall / source.workers, queue.cpu / queue.wall
    waits = source.kind == "threads" and source.workers > 1 and busy > _BUSY and _ONE_CORE[0] < cores < _ONE_CORE[1]
    advice = _WAITING if waits else ""
    return attrs.evolve(part, workers=source.workers, busy=busy, cores=cores, advice=advice)


def _measured(dataset: Dataset[Any]) -> tuple[list[PartProfile], float]:
    """Return the measurements of the source and of each stage, and the reading time in seconds."""
    source, timed = dataset.plan.source, _clock(dataset)
    inner = [_measured(child) for child in children(source)]
    parts, within = [part for profiles, _ in inner for part in profiles], sum(seconds for _, seconds in inner)
    meter, seconds = timed.meter, timed.meter.seconds
    count = meter.rows if source.traits.level == "examples" else meter.items
    if isinstance(source, Prefetch):
        parts.append(_of_prefetch(source, count, seconds, timed.queue))
    else:
        parts.append(PartProfile(repr(source), count, max(0.0, seconds - within), advice=source.traits.advice))
    for step in (step for step in dataset.plan.steps if step.text):
        level = attrs.evolve(dataset, stages=dataset.stages[: step.stop]).level
        meter = timed.steps[step.index]
        count = meter.rows if level == "examples" else meter.items
        advice = next(filter(None, (stage.traits.advice for stage in dataset.stages[step.index : step.stop])), "")
        parts.append(PartProfile(step.text, count, meter.seconds, advice=advice))
        seconds += meter.seconds
    return parts, seconds
