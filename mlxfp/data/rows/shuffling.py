"""Shuffle: an exact permutation of all rows, or a bounded buffer for streams."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.core.arrow.gathering import large_chunks, rows_in
from mlxfp.core.checks import check_integer, check_positive, explain_call
from mlxfp.core.chunks import CHUNK_ROWS, Example, Indices, RecordBatch, concat_chunks, no_rows, row_keys, source_rows
from mlxfp.core.datasets import Combinator, Dataset
from mlxfp.core.errors import DataError
from mlxfp.core.execution import read_all, row_count
from mlxfp.core.randomness import fold_in, fold_into_rows
from mlxfp.core.sources import Position, check_ends
from mlxfp.core.stages import Stage, check_level
from mlxfp.data.rows.permuting import permute
from mlxfp.data.rows.row_views import View


@explain_call
def shuffle(*, seed: int, buffer: int | None = None) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Put the examples in random order, another one each epoch, the same for the same seed and epoch.

    Without `buffer`, every order of all examples is as likely as any other. Where rows can be taken by number (tables, Arrow files, and
    row-wise stages after them), they are read in the new order; other data is first gathered in memory, which `explain` states.
    With `buffer=n`, for streams: n rows are held, and each row that comes in takes the place of a random one of them, which comes out;
    a row moves backward by at most n places, and forward by any number.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> [row["x"] for row in pipe(from_examples([{"x": i} for i in range(6)]), shuffle(seed=1))]
    [5, 2, 3, 0, 4, 1]
    """
    check_integer(seed=seed)
    if buffer is None:
        return Combinator(_Shuffle, {"seed": seed}, frozenset({"examples"}))
    check_positive(buffer=buffer)
    return _ShuffleBuffer(seed, buffer)


@frozen
class ShuffleQuality:
    """How far an order is from that of the source; `ideal` values are those of a uniform shuffle, on average.

    >>> ShuffleQuality(rows=100, moved=0.0, correlation=1.0, neighbours=1.0).moved
    0.0
    """

    rows: int
    moved: float  # mean distance between a row's old and new place, as a share of all rows; ideal: 1/3
    correlation: float  # of old and new places (Spearman); ideal: 0
    neighbours: float  # share of neighbouring rows that were neighbours before; ideal: 2 / rows


@explain_call
def shuffle_quality(dataset: Dataset[Any], *, epoch: int = 0) -> ShuffleQuality:
    """Measure how well the rows of an epoch are shuffled, against their order in the source. Reads the whole epoch once.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rows = from_examples([{"x": i} for i in range(1000)])
    >>> buffered, uniform = pipe(rows, shuffle(seed=0, buffer=50)), pipe(rows, shuffle(seed=0))
    >>> [round(shuffle_quality(dataset).moved, 2) for dataset in (rows, buffered, uniform)]
    [0.0, 0.04, 0.34]
    """
    check_level(dataset, shuffle_quality, frozenset({"examples", "groups"}))
    check_ends(dataset, "shuffle_quality")
    with closing(read_all(dataset, epoch=epoch)) as chunks:
        rows = np.concatenate([source_rows(chunk) for chunk in chunks] or [np.empty(0, np.int64)])
    count = len(rows)
    if count < 2:  # one row has no order
        raise DataError(f"shuffle_quality needs at least two rows, got {count} from {dataset!r}.")
    before, after = np.argsort(np.argsort(rows, kind="stable")), np.arange(count)
    neighbours = np.abs(np.diff(before)) == 1
    return ShuffleQuality(
        count, float(np.abs(before - after).mean() / count), float(np.corrcoef(before, after)[0, 1]), float(neighbours.mean())
    )


