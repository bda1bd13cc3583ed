"""Measuring where the time of a pipeline goes.

A copy of the pipeline runs whose sources and stages are wrapped in ones that look at the clock. What they add up is kept in meters made for
that one run.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import islice
from time import perf_counter
from typing import Any

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.checks import check_callable, check_positive
from mlxfp.core.chunks import RecordBatch
from mlxfp.core.cursors import iterate
from mlxfp.core.datasets import Dataset, Position, Source, State
from mlxfp.core.nodes import check_dataset
from mlxfp.core.optimizing import Choose, Gone, apart, shared
from mlxfp.core.rewriting import with_datasets
from mlxfp.data.running.prefetching import Prefetch
from mlxfp.data.running.wrappers import StandInSource, StandInStage

_STALLED = 0.02  # the share of its time that a consumer may wait before loading is said to limit it

_REST = "run loop"  # what none of the parts takes; for examples, turning rows into dicts
_CACHE = "cache(path) after it, where nothing before is random, does its work once for all runs."
_ADVICE = {
    "map": "map(workers=4) helps if the function releases Python's lock, as reading files and decoding do; else map_chunks, for columns.",
    "map_chunks": "Look for loops over rows in it: pyarrow.compute and numpy work on whole columns.",
    "filter": "Where rows are left out late, filter before the expensive stages.",
    "flat_map": "Where one row gives one row, map_chunks works on whole columns.",
    "template": _CACHE,
    "tokenize": _CACHE,
    "shuffle": "load() or cache(path) before it makes rows quick to take by number.",
    "collate": "A collator of your own is faster with whole columns, from Examples.column, than row after row.",
    _REST: "Rows become dicts one by one: batch(size) gives groups of whole columns.",
}


def profile(dataset: Dataset[Any], *, items: int = 1000, consume: Callable[[Any], object] | None = None, epoch: int = 0) -> "Profile":
    """Run a pipeline for its first `items` examples, groups or batches, and tell where the time goes; print what it returns.

    `consume` is what is done with each item, a training step say: the result then tells how long it waits for data. Without it, items
    are dropped at once, and the pipeline runs as fast as it can. A copy runs, from the start, so what `load` keeps is loaded again.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.lengths.batching import batch
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> found = profile(pipe(from_examples([{"x": i} for i in range(100)]), batch(32)))
    >>> [(part.part, part.count) for part in found.parts]
    [('from_examples(100 rows)', 100), ('batch(size=32)', 4), ('run loop', 4)]
    """
    check_dataset(dataset, profile)
    check_positive(items=items)
    if consume is not None:
        check_callable(consume=consume)
    timed = _timed(dataset)
    for meter in _resolved(timed):
        meter.reset()
    begin, consumed, first, count = perf_counter(), 0.0, 0.0, 0
    run: Any = iterate(timed, epoch=epoch)
    with closing(run):  # also where `consume` fails
        for item, _ in islice(run, items):
            before = perf_counter()
            first = first or before - begin
            count += 1
            if consume is not None:
                consume(item)
                consumed += perf_counter() - before
    seconds = perf_counter() - begin
    parts, reading = _measured(timed)
    rest = PartProfile(_REST, count, max(0.0, seconds - consumed - reading))
    return Profile((*parts, rest), count, seconds, first, consumed)


@frozen
class PartProfile:
    """What one part of a pipeline did: how many rows, groups or batches came out of it, and how long it worked on them.

    For a `prefetch`, `waited` is how long the next part waited for it, and `queue` how many items stood ready when one was asked for,
    on average, of at most `depth`.
    """

    part: str
    count: int
    seconds: float
    waited: float | None = None
    queue: float | None = None
    depth: int | None = None


@frozen(repr=False)
class Profile:
    """Where the time of a run went: print it. Parts before a `prefetch` work beside those after it, so their times overlap.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> profile(from_examples([{"x": 1}, {"x": 2}])).count
    2
    """

    parts: tuple[PartProfile, ...]
    count: int
    seconds: float
    first: float  # seconds until the first item
    consumed: float  # seconds in `consume`

    @property
    def stall(self) -> float:
        """The share of the time that the consumer waited for data, once it had the first item."""
        return max(0.0, 1 - self.consumed / (self.seconds - self.first))

    @property
    def verdict(self) -> str:
        """Which part limits, and what would help."""
        if self.consumed and self.stall <= _STALLED:
            return f"The consumer limits: it waits {self.stall:.1%} of the time. A faster pipeline would change nothing."
        slowest = max(self.parts, key=lambda part: part.seconds)
        kind = slowest.part.partition("(")[0]
        advice = [_CACHE if kind.startswith(("read_", "from_")) else _ADVICE.get(kind, "")]
        if self.consumed and not any(part.depth for part in self.parts):
            advice.append("prefetch(2) at the end prepares the next item while the consumer works.")
        return f"{slowest.part} limits: it works {slowest.seconds / self.seconds:.0%} of the time. {' '.join(advice)}".rstrip()

    def __repr__(self) -> str:
        """Show a table."""
        rows = [("part", "out", "out/s", "seconds", "share", ""), *map(self._row, self.parts)]
        widths = [max(len(row[place]) for row in rows) for place in range(5)]
        table = [
            "  ".join((f"{name:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True)), note)).rstrip()
            for name, *cells, note in rows
        ]
        rate = f"{self.count:,} items in {self.seconds:.3g} s ({self.count / self.seconds:,.0f}/s), the first after {self.first:.3g} s."
        waits = f" From then on the consumer waits {self.stall:.1%} of the time." if self.consumed else ""
        return "\n".join([*table, rate + waits, self.verdict])

    def _row(self, part: PartProfile) -> tuple[str, ...]:
        text = " ".join(part.part.split())
        name = text if len(text) <= 60 else f"{text[:57]}..."
        rate = f"{part.count / part.seconds:,.0f}" if part.seconds else ""
        note = "" if part.depth is None else f"{part.queue:.1f} of {part.depth} ready; {part.waited:.3g} s waited for"
        return name, f"{part.count:,}", rate, f"{part.seconds:.3f}", f"{part.seconds / self.seconds:.0%}", note


class _Meter:
    """What a part adds up while it runs. Running machinery, never part of a value."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again from nothing."""
        self.seconds, self.rows, self.items, self.asked, self.ready = 0.0, 0, 0, 0, 0

    def watch(self, ready: int) -> None:
        """Add how many items stand ready when one is asked for."""
        self.asked, self.ready = self.asked + 1, self.ready + ready

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Add the time of a call."""
        begin = perf_counter()
        try:
            return function(*arguments)
        finally:
            self.seconds += perf_counter() - begin

    def pass_on(self, items: Iterable[Any], chunk_of: Callable[[Any], Any] = lambda item: item) -> Iterator[Any]:
        """Pass items on, adding their number and the time that making them takes."""
        source, end = iter(items), object()
        while (item := self.call(next, source, end)) is not end:
            self.rows += getattr(chunk_of(item), "num_rows", 0)
            self.items += 1
            yield item


@frozen(repr=False)
class _TimedStage(StandInStage):
    meter: _Meter = field(eq=False)
    text: str = field(eq=False)

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        state, out = self.meter.call(self.stage.step, state, chunk)
        return state, self.meter.pass_on(out)

    def finish(self, state: State) -> Iterable[RecordBatch]:
        return self.meter.pass_on(self.meter.call(self.stage.finish, state))

    def __repr__(self) -> str:
        return self.text


@frozen(repr=False)
class _TimedSource(StandInSource):
    """Its time includes that of the datasets it holds."""

    meter: _Meter = field(eq=False, kw_only=True)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        return self.meter.pass_on(self.source.read(epoch, position), lambda item: item[0])

    def exact_length(self) -> int | None:
        length: int | None = self.meter.call(self.source.exact_length)  # of rows that are kept: reads them
        return length

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        chunk: RecordBatch = self.meter.call(self.source.take, epoch, indices)
        self.meter.rows += chunk.num_rows
        return chunk


def _resolved(dataset: Dataset[Any]) -> Iterator[_Meter]:
    """Find all schemas, which may read the first rows, so that this is no part of the run; yield the meters."""
    _ = dataset.resolved
    source: Any = dataset.source
    for child in source.held:
        yield from _resolved(child)
    yield from (part.meter for part in (source, *dataset.stages))


def _timed(dataset: Dataset[Any]) -> Dataset[Any]:
    """Put what runs under the clock, which may be rewritten: its parts print as they were written, and apart where they need not be one."""
    texts, runs = [repr(stage) for stage in (dataset.written or dataset).stages], dataset.optimized
    stages = apart(runs.resolved.stages)
    for place, end in shared(stages):
        if end - place > 1 and not isinstance(stages[place], Choose | Gone):
            texts[place:end] = [", ".join(texts[place:end]), *[""] * (end - place - 1)]
    timed = tuple(_TimedStage(stage, _Meter(), text) for stage, text in zip(stages, texts, strict=True))
    return Dataset(_timed_source(with_datasets(runs.source, _timed)), timed)


def _timed_source(source: Source) -> Source:
    meter = _Meter()
    watched = attrs.evolve(source, watch=meter.watch) if isinstance(source, Prefetch) else source
    return _TimedSource(watched, meter=meter)


def _measured(dataset: Dataset[Any]) -> tuple[list[PartProfile], float]:
    """Return what each part did, and the seconds that reading the dataset took in the thread that reads it."""
    source: Any = dataset.source
    inner = [_measured(child) for child in source.held]
    parts, within = [part for found, _ in inner for part in found], sum(seconds for _, seconds in inner)
    meter, seconds = source.meter, source.meter.seconds
    count = meter.rows if source.level == "examples" else meter.items
    if isinstance(source.source, Prefetch):
        parts.append(PartProfile(repr(source), count, 0.0, seconds, meter.ready / max(1, meter.asked), source.source.depth))
    else:
        parts.append(PartProfile(repr(source), count, max(0.0, seconds - within)))
    for place, stage in enumerate(dataset.stages):
        so_far: Dataset[Any] = Dataset(source, dataset.stages[: place + 1])
        meter = stage.meter  # type: ignore[attr-defined]  # all stages are timed
        if repr(stage):  # else one before it does its work
            parts.append(PartProfile(repr(stage), meter.rows if so_far.level == "examples" else meter.items, meter.seconds))
        seconds += meter.seconds
    return parts, seconds
