"""Collators of columns whose rows have one size: their arrays are the values of many rows as they lie in memory."""

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

Values = Callable[[Any], Numbers]  # the values of rows of one column, of the rows in a slice or with these numbers
_view: Any = memoryview  # MLX takes two thirds of the time to copy from a buffer as from the array itself


class Stacking(Cutting):
    """A collator that can make arrays of whole columns of numbers and tensors, without looking at rows."""

    __slots__ = ()

    @abstractmethod
    def arrays(self, schema: Schema) -> Arrays | None:
        """Say so from the types of columns alone: `fixed_values` are then what is read."""

    def batches(self, examples: Examples, ends: Sequence[int]) -> Iterator[Batch | None]:
        """Cut batches from columns that lie in memory."""
        stack = stacking(self.arrays(examples.chunk.schema) or {}, lambda name: _sliced(examples, name), self.finished)
        if stack is None:
            return repeat(None, len(ends) - 1)
        return (batch for first, stop in pairwise(ends) for batch in stack(slice(first, stop), (0, stop - first)))


@frozen(eq=False)
class Stack:
    """Makes batches of rows; made by `stacking`. Of columns, it has what reads one; of arrays, the name, the column and what makes it."""

    columns: dict[str, Values]
    arrays: Sequence[tuple[str, str, Callable[[Numbers], Numbers]]]
    finished: Callable[[Batch], Batch]

    def __call__(self, rows: Any, ends: Sequence[int]) -> Iterator[Batch | None]:
        """Yield a batch for each group of the rows, which are read together; None for a group that has to be collated by itself."""
        try:
            found = {column: read(rows) for column, read in self.columns.items()}
            made = [(name, make(found[column])) for name, column, make in self.arrays]
        except MlxfpError:  # of one of the groups
            for first, stop in pairwise(ends):
                yield from (None,) if len(ends) == 2 else self(rows[first:stop], (0, stop - first))
            return
        for first, stop in pairwise(ends):
            try:
                batch: Batch | None = self.finished({name: mx.array(_view(numbers[first:stop])) for name, numbers in made})
            except MlxfpError:
                batch = None
            yield batch


def stacking(arrays: Arrays, values: Callable[[str], Values | None], finished: Callable[[Batch], Batch]) -> Stack | None:
    """Return what makes batches of rows.

    `values` returns what reads a column; where it is None for one, as for a column with nulls, the result is None.
    """
    columns = {column: values(column) for column, _ in arrays.values()}
    if not columns or None in columns.values():
        return None
    return Stack(columns, [(name, column, make) for name, (column, make) in arrays.items()], finished)  # type: ignore[arg-type]  # none is None


def _sliced(examples: Examples, name: str) -> Values | None:
    values = fixed_values(examples.column(name))
    return None if values is None else values.__getitem__
