"""Views: sources with the rows of another dataset in another order or selection, read by index."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, field, frozen

from mlxfp.core.arrow.content import content_bits
from mlxfp.core.chunks import CHUNK_ROWS, Indices, RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, Wrapper
from mlxfp.core.execution import row_task, run, start
from mlxfp.core.running.runners import read_now
from mlxfp.core.running.steps import NO_HOOKS
from mlxfp.core.sources import ChunkTask, InTable, Position, SourceTraits, Task, Tasks, exact_length, read_tasks
from mlxfp.core.stages import Stage

_BYTES_AT_ONCE = 16 << 20  # Target size of a chunk: 4,096 rows of 4 KB, or 160 photographs of 100 KB.
# Rows in the first chunk, used to measure the row size. Also the minimum per chunk, because data shared by several rows counts in full.
_FIRST_ROWS = 4
# Number of references to table rows (16 bytes each) in a chunk. With 4,096, the 150 us per chunk take 5 % of the time for small rows.
_REFERENCES_AT_ONCE = 1 << 15
_GROWTH = 4  # Limit on the growth of consecutive chunks: an increasing row size is noticed in time.
_MEASURED_ONCE_IN = 16  # Only each 16th chunk is measured, because workers cannot start the next chunk during a measurement.


def rows_at_once(content: int, count: int, most: int = CHUNK_ROWS) -> int:
    """Return the number of rows to read at once, if `count` rows take `content` bits.

    The number is small for large rows, such as images.
    """
    return max(_FIRST_ROWS, min(most, 8 * _BYTES_AT_ONCE * count // max(1, content)))


def _rows_like(chunk: RecordBatch, most: int) -> int:
    """Return the number of rows to read at once, if rows are as large as those of a chunk.

    The number is a power of two: few batches then need rows of two chunks.
    """
    return 1 << (rows_at_once(content_bits(chunk), chunk.num_rows, most).bit_length() - 1)


@frozen(repr=False)
class View(Wrapper):
    """Source that reads a dataset by row index if the dataset has random access. Reading can then resume at any row."""

    @abstractmethod
    def rows(self, indices: Indices, epoch: int) -> Indices:
        """Return the index in the wrapped dataset for each row index of this view: int64[N]."""

    def streamed(self) -> Stage | None:
        """Return a stage that gives the rows of this view on a stream. Return None if `in_order` reads the stream."""
        return None

    @cached_property
    def stream(self) -> Dataset[Any]:
        """Wrapped dataset with the stage of `streamed`, read if the dataset has no random access."""
        stage = self.streamed()
        return self.dataset if stage is None else stage(self.dataset)

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read a dataset without random access."""
        return run(self.stream, start(epoch, position))

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return the streamed dataset and the cursor."""
        return tuple((self.stream, cursor) for _, cursor in super().children_at(position))

    def before(self, chunk: RecordBatch, after: Position) -> Position | None:
        """Return the cursor before a chunk of the stream, or None for a position by row index."""
        return after.back(chunk.num_rows) if isinstance(after, Cursor) else None

    @property
    def indexable(self) -> bool:
        """True if the wrapped dataset has random access."""
        return self.dataset.indexable

    @property
    def traits(self) -> SourceTraits:
        """Traits with the cost and the in-memory table of the wrapped dataset."""
        return evolve(super().traits, costly=self.costly, task=self.task, in_table=self.in_table)

    def costly(self) -> bool:
        """Return True if reading by index is expensive enough for workers. A dataset read in order has its own workers."""
        return self.indexable and bool(self.dataset.plan.costly)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read by row index if possible. The position is then (index of the next row, rows per chunk)."""
        return read_tasks(self.by_index(epoch, position or (0, self.first_rows))) if self.indexable else self.in_order(epoch, position)

    def tasks(self, epoch: int, position: Position) -> Tasks:
        """Yield tasks by row index if possible."""
        return self.by_index(epoch, position or (0, self.first_rows)) if self.indexable else super().tasks(epoch, position)

    @property
    def first_rows(self) -> int:
        """Number of rows in the first chunk: few rows, unless an in-memory table shows their size."""
        table = self.in_table()
        chunks = () if table is None else table.holder.rows.chunks
        return _rows_like(chunks[0](), CHUNK_ROWS) if chunks else _FIRST_ROWS

    def take(self, epoch: int, indices: Indices) -> RecordBatch:
        """Return the rows at `indices`, int64[N]."""
        return self.task(epoch, indices).read()

    def task(self, epoch: int, indices: Indices) -> Task:
        """Return the task that reads the rows at `indices`, int64[N]."""
        return row_task(self.dataset, epoch, self.rows(indices, epoch))

    def by_index(self, epoch: int, position: tuple[int, int]) -> Tasks:
        """Yield the reading tasks for all rows from a position on.

        The number of rows per task follows from measured row sizes: first each task is measured, later only one task in 16. A measured
        task is read before the next task is created.
        """
        first, size = position
        count = self.exact_length() or 0
        while first < count:
            stop = min((first // size + 1) * size, count)  # Chunks end at multiples of `size`, because batches do.
            task = self.task(epoch, np.arange(first, stop))
            if first // size % _MEASURED_ONCE_IN == 0:
                chunk = read_now(task)
                task, size = ChunkTask(chunk), min(_GROWTH * size, rows_at_once(content_bits(chunk), chunk.num_rows))
            yield task, (stop, size)
            first = stop

    def in_table(self) -> InTable | None:
        """Return the in-memory table of the dataset, or None if the view changes rows or the dataset is not in a table.

        The returned `InTable` contains a source of references to table rows, in the order of this view.
        """
        dataset = self.dataset
        unchanged = self.indexable and type(self).task is View.task and dataset.hooks == NO_HOOKS and not dataset.plan.steps
        table = dataset.plan.source.traits.in_table() if unchanged else None
        if table is None:
            return None
        references = table.places
        return InTable(
            table.holder, lambda epoch, indices: references(epoch, self.rows(indices, epoch)), _RowReferences(self.dataset, self)
        )


@frozen(repr=False)
class _RowReferences(Wrapper):
    """Source of references to the table rows behind a view. A reference is a pair (`__row__`, `__epoch__`)."""

    view: View

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        table = self.view.in_table()
        assert table is not None  # `in_table` creates this source only for a view with a table
        rows = table.holder.rows
        # Chunks stay small, because a resumed run computes the batches of a chunk again.
        size = _rows_like(rows.chunks[0](), _REFERENCES_AT_ONCE) if rows.chunks else CHUNK_ROWS
        first, size = position or (0, size)
        count = exact_length(self.view) or 0
        while first < count:
            stop = min((first // size + 1) * size, count)
            yield table.places(epoch, np.arange(first, stop)), (stop, size)
            first = stop

    def __repr__(self) -> str:
        return repr(self.view)


@frozen(repr=False)
class ByPosition(View):
    """View that selects rows by their position. After a shuffle, the selected rows differ in each epoch."""

    redraw: bool = field(default=False, eq=False, kw_only=True)  # True states that different rows in each epoch are intended.

    @property
    def traits(self) -> SourceTraits:
        """Traits: after a shuffle, rows differ between epochs, unless `redraw` states the intention."""
        return evolve(super().traits, keeps_rows=True, redraws=(self.dataset.reorders and not self.redraw) or self.dataset.redraws)

    def notes(self) -> tuple[str, ...]:
        """Return a note on rows that differ between epochs."""
        return ("after a shuffle: other rows in each epoch; use split for disjoint parts",) if self.dataset.reorders else ()
