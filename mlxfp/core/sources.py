"""Sources: where chunks come from, and where reading continues."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import EPOCH, ROW, Indices, RecordBatch, Schema
from mlxfp.core.nodes import Part, Pipeline, Share, children
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
    indices: Indices

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
        return self if workers in self.source.traits.taken_in else ChunkTask(self.read())


def read_tasks(tasks: Tasks) -> Iterator[tuple[RecordBatch, Position]]:
    """Run tasks here, one after the other: the `read` of a source that is written as tasks."""
    with closing(tasks):
        for task, after in tasks:
            yield task.read(), after


def chunk_tasks(chunks: Iterable[tuple[RecordBatch, Position]]) -> Tasks:
    """Yield chunks as tasks: the `tasks` of a source whose chunks are read in one thread."""
    for chunk, after in chunks:
        yield ChunkTask(chunk), after


@frozen
class InTable:
    """The rows of a source as rows of a table in memory, which `collate` gathers batch by batch."""

    holder: Any  # the source that has the table: its `rows` (see `gathering.py`) and its `take`
    places: Callable[[int, Indices], RecordBatch]  # `__row__` and `__epoch__`, for `take` of the holder, of rows in an epoch by number
    source: Any = None  # with the same rows and positions, which reads `places` instead of columns; None: the holder itself


def places_as_numbered(epoch: int, indices: Indices) -> RecordBatch:
    """Return the places of rows that have the same numbers in the table."""
    return pa.record_batch([pa.array(indices), pa.array(np.full(len(indices), epoch))], [ROW, EPOCH])


@frozen
class SourceTraits:
    """Everything that a planner may know of a source. Every default is safe: a source without traits is correct everywhere, only slower.

    `restricted(columns, conditions)` returns a source that reads less, with the same rows in the same order, and the same positions. It may
    leave out all columns but these, and give nulls in place of a row that does not meet the conditions.

    >>> import mlxfp as fp
    >>> fp.pipe(fp.from_examples([{"x": 1}]), fp.repeat(None)).source.traits.endless
    True
    """

    level: Level = "examples"  # what the chunks are
    endless: bool = False  # an epoch is known to have no end
    reorders: bool = False  # rows come in another order in each epoch
    redraws: bool = False  # each epoch has other rows, because rows are chosen by their index in an order that changes
    gathers: bool = False  # a whole epoch of the dataset inside is read before the first item
    same_items: bool = False  # in epoch 0, the items are those of the dataset inside
    keeps_rows: bool = False  # the rows are rows of the dataset inside, and no column decides which
    taken_in: frozenset[str] = frozenset()  # the kinds of workers ("threads", "processes") where `take` works, several at once
    costly: Callable[[], bool] = bool  # reading is worth a worker of its own, as decoding files is; `bool` returns False
    task: Callable[[int, Indices], Task] | None = None  # the task of taking rows by number; None: to call `take`
    exact_length: Callable[[], int | None] | None = None  # `length`, but rows that are kept (`load`, `cache`) are read for it
    head: Callable[[], Iterator[RecordBatch]] | None = None  # first rows, for schemas of user functions; None: those of `read`
    restricted: Callable[[Sequence[str], tuple[Condition, ...]], Any] | None = None  # see below
    marking: Callable[[], Any] | None = None  # the source that gives records which cannot be parsed as marked rows
    file_of: Callable[[Position], str | None] = lambda position: None  # the file, of several, of the chunk at a position, for messages
    children_at: Callable[[Position], Iterable[tuple[Any, Any]]] = lambda position: ()  # the datasets inside, each with its cursor
    read_parts: Callable[[], tuple[Any, ...]] | None = None  # the datasets whose rows come out, if not the datasets inside
    in_table: Callable[[], InTable | None] = lambda: None  # the rows in a table in memory
    share: Share | None = None  # how the source depends on the number of ranks; None: not at all
    notes: Callable[[], tuple[str, ...]] = tuple  # for `explain`: memory held, cost of resuming
    advice: str = CACHE_ADVICE  # for `profile`, if this source takes the most time


class Source(Part, ABC):
    """Where chunks come from: a file, a table, or other datasets.

    A source of your own needs `schema` and `read`. Positions are plain values (None, bool, int, float, str, bytes, tuples of these, and
    cursors of the datasets that it holds): a cursor writes them. Chunks need no hidden columns: the rows are numbered as they are read.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> import mlxfp as fp
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

    @abstractmethod
    def schema(self) -> Schema:
        """Return the schema of every chunk, reading no more than the first rows."""

    @abstractmethod
    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Yield chunks from `position` on (None: the start), each with the position after it.

        Reading from the position after a chunk gives exactly the chunks that follow it; from the last one, nothing.
        """

    def length(self) -> int | None:
        """Return the number of rows, groups or batches if it is known without reading the data."""
        return None

    @property
    def indexable(self) -> bool:
        """Whether `take` and `length` work without reading everything before the rows. Not a trait: it may be known only from the files."""
        return False

    def take(self, epoch: int, indices: Indices) -> RecordBatch:
        """Return the rows at `indices`, int64[N], in that order. Indexable sources only."""
        raise PipelineError(f"{self!r} has no random access. Put load() or cache(path) after it.")

    def tasks(self, epoch: int, position: Position) -> Tasks:
        """Yield tasks from `position` on, each with the position after the task; together they read what `read` reads."""
        return chunk_tasks(self.read(epoch, position))

    def version(self) -> Any:
        """Return a plain value that changes when the data outside changes: sizes and times of files. Caches are keyed by it."""
        return None

    @property
    def traits(self) -> SourceTraits:
        """All that a planner may know of this source: what holds of the datasets inside, unless a source declares more."""
        held = children(self)
        return SourceTraits(
            endless=any(each.endless for each in held),
            reorders=any(each.reorders for each in held),
            redraws=any(each.redraws for each in held),
        )


def take_task(source: Source, epoch: int, indices: Indices) -> Task:
    """Return the task of taking the rows at `indices`, int64[N], of an indexable source."""
    task = source.traits.task
    return IndexTask(source, epoch, indices) if task is None else task(epoch, indices)


def exact_length(source: Source) -> int | None:
    """Return the length of a source, reading the rows that are kept if need be."""
    return (source.traits.exact_length or source.length)()


def first_chunks(source: Source) -> Iterator[RecordBatch]:
    """Yield the chunks that schemas of user functions are inferred from."""
    head = source.traits.head
    return (chunk for chunk, _ in source.read(0, None)) if head is None else head()


def marked(source: Source) -> Source:
    """Return the source that gives records which cannot be parsed as marked rows, if there is one."""
    marking = source.traits.marking
    return source if marking is None else marking()


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
