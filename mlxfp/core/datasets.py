"""The algebra: a dataset is a frozen value, a source and a tuple of stages.

    Source --chunks--> Stage --chunks--> Stage --groups--> collate --batches-->

- A **source** yields chunks (`pyarrow.RecordBatch`) and, with each, the position to read on from.
- A **stage** is a pure state machine over chunks: `start` gives a state, `step` takes (state, chunk) to (state, chunks), `finish`
  gives what is left. States are immutable, so a snapshot of a whole run is a tuple of references (see `cursors.py`).
- A **dataset** is itself usable as a source: what must see more than one chunk at a time (shuffle, repeat, prefetch, mix) is a source
  that holds datasets.

A dataset is on one of three levels. Of `examples`, chunk boundaries mean nothing; of `groups` (after `batch`), one chunk is one group; of
`batches` (after `collate`), a chunk is a dict of MLX arrays. Each stage says which levels it takes, so a misplaced stage is an error
when the pipeline is built.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Literal, TypeVar, overload

import attrs
import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.checks import check_types
from mlxfp.core.chunks import RecordBatch, Schema, number_as, to_rows
from mlxfp.core.conditions import Condition
from mlxfp.core.cursors import iterate
from mlxfp.core.describing import known_length, length
from mlxfp.core.errors import PipelineError
from mlxfp.core.examples import Examples
from mlxfp.core.hints import SourceHints, StageHints
from mlxfp.core.identity import Identity, identify
from mlxfp.core.inference import Resolved, head, resolve
from mlxfp.core.nodes import Part, Pipeline, brief, check_dataset, children, flat_parts, label
from mlxfp.core.stepping import push

Level = Literal["examples", "groups", "batches"]
State = Any
Position = Any
Batch = dict[str, Any]  # str -> mx.array, or a tuple of strings for a carried text column; core never imports mlx

Item = TypeVar("Item")  # invariant: a batch is a mapping too, and must not pass for an example

_ORDER: tuple[Level, ...] = ("examples", "groups", "batches")
_ADVICE: dict[Level, str] = {
    "examples": "Put batch(size) before it.",
    "groups": "Move it before batch, or put unbatch() before it.",
    "batches": "Move it before collate.",
}


class Stage(StageHints, Part, ABC):
    """A pure state machine over record batches. Implementations are frozen attrs classes; calling one on a dataset appends it.

    >>> import pyarrow as pa
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> @frozen(repr=False)
    ... class FirstOfChunk(Stage):
    ...     def step(self, state, chunk):
    ...         return state, (chunk.slice(0, 1),)
    >>> list(FirstOfChunk()(from_examples([{"x": 1}, {"x": 2}])))
    [{'x': 1}]
    """

    __slots__ = ()
    accepts: ClassVar[frozenset[Level]] = frozenset({"examples"})
    emits: ClassVar[Level | None] = None  # None: the level that came in
    rowwise: ClassVar[bool] = False  # one row in, one row out, whatever stands beside it: random access passes through

    def start(self, epoch: int) -> State:
        """Return the state before the first chunk: immutable, and made of what a cursor can write (see `cursors.py`)."""
        return ()

    @abstractmethod
    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        """Take one chunk: the next state, and the chunks that come out."""

    def finish(self, state: State) -> Iterable[RecordBatch]:
        """Return the chunks that the state still holds after the last one."""
        return ()

    def schema(self, schema: Schema) -> Schema:
        """Return the schema that comes out of the one that goes in; raise `SchemaError` where it cannot fit."""
        return schema

    def length(self, count: int) -> int | None:
        """Return how many items come out of `count` rows or groups, or None where that depends on the data."""
        return count if self.rowwise else None

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> "Stage":
        """Return this stage with its schema declared, found from the first rows if need be. Most know it already."""
        return self

    def notes(self) -> tuple[str, ...]:
        """Say what a reader of `explain` should know: memory held, cost of resuming."""
        return ()

    def __call__(self, dataset: "Dataset[Any]") -> "Dataset[Any]":
        """Append this stage to the dataset."""
        check_level(dataset, self, self.accepts)
        written = dataset.written and self(dataset.written)
        return Dataset(dataset.source, (*dataset.stages, self), written=written)


class RowWise(Stage):
    """A stage without state that turns every row into one row, independently of the other rows.

    >>> import pyarrow as pa
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> @frozen(repr=False)
    ... class Numbered(RowWise):
    ...     start_at: int
    ...     def apply(self, chunk):
    ...         return chunk.append_column("number", pa.array([self.start_at] * chunk.num_rows, pa.int64()))
    ...     def schema(self, schema):
    ...         return schema.append(pa.field("number", pa.int64()))
    >>> Numbered(7)(from_examples([{"x": 1}]))[0]
    {'x': 1, 'number': 7}
    """

    __slots__ = ()
    accepts = frozenset({"examples", "groups"})
    rowwise = True

    @abstractmethod
    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Transform a chunk. It carries the hidden columns, which the result must keep."""

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        """Apply the stage to the chunk."""
        return state, (self.apply(chunk),)


