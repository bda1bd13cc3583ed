"""Views by number: sources whose row i is another row of the dataset that they hold."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.chunks import CHUNK_ROWS, Indices, RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, Wrapper
from mlxfp.core.execution import NO_HOOKS, run, start, take_rows
from mlxfp.core.sources import Position, Source
from mlxfp.core.stages import Stage

_BYTES_AT_ONCE = 16 << 20  # of a chunk: 4 KB a row leave 4,096 rows together, photographs of 100 KB come 160 at a time
_FIRST_ROWS = 4  # read to see how large rows are; also the fewest, as what several rows share counts for each chunk in full
_GROWTH = 4  # at most so many times the rows of the chunk before: rows that become larger on the way are noticed in time


def rows_at_once(chunk: RecordBatch) -> int:
    """Return how many rows like those of a chunk are to be read at once: few where they are large, as images and sounds are."""
    size, count = sum(map(_bytes, chunk.columns)), int(chunk.num_rows)
    return max(_FIRST_ROWS, min(CHUNK_ROWS, _BYTES_AT_ONCE * count // max(1, size)))


def _bytes(column: pa.Array) -> int:
    """Count the bytes of the rows of a column, without those that it shares with other rows of its buffers."""
    if pa.types.is_dictionary(column.type):
        return int(column.indices.nbytes)
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        views = np.frombuffer(column.buffers()[1], np.int32)[4 * column.offset : 4 * (column.offset + len(column))]
        return views.nbytes + int(views[::4].sum(dtype=np.int64))  # the first number of a view is the length
    return int(column.nbytes)


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

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read by number where that is possible; the position is then (the number of the next row, how many to read at once)."""
        if not self.indexable:
            return self.in_order(epoch, position)
        return self.by_number(epoch, position or (0, _FIRST_ROWS), self.take, rows_at_once)

    def take(self, epoch: int, indices: Indices) -> RecordBatch:
        """Return the rows at `indices`, int64[N]."""
        return take_rows(self.dataset, epoch, self.rows(indices, epoch))

    def by_number(
        self, epoch: int, position: tuple[int, int], take: Callable[[int, Indices], RecordBatch], at_once: Callable[[RecordBatch], int]
    ) -> Iterator[tuple[RecordBatch, Position]]:
        """Yield what `take` returns for all rows from a position on, in chunks of as many rows as `at_once` says after each."""
        first, size = position
        count = self.exact_length() or 0
        while first < count:
            upto = (first // size + 1) * size  # not first + size: where chunks end at round numbers, so do batches
            chunk = take(epoch, np.arange(first, min(upto, count)))
            first, size = first + chunk.num_rows, min(_GROWTH * size, at_once(chunk))
            yield chunk, (first, size)

    @property
    def table_holder(self) -> Any:
        """What holds the table of the dataset, if its rows come as they are in the table."""
        held = self.dataset
        as_they_are = self.indexable and type(self).take is View.take and held.hooks == NO_HOOKS and not held.plan.steps
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
        size = rows_at_once(held.chunks[0]()) if held.chunks else CHUNK_ROWS  # a run that resumes makes the batches of one chunk again
        return self.view.by_number(epoch, position or (0, size), self.view.table_places, lambda _: size)

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
