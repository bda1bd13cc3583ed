"""Collators of columns whose rows have one size: their arrays are the values of many rows as they lie in memory."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any

import mlx.core as mx

from mlxfp.collators.columns import Arrays, Batch, Cutting, Numbers
from mlxfp.core.arrow.gathering import fixed_values
from mlxfp.core.chunks import Schema
from mlxfp.core.errors import MlxfpError
from mlxfp.core.examples import Examples

Values = Callable[[Any], Numbers]  # the values of rows of one column, of the rows in a slice or with these numbers
Stack = Callable[[Any], Batch | None]
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
        return repeat(None, len(ends) - 1) if stack is None else (stack(slice(first, stop)) for first, stop in pairwise(ends))


def stacking(arrays: Arrays, values: Callable[[str], Values | None], finished: Callable[[Batch], Batch]) -> Stack | None:
    """Return what makes a batch of rows, or None for a group that has to be collated by itself.

    `values` returns what reads a column; where it is None for one, as for a column with nulls, the result is None.
    """
    readers = {column: values(column) for column, _ in arrays.values()}
    if not readers or None in readers.values():
        return None
    parts = [(name, column, make) for name, (column, make) in arrays.items()]

    def batch(rows: Any) -> Batch | None:
        found = {column: read(rows) for column, read in readers.items()}  # type: ignore[misc]  # none of them is None
        try:
            return finished({name: mx.array(_view(make(found[column]))) for name, column, make in parts})
        except MlxfpError:
            return None

    return batch


def _sliced(examples: Examples, name: str) -> Values | None:
    values = fixed_values(examples.column(name))
    return None if values is None else values.__getitem__
