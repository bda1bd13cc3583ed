"""Views by number: sources whose row i is another row of the dataset that they hold."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from attrs import field, frozen

from mlxfp.core.arrow.content import content_bits
from mlxfp.core.chunks import CHUNK_ROWS, Indices, RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, Wrapper
from mlxfp.core.execution import row_task, run, start
from mlxfp.core.running.runners import read_now
from mlxfp.core.running.steps import NO_HOOKS
from mlxfp.core.sources import ChunkTask, Position, Source, Task, Tasks, read_tasks
from mlxfp.core.stages import Stage

_BYTES_AT_ONCE = 16 << 20  # of a chunk: 4 KB a row leave 4,096 rows together, photographs of 100 KB come 160 at a time
_FIRST_ROWS = 4  # read to see how large rows are; also the fewest, as what several rows share counts for each chunk in full
_PLACES_AT_ONCE = 1 << 15  # a place is 16 bytes; each chunk of them costs 150 us, 5 % of batches of 256 small rows with 4,096
_GROWTH = 4  # at most so many times the rows of the chunk before: rows that become larger on the way are noticed in time
_MEASURED_ONCE_IN = 16  # chunks: until one is measured, workers cannot begin the next


def rows_at_once(content: int, count: int, most: int = CHUNK_ROWS) -> int:
    """Return how many rows are to be read at once, of which `count` hold so many bits: few where they are large, as images and sounds."""
    return max(_FIRST_ROWS, min(most, 8 * _BYTES_AT_ONCE * count // max(1, content)))


def _rows_like(chunk: RecordBatch, most: int) -> int:
    """Return how many rows like those of a chunk are to be read at once: a power of two, so that few batches lie across two chunks."""
    return 1 << (rows_at_once(content_bits(chunk), chunk.num_rows, most).bit_length() - 1)


@frozen(repr=False)
class View(Wrapper):
    """A wrapper that is indexable where its dataset is, and is then read by number: it resumes at any row at once."""

    @abstractmethod
    def rows(self, indices: Indices, epoch: int) -> Indices:
        """Return which rows of the dataset the rows `indices` of this view are, int64[N]."""

    def streamed(self) -> Stage | None:
        """Return the stage that gives the rows of this view where the dataset has no random access; None: see `in_order`."""
        return None

    @cached_property
    def stream(self) -> Dataset[Any]:
        """What is read of a dataset that has no random access."""
        stage = self.streamed()
        return self.dataset if stage is None else stage(self.dataset)

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read a dataset that has no random access."""
        return run(self.stream, start(epoch, position))

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return what is read of the dataset, with its cursor in the position."""
        return tuple((self.stream, cursor) for _, cursor in super().children_at(position))

    @property
    def indexable(self) -> bool:
        """Whether the dataset that is held is."""
        return self.dataset.indexable

    @property
    def costly(self) -> bool:
        """Whether that of the dataset's source is, or the stages after that are; what is read in order has its own workers."""
        return self.indexable and bool(self.dataset.plan.costly)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read by number where that is possible; the position is then (the number of the next row, how many to read at once)."""
        return read_tasks(self.by_number(epoch, position or (0, self.first_rows))) if self.indexable else self.in_order(epoch, position)

    def tasks(self, epoch: int, position: Position) -> Tasks:
        """Yield tasks of rows by number where that is possible."""
        return self.by_number(epoch, position or (0, self.first_rows)) if self.indexable else super().tasks(epoch, position)

    @property
    def first_rows(self) -> int:
        """How many rows to read at first: few, unless a table in memory tells how large they are."""
        held = self.table_holder
        return _FIRST_ROWS if held is None or not held.rows.chunks else _rows_like(held.rows.chunks[0](), CHUNK_ROWS)

    def take(self, epoch: int, indices: Indices) -> RecordBatch:
        """Return the rows at `indices`, int64[N]."""
        return self.task(epoch, indices).read()

    def task(self, epoch: int, indices: Indices) -> Task:
        """Return the task of taking the rows at `indices`, int64[N]."""
        return row_task(self.dataset, epoch, self.rows(indices, epoch))

    def by_number(self, epoch: int, position: tuple[int, int]) -> Tasks:
        """Yield tasks for all rows from a position on.

        The size of some rows decides how many rows each task has from there on: the rows of each task while tasks are short, then of one
        task in 16. These rows are read before the next task is cut.
        """
        first, size = position
        count = self.exact_length() or 0
        while first < count:
            upto = min((first // size + 1) * size, count)  # not first + size: where chunks end at round numbers, so do batches
            task = self.task(epoch, np.arange(first, upto))
            if first // size % _MEASURED_ONCE_IN == 0:
                chunk = read_now(task)
                task, size = ChunkTask(chunk), min(_GROWTH * size, rows_at_once(content_bits(chunk), chunk.num_rows))
            yield task, (upto, size)
            first = upto

    @property
    def table_holder(self) -> Any:
        """What holds the table of the dataset, if its rows come as they are in the table."""
        held = self.dataset
        as_they_are = self.indexable and type(self).task is View.task and held.hooks == NO_HOOKS and not held.plan.steps
        return held.plan.source.table_holder if as_they_are else None

    def table_places(self, epoch: int, indices: Indices) -> RecordBatch:
        """Return where the rows at `indices` are in the table."""
        return self.dataset.plan.source.table_places(epoch, self.rows(indices, epoch))

    def gathered_late(self) -> Source | None:
        """Return this view of the table, reading places."""
        return None if self.table_holder is None else _Places(self.dataset, self)


@frozen(repr=False)
class _Places(Wrapper):
    """Reads the places of the rows of a view."""

    view: View

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        held = self.view.table_holder.rows
        # A run that resumes makes the batches of one chunk again.
        size = _rows_like(held.chunks[0](), _PLACES_AT_ONCE) if held.chunks else CHUNK_ROWS
        first, size = position or (0, size)
        count = self.view.exact_length() or 0
        while first < count:
            upto = min((first // size + 1) * size, count)
            yield self.view.table_places(epoch, np.arange(first, upto)), (upto, size)
            first = upto

    def __repr__(self) -> str:
        return repr(self.view)


@frozen(repr=False)
class ByPlace(View):
    """A view of rows that are chosen by their place alone: behind a shuffle these are other rows in each epoch."""

    keeps_rows = True
    redraw: bool = field(default=False, eq=False, kw_only=True)  # that they are is meant

    @property
    def redraws(self) -> bool:
        """Whether each epoch has other rows, and this is not said to be meant."""
        return (self.dataset.reorders and not self.redraw) or super().redraws

    def notes(self) -> tuple[str, ...]:
        """Say that each epoch has other rows."""
        return ("behind a shuffle: other rows in each epoch; for parts that stay apart use split",) if self.dataset.reorders else ()
