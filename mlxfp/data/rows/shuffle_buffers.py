"""Shuffle of a stream in bounded memory. Each incoming row replaces a random row of a buffer."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from attrs import frozen
from toolz import identity

from mlxfp.core.arrow.gathering import rows_in
from mlxfp.core.chunks import CHUNK_ROWS, KEY, LARGE, Indices, RecordBatch, concat_chunks, row_keys
from mlxfp.core.stages import Stage, Traits
from mlxfp.data.row_views import rows_at_once
from mlxfp.support.randomness import fold_into_rows


@frozen(repr=False)
class ShuffleBuffer(Stage):
    """Stage that shuffles rows with a buffer for `buffer` rows.

    The state is (pool, slots). The pool is a list of record batches with the buffered rows. The array `slots` holds, for each slot of the
    buffer, the index of its row in the pool.
    """

    seed: int
    buffer: int

    def start(self, epoch: int) -> Any:
        return (), np.empty(0, np.int64)

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        """Put each incoming row in place of a random buffered row, and yield the replaced rows."""
        pool, slots = state
        pooled = sum(part.num_rows for part in pool)
        rows = np.arange(pooled, pooled + chunk.num_rows)
        room = min(self.buffer - len(slots), len(rows))
        slots, incoming = np.concatenate([slots, rows[:room]]), rows[room:]
        if not len(incoming):
            return _compact(_joined(pool, chunk), slots), ()
        targets = (fold_into_rows(row_keys(chunk)[room:], "shuffle", self.seed) % np.uint64(self.buffer)).astype(np.int64)
        replaced, slots = _replace(slots, targets, incoming)
        pool = _joined(pool, chunk)
        return _compact(pool, slots), (_gather(pool, replaced),)

    def finish(self, state: Any) -> Iterable[RecordBatch]:
        """Yield the remaining buffered rows in random order."""
        pool, slots = state
        if not len(slots):
            return ()
        keys = row_keys(_gather(tuple(part.select([KEY]) for part in pool), slots))
        order = np.argsort(fold_into_rows(keys, "shuffle", self.seed, "finish"), kind="stable")
        return _gather_parts(pool, slots[order])

    @property
    def traits(self) -> Traits:
        notes = (f"buffers {self.buffer:,} rows; memory holds up to about twice as many",)
        return Traits(reorders=True, draws=True, length=identity, longest_row=identity, notes=lambda: notes)

    def __repr__(self) -> str:
        return f"shuffle(seed={self.seed}, buffer={self.buffer})"


def _replace(slots: Indices, targets: Indices, incoming: Indices) -> tuple[Indices, Indices]:
    """Put each incoming row into a buffer slot: row i into slot `targets[i]`. Return the rows that left the buffer, and the new buffer."""
    order = np.argsort(targets, kind="stable")
    sorted_targets, sorted_rows = targets[order], incoming[order]
    repeated = np.zeros(len(order), bool)
    repeated[1:] = sorted_targets[1:] == sorted_targets[:-1]
    replaced = np.empty_like(incoming)
    replaced[order] = np.where(repeated, np.roll(sorted_rows, 1), slots[sorted_targets])
    after = slots.copy()
    after[sorted_targets] = sorted_rows  # If several rows have the same slot, NumPy stores the last of these rows.
    return replaced, after


def _gather(pool: tuple[RecordBatch, ...], rows: Indices) -> RecordBatch:
    return rows_in(pool[0].schema, pool).take(rows)


def _joined(pool: tuple[RecordBatch, ...], chunk: RecordBatch) -> tuple[RecordBatch, ...]:
    """Append a chunk to the pool. Small chunks are merged, because every chunk in the pool makes each step slower.

    The last chunk of the pool is merged with the new chunk unless the last chunk has more rows. Thus each row is copied only a few times.
    """
    while pool and pool[-1].num_rows <= chunk.num_rows <= CHUNK_ROWS - pool[-1].num_rows and pool[-1].nbytes + chunk.nbytes <= LARGE:
        chunk, pool = concat_chunks([pool[-1], chunk]), pool[:-1]
    return (*pool, chunk)


def _compact(pool: tuple[RecordBatch, ...], slots: Indices) -> Any:
    """Copy the buffered rows if most rows of the pool are no longer buffered. This frees the memory of the old chunks."""
    if sum(part.num_rows for part in pool) <= 2 * len(slots) + CHUNK_ROWS:
        return pool, slots
    return _gather_parts(pool, slots), np.arange(len(slots))


def _gather_parts(pool: tuple[RecordBatch, ...], rows: Indices) -> tuple[RecordBatch, ...]:
    """Copy rows to one chunk, or to several chunks if the rows are large."""
    content = 8 * sum(part.nbytes for part in pool)
    size = rows_at_once(content, sum(part.num_rows for part in pool), len(rows))
    return tuple(_gather(pool, rows[first : first + size]) for first in range(0, len(rows), size)) or (_gather(pool, rows),)
