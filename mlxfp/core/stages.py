"""Stages: pure state machines over chunks, and what they may say about themselves.

    state, chunks = stage.step(state, chunk)

A dataset is on one of three levels. Of `examples`, chunk boundaries mean nothing; of `groups` (after `batch`), one chunk is one group; of
`batches` (after `collate`), a chunk is a dict of MLX arrays. Each stage says which levels it takes, so a misplaced stage is an error
when the pipeline is built.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import attrs
from attrs import frozen

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.nodes import Part, check_dataset
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


class Stage(Part, ABC):
    """A pure state machine over record batches. Implementations are frozen attrs classes; calling one on a dataset appends it.

    Only `step` is needed. The attributes and methods from `accepts` on are *capabilities*: what a stage says about itself so that
    pipelines run faster or can be described better. One that says nothing is right everywhere.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> @frozen(repr=False)
    ... class FirstOfChunk(fp.Stage):
    ...     def step(self, state, chunk):
    ...         return state, (chunk.slice(0, 1),)
    >>> list(FirstOfChunk()(fp.from_examples([{"x": 1}, {"x": 2}])))
    [{'x': 1}]
    """

    __slots__ = ()

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

    accepts: ClassVar[frozenset[Level]] = frozenset({"examples"})
    emits: ClassVar[Level | None] = None  # None: the level that came in
    rowwise: ClassVar[bool] = False  # one row in, one row out, whatever the other rows are: random access passes through
    reorders: ClassVar[bool] = False  # rows come out in another order in each epoch
    instant: ClassVar[bool] = False  # it takes no time worth speaking of, as choosing columns does: no worker is asked to do only that
    lengthens: ClassVar[bool] = True  # whether rows of tokens may come out longer than the longest that went in
    advice: ClassVar[str] = ""  # what `profile` says where this stage takes the most time

    @property
    def draws(self) -> bool:
        """Whether what comes out of a row is drawn at random, by the key of the row: so it is in a stage with a `seed` that is not None."""
        return getattr(self, "seed", None) is not None

    def length(self, count: int) -> int | None:
        """Return how many items come out of `count` rows or groups, or None where that depends on the data."""
        return count if self.rowwise else None

    def notes(self) -> tuple[str, ...]:
        """Say what a reader of `explain` should know: memory held, cost of resuming."""
        return ()

    def decoders(self) -> Mapping[str, Any]:
        """Return the columns that it fills with the ids of a tokenizer, each with the tokenizer: notebooks show their text."""
        return {}

    def projection(self, names: Sequence[str]) -> Projection | None:
        """Say which of the columns with these names each column that comes out is; None: it does more than choose columns."""
        return None

    def columns_read(self) -> Collection[str] | None:
        """Say which columns it reads, if it lets all others pass unread and keeps no rows in its state; None: all.

        A stage that makes batches says which columns they come from. A stage that makes groups may keep rows in its state; a cursor
        of a run that read more columns may hold rows with more of them.
        """
        return None

    def predicates(self) -> tuple[Condition, ...]:
        """Return the conditions that the rows that come out meet, if leaving out all others is all that it does."""
        return ()

    def fuse_with_previous(self, before: "Stage", needed: Collection[str]) -> "Stage | None":
        """Return one stage that does what `before` and then this one do, with the state of `before`; None: there is no such stage.

        Of the columns that come out, only those that are `needed` have to be there.
        """
        return None

    def halves(self, schema: Schema) -> "Halves | None":
        """Return the host part and the device part for groups of this schema, or None if the host part is not worth a worker."""
        return None

    def gathering(self, holder: Any, schema: Schema) -> "Stage | None":
        """Return the stage that does with `Source.table_places` of the rows what this one does with the rows; None: there is none.

        `holder` is the source that takes the rows from a table in memory, and `schema` that of the rows.
        """
        return None

    def longest_row(self, tokens: int | None) -> int | None:
        """Return how many tokens a row has at most, where those that go in have at most `tokens`; None: any number."""
        return None if self.lengthens else tokens

    def groups(self, count: int | None) -> tuple[Groups, ...] | None:
        """Return what is known of the groups that it makes of `count` rows (None: unknown); None: nothing."""
        return None

    def stored(self, batch: Batch, like: Schema | None) -> RecordBatch:
        """Return a batch that this stage made as one row for `cache`, with the schema `like` of those before it; raise where it cannot."""
        raise PipelineError(f"cache cannot keep the batches of {self!r}. Put cache before it, or use load(), which keeps them in memory.")

    def restored(self, row: RecordBatch) -> Batch:
        """Return the batch of such a row."""
        raise PipelineError(f"cache cannot restore the batches of {self!r}: the stage has `stored` and lacks `restored`. Give it both.")

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
    rowwise = True

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
