"""Reading columns of a group: whole Arrow columns where there is a view, the same from a list of mappings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.chunks import Example, from_rows
from mlxfp.core.errors import ArgumentTypeError, DataError, SchemaError
from mlxfp.core.examples import Examples

Numbers = NDArray[Any]


def as_view(examples: Sequence[Example]) -> Examples:
    """Return a view of a non-empty group: of an `Examples` as it is, of a list of mappings through Arrow."""
    if not len(examples):
        raise DataError("A collator was given an empty group. A batch needs at least one example.")
    if isinstance(examples, Examples):
        return examples
    for place, example in enumerate(examples):
        if not isinstance(example, Mapping):
            raise ArgumentTypeError(
                f"A collator takes mappings, got {type(example).__name__} at place {place} of the group: {example!r:.60}."
            )
    return Examples(from_rows(examples, None, range(len(examples))))


def column_of(examples: Examples, name: str, wanted_by: str) -> pa.Array:
    """Return a column without nulls, or say which example lacks a value."""
    if name not in examples.names:
        have = ", ".join(map(repr, examples.names)) or "none"
        raise SchemaError(f"{wanted_by} needs the column {name!r}, which is not there. Columns: {have}.")
    column = examples.column(name)
    if column.null_count:
        place = column.is_null().to_pylist().index(True)
        raise DataError(
            f"{wanted_by}: column {name!r} of {where(examples, place)} is null. Fill it, or filter such rows out, before batch."
        )
    return column


def where(examples: Examples, place: int) -> str:
    """Name an example of a group for a message."""
    row = int(examples.rows[place])
    return f"example {place} of the group" + (f" (source row {row})" if row >= 0 else "")


def lists_of(examples: Examples, name: str, wanted_by: str) -> tuple[Numbers, NDArray[np.int64]]:
    """Return a column of integer lists as (values int32[sum of lengths], ends int64[B + 1])."""
    column = column_of(examples, name, wanted_by)
    if pa.types.is_null(getattr(column.type, "value_type", None) or pa.int32()):  # lists of a group that are all empty
        column = column.cast(pa.list_(pa.int32()))
    listed = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not (listed and pa.types.is_integer(column.type.value_type)):
        raise SchemaError(f"{wanted_by}: column {name!r} must hold lists of integers, got {column.type}. Put tokenize before batch.")
    ends = column.offsets.to_numpy().astype(np.int64)
    values = column.values.slice(ends[0], ends[-1] - ends[0])
    if values.null_count:
        place = int(np.searchsorted(ends - ends[0], values.is_null().to_pylist().index(True), side="right")) - 1
        raise DataError(f"{wanted_by}: the list in column {name!r} of {where(examples, place)} holds a null. Token ids are integers.")
    plain = values.to_numpy(zero_copy_only=False)
    if plain.dtype != np.int32 and len(plain) and (plain.min() < -(2**31) or plain.max() >= 2**31):
        raise DataError(f"{wanted_by}: column {name!r} holds ids beyond 32 bits: {plain.min()} to {plain.max()}.")
    return plain.astype(np.int32, copy=False), ends - ends[0]


def numbers_of(examples: Examples, name: str, wanted_by: str) -> Numbers:
    """Return a column of numbers or fixed-shape tensors as an array [B] or [B, ...], 64-bit numbers made 32-bit."""
    column = column_of(examples, name, wanted_by)
    if isinstance(column.type, pa.FixedShapeTensorType):
        plain = column.to_numpy_ndarray()
    elif pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        plain = column.to_numpy(zero_copy_only=False)
    else:
        raise SchemaError(f"{wanted_by}: column {name!r} must hold numbers, got {column.type}.")
    return narrow(plain, name, wanted_by)


def narrow(plain: Numbers, name: str, wanted_by: str) -> Numbers:
    """Make 64-bit numbers 32-bit, which is what MLX computes in; raise `DataError` for an integer that does not fit."""
    if plain.dtype.kind in "iu" and plain.dtype.itemsize == 8:
        if len(plain) and (plain.min() < -(2**31) or plain.max() >= 2**31):
            raise DataError(f"{wanted_by}: column {name!r} holds integers beyond 32 bits: {plain.min()} to {plain.max()}.")
        return plain.astype(np.int32)
    return plain.astype(np.float32) if plain.dtype == np.float64 else plain
