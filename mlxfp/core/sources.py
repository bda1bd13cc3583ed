"""Sources: where chunks come from, and where reading continues."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import EPOCH, ROW, RecordBatch, Schema
from mlxfp.core.nodes import Part, Pipeline, children
from mlxfp.core.stages import CACHE_ADVICE, Level
from mlxfp.support.errors import PipelineError

Position = Any
Tasks = Generator[tuple["Task", Position], None, None]  # each task with the position after it: see `Source.tasks`


class Task(ABC):
    """Rows to read: a frozen value, whose `read` may run in another thread or process."""

    __slots__ = ()

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows there are."""

    @abstractmethod
    def read(self) -> RecordBatch:
        """Read them. Pure: it may be called again, anywhere."""

    def part(self, first: int, stop: int) -> "Task | None":
        """Return the task of the rows from `first` to before `stop`, counted within this one; None: it cannot be cut."""
        return None

    def sent_to(self, workers: str) -> "Task":
        """Return the task as workers of a kind ("threads", "processes") can run it: what they cannot read is read here."""
        return self


@frozen(eq=False)
class ChunkTask(Task):
    """Rows that have been read already."""

    chunk: RecordBatch

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.chunk.num_rows)

    def read(self) -> RecordBatch:
        """Return the chunk."""
        return self.chunk

    def part(self, first: int, stop: int) -> Task:
        """Cut the chunk."""
        return ChunkTask(self.chunk.slice(first, stop - first))


@frozen(eq=False)
class IndexTask(Task):
    """Rows of a source with random access, by number."""

    source: Any  # a `Source`, or what takes its rows
    epoch: int
    indices: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.indices)

    def read(self) -> RecordBatch:
        """Take them."""
        return self.source.take(self.epoch, self.indices)

    def part(self, first: int, stop: int) -> Task:
        """Take fewer."""
        return IndexTask(self.source, self.epoch, self.indices[first:stop])

    def sent_to(self, workers: str) -> Task:
        """Take the rows here, unless the source allows these workers to call `take`."""
        return self if workers in self.source.taken_in else ChunkTask(self.read())


def read_tasks(tasks: Tasks) -> Iterator[tuple[RecordBatch, Position]]:
    """Run tasks here, one after the other: the `read` of a source that is written as tasks."""
    with closing(tasks):
        for task, after in tasks:
            yield task.read(), after


def chunk_tasks(chunks: Iterable[tuple[RecordBatch, Position]]) -> Tasks:
    """Yield chunks as tasks: the `tasks` of a source whose chunks are read in one thread."""
    for chunk, after in chunks:
        yield ChunkTask(chunk), after


