"""A shuffle of bounded memory: a buffer of rows, from which random ones come out."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen
from toolz import identity

from mlxfp.core.arrow.gathering import rows_in
from mlxfp.core.chunks import CHUNK_ROWS, Indices, RecordBatch, concat_chunks, row_keys
from mlxfp.core.stages import Stage, Traits
from mlxfp.support.randomness import fold_into_rows


@frozen(repr=False)
class ShuffleBuffer(Stage):
    """The state is (pool, slots): the chunks that hold the rows, and which row of the pool each place of the buffer holds."""

    seed: int
    buffer: int

    def start(self, epoch: int) -> Any:
        """Return the state before the first row."""
        return (), np.empty(0, np.int64)

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        """Let each row that comes in take the place of a random one."""
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
        """Return the rows that are held, in random order."""
        pool, slots = state
        if not len(slots):
            return ()
        left = _gather(pool, slots)
        order = np.argsort(fold_into_rows(row_keys(left), "shuffle", self.seed, "finish"), kind="stable")
        return (left.take(pa.array(order)),)

    @property
    def traits(self) -> Traits:
        """All rows come out, in another order in each epoch."""
        notes = (f"holds {self.buffer:,} rows, at most about twice that with what left them",)
        return Traits(reorders=True, draws=True, length=identity, longest_row=identity, notes=lambda: notes)

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
