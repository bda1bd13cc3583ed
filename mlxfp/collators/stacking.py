"""Collators of columns whose rows have one size: their arrays are the values of many rows as they lie in memory."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import mlx.core as mx

from mlxfp.collators.columns import Cutting, Numbers
from mlxfp.core.arrow.gathering import fixed_values
from mlxfp.core.chunks import Schema
from mlxfp.core.errors import MlxfpError
from mlxfp.core.examples import Examples

Batch = dict[str, Any]
Make = Callable[[Numbers], Numbers]
Arrays = Mapping[str, tuple[str, Make]]
Values = Callable[[Any], Numbers]  # the values of rows of one column, of the rows in a slice or with these numbers
Stack = Callable[[Any], Batch | None]
_view: Any = memoryview  # MLX takes two thirds of the time to copy from a buffer as from the array itself


class Stacking(Cutting):
    """A collator that can make arrays of whole columns of numbers and tensors, without looking at rows."""

    __slots__ = ()

    @abstractmethod
    def arrays(self, schema: Schema) -> Arrays | None:
        """Say for each array of a batch from which column it is made, and how from its `fixed_values`; None: not of such columns alone.

        Where the function raises an error of ours, the group is collated by itself, so that the error names the row.
        """

    def finished(self, batch: Batch) -> Batch:
        """Return the batch with what MLX computes of its arrays, evaluated: a lazy array must not leave the thread that made it."""
        return batch

    def batches(self, examples: Examples, ends: Sequence[int]) -> Iterator[Batch | None]:
        """Cut batches from columns that lie in memory."""
        stack = stacking(self.arrays(examples.chunk.schema) or {}, lambda name: _sliced(examples, name), self.finished)
        return (stack(slice(first, stop)) for first, stop in pairwise(ends))


def stacking(arrays: Arrays, values: Callable[[str], Values | None], finished: Callable[[Batch], Batch]) -> Stack:
    """Return what makes a batch of rows; it returns None where that is not possible. `values` reads a column, None for one with nulls."""
    parts = [(name, values(column), make) for name, (column, make) in arrays.items()]

    def batch(rows: Any) -> Batch | None:
        try:
            return finished({name: mx.array(_view(make(read(rows)))) for name, read, make in parts})  # type: ignore[misc]  # none of them is None
        except MlxfpError:
            return None

    return batch if parts and all(read for _, read, _ in parts) else lambda rows: None


def _sliced(examples: Examples, name: str) -> Values | None:
    values = fixed_values(examples.column(name))
    return None if values is None else values.__getitem__
