"""Stages that combine several examples into a group, and split groups into examples.

A grouping stage returns tables with the bounds of several groups. `collate` can therefore process many groups in one call.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import attrs
from attrs import frozen
from toolz import identity

from mlxfp.core.chunks import Example, RecordBatch, Schema, concat_chunks
from mlxfp.core.datasets import Dataset
from mlxfp.core.examples import Examples
from mlxfp.core.nodes import Share, label
from mlxfp.core.stages import Groups, Stage, State, Traits
from mlxfp.data.lengths.index_plans import Ungrouped, is_planned
from mlxfp.data.lengths.shape_planning import group_sizes
from mlxfp.data.lengths.tokens import check_tokens
from mlxfp.support.checks import check_positive, explain_call

Cuts = tuple[RecordBatch, Sequence[int]]  # table with the rows of several groups, and the group bounds: 0 and the end row of each group


@explain_call
def batch(size: int, *, drop_last: bool = False) -> Callable[[Dataset[Example]], Dataset[Examples]]:
    """Group consecutive examples into groups of `size`.

    If the number of examples is no multiple of `size`, the last group is shorter. `drop_last=True` drops a shorter last group. Iteration
    yields `Examples`, a sequence of mappings over one record batch.

    >>> import mlxfp as fp
    >>> [len(group) for group in fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.batch(2))]
    [2, 2, 1]

    See also: `unbatch` for the inverse.
    """
    check_positive(size=size)
    return _Batch(size, drop_last)


@explain_call
def unbatch() -> Callable[[Dataset[Examples]], Dataset[Example]]:
    """Split groups into their examples, in order. `unbatch` is the inverse of `batch`.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), fp.batch(2), fp.unbatch()))
    [{'x': 1}, {'x': 2}]
    """
    return _Unbatch()


class Grouping(Stage):
    """Stage that groups rows, optionally by the lengths of the lists in `column`."""

    __slots__ = ()
    emits = "groups"
    column: str | None = None

    @property
    def traits(self) -> Traits:
        """Properties that the planner needs: the column of tokens, the number of groups and the group sizes."""
        columns = () if self.column is None else (self.column,)
        return Traits(columns_read=columns, length=self.count, groups=self.groups, share=self.share, notes=self.notes)

    def count(self, rows: int) -> int | None:
        """Return the number of groups for `rows` rows, or None if the number depends on the lengths of the rows."""
        return None

    @abstractmethod
    def groups(self, count: int | None) -> tuple[Groups, ...]:
        """Return the possible group sizes and row lengths for a dataset of `count` rows. `count=None` means an unknown number of rows."""

    @property
    def share(self) -> Share | None:
        return None

    def notes(self) -> tuple[str, ...]:
        """Return a note for `explain` on the number of rows in memory."""
        return ()

    def schema(self, schema: Schema) -> Schema:
        """Raise `SchemaError` unless the column contains tokens."""
        if self.column is not None:
            check_tokens(schema, self.column, label(type(self)))
        return schema

    def start(self, epoch: int) -> Any:
        return None

    def missing(self, rest: Any) -> int | None:
        """Return how many rows are needed to complete the unfinished group in the state `rest`.

        Returns None if the number depends on the lengths of the rows.
        """
        return None

    @abstractmethod
    def cut(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[Cuts]]:
        """Divide the rows of a chunk into groups. Return the new state, and the groups as pairs (table, group bounds in the table)."""

    @abstractmethod
    def cut_last(self, state: State) -> Iterable[Cuts]:
        """Divide the rows that remain at the end of the data into groups. Return the groups as pairs (table, group bounds in the table)."""

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        """Group the rows of a chunk."""
        state, cuts = self.cut(state, chunk)
        return state, _slices(cuts)

    def finish(self, state: Any) -> Iterable[RecordBatch]:
        """Group the remaining rows."""
        return _slices(self.cut_last(state))


def after(rest: RecordBatch | None, chunk: RecordBatch) -> RecordBatch:
    """Append `chunk` to `rest`, the rows of an unfinished group. Keep only columns that are in both."""
    if rest is None:
        return chunk
    if rest.num_columns != chunk.num_columns:
        common = [name for name in chunk.schema.names if rest.schema.get_field_index(name) >= 0]
        rest, chunk = rest.select(common), chunk.select(common)
    return concat_chunks([rest, chunk])


def whole(rows: RecordBatch) -> Cuts:
    """Return all rows as one group."""
    return rows, (0, rows.num_rows)


def _slices(cuts: Iterable[Cuts]) -> Iterator[RecordBatch]:
    return (rows.slice(first, stop - first) for rows, ends in cuts for first, stop in pairwise(ends))


@frozen(repr=False)
class _Batch(Grouping):
    """Stage that groups a fixed number of rows. The state contains the rows of an incomplete group."""

    size: int
    drop_last: bool = False

    @property
    def share(self) -> Share:
        return Share(0, self.size, attrs.evolve(self, size=1))

    def cut(self, rest: RecordBatch | None, chunk: RecordBatch) -> tuple[RecordBatch | None, Iterable[Cuts]]:
        rows, waiting = chunk.num_rows, 0 if rest is None else rest.num_rows
        if not rows:
            return rest, ()
        if waiting + rows < self.size:
            return after(rest, chunk), ()
        start = self.size - waiting if waiting else 0  # Only the group across the chunk boundary is copied. Other groups are slices.
        stop = start + (rows - start) // self.size * self.size
        cuts = [whole(after(rest, chunk.slice(0, start)))] if waiting else []
        if stop > start:
            cuts.append((chunk.slice(start, stop - start), range(0, stop - start + 1, self.size)))
        return (chunk.slice(stop) if stop < rows else None), cuts

    def cut_last(self, rest: RecordBatch | None) -> Iterable[Cuts]:
        return () if rest is None or self.drop_last else (whole(rest),)

    def missing(self, rest: RecordBatch | None) -> int:
        return self.size if rest is None else self.size - rest.num_rows

    def count(self, rows: int) -> int:
        return rows // self.size if self.drop_last else -(-rows // self.size)

    def groups(self, count: int | None) -> tuple[Groups, ...]:
        return (Groups(group_sizes(self.size, count, drop_last=self.drop_last)),)


@frozen(repr=False)
class _Unbatch(Stage):
    accepts = frozenset({"groups"})
    emits = "examples"

    def __call__(self, dataset: Any) -> Any:
        """Return a dataset of the rows without groups. Random access to rows stays possible if all groups are planned from row lengths."""
        return Dataset(Ungrouped(dataset)) if isinstance(dataset, Dataset) and is_planned(dataset) else super().__call__(dataset)

    traits = Traits(longest_row=identity)

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return state, (chunk,)
