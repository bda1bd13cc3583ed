"""Sources: readers of chunks that can continue from any position."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import EPOCH, ROW, Indices, RecordBatch, Schema
from mlxfp.core.nodes import Part, Pipeline, Share, children
from mlxfp.core.stages import CACHE_ADVICE, Level
from mlxfp.support.errors import MlxfpError, PipelineError

Position = Any
Tasks = Generator[tuple["Task", Position], None, None]  # pairs of a task and the source position after its rows; see `Source.tasks`


class Task(ABC):
    """Description of rows to read, an immutable value. The method `read` may run in another thread or process."""

    __slots__ = ()

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of rows."""

    @abstractmethod
    def read(self) -> RecordBatch:
        """Return the rows of the task. Every call, in any process, must return the same rows."""

    def part(self, first: int, stop: int) -> "Task | None":
        """Return the task for rows `first:stop` of this task, or None if the task cannot be split."""
        return None

    def sent_to(self, workers: str) -> "Task":
        """Return a task with the same rows for workers. The argument `workers` is "threads" or "processes".

        If workers have no access to the data, this method reads the rows immediately, and returns a task that holds the rows.
        """
        return self


@frozen(eq=False)
class ChunkTask(Task):
    """Task for rows that are already in memory."""

    chunk: RecordBatch

    @property
    def rows(self) -> int:
        return int(self.chunk.num_rows)

    def read(self) -> RecordBatch:
        return self.chunk

    def part(self, first: int, stop: int) -> Task:
        return ChunkTask(self.chunk.slice(first, stop - first))


@frozen(eq=False)
class IndexTask(Task):
    """Task that reads rows of an indexable source by index."""

    source: Any  # a `Source`, or an object with the same method `take`
    epoch: int
    indices: Indices

    @property
    def rows(self) -> int:
        return len(self.indices)

    def read(self) -> RecordBatch:
        return self.source.take(self.epoch, self.indices)

    def part(self, first: int, stop: int) -> Task:
        return IndexTask(self.source, self.epoch, self.indices[first:stop])

    def sent_to(self, workers: str) -> Task:
        """Return a task for the workers. If the source does not allow workers to call `take`, this process reads the rows now."""
        return self if workers in self.source.traits.take_workers else ChunkTask(self.read())


def read_tasks(tasks: Tasks) -> Iterator[tuple[RecordBatch, Position]]:
    """Run tasks in order in this thread. A source that defines `tasks` can use this function for its method `read`."""
    with closing(tasks):
        for task, after in tasks:
            yield task.read(), after


def chunk_tasks(chunks: Iterable[tuple[RecordBatch, Position]]) -> Tasks:
    """Wrap each chunk in a task. A source that reads in one thread can use this function for its method `tasks`."""
    for chunk, after in chunks:
        yield ChunkTask(chunk), after


@frozen
class InTable:
    """Table in memory from which a source takes its rows. `collate` can read the rows of a batch directly from the table."""

    holder: Any  # source that holds the table in the attribute `rows`; the method `take` reads rows of the table
    # Function called as places(epoch, indices). Returns the positions of rows in the table, in the columns `__row__` and `__epoch__`.
    places: Callable[[int, Indices], RecordBatch]
    source: Any = None  # source that yields the table positions of the rows; None if the rows are in table order


def places_as_numbered(epoch: int, indices: Indices) -> RecordBatch:
    """Return the columns `__row__` and `__epoch__` for a table whose rows have the order of the source. See `InTable.places`."""
    return pa.record_batch([pa.array(indices), pa.array(np.full(len(indices), epoch))], [ROW, EPOCH])


@frozen
class SourceTraits:
    """Properties of a source for the planner. All defaults are safe: a source without traits is correct, but slower.

    `restricted(columns, conditions)` returns a source with the same rows, order and positions that reads less data. The new source may
    omit all other columns, and may return nulls for rows that do not match the conditions.

    >>> import mlxfp as fp
    >>> fp.pipe(fp.from_examples([{"x": 1}]), fp.repeat(None)).source.traits.endless
    True
    """

    level: Level = "examples"  # kind of the chunks
    endless: bool = False  # True if the epochs are known to be endless
    reorders: bool = False  # True if the order of rows changes between epochs
    redraws: bool = False  # True if the set of rows changes between epochs
    gathers: bool = False  # True if the source reads a whole epoch of the inner dataset before the first item
    same_items: bool = False  # True if epoch 0 has the same items as the inner dataset
    keeps_rows: bool = False  # True if the source only selects rows of the inner dataset, and reads no column values
    take_workers: frozenset[str] = frozenset()  # worker types ("threads", "processes") that may call `take` concurrently
    costly: Callable[[], bool] = bool  # function that returns True if workers should read the source (default: False)
    task: Callable[[int, Indices], Task] | None = None  # function that returns a `Task` for rows by index; None: the task calls `take`
    exact_length: Callable[[], int | None] | None = None  # function that returns the exact length, and may read rows; None: use `length`
    head: Callable[[], Iterator[RecordBatch]] | None = None  # function that yields sample rows for schema inference; None: use `read`
    restricted: Callable[[Sequence[str], tuple[Condition, ...]], Any] | None = None  # see the docstring
    marking: Callable[[], Any] | None = None  # function that returns a copy of the source for `on_error`; the copy marks malformed records
    file_of: Callable[[Position], str | None] = lambda position: None  # function that returns the file at a source position, or None
    # Function that returns a text about the external data, such as "2 files with 900 bytes", or None. A cursor stores the text. If the text
    # has changed, the data have changed, and the cursor is refused.
    contents: Callable[[], str | None] = lambda: None
    # Function that returns the inner datasets at a source position, each as a pair (dataset, cursor).
    children_at: Callable[[Position], Iterable[tuple[Any, Any]]] = lambda position: ()
    # Function called as before(chunk, after), where `after` is the position after the chunk. Returns the position before the chunk.
    # `before` returns None for an unknown position. A resumed run then reads the previous chunk again.
    before: Callable[[Any, Position], Position | None] = lambda chunk, after: None
    # Function that returns the inner datasets. None: the source reads every dataset among its arguments.
    read_parts: Callable[[], tuple[Any, ...]] | None = None
    in_table: Callable[[], InTable | None] = lambda: None  # function that returns the table in memory, or None if there is no table
    share: Share | None = None  # how the source depends on the number of ranks and the batch size; None: not at all
    notes: Callable[[], tuple[str, ...]] = tuple  # function that returns lines for `explain`, for example about memory use
    advice: str = CACHE_ADVICE  # advice that `profile` shows if this source takes the most time