@frozen(repr=False)
class _Shuffle(View):
    seed: int
    advice = "load() or cache(path) before it makes rows quick to take by number."
    gathers = True
    keeps_rows = True
    permutes = True
    reorders = True

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return self._order(indices, row_count(self.dataset), epoch)

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        with closing(read_all(self.dataset, epoch=epoch)) as chunks:
            held = list(large_chunks(chunks)) or [no_rows(self.schema())]
        gathered = rows_in(held[0].schema, held)
        count = int(gathered.starts[-1])
        for first in range(position or 0, count, CHUNK_ROWS):
            stop = min(first + CHUNK_ROWS, count)
            yield gathered.take(self._order(np.arange(first, stop), count, epoch)), stop

    def notes(self) -> tuple[str, ...]:
        if self.indexable:
            held = self.dataset.source
            while isinstance(held, View):
                held = held.dataset.source
            return (f"takes the rows of {held!r} in the new order",)
        return ("gathers all rows in memory, and again when resumed; load() before it keeps them",)

    def _order(self, indices: Indices, count: int, epoch: int) -> Indices:
        return permute(indices, count=count, key=fold_in(0, "shuffle", self.seed, epoch))


@frozen(repr=False)
class _ShuffleBuffer(Stage):
    """The state is (pool, slots): the chunks that hold the rows, and which row of the pool each place of the buffer holds."""

    seed: int
    buffer: int
    reorders = True
    lengthens = False

    def start(self, epoch: int) -> Any:
        return (), np.empty(0, np.int64)

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        pool, slots = state
        held = sum(part.num_rows for part in pool)
        rows = np.arange(held, held + chunk.num_rows)
        room = min(self.buffer - len(slots), len(rows))
        slots, coming = np.concatenate([slots, rows[:room]]), rows[room:]
        if not len(coming):
            return _compact(_joined(pool, chunk), slots), ()
        places = (fold_into_rows(row_keys(chunk)[room:], "shuffle", self.seed) % np.uint64(self.buffer)).astype(np.int64)
        leaving, slots = _replace(slots, places, coming)
        pool = _joined(pool, chunk)
        return _compact(pool, slots), (_gather(pool, leaving),)

    def finish(self, state: Any) -> Iterable[RecordBatch]:
        pool, slots = state
        if not len(slots):
            return ()
        left = _gather(pool, slots)
        order = np.argsort(fold_into_rows(row_keys(left), "shuffle", self.seed, "finish"), kind="stable")
        return (left.take(pa.array(order)),)

    def length(self, count: int) -> int:
        return count

    def notes(self) -> tuple[str, ...]:
        return (f"holds {self.buffer:,} rows, at most about twice that with what left them",)

    def __repr__(self) -> str:
        return f"shuffle(seed={self.seed}, buffer={self.buffer})"


def _replace(slots: Indices, places: Indices, coming: Indices) -> tuple[Indices, Indices]:
    """Put each row that comes in its place, in turn: which rows leave, and the slots afterwards. All at once, with one sort.

    The row that leaves a place is the one that came to it last: among the rows of this chunk if one did, else the one held.
    """
    order = np.argsort(places, kind="stable")
    sorted_places, sorted_rows = places[order], coming[order]
    repeated = np.zeros(len(order), bool)
    repeated[1:] = sorted_places[1:] == sorted_places[:-1]
    leaving = np.empty_like(coming)
    leaving[order] = np.where(repeated, np.roll(sorted_rows, 1), slots[sorted_places])
    after = slots.copy()
    after[sorted_places] = sorted_rows  # numpy assigns in order, so the last row to come stays
    return leaving, after


def _gather(pool: tuple[RecordBatch, ...], rows: Indices) -> RecordBatch:
    return rows_in(pool[0].schema, pool).take(rows)


def _joined(pool: tuple[RecordBatch, ...], chunk: RecordBatch) -> tuple[RecordBatch, ...]:
    """Put a chunk behind the pool. Small ones are joined, as each costs at every step: with one no larger, so a row is copied few times."""
    while pool and pool[-1].num_rows <= chunk.num_rows <= CHUNK_ROWS - pool[-1].num_rows:
        chunk, pool = concat_chunks([pool[-1], chunk]), pool[:-1]
    return (*pool, chunk)


def _compact(pool: tuple[RecordBatch, ...], slots: Indices) -> Any:
    """Copy what is held to one chunk once half of the pool has left: each row is copied a bounded number of times."""
    if sum(part.num_rows for part in pool) <= 2 * len(slots) + CHUNK_ROWS:
        return pool, slots
    return (_gather(pool, slots),), np.arange(len(slots))