class Source(SourceHints, Part, ABC):
    """Where chunks come from: a file, a table, or other datasets.

    A source of your own needs `schema` and `read`. Positions are plain values (None, bool, int, float, str, bytes, tuples of these):
    a cursor writes them. Chunks need no hidden columns: the rows are numbered as they are read.

    >>> import pyarrow as pa
    >>> @frozen(repr=False)
    ... class Countdown(Source):
    ...     start: int
    ...     def schema(self):
    ...         return pa.schema({"n": pa.int64()})
    ...     def read(self, epoch, position):
    ...         for n in range(self.start if position is None else position, 0, -1):
    ...             yield pa.record_batch({"n": [n]}), n - 1
    >>> [row["n"] for row in Dataset(Countdown(3))]
    [3, 2, 1]
    """

    __slots__ = ()

    @property
    def level(self) -> Level:
        """What the chunks are: any rows (`examples`), one group each, or batches."""
        return "examples"

    @property
    def indexable(self) -> bool:
        """Whether `take` and `length` work without reading everything before the rows."""
        return False

    @abstractmethod
    def schema(self) -> Schema:
        """Return the schema of every chunk, reading no more than the first rows."""

    @abstractmethod
    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Yield chunks from `position` on (None: the start), each with the position after it.

        Reading from the position after a chunk gives exactly the chunks that follow it; from the last one, nothing.
        """

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        """Return the rows at `indices`, int64[N], in that order. Indexable sources only."""
        raise PipelineError(f"{self!r} has no random access. Put load() or cache(path) after it.")

    def length(self) -> int | None:
        """Return the number of rows, groups or batches if it is known without reading the data."""
        return None

    def exact_length(self) -> int | None:
        """Return what `length` does, but for rows that are kept (`load`, `cache`) even if they must be read first."""
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


@frozen(repr=False)
class Dataset(Pipeline, Generic[Item]):
    """A lazy sequence of examples, groups or batches: a source and the stages after it. A value: compare, print, pickle, reuse it.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rows = from_examples([{"x": 1}, {"x": 2}])
    >>> rows, rows[1], list(rows)
    (pipe(from_examples(2 rows)), {'x': 2}, [{'x': 1}, {'x': 2}])
    """

    source: Source
    stages: tuple[Stage, ...] = ()
    written: "Dataset[Item] | None" = field(default=None, kw_only=True, eq=False, repr=False)  # where `optimize` made this: of what

    @property
    def level(self) -> Level:
        """What iterating gives: `examples`, `groups` or `batches`."""
        return next((stage.emits for stage in reversed(self.stages) if stage.emits is not None), self.source.level)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The source and the stages, in order."""
        return (self.source, *self.stages)

    @property
    def indexable(self) -> bool:
        """Whether rows can be taken by their number: the source can, and every stage turns one row into one row."""
        return self.source.indexable and all(stage.rowwise for stage in self.stages)

    @cached_property
    def resolved(self) -> Resolved:
        """The stages with every schema declared, and the schemas. Found once; reads at most the first rows."""
        return resolve(self)

    @cached_property
    def optimized(self) -> "Dataset[Item]":
        """What runs in place of this: it gives the same items and cursors. Found once."""
        from mlxfp.core.optimizing import narrow  # it makes datasets

        return narrow(self, self.resolved.schemas[-1].names)

    @cached_property
    def identity(self) -> Identity:
        """The text and fingerprint of every part. Found once: a table in memory is hashed whole, and every cursor names its pipeline."""
        return identify(self)

    def __iter__(self) -> Iterator[Item]:
        """Yield the items of epoch 0: dicts, `Examples`, or batches."""
        return (item for item, _ in iterate(self))

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Examples: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return one example of epoch 0, or a view of a range of them. Raises `PipelineError` without random access."""
        check_types((int, np.integer, slice), index=index)
        check_indexable(self, f"dataset[{index}]")
        found = range(row_count(self))[index]
        rows = take_rows(self, 0, np.atleast_1d(np.asarray(found, np.int64)))
        return Examples(rows) if isinstance(index, slice) else to_rows(rows)[0]

    def __repr__(self) -> str:
        """Print as the `pipe` that makes it."""
        return f"pipe({', '.join(map(repr, flat_parts(self)))})"


@frozen(repr=False)
class Wrapper(Source):
    """A source that holds one dataset, and is like it unless it says otherwise. Its positions hold cursors of the dataset.

    >>> from mlxfp.core.cursors import run, start
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> @frozen(repr=False)
    ... class Twice(Wrapper):
    ...     def read(self, epoch, position):
    ...         for chunk, cursor in run(self.dataset, start(epoch, position)):
    ...             yield chunk.take([i // 2 for i in range(2 * chunk.num_rows)]), cursor
    ...     def size(self, count):
    ...         return 2 * count
    >>> list(Dataset(Twice(from_examples([{"x": 1}, {"x": 2}]))))
    [{'x': 1}, {'x': 1}, {'x': 2}, {'x': 2}]
    """

    dataset: Dataset[Any]
    passes: ClassVar[bool] = False  # what comes out are rows of the dataset as they are, and no column of theirs decides which

    @property
    def level(self) -> Level:
        """The level of the dataset that is held."""
        return self.dataset.level

    def schema(self) -> Schema:
        """Return the schema of the dataset that is held."""
        return self.dataset.resolved.schemas[-1]

    def size(self, count: int) -> int | None:
        """Return how many items come out of `count` items of the dataset that is held."""
        return count

    def length(self) -> int | None:
        """Return the length, if that of the dataset that is held is known without reading it."""
        count = known_length(self.dataset)
        return None if count is None else self.size(count)

    def exact_length(self) -> int | None:
        """Return the length, even if rows that are kept must be read first."""
        count = length(self.dataset)
        return None if count is None else self.size(count)

    def version(self) -> Any:
        """Return the version of what is held."""
        return self.dataset.source.version()

    def head(self) -> Iterator[RecordBatch]:
        """Yield the first chunks of the dataset that is held, before any reordering."""
        return head(self.dataset, self.dataset.resolved.stages)

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        """Let the dataset that is held give fewer columns, where its rows pass."""
        from mlxfp.core.optimizing import narrow  # it makes datasets

        less = narrow(self.dataset, columns) if self.passes else self.dataset
        return self if less is self.dataset else attrs.evolve(self, dataset=less)


def _items(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(options.items())


@frozen(repr=False)
class Combinator:
    """A stage-like value: calling it on a dataset makes `source(dataset, **options)`, a source that holds the dataset.

    >>> from mlxfp.data.rows.map_filter import take
    >>> take(3), type(take(3)) is Combinator
    (take(count=3), True)
    """

    source: Callable[..., Source]
    options: tuple[tuple[str, Any], ...] = field(converter=_items)
    accepts: frozenset[Level] = frozenset(_ORDER)

    def __call__(self, dataset: Dataset[Any]) -> Dataset[Any]:
        """Wrap the dataset."""
        check_level(dataset, self, self.accepts)
        return Dataset(self.source(dataset, **dict(self.options)))

    def __repr__(self) -> str:
        """Print as the call that makes it."""
        return f"{label(self.source)}({', '.join(f'{name}={brief(value)}' for name, value in self.options)})"


def check_level(dataset: Dataset[Any], stage: object, accepts: frozenset[Level]) -> None:
    """Raise unless `stage` was called on a dataset of a level that it takes."""
    check_dataset(dataset, stage)
    if dataset.level not in accepts:
        wanted = " or ".join(level for level in _ORDER if level in accepts)
        raise PipelineError(f"{stage!r} takes {wanted}, got {dataset.level} from {dataset.parts[-1]!r}. {_ADVICE[dataset.level]}")


def check_indexable(dataset: Dataset[Any], stage: object) -> None:
    """Raise `PipelineError` unless the dataset is one of examples with random access."""
    if dataset.level != "examples":
        raise PipelineError(f"{stage} takes examples by number, got {dataset.level} from {dataset.parts[-1]!r}. Use it before batch.")
    if not dataset.indexable:
        barrier: Part = next((part for part in dataset.stages if not part.rowwise), dataset.source)
        raise PipelineError(f"{stage} needs random access, and {barrier!r} has none. Put load() or cache(path) after it.")


def row_count(dataset: Dataset[Any]) -> int:
    """Return the number of rows of an indexable dataset."""
    count = dataset.source.exact_length()
    if count is None:
        raise PipelineError(f"{dataset.source!r} can take rows by number and must say how many there are: its length() returned None.")
    return count


def take_rows(dataset: Dataset[Any], epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
    """Return rows of an indexable dataset by number, int64[N], through its stages, with the hidden columns."""
    source, stages = dataset.optimized.source, dataset.optimized.resolved.stages
    try:
        chunk = number_as(source.take(epoch, indices), epoch, indices)
        (chunk,) = push(stages, [stage.start(epoch) for stage in stages], 0, (chunk,))
    except Exception as error:
        if not children(dataset.source):  # the datasets that a source holds say it themselves
            error.add_note(f"reading from {dataset.source!r}, epoch {epoch}")
        raise
    return chunk