class Source(Part, ABC):
    """A reader of chunks from a file, a table, or other datasets.

    A custom source defines `schema` and `read`. Positions are plain values that a cursor can store: None, bool, int, float, str, bytes,
    tuples of plain values, and cursors of inner datasets. Chunks need no hidden columns (`__row__`, `__key__`).

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

    @abstractmethod
    def schema(self) -> Schema:
        """Return the schema of every chunk. This method may read the first rows of the source, but not all rows."""

    @abstractmethod
    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Yield each chunk after `position` together with the position after the chunk. `position=None` is the start.

        A read from a yielded position must return exactly the later chunks. A read from the last position must return no chunks.
        """

    def length(self) -> int | None:
        """Return the number of rows, groups or batches if it is known without reading the data."""
        return None

    @property
    def indexable(self) -> bool:
        """True if `take` can read any rows by index. The answer can depend on the files."""
        return False

    def take(self, epoch: int, indices: Indices) -> RecordBatch:
        """Return the rows at `indices`, int64[N], in that order. Indexable sources only."""
        raise PipelineError(f"{self!r} has no random access. Put load() or cache(path) after this source.")

    def tasks(self, epoch: int, position: Position) -> Tasks:
        """Yield tasks after `position`, each with the position after the task. The tasks read the same rows as `read`."""
        return chunk_tasks(self.read(epoch, position))

    def version(self) -> Any:
        """Return a plain value that changes with the external data, such as file sizes and times. Used as a cache key."""
        return None

    @property
    def traits(self) -> SourceTraits:
        """Properties of the source for the planner. By default, `endless` and similar properties come from the inner datasets."""
        datasets = children(self)
        return SourceTraits(
            endless=any(dataset.endless for dataset in datasets),
            reorders=any(dataset.reorders for dataset in datasets),
            redraws=any(dataset.redraws for dataset in datasets),
        )


def take_task(source: Source, epoch: int, indices: Indices) -> Task:
    """Return the task that reads the rows at `indices`, int64[N], of a source with random access."""
    task = source.traits.task
    return IndexTask(source, epoch, indices) if task is None else task(epoch, indices)


def exact_length(source: Source) -> int | None:
    """Return the exact number of rows, groups or batches of a source. The call may read all rows, as for `load` and `cache`."""
    return (source.traits.exact_length or source.length)()


def first_chunks(source: Source) -> Iterator[RecordBatch]:
    """Yield the chunks for schema inference."""
    head = source.traits.head
    return (chunk for chunk, _ in source.read(0, None)) if head is None else head()


def contents(dataset: Pipeline[Any]) -> tuple[str | None, ...]:
    """Return the texts about the external data of all sources in a pipeline. A source of missing files has None."""
    try:
        text = dataset.source.traits.contents()
    except (MlxfpError, OSError):  # for example, files that were removed after `load` had read all rows
        text = None
    return text, *chain.from_iterable(map(contents, children(dataset.source)))


def marked(source: Source) -> Source:
    """Return a copy of the source that marks malformed records instead of raising an error.

    Return the source itself if the source cannot mark records.
    """
    marking = source.traits.marking
    return source if marking is None else marking()


def check_ends(dataset: Pipeline[Any], reader: object) -> None:
    """Raise `PipelineError` if `dataset` is endless. `reader` is the function or stage that needs a whole epoch."""
    if dataset.endless:
        raise PipelineError(
            f"{reader} needs finite data, but {_without_end(dataset)!r} is endless, in {dataset!r}. "
            f"Put take(count) before {reader}, or move {reader} before the endless part. To shuffle endless data, pass buffer=1000."
        )


def warn_redrawn(dataset: Pipeline[Any], *, stacklevel: int) -> None:
    """Warn if the set of rows changes between epochs: a validation row could become a training row. `stacklevel`: see `warnings.warn`."""
    if dataset.redraws:
        warnings.warn(
            f"Each epoch has other rows in {dataset!r}: take, skip and select choose rows by index, and the shuffle before them "
            "changes the index of every row in each epoch. Validation rows would leak into training. To keep the parts separate, "
            "use split or train_valid_test, and shuffle afterwards. If other rows in each epoch are intended, pass redraw=True.",
            RuntimeWarning,
            stacklevel=stacklevel + 1,
        )


def _without_end(dataset: Any) -> Any:
    """Return the innermost endless source."""
    return next((_without_end(inner) for inner in children(dataset.source) if inner.endless), dataset.source)
