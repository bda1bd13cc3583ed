"""Stages: functions from a state and a chunk of rows to a new state and output chunks.

    state, chunks = stage.step(state, chunk)

A dataset yields items of one kind (level): `examples`, `groups` after `batch`, or `batches` after `collate`. At the level `groups`, each
chunk is one group. At the level `batches`, a chunk is a dict of MLX arrays. Each stage declares the levels of its input. Building a
pipeline with a misplaced stage therefore raises an error.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import attrs
from attrs import Factory, field, frozen
from toolz import identity

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.nodes import Itemless, Part, Share, check_dataset
from mlxfp.support.errors import ArgumentTypeError, PipelineError

Level = Literal["examples", "groups", "batches"]
State = Any
Batch = dict[str, Any]  # each name maps to an mx.array or to a tuple of strings; typed as `Any`, because `mlxfp.core` does not import mlx
Projection = tuple[tuple[str, str], ...]  # pairs (new name, old name), one per output column

CACHE_ADVICE = "cache(path) after it saves its output for all runs, if no earlier stage is random."
LEVELS: tuple[Level, ...] = ("examples", "groups", "batches")
_ADVICE: dict[Level, str] = {
    "examples": "Put batch(size) before it.",
    "groups": "Move it before batch, or put unbatch() before it.",
    "batches": "Move it before collate.",
}


@frozen
class Groups:
    """Possible group sizes of a stage that makes groups, and the possible lengths of the longest row in a group.

    `sizes` holds the possible numbers of rows. Stages without groups have an empty `sizes`. The longest row has from `least` to `most`
    tokens. `most` is None if the number of tokens is unbounded.
    """

    sizes: Sequence[int] = ()
    least: int = 0
    most: int | None = None

    def holding(self, column: str) -> "Groups":
        """Return `self` for the column `input_ids`, and only `sizes` for other columns: `least` and `most` count tokens of `input_ids`."""
        return self if column == "input_ids" else Groups(self.sizes)


def unknown(count: int) -> None:
    """Return None: the number of items depends on the data."""
    return


@frozen
class Traits:
    """Properties of a stage that allow optimizations. A stage with the default properties gives correct results, but runs slower.

    - `columns_read`: columns that the stage reads, None for all columns. A column that no stage reads is dropped. A stage that makes
      batches lists the columns of the batches. If a stage keeps rows in its state and makes no groups, `columns_read` must be None.
    - `fuse(before, needed)`: return one stage that replaces the stage `before` and this stage. Return None if no such stage exists. The
      new stage has the state of `before`. The output of the new stage needs only the columns in `needed`.
    - `longest_row`: function from the maximum token count of a row before the stage to the maximum after the stage. None means unbounded.
      Tokens are counted in the column `input_ids`.

    >>> import mlxfp as fp
    >>> fp.select_columns(["x"]).traits.length(5), fp.batch(2).traits.length(5), fp.filter(bool).traits.length(5)
    (5, 3, None)
    """

    row_wise: bool = False  # True if the stage maps each row to one row independently and keeps random access
    reorders: bool = False  # True if the order of rows changes between epochs
    draws: bool = False  # True if the results are random, seeded by the key of each row
    columns_read: Collection[str] | None = None
    # Function that returns the names of the selected columns, for a stage that only selects columns.
    projection: Callable[[Sequence[str]], Projection] | None = None
    predicates: tuple[Condition, ...] = ()  # conditions that a row must satisfy, for a stage that only filters rows
    # Function from the number of input items to the number of output items. The result is None if unknown.
    length: Callable[[int], int | None] = field(default=Factory(lambda self: identity if self.row_wise else unknown, takes_self=True))
    # Function that returns the maximum token count of output rows, given the maximum of input rows. None: the planner measures rows.
    longest_row: Callable[[int | None], int | None] | None = None
    # Function from the number of input rows (None if unknown) to the possible group sizes and row lengths.
    groups: Callable[[int | None], tuple[Groups, ...]] | None = None
    fuse: Callable[["Stage", Collection[str]], "Stage | None"] | None = None
    decoders: Mapping[str, Any] = field(factory=dict)  # maps columns of token ids to tokenizers, for showing text in notebooks
    share: Share | None = None  # how results depend on the number of ranks and the batch size; None: no such dependence
    notes: Callable[[], tuple[str, ...]] = tuple  # lines for `explain`, such as memory use and the cost of resuming
    advice: str = ""  # advice in `profile` if this stage takes the most time


class Stage(Part, Itemless, ABC):
    """A pure state machine over record batches. Subclasses are frozen attrs classes. Calling a stage on a dataset appends the stage.

    Subclasses must define `step`. `accepts` and `emits` are class attributes, checked when a pipeline is built.

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
    emits: ClassVar[Level | None] = None  # kind of the output items: "examples", "groups" or "batches"; None: as the input

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        """Raise `ArgumentTypeError` for a subclass that defines `apply`, the method of `RowWise`, but not `step`."""
        if "step" in cls.__abstractmethods__ and hasattr(cls, "apply"):
            raise ArgumentTypeError(
                f"A subclass of fp.Stage must define step, but {cls.__name__} in module {cls.__module__} defines apply. "
                f"Derive the class from fp.RowWise: class {cls.__name__}(fp.RowWise)."
            )
        return super().__new__(cls, *args, **kwargs)

    def start(self, epoch: int) -> State:
        """Return the state before the first chunk: an immutable value that a cursor can store (see `cursors.py`)."""
        return ()

    @abstractmethod
    def step(self, state: State, chunk: RecordBatch, /) -> tuple[State, Iterable[RecordBatch]]:
        """Return the next state and the output chunks for one input chunk."""

    def finish(self, state: State) -> Iterable[RecordBatch]:
        """Return the chunks that can be made from the state after the last input chunk."""
        return ()

    def schema(self, schema: Schema) -> Schema:
        """Return the output schema for an input schema. Raise `SchemaError` if the input schema does not fit."""
        return schema

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> "Stage":
        """Return this stage with a known output schema, inferred from the first rows if necessary."""
        return self

    @property
    def traits(self) -> Traits:
        """Properties for the planner. By default a stage with a non-None `seed` is random."""
        return Traits(draws=seeded(self))

    def __call__(self, dataset: Any) -> Any:
        """Append this stage to the dataset."""
        check_level(dataset, self, self.accepts)
        return attrs.evolve(dataset, stages=(*dataset.stages, self))


