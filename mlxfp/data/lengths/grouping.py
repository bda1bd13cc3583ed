"""The base of grouping stages: they state where to cut rows, so that the stage after them can work on many groups at once."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from mlxfp.core.chunks import RecordBatch, Schema, concat_chunks
from mlxfp.core.nodes import label
from mlxfp.core.stages import Stage, State
from mlxfp.data.lengths.tokens import check_tokens

Cuts = tuple[RecordBatch, Sequence[int]]  # rows, and a 0 followed by the end of each group


class Grouping(Stage):
    """A stage that makes groups of rows, by the lengths in `column` if it has one."""

    __slots__ = ()
    emits = "groups"
    column: str | None = None

    def columns_read(self) -> tuple[str, ...]:
        """Name the column of tokens."""
        return () if self.column is None else (self.column,)

    def schema(self, schema: Schema) -> Schema:
        """Raise `SchemaError` unless the column holds tokens."""
        if self.column is not None:
            check_tokens(schema, self.column, label(type(self)))
        return schema

    def start(self, epoch: int) -> Any:
        """Begin with no rows held back."""
        return None

    @abstractmethod
    def cut(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[Cuts]]:
        """Do what `step` does, but return the ends of the groups instead of slices."""

    @abstractmethod
    def cut_last(self, state: State) -> Iterable[Cuts]:
        """Do what `finish` does, but return the ends of the groups instead of slices."""

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        """Make groups."""
        state, cuts = self.cut(state, chunk)
        return state, _slices(cuts)

    def finish(self, state: Any) -> Iterable[RecordBatch]:
        """Make groups of what is left."""
        return _slices(self.cut_last(state))


def after(rest: RecordBatch | None, chunk: RecordBatch) -> RecordBatch:
    """Append a chunk to the rows that are left over. The result has the columns that both have, as a resumed run may read fewer."""
    if rest is None:
        return chunk
    if rest.num_columns != chunk.num_columns:
        both = [name for name in chunk.schema.names if name in rest.schema.names]
        rest, chunk = rest.select(both), chunk.select(both)
    return concat_chunks([rest, chunk])


def whole(rows: RecordBatch) -> Cuts:
    """Make one group of all rows."""
    return rows, (0, rows.num_rows)


def _slices(cuts: Iterable[Cuts]) -> Iterator[RecordBatch]:
    return (rows.slice(first, stop - first) for rows, ends in cuts for first, stop in pairwise(ends))
