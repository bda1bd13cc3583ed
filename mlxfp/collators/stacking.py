"""Collators that convert rows of equal size to arrays in a single step, and conversion of batches to Arrow tables.

In such a table, each batch is one row, and each array of the batch is a column of tensors.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.collators.columns import Arrays, Batch, Cutting, Numbers
from mlxfp.core.arrow.gathering import fixed_values
from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.examples import Examples
from mlxfp.support.errors import ArgumentError, MlxfpError

Values = Callable[[Any], Numbers]  # function that returns the values of a column, for a slice of rows or for row indices
_view: Any = memoryview  # MLX copies a memoryview in two thirds of the time that a NumPy array takes.


class Stacking(Cutting):
    """Collator that converts whole columns of numbers and tensors to arrays, without a loop over rows."""

    __slots__ = ()

    @abstractmethod
    def arrays(self, schema: Schema) -> Arrays | None: ...
    def batches(self, examples: Examples, ends: Sequence[int]) -> Iterator[Batch | None]:
        """Convert whole columns to arrays, and return one slice of the arrays as the batch of each group."""
        stack = stacking(self.arrays(examples.chunk.schema) or {}, lambda name: _sliced(examples, name), self.finished)
        if stack is None:
            return repeat(None, len(ends) - 1)
        return (batch for first, stop in pairwise(ends) for batch in stack(slice(first, stop), (0, stop - first)))


@frozen(eq=False)
class Stack:
    """Callable that converts rows to batches. For each array of a batch, a function in `arrays` converts the values of one column."""

    columns: dict[str, Values]
    arrays: Sequence[tuple[str, str, Callable[[Numbers], Numbers]]]
    finished: Callable[[Batch], Batch]

    def __call__(self, rows: Any, ends: Sequence[int]) -> Iterator[Batch | None]:
        """Yield a batch for each group of rows, or None for a group with an invalid value. A separate `collate` then raises the error."""
        try:
            values = {column: read(rows) for column, read in self.columns.items()}
            arrays = [(name, make(values[column])) for name, column, make in self.arrays]
        except MlxfpError:  # A group has an invalid value. Convert the groups one by one, to keep the batches of valid groups.
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
    """Return a function that converts rows to batches, or None if a column cannot be read as one array, for example because of nulls.

    `values(name)` returns a function that reads the values of the column `name`, or None for an unreadable column.
    """
    columns = {column: values(column) for column, _ in arrays.values()}
    if not columns or None in columns.values():
        return None
    return Stack(columns, [(name, column, make) for name, (column, make) in arrays.items()], finished)  # type: ignore[arg-type]  # no reader is None


def _sliced(examples: Examples, name: str) -> Values | None:
    values = fixed_values(examples.column(name))
    return None if values is None else values.__getitem__


# Metadata that marks an Arrow field as a column of tensors with different shapes (the Arrow type `variable_shape_tensor`).
_TENSOR = {b"ARROW:extension:name": b"arrow.variable_shape_tensor", b"ARROW:extension:metadata": b"{}"}
_DTYPE = b"mlx"  # metadata key for the MLX dtype of an array
# Maps MLX dtypes to dtypes of equal size for storage, because Arrow lacks bfloat16 and complex64, and packs 8 bools into a byte.
_STORED_AS = {mx.bool_: mx.uint8, mx.bfloat16: mx.uint16, mx.complex64: mx.uint64}
_SCALAR = pa.array([[]], pa.list_(pa.int32(), 0))  # shape of an array without axes


def to_chunk(batch: Batch, schema: Schema | None) -> RecordBatch:
    """Convert a batch to a table row: arrays become tensors (Arrow type `variable_shape_tensor`), tuples of strings become lists.

    Raises `ArgumentError` if the schema of the batch differs from `schema`, the schema of earlier batches.
    """
    fields, columns = zip(*(_column(name, value) for name, value in batch.items()), strict=True) if batch else ((), ())
    batch_schema = pa.schema(fields)
    if schema is not None and not batch_schema.equals(schema, check_metadata=True):
        raise ArgumentError(
            "All batches of a cache need the same names, dtypes and numbers of axes. "
            f"Got {_described(batch_schema)} after {_described(schema)}. "
            "Let the collator return arrays of the same names, dtypes and axes for every batch, or use load() instead of cache()."
        )
    return pa.RecordBatch.from_arrays(list(columns), schema=batch_schema)


def to_batch(chunk: RecordBatch) -> Batch:
    """Convert a chunk made by `to_chunk` back to a batch."""
    batch = {field.name: _value(field, getattr(chunk[at], "storage", chunk[at])) for at, field in enumerate(chunk.schema)}
    mx.eval(batch)  # Evaluate the arrays now, because MLX cannot evaluate lazy arrays in another thread.
    return batch


def _column(name: str, value: Any) -> tuple[pa.Field, pa.Array]:
    if isinstance(value, tuple):
        texts = pa.array([value], pa.list_(pa.string()))
        return pa.field(name, texts.type), texts
    dtype = _STORED_AS.get(value.dtype)
    stored = np.asarray(value if dtype is None else value.view(dtype)).reshape(-1)
    data = pa.ListArray.from_arrays(pa.array([0, stored.size], pa.int32()), pa.array(stored))
    shape = pa.FixedSizeListArray.from_arrays(pa.array(value.shape, pa.int32()), value.ndim) if value.ndim else _SCALAR
    column = pa.StructArray.from_arrays([data, shape], ["data", "shape"])
    return pa.field(name, column.type, metadata=_TENSOR | {_DTYPE: _name(value.dtype)}), column


def _value(field: pa.Field, column: pa.Array) -> Any:
    if field.metadata is None:
        return tuple(column[0].as_py())
    data, shape = column.field("data"), column.field("shape")
    array = mx.array(data.values.to_numpy(zero_copy_only=True).reshape(shape[0].as_py()))
    dtype = next((candidate for candidate in _STORED_AS if _name(candidate) == field.metadata[_DTYPE]), None)
    return array if dtype is None else array.view(dtype)


def _name(dtype: mx.Dtype) -> bytes:
    return str(dtype).removeprefix("mlx.core.").encode()


def _described(schema: Schema) -> str:
    def kind(field: pa.Field) -> str:
        if field.metadata is None:
            return "strings"
        return f"{field.metadata[_DTYPE].decode()} with {field.type.field('shape').type.list_size} axes"

    return ", ".join(f"{field.name}: {kind(field)}" for field in schema)
