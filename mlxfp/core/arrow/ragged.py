"""Rows of different lengths: conversion between list columns and numpy arrays.

Two layouts exist, as in Arrow:

- Contiguous: the values of all rows end to end, and the array `ends` of row offsets, int64[N + 1]: 0, then the end of each row.
- List view: an object of the class `Ragged`. The rows may overlap, have any order, and skip values.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.light_arrays import number_array
from mlxfp.core.chunks import Indices, RecordBatch
from mlxfp.core.row_names import row_at
from mlxfp.support.arrow_types import is_list
from mlxfp.support.errors import DataError

Ends = Indices
_REMEDY = "Call fp.map to replace the null, or fp.filter to remove the row."


@frozen(eq=False)
class Ragged:
    """Rows at any position of an array: row `i` is `values[starts[i] : starts[i] + lengths[i]]`."""

    values: NDArray[Any]
    starts: Indices
    lengths: Indices


def ends_of(lengths: NDArray[np.integer[Any]]) -> Ends:
    """Return the offsets of concatenated rows, int64[N + 1], for the given row lengths: 0, followed by the end of each row."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=ends[1:])
    return ends


def places_within(lengths: Indices, dtype: Any = np.int64) -> NDArray[Any]:
    """Return the index of each value in its row, for rows of the given lengths. The sum of the lengths must fit `dtype`."""
    ends = ends_of(lengths)
    positions = np.arange(ends[-1], dtype=dtype)
    positions -= np.repeat(ends[:-1].astype(dtype), lengths)
    return positions


def row_of(ends: Ends, index: int) -> int:
    """Return the index of the row that contains the value at `index`. The values of all rows are counted from 0."""
    return int(np.searchsorted(ends, index, side="right")) - 1


def read_lists(column: pa.Array) -> tuple[pa.Array, Ends]:
    """Return the values of all rows in one array, and the row offsets `ends`, int64[N + 1]. Row `i` is `values[ends[i] : ends[i + 1]]`.

    The column holds lists or tensors in any Arrow layout, without nulls.
    """
    if is_list(column.type):
        ends = column.offsets.to_numpy().astype(np.int64)
        return column.values.slice(ends[0], ends[-1] - ends[0]), ends - ends[0]
    storage = column.storage if isinstance(column, pa.ExtensionArray) else column
    return storage.flatten(), np.arange(len(column) + 1) * storage.type.list_size


def to_lists(values: pa.Array | NDArray[Any], ends: Ends) -> pa.ListArray:
    """Return a list column. Row `i` contains `values[ends[i]:ends[i + 1]]`. Raises `DataError` for 2**31 or more values."""
    if ends[-1] >= 2**31:
        raise DataError(f"A column of lists can hold fewer than 2**31 values in a chunk, got {ends[-1]}. Read fewer rows at a time.")
    inner = values if isinstance(values, pa.Array) else number_array(values)
    buffers = [None, pa.py_buffer(ends.astype(np.int32))]  # pa.ListArray.from_arrays takes three times as long as from_buffers
    return pa.Array.from_buffers(pa.list_(inner.type), len(ends) - 1, buffers, children=[inner])


def column_without_nulls(chunk: RecordBatch, name: str, wanted_by: str, *, of: str = "chunk", remedy: str = _REMEDY) -> pa.Array:
    """Return a column without nulls. Raises `DataError` with the number of the first null row.

    If the source row is unknown, the message says "row 2 of the chunk". The argument `of` replaces the word "chunk".
    `remedy` is the last sentence of the message.
    """
    column = chunk.column(chunk.schema.get_field_index(name))
    if column.null_count:
        row = first_null(column)
        raise DataError(f"{wanted_by}: column {name!r} of {row_at(chunk, row, of=of)} is null. {remedy}")
    return column


def check_values(lists: tuple[pa.Array, Ends], chunk: RecordBatch, name: str, wanted_by: str, *, of: str = "chunk") -> None:
    """Raise `DataError` with the first row whose list contains a null."""
    values, ends = lists
    if values.null_count:
        row = row_of(ends, first_null(values))
        raise DataError(
            f"{wanted_by}: column {name!r} of {row_at(chunk, row, of=of)} holds a null in its list. Call fp.map to replace the null."
        )


def check_same_lengths(first: tuple[str, Ends], second: tuple[str, Ends], chunk: RecordBatch, wanted_by: str, *, of: str = "chunk") -> None:
    """Raise `DataError` for the first row whose lists in two columns have different lengths.

    The arguments `first` and `second` are pairs of a column name and the row offsets of the column, int64[N + 1].
    """
    if not np.array_equal(first[1], second[1]):
        row = int(np.argmax(first[1] != second[1])) - 1
        lengths = " and ".join(f"{ends[row + 1] - ends[row]} in column {name!r}" for name, ends in (first, second))
        raise DataError(
            f"{wanted_by}: {row_at(chunk, row, of=of)} has lists of different lengths: {lengths}. Both columns need one value per token."
        )


def first_null(column: pa.Array) -> int:
    """Return the index of the first null. The column must have a null."""
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
