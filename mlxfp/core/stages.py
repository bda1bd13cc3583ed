"""Stages: pure state machines over chunks, and their traits.

    state, chunks = stage.step(state, chunk)

A dataset is on one of three levels. Of `examples`, chunk boundaries mean nothing; of `groups` (after `batch`), one chunk is one group; of
`batches` (after `collate`), a chunk is a dict of MLX arrays. Each stage says which levels it takes, so a misplaced stage is an error
when the pipeline is built.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import attrs
from attrs import Factory, field, frozen
from toolz import identity

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.nodes import Part, Share, check_dataset
from mlxfp.support.errors import PipelineError

Level = Literal["examples", "groups", "batches"]
State = Any
Batch = dict[str, Any]  # str -> mx.array, or a tuple of strings for a carried text column; core never imports mlx
Projection = tuple[tuple[str, str], ...]  # (name, name before) of every column that comes out

CACHE_ADVICE = "cache(path) after it, where nothing before is random, does its work once for all runs."
LEVELS: tuple[Level, ...] = ("examples", "groups", "batches")
_ADVICE: dict[Level, str] = {
    "examples": "Put batch(size) before it.",
    "groups": "Move it before batch, or put unbatch() before it.",
    "batches": "Move it before collate.",
}


@frozen
class Groups:
    """What is known of groups: the sizes that they can have, and from `least` to `most` tokens in the longest row of one.

    None as `most` stands for any number. Before rows are grouped, there are no sizes.
    """

    sizes: Sequence[int] = ()
    least: int = 0
    most: int | None = None

    def holding(self, column: str) -> "Groups":
        """Forget the lengths unless they are those of `input_ids`, which collators read."""
        return self if column == "input_ids" else Groups(self.sizes)


def _length(traits: "Traits") -> Callable[[int], int | None]:
    return identity if traits.row_wise else unknown


def unknown(count: int) -> None:
    """Return None: the number of items depends on the data."""
    return


@frozen
class Traits:
    """Everything that a planner may know of a stage. Every default is safe: a stage without traits is correct everywhere, only slower.

    Tokens are those of the column `input_ids`, which collators read. A stage that makes groups may name `columns_read` and keep rows in its
    state. A stage that makes batches names the columns that the batches come from. `fuse(before, needed)` returns one stage for the stage
    `before` and this one, with the state of `before`, or None; only the columns in `needed` have to come out. `longest_row` computes the
    most tokens of a row after the stage from the most before it; None is any number.

    >>> import mlxfp as fp
    >>> fp.select_columns(["x"]).traits.length(5), fp.batch(2).traits.length(5), fp.filter(bool).traits.length(5)
    (5, 3, None)
    """

    row_wise: bool = False  # one row in, one row out, independent of all other rows: random access passes through
    reorders: bool = False  # rows come out in another order in each epoch
    draws: bool = False  # the result of a row is drawn at random, by the key of the row
    columns_read: Collection[str] | None = None  # all other columns pass unread, and no state keeps rows; None: all are read
    projection: Callable[[Sequence[str]], Projection] | None = None  # a stage that only chooses columns: the choice among these names
    predicates: tuple[Condition, ...] = ()  # a stage that only leaves out rows: the conditions that the other rows meet
    length: Callable[[int], int | None] = field(default=Factory(_length, takes_self=True))  # items from so many; None: unknown
    longest_row: Callable[[int | None], int | None] | None = None  # see above; None: rows are measured
    groups: Callable[[int | None], tuple[Groups, ...]] | None = None  # the possible groups of so many rows
    fuse: Callable[["Stage", Collection[str]], "Stage | None"] | None = None  # see above
    decoders: Mapping[str, Any] = field(factory=dict)  # the tokenizer of each column of ids that the stage adds: notebooks show their text
    share: Share | None = None  # how the stage depends on the number of ranks; None: not at all
    notes: Callable[[], tuple[str, ...]] = tuple  # for `explain`: memory held, cost of resuming
    advice: str = ""  # for `profile`, if this stage takes the most time


class Stage(Part, ABC):
    """A pure state machine over record batches. Implementations are frozen attrs classes; calling one on a dataset appends it.

    Only `step` is needed. `accepts` and `emits` are facts of the class, which are checked when a pipeline is built; `traits` hold all else.

    >>> import mlxfp as fp
    >>> @frozen(repr=False)
    ... class FirstOfChunk(fp.Stage):
    ...     def step(self, state, chunk):
    ...         return state, (chunk.slice(0, 1),)
    >>> list(FirstOfChunk()(fp.from_examples([{"x": 1}, {"x": 2}])))
    [{'x': 1}]
    """

    __slots__ = ()
    accepts: ClassVar[frozenset[Level]] = frozenset({"examples"})
    emits: ClassVar[Level | None] = None  # None: the level that came in

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

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> "Stage":
        """Return this stage with its schema declared, found from the first rows if need be. Most know it already."""
        return self

    @property
    def traits(self) -> Traits:
        """All that a planner may know of this stage. A stage with a `seed` that is not None draws random numbers."""
        return Traits(draws=seeded(self))

    def __call__(self, dataset: Any) -> Any:
        """Append this stage to the dataset."""
        check_level(dataset, self, self.accepts)
        return attrs.evolve(dataset, stages=(*dataset.stages, self))


class RowWise(Stage):
    """A stage without state that turns every row into one row, independently of the other rows.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> @frozen(repr=False)
    ... class Numbered(fp.RowWise):
    ...     start_at: int
    ...     def apply(self, chunk):
    ...         return chunk.append_column("number", pa.array([self.start_at] * chunk.num_rows, pa.int64()))
    ...     def schema(self, schema):
    ...         return schema.append(pa.field("number", pa.int64()))
    >>> Numbered(7)(fp.from_examples([{"x": 1}]))[0]
    {'x': 1, 'number': 7}
    """

    __slots__ = ()
    accepts = frozenset({"examples", "groups"})

    @property
    def traits(self) -> Traits:
        """The traits of a row-wise stage. A subclass with more to say returns `Traits(row_wise=True, ...)`."""
        return Traits(row_wise=True, draws=seeded(self))

    @abstractmethod
    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Transform a chunk. It carries the hidden columns, which the result must keep."""

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        """Apply the stage to the chunk."""
        __tracebackhide__ = True  # IPython leaves out frames with this name among their locals
        return state, (self.apply(chunk),)


class Halves(NamedTuple):
    """The two parts of a stage that makes a batch of each group. Together they make the same batches as the stage."""

    host: tuple[RowWise, ...]  # for workers
    device: Stage  # for the thread that makes arrays


def seeded(stage: object) -> bool:
    """Return whether a stage has a seed that is not None."""
    return getattr(stage, "seed", None) is not None


def starts_empty(stage: Stage) -> bool:
    """Return whether there is nothing in the state before the first chunk: most such stages keep nothing later, either."""
    return is_empty(stage.start(0))


def is_empty(state: State) -> bool:
    """Return whether a state holds nothing."""
    return isinstance(state, tuple) and not state


def check_level(dataset: Any, stage: object, accepts: frozenset[Level]) -> None:
    """Raise `PipelineError` unless `stage` was called on a dataset of a level that it takes."""
    check_dataset(dataset, stage)
    if dataset.level not in accepts:
        wanted = " or ".join(level for level in LEVELS if level in accepts)
        raise PipelineError(f"{stage!r} takes {wanted}, got {dataset.level} from {dataset.parts[-1]!r}. {_ADVICE[dataset.level]}")
