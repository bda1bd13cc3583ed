"""Storage of batches in Arrow tables: a row per batch, and a column of tensors of any shape per array."""

from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa

from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.stages import Batch
from mlxfp.support.errors import ArgumentError

# Metadata from the Arrow specification.
_TENSOR = {b"ARROW:extension:name": b"arrow.variable_shape_tensor", b"ARROW:extension:metadata": b"{}"}
_DTYPE = b"mlx"  # Metadata key of the MLX dtype. Arrow has no bfloat16 and no complex numbers, and packs eight booleans into a byte.
_STORED_AS = {mx.bool_: mx.uint8, mx.bfloat16: mx.uint16, mx.complex64: mx.uint64}
_SCALAR = pa.array([[]], pa.list_(pa.int32(), 0))  # shape of an array without axes


def to_chunk(batch: Batch, schema: Schema | None) -> RecordBatch:
    """Return a batch as a row: a tensor per array, in the Arrow layout `variable_shape_tensor`, and a list of strings per tuple.

    Raises `ArgumentError` if the schema differs from `schema`, the schema of earlier batches.
    """
    fields, columns = zip(*(_column(name, value) for name, value in batch.items()), strict=True) if batch else ((), ())
    batch_schema = pa.schema(fields)
    if schema is not None and not batch_schema.equals(schema, check_metadata=True):
        raise ArgumentError(
            "All batches of a cache need the same names, dtypes and numbers of axes. "
            f"Got {_described(batch_schema)} after {_described(schema)}. Return the same arrays for every group, or use load()."
        )
    return pa.RecordBatch.from_arrays(list(columns), schema=batch_schema)


def to_batch(chunk: RecordBatch) -> Batch:
    """Return the batch stored in a row."""
    batch = {field.name: _value(field, getattr(chunk[at], "storage", chunk[at])) for at, field in enumerate(chunk.schema)}
    mx.eval(batch)  # Lazy arrays belong to their thread, so they are evaluated here.
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
