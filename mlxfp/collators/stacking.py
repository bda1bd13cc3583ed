"""Collators for columns with rows of equal size. Values of many rows are contiguous in memory and become arrays at once."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any

import mlx.core as mx
from attrs import frozen

from mlxfp.collators.columns import Arrays, Batch, Cutting, Numbers
from mlxfp.core.arrow.gathering import fixed_values
from mlxfp.core.chunks import Schema
from mlxfp.core.examples import Examples
from mlxfp.support.errors import MlxfpError

Values = Callable[[Any], Numbers]  # returns the values of a column, for a slice of rows or for row indices
_view: Any = memoryview  # MLX copies from a buffer in two thirds of the time of an array.


class Stacking(Cutting):
    """Collator that converts whole columns of numbers and tensors to arrays, without a loop over rows."""

    __slots__ = ()

    @abstractmethod
    def arrays(self, schema: Schema) -> Arrays | None:
        """Return the source column and a function for each array of a batch, determined by the column types alone."""

    def batches(self, examples: Examples, ends: Sequence[int]) -> Iterator[Batch | None]:
        """Cut batches from columns in memory."""
        stack = stacking(self.arrays(examples.chunk.schema) or {}, lambda name: _sliced(examples, name), self.finished)
        if stack is None:
            return repeat(None, len(ends) - 1)
        return (batch for first, stop in pairwise(ends) for batch in stack(slice(first, stop), (0, stop - first)))


@frozen(eq=False)
class Stack:
    """Function from rows to batches, created by `stacking`. Contains a reader for each column and a function for each array."""

    columns: dict[str, Values]
    arrays: Sequence[tuple[str, str, Callable[[Numbers], Numbers]]]
    finished: Callable[[Batch], Batch]

    def __call__(self, rows: Any, ends: Sequence[int]) -> Iterator[Batch | None]:
        """Yield a batch for each group of the rows, or None for a group that must be collated separately. All groups are read at once."""
        try:
            values = {column: read(rows) for column, read in self.columns.items()}
            arrays = [(name, make(values[column])) for name, column, make in self.arrays]
        except MlxfpError:  # The error belongs to a single group, so each group is tried separately.
            for first, stop in pairwise(ends):
                yield from (None,) if len(ends) == 2 else self(rows[first:stop], (0, stop - first))
            return
        for first, stop in pairwise(ends):
            try:
                batch: Batch | None = self.finished({name: mx.array(_view(numbers[first:stop])) for name, numbers in arrays})
            except MlxfpError:
                batch = None
            yield batch


def stacking(arrays: Arrays, values: Callable[[str], Values | None], finished: Callable[[Batch], Batch]) -> Stack | None:
    """Return a function from rows to batches.

    `values` returns a reader for a column. If a reader is None, for example for a column with nulls, the result is None.
    """
    columns = {column: values(column) for column, _ in arrays.values()}
    if not columns or None in columns.values():
        return None
    return Stack(columns, [(name, column, make) for name, (column, make) in arrays.items()], finished)  # type: ignore[arg-type]  # no reader is None


def _sliced(examples: Examples, name: str) -> Values | None:
    values = fixed_values(examples.column(name))
    return None if values is None else values.__getitem__
