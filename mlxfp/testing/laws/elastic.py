"""Law of elastic cursors: a run continues on another number of ranks, with the same global batches and few rows read again."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice, product
from typing import Any

import attrs
from attrs import field, frozen

from mlxfp.core.chunks import row_keys
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, with_hooks
from mlxfp.core.describing import length
from mlxfp.core.execution import beginning, iterate, run, start
from mlxfp.core.nodes import children
from mlxfp.core.resharding import resharded
from mlxfp.core.running.steps import Hooks, SourceCalls
from mlxfp.core.sources import Source, Tasks
from mlxfp.data.inspection.provenance import uncollated
from mlxfp.data.row_views import View
from mlxfp.data.running.prefetching import Prefetch
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.cursors import copied

__tracebackhide__ = True

MakePipeline = Callable[[int, int], Dataset[Any]]


def assert_elastic(make_pipeline: MakePipeline, stops: Sequence[int], ranks: Sequence[int]) -> None:
    """Check that a distributed run can continue on another number of ranks, with the same global batches.

    `make_pipeline(index, count)` returns the batches of rank `index` of `count` ranks. `index` and `count` must change neither the rows
    before `shard(index, count)` nor the rows of a global batch. Only the last, incomplete global batch may depend on `count`, because
    `shard` or `batch` may drop rows.

    The law runs the pipeline on each number of ranks in `ranks`, and stops after each number of global batches in `stops`. A stopped run
    must continue correctly on each number of ranks in `ranks`. A further run changes the number of ranks at every stop.

    The sources of a continued run may read some rows again: at most one chunk of each source, and the rows of one global batch.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": i} for i in range(20)])
    >>> assert_elastic(lambda index, count: fp.pipe(rows, fp.shard(index, count), fp.batch(4 // count)), stops=[1, 3], ranks=[1, 2, 4])
    """
    runs = {count: [_run(make_pipeline(index, count)) for index in range(count)] for count in ranks}
    batches = {count: _global_batches(of_count) for count, of_count in runs.items()}
    largest = max(map(len, batches[ranks[0]]), default=0)
    for count in ranks[1:]:
        _assert_same_batches(batches[ranks[0]], batches[count], largest, f"{count} ranks read the global batches of {ranks[0]} ranks")
    for before, after, stop in product(ranks, ranks, stops):
        stopped = runs[before][stop % before]
        if stop > len(stopped.cursors):
            continue
        cursor, claim = stopped.cursors[stop - 1], f"continues on {after} ranks after batch {stop} of {before} ranks"
        for continued in runs[after]:
            _assert_continues(continued, stopped.counted_cursors[stop - 1], stop, largest, claim)
        whole = runs[after][stop % after]
        assert_same([item for item, _ in iterate(whole.dataset, cursor)], whole.items[stop:], f"{whole.dataset!r} {claim}")
    latest, done = None, 0
    for stop, count in zip(sorted(stops), cycle(ranks), strict=False):
        whole = runs[count][stop % count]
        pairs = list(islice(iterate(whole.dataset, latest), stop - done))
        assert_same(
            [item for item, _ in pairs], whole.items[done:stop], f"{whole.dataset!r} gives batch {stop} if ranks change at each stop"
        )
        if not pairs:
            return
        latest, total = copied(pairs[-1][1]), done + len(pairs)
        assert latest.items == total, f"the cursor of {whole.dataset!r} counts {latest.items} batches after batch {total}"
        done = stop


@frozen(eq=False)
class _Run:
    """Results of three runs of a rank: a normal run, a run that logs the rows read, and a run whose sources give one row at a time."""

    dataset: Dataset[Any]
    items: list[Any]
    cursors: list[Cursor]
    keys: list[list[int]]  # row keys of each batch
    counted: "_Counted"
    counted_cursors: list[Cursor]  # cursors after each batch of `counted.dataset`
    reads: list[int]  # number of rows read up to the end of each batch, for sources that yield one row at a time
    total: int


def _run(dataset: Dataset[Any]) -> _Run:
    pairs, with_rows, counted = list(iterate(dataset)), _Counted(dataset, one_row=True), _Counted(dataset)
    reads = [sum(with_rows.log) for _ in run(with_rows.dataset, start(0, None))]
    groups = list(run(counted.dataset, beginning(counted.dataset)))
    keys, cursors = [row_keys(group).tolist() for group, _ in groups], [copied(cursor) for _, cursor in groups]
    items, plain = [item for item, _ in pairs], [copied(cursor) for _, cursor in pairs]
    return _Run(dataset, items, plain, keys, counted, cursors, reads, sum(with_rows.log))


def _global_batches(runs: Sequence[_Run]) -> list[set[int]]:
    """Return the keys of the rows of each global batch."""
    count = max(len(of_rank.keys) for of_rank in runs)
    return [{key for of_rank in runs for keys in of_rank.keys[index : index + 1] for key in keys} for index in range(count)]


def _assert_same_batches(expected: list[set[int]], actual: list[set[int]], largest: int, claim: str) -> None:
    for index, (rows, others) in enumerate(zip(expected, actual, strict=False)):
        whole = len(rows) == len(others) == largest
        assert rows == others if whole else index >= min(len(expected), len(actual)) - 1 and (rows <= others or others <= rows), (
            f"law broken: {claim}, but batch {index} has other rows: {len(rows - others)} are missing, and {len(others - rows)} are new"
        )
    assert abs(len(expected) - len(actual)) <= 1, f"law broken: {claim}, but there are {len(actual)} instead of {len(expected)}"


def _assert_continues(whole: _Run, cursor: Cursor, stop: int, largest: int, claim: str) -> None:
    counted = whole.counted
    counted.log.clear()
    keys = [row_keys(group).tolist() for group, _ in run(counted.dataset, resharded(counted.dataset, cursor))]
    assert_same(keys, whole.keys[stop:], f"{whole.dataset!r} {claim} with the rows of the remaining batches")
    read_again = sum(counted.log) - (whole.total - whole.reads[stop - 1] if stop <= len(whole.reads) else 0)
    allowed = sum(counted.largest.values()) + largest
    assert read_again <= allowed, (
        f"law broken: {whole.dataset!r} {claim} and reads at most {allowed} rows again, one chunk of each source and one global batch, but "
        f"it read {read_again}"
    )


class _Counted:
    """Copy of a dataset, without the collator, that counts the rows read by sources. The list `log` holds the number of rows of each chunk.

    If `one_row` is True, sources yield one row at a time, and prefetching is off.
    """

    def __init__(self, dataset: Dataset[Any], *, one_row: bool = False) -> None:
        self.one_row = one_row
        self.dataset = with_hooks(dataset, lambda inner: _CountRows(uncollated(inner), counted=self))
        self.log: list[int] = []  # row counts of all chunks from all sources, in the order of reading
        self.largest: dict[int, int] = {}  # maps the Python id of a source to the row count of its largest chunk
        length(self.dataset)  # `load` stages read their rows here, before `log` is cleared
        self.log.clear()
        self.largest.clear()

    def note(self, source: Source, rows: int) -> None:
        """Log rows of a source."""
        self.log.append(rows)
        self.largest[id(source)] = max(rows, self.largest.get(id(source), 0))


@frozen(eq=False)
class _CountRows(Hooks):
    """Hooks that log the rows read by sources."""

    counted: _Counted = field(kw_only=True)

    def source(self, source: Source) -> SourceCalls:
        calls, one_row, note = super().source(source), self.counted.one_row, self.counted.note
        by_row = source.traits.level == "examples"
        if one_row and isinstance(source, Prefetch):
            return attrs.evolve(calls, read=lambda epoch, position: run(source.dataset, start(epoch, position)))
        if children(source) and not (isinstance(source, View) and source.indexable):
            return calls

        def read(epoch: int, position: Any) -> Iterator[tuple[Any, Any]]:
            for chunk, after in calls.read(epoch, position):
                for part in (chunk.slice(row, 1) for row in range(chunk.num_rows)) if one_row and by_row else (chunk,):
                    note(source, part.num_rows)
                    yield part, after

        def tasks(epoch: int, position: Any) -> Tasks:
            for task, after in calls.tasks(epoch, position):
                note(source, task.rows)
                yield task, after

        return attrs.evolve(calls, read=read, tasks=tasks)
