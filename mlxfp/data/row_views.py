"""Views: sources that show the rows of another dataset in another order, or only some of the rows. Rows are read by index."""

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from attrs import evolve, field, frozen

from mlxfp.core.arrow.content import content_bits
from mlxfp.core.arrow.ragged import ends_of
from mlxfp.core.chunks import CHUNK_ROWS, Example, Indices, RecordBatch
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, Wrapper
from mlxfp.core.examples import Examples
from mlxfp.core.execution import row_task, run, start
from mlxfp.core.running.runners import read_now
from mlxfp.core.running.steps import NO_HOOKS
from mlxfp.core.sources import ChunkTask, InTable, Position, SourceTraits, Task, Tasks, exact_length, read_tasks
from mlxfp.core.stages import Stage, check_level

Rows = TypeVar("Rows", Example, Examples)  # item of a dataset: an example, or a group of examples

_BYTES_AT_ONCE = 16 << 20  # Target size of a chunk in bytes, for example 4,096 rows of 4 KB or 160 photographs of 100 KB.
# Number of rows in the first chunk, and smallest number of rows in later chunks. Row sizes are measured in the first chunk.
# A minimum is needed, because several rows may share the same bytes in memory. Their measured size is then too large.
_FIRST_ROWS = 4
# Maximum number of row references in a chunk. A row reference takes 16 bytes and replaces a row of a table.
# Each chunk has a fixed cost of 150 us. With chunks of 4,096 small rows, this cost would be 5 % of the total time.
_REFERENCES_AT_ONCE = 1 << 15
_GROWTH = 4  # A chunk has at most 4 times as many rows as the previous chunk, so that growing row sizes are noticed in time.
_MEASURED_ONCE_IN = 16  # Row sizes are measured in every 16th chunk only, because workers must wait during a measurement.


