"""Parts that stand in for others: like them, and printed like them, unless they say otherwise. For rewriting pipelines (`rewrite`)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import numpy as np
from attrs import Factory, field, frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.datasets import Dataset, Level, Position, Source, Stage, State
from mlxfp.core.nodes import children


@frozen(repr=False)
class StandInStage(Stage):
    """Stands in for a stage."""

    stage: Stage

    @property
    def accepts(self) -> frozenset[Level]:  # type: ignore[override]  # that of the stage: no matter of this class
        """The levels that the stage takes."""
        return self.stage.accepts

    @property
    def emits(self) -> Level | None:  # type: ignore[override]  # the same
        """The level that the stage gives."""
        return self.stage.emits

    @property
    def rowwise(self) -> bool:  # type: ignore[override]  # the same
        """Whether the stage gives one row for each row."""
        return self.stage.rowwise

    def start(self, epoch: int) -> State:
        """Start the stage."""
        return self.stage.start(epoch)

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        """Step the stage."""
        return self.stage.step(state, chunk)

    def finish(self, state: State) -> Iterable[RecordBatch]:
        """Finish the stage."""
        return self.stage.finish(state)

    def schema(self, schema: Schema) -> Schema:
        """Return the schema that comes out of the stage."""
        return self.stage.schema(schema)

    def length(self, count: int) -> int | None:
        """Return how many items come out of the stage."""
        return self.stage.length(count)

    def longest(self, tokens: int | None) -> int | None:
        """Return what the stage says about the length of rows, if it does: `shapes` asks."""
        longest: Callable[[int | None], int | None] | None = getattr(self.stage, "longest", None)
        return None if longest is None else longest(tokens)

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> Stage:
        """Declare the schema of the stage."""
        return attrs.evolve(self, stage=self.stage.infer(schema, rows))

    def notes(self) -> tuple[str, ...]:
        """Return the notes of the stage."""
        return self.stage.notes()

    def __repr__(self) -> str:
        """Print as the stage."""
        return repr(self.stage)


@frozen(repr=False)
class StandInSource(Source):
    """Stands in for a source. The datasets that this holds are named, so that who looks for them finds them."""

    source: Source
    held: tuple[Dataset[Any], ...] = field(init=False, eq=False, default=Factory(lambda self: children(self.source), takes_self=True))

    @property
    def level(self) -> Level:
        """The level of the source."""
        return self.source.level

    @property
    def indexable(self) -> bool:
        """Whether the source has random access."""
        return self.source.indexable

    def schema(self) -> Schema:
        """Return the schema of the source."""
        return self.source.schema()

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Read the source."""
        return self.source.read(epoch, position)

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        """Take rows of the source."""
        return self.source.take(epoch, indices)

    def length(self) -> int | None:
        """Return the length of the source."""
        return self.source.length()

    def exact_length(self) -> int | None:
        """Return the exact length of the source."""
        return self.source.exact_length()

    def version(self) -> Any:
        """Return the version of the source."""
        return self.source.version()

    def head(self) -> Iterator[RecordBatch]:
        """Yield the first chunks of the source."""
        return self.source.head()

    def notes(self) -> tuple[str, ...]:
        """Return the notes of the source."""
        return self.source.notes()

    def __repr__(self) -> str:
        """Print as the source."""
        return repr(self.source)