class Source(Part, ABC):
    """Where chunks come from: a file, a table, or other datasets.

    A source of your own needs `schema` and `read`. Positions are plain values (None, bool, int, float, str, bytes, tuples of these, and
    cursors of the datasets that it holds): a cursor writes them. Chunks need no hidden columns: the rows are numbered as they are read.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> from attrs import frozen
    >>> @frozen(repr=False)
    ... class Countdown(fp.Source):
    ...     start: int
    ...     def schema(self):
    ...         return pa.schema({"n": pa.int64()})
    ...     def read(self, epoch, position):
    ...         for n in range(self.start if position is None else position, 0, -1):
    ...             yield pa.record_batch({"n": [n]}), n - 1
    >>> [row["n"] for row in fp.Dataset(Countdown(3))]
    [3, 2, 1]
    """

    __slots__ = ()
    advice: ClassVar[str] = CACHE_ADVICE  # what `profile` says where this source takes the most time

    @abstractmethod
    def schema(self) -> Schema:
        """Return the schema of every chunk, reading no more than the first rows."""

    @abstractmethod
    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Yield chunks from `position` on (None: the start), each with the position after it.

        Reading from the position after a chunk gives exactly the chunks that follow it; from the last one, nothing.
        """

    @property
    def level(self) -> Level:
        """What the chunks are: any rows (`examples`), one group each, or batches."""
        return "examples"

    @property
    def indexable(self) -> bool:
        """Whether `take` and `length` work without reading everything before the rows."""
        return False

    @property
    def endless(self) -> bool:
        """Whether an epoch is known to have no end."""
        return any(held.endless for held in children(self))

    @property
    def reorders(self) -> bool:
        """Whether rows come in another order in each epoch."""
        return any(held.reorders for held in children(self))

    @property
    def redraws(self) -> bool:
        """Whether each epoch has other rows, because they are chosen by their place in an order that changes."""
        return any(held.redraws for held in children(self))

    @property
    def runs_in(self) -> tuple[str, str] | None:
        """What `explain` says of the datasets that it holds: which thread runs them, and who shares the work; None: as it is itself."""
        return None

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        """Return the rows at `indices`, int64[N], in that order. Indexable sources only."""
        raise PipelineError(f"{self!r} has no random access. Put load() or cache(path) after it.")

    taken_in: ClassVar[frozenset[str]] = frozenset()  # the kinds of workers ("threads", "processes") where `take` works, several at once
    costly: Any = False  # whether reading is worth a worker of its own, as decoding files is

    def tasks(self, epoch: int, position: Position) -> Tasks:
        """Yield tasks from `position` on, each with the position after the task; together they read what `read` reads."""
        return chunk_tasks(self.read(epoch, position))

    def task(self, epoch: int, indices: NDArray[np.int64]) -> Task:
        """Return the task of taking the rows at `indices`, int64[N]. Indexable sources only."""
        return IndexTask(self, epoch, indices)

    def length(self) -> int | None:
        """Return the number of rows, groups or batches if it is known without reading the data."""
        return None

    def exact_length(self) -> int | None:
        """Return the same as `length`, but for rows that are kept (`load`, `cache`) even if they must be read first."""
        return self.length()

    def version(self) -> Any:
        """Return a plain value that changes when the data outside changes: sizes and times of files. Caches are keyed by it."""
        return None

    def file_of(self, position: Position) -> str | None:
        """Name the file, of several, that the chunk at a position comes from, for messages."""
        return None

    def head(self) -> Iterator[RecordBatch]:
        """Yield the chunks that schemas of user functions are inferred from: any fixed rows near the start."""
        return (chunk for chunk, _ in self.read(0, None))

    def notes(self) -> tuple[str, ...]:
        """Say what a reader of `explain` should know: memory held, cost of resuming."""
        return ()

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> "Source":
        """Return a source that reads less, or itself, with the same rows in the same order, and the same positions.

        It may leave out all columns but these, and give nulls in place of a row that does not meet the conditions.
        """
        return self

    @property
    def table_holder(self) -> Any:
        """The source that `take` takes from, where that has a table in memory: its `rows` (see `gathering.py`). None: there is none."""
        return None

    def table_places(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        """Say which rows of `table_holder` those at `indices`, int64[N], are: `__row__` and `__epoch__` are what its `take` needs."""
        return pa.record_batch([pa.array(indices), pa.array(np.full(len(indices), epoch))], [ROW, EPOCH])

    def gathered_late(self) -> "Source | None":
        """Return a source with the same rows and positions that reads `table_places` instead of columns; None: there is none."""
        return None

    @property
    def read_parts(self) -> tuple[Any, ...]:
        """The datasets whose rows it gives: those that it holds, or others that it makes of them."""
        return children(self)

    def marking(self) -> "Source":
        """Return the source that gives records which cannot be parsed as marked rows, where it knows where the next one begins."""
        return self

    def children_at(self, position: Position) -> Iterable[tuple[Any, Any]]:
        """Return the datasets that it holds, each with its cursor in this position; none where the position has no cursor of it."""
        return ()


def check_ends(dataset: Pipeline[Any], reader: object) -> None:
    """Raise `PipelineError` where `reader`, which reads a whole epoch, is used on a dataset that is known to have no end."""
    if dataset.endless:
        raise PipelineError(
            f"{reader} needs data that ends: {_without_end(dataset)!r} goes on for ever, in "
            f"{dataset!r}. Put take(count) before it, or move it before what repeats; shuffle works on such data with buffer=."
        )


def warn_redrawn(dataset: Pipeline[Any], *, stacklevel: int) -> None:
    """Warn where more than one epoch is read of a dataset that has other rows in each. `stacklevel` is that of `warnings.warn`."""
    if dataset.redraws:
        warnings.warn(
            f"Each epoch has other rows in {dataset!r}: take, skip and select choose by place, and the shuffle before them "
            "gives every row another place in each epoch. Rows that you keep for validation would come into training. For parts that stay "
            "apart use split or train_valid_test, and shuffle after it; where other rows in each epoch are meant, say redraw=True.",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


def _without_end(dataset: Any) -> Any:
    """Find the innermost source that has no end."""
    return next((_without_end(held) for held in children(dataset.source) if held.endless), dataset.source)