def rows_at_once(content: int, count: int, most: int = CHUNK_ROWS) -> int:
    """Return the number of rows for the next chunk. `content` is the total size of `count` measured rows, in bits."""
    return max(_FIRST_ROWS, min(most, 8 * _BYTES_AT_ONCE * count // max(1, content)))


def _rows_like(chunk: RecordBatch, most: int) -> int:
    """Return the number of rows for the next chunk. The rows are assumed to be as large as the rows of `chunk`.

    The result is a power of two, like most batch sizes. Most batches then lie within one chunk.
    """
    return 1 << (rows_at_once(content_bits(chunk), chunk.num_rows, most).bit_length() - 1)


def check_reorders(dataset: Dataset[Any], stage: object) -> None:
    """Raise `PipelineError` for a dataset of batches, or of groups without random access."""
    if dataset.level != "groups" or not dataset.indexable:
        check_level(dataset, stage, frozenset({"examples"}))


@frozen(repr=False)
class View(Wrapper):
    """Source that reads the rows or groups of a dataset by index, and can resume at any of them. Needs a dataset with random access."""

    permutes = False  # True for a source that only reorders rows or groups

    @abstractmethod
    def rows(self, indices: Indices, epoch: int) -> Indices:
        """Return the index in the wrapped dataset for each row index of this view: int64[N]."""

    def streamed(self) -> Stage | None:
        """Return the stage that selects the rows of this view when the dataset is read in order. None: all rows are selected."""
        return None

    @cached_property
    def stream(self) -> Dataset[Any]:
        """Dataset with the rows of this view, for reading from start to end without random access."""
        stage = self.streamed()
        return self.dataset if stage is None else stage(self.dataset)

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read the rows of a dataset without random access, in order."""
        return run(self.stream, start(epoch, position))

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        return tuple((self.stream, cursor) for _, cursor in super().children_at(position))

    def before(self, chunk: RecordBatch, after: Position) -> Position | None:
        """Return the cursor of `stream` at the beginning of `chunk`. Return None if rows are read by index, because no cursor is needed."""
        return after.back(chunk.num_rows) if isinstance(after, Cursor) else None

    @property
    def indexable(self) -> bool:
        """True if the wrapped dataset has random access."""
        return self.dataset.indexable

    @property
    def traits(self) -> SourceTraits:
        """Declared properties of the view. The reading cost and the table in memory are taken from the wrapped dataset."""
        return evolve(super().traits, costly=self.costly, task=self.task, in_table=self.in_table)

    def costly(self) -> bool:
        """Return True if rows are read by index and reading is slow, so that worker processes are worthwhile.

        Return False for a dataset that is read in order, because such a dataset starts worker processes itself.
        """
        return self.indexable and bool(self.dataset.plan.costly)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read the rows by index if the dataset has random access, otherwise in order.

        When reading by index, a position is a pair (index of the next row, rows per chunk).
        """
        return read_tasks(self.by_index(epoch, position or (0, self.first_rows))) if self.indexable else self.in_order(epoch, position)

    def tasks(self, epoch: int, position: Position) -> Tasks:
        """Yield the tasks that read the rows, by index if the dataset has random access, otherwise in order."""
        return self.by_index(epoch, position or (0, self.first_rows)) if self.indexable else super().tasks(epoch, position)

    @property
    def first_rows(self) -> int:
        """Number of rows or groups in the first chunk. The number is small, except for rows of a table in memory, whose size is known."""
        if self.traits.level == "groups":
            return 1
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
        """Yield the tasks that read all rows from a position on.

        Measured row sizes determine the number of rows per task. At first every task is measured, later only every 16th task. A measured
        task is run before the next task is created.
        """
        if self.traits.level == "groups":
            yield from self._groups(epoch, position)
            return
        first, size = position
        count = self.exact_length() or 0
        while first < count:
            # Chunks end at multiples of `size`. Batches also end at such multiples, so few batches need rows of two chunks.
            stop = min((first // size + 1) * size, count)
            task = self.task(epoch, np.arange(first, stop))
            if first // size % _MEASURED_ONCE_IN == 0:
                chunk = read_now(task)
                task, size = ChunkTask(chunk), min(_GROWTH * size, rows_at_once(content_bits(chunk), chunk.num_rows))
            yield task, (stop, size)
            first = stop

    def _groups(self, epoch: int, position: tuple[int, int]) -> Tasks:
        """Yield all groups from a position on. Several groups, with about `CHUNK_ROWS` rows in total, are read together."""
        first, size = position
        count = self.exact_length() or 0
        while first < count:
            indices = np.arange(first, min((first // size + 1) * size, count))
            chunk, ends = read_now(self.task(epoch, indices)), ends_of(self.group_sizes(epoch, indices))
            most = CHUNK_ROWS * len(indices) // chunk.num_rows
            size = min(_GROWTH * size, rows_at_once(content_bits(chunk), len(indices), most))
            for index, (begin, end) in enumerate(pairwise(ends.tolist()), first + 1):
                yield ChunkTask(chunk.slice(begin, end - begin)), (index, size)
            first += len(indices)

    def group_sizes(self, epoch: int, indices: Indices) -> Indices:
        """Return the number of rows in each of the groups at `indices`: int64[N]. The dataset must have groups and random access."""
        source: Any = self.dataset.source
        sizes: Indices = source.group_sizes(epoch, self.rows(indices, epoch))
        return sizes

    def in_table(self) -> InTable | None:
        """Return the table in memory that contains the rows of this view, and functions that convert row indices to table positions.

        Returns None if the view changes rows, or if the dataset is not a table in memory.
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
    """Source that yields references to the rows of a table, in the row order of `view`. A reference is a pair (`__row__`, `__epoch__`)."""

    view: View

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        table = self.view.in_table()
        assert table is not None
        rows = table.holder.rows
        # Small chunks save time after an interruption: a resumed run computes all batches of the interrupted chunk again.
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
    """View that selects rows by their index in the dataset. After a shuffle, the selected rows differ in each epoch."""

    redraw: bool = field(default=False, eq=False, kw_only=True)  # True if the user intends different rows in each epoch.

    @property
    def traits(self) -> SourceTraits:
        """Declared properties of the view. `redraws` is True if rows differ between epochs and the user did not pass `redraw=True`."""
        return evolve(super().traits, keeps_rows=True, redraws=(self.dataset.reorders and not self.redraw) or self.dataset.redraws)

    def notes(self) -> tuple[str, ...]:
        """Return a note for `explain` if rows differ between epochs."""
        return ("after a shuffle: other rows in each epoch; use split for disjoint parts",) if self.dataset.reorders else ()