class RowWise(Stage):
    """A stateless stage that maps each row to one row, independently of other rows.

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
        """Properties of a row-wise stage. A subclass that replaces these properties must also return `Traits(row_wise=True, ...)`."""
        return Traits(row_wise=True, draws=seeded(self))

    @abstractmethod
    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Transform a chunk. The result must keep the hidden columns `__row__` and `__key__`."""

    def step(self, state: State, chunk: RecordBatch, /) -> tuple[State, Iterable[RecordBatch]]:
        __tracebackhide__ = True  # IPython omits functions with the local variable `__tracebackhide__` from tracebacks
        return state, (self.apply(chunk),)


class Halves(NamedTuple):
    """Host and device parts of a `collate` stage. Both parts in order make the same batches as the stage."""

    host: tuple[RowWise, ...]  # stages that run in workers
    device: Stage  # stage that runs in the thread that creates the MLX arrays


def seeded(stage: object) -> bool:
    """Return True if a stage has a non-None seed."""
    return getattr(stage, "seed", None) is not None


def starts_empty(stage: Stage) -> bool:
    """Return True if the initial state of a stage is empty, as in every stateless stage."""
    return is_empty(stage.start(0))


def is_empty(state: State) -> bool:
    """Return True for an empty state."""
    return isinstance(state, tuple) and not state


def check_level(dataset: Any, stage: object, accepts: frozenset[Level]) -> None:
    """Raise `PipelineError` unless `stage` accepts the items of the dataset (examples, groups or batches)."""
    check_dataset(dataset, stage)
    if dataset.level not in accepts:
        accepted = " or ".join(level for level in LEVELS if level in accepts)
        raise PipelineError(f"{stage!r} takes {accepted}, got {dataset.level} from {dataset.parts[-1]!r}. {_ADVICE[dataset.level]}")
