"""Rows of different lengths: columns of lists, read as numpy arrays and made of them.

There are two layouts, as in Arrow. End to end: the values of all rows, and `ends`, int64[N + 1], a 0 and then where each row ends.
Anywhere (Arrow's list view): a `Ragged`, whose rows may overlap, have any order, and leave values out.
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


@frozen(eq=False)
class Ragged:
    """Rows anywhere in an array: row `i` is `values[starts[i] : starts[i] + lengths[i]]`."""

    values: NDArray[Any]
    starts: Indices
    lengths: Indices


def ends_of(lengths: NDArray[np.integer[Any]]) -> Ends:
    """Return where rows of these lengths end when they stand end to end: int64[N + 1]."""
    ends = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=ends[1:])
    return ends


def places_within(lengths: Indices, dtype: Any = np.int64) -> NDArray[Any]:
    """Return the place of each value in its row: [sum of lengths], which has to be a number of this dtype."""
    ends = ends_of(lengths)
    places = np.arange(ends[-1], dtype=dtype)
    places -= np.repeat(ends[:-1].astype(dtype), lengths)
    return places


def row_of(ends: Ends, place: int) -> int:
    """Return the row of the value at `place` among the values of all rows."""
    return int(np.searchsorted(ends, place, side="right")) - 1


def read_lists(column: pa.Array) -> tuple[pa.Array, Ends]:
    """Return the values of all rows, end to end, and the ends. The column holds lists or tensors of any layout, and no null."""
    if is_list(column.type):
        ends = column.offsets.to_numpy().astype(np.int64)
        return column.values.slice(ends[0], ends[-1] - ends[0]), ends - ends[0]
    storage = column.storage if isinstance(column, pa.ExtensionArray) else column
    return storage.flatten(), np.arange(len(column) + 1) * storage.type.list_size


def to_lists(values: pa.Array | NDArray[Any], ends: Ends) -> pa.ListArray:
    """Make a column of lists of values that stand end to end. Raises `DataError` for 2**31 values or more."""
    if ends[-1] >= 2**31:
        raise DataError(f"A column of lists holds fewer than 2**31 values in a chunk, got {ends[-1]}. Read fewer rows at a time.")
    inner = values if isinstance(values, pa.Array) else number_array(values)
    buffers = [None, pa.py_buffer(ends.astype(np.int32))]  # ListArray.from_arrays takes three times as long, which shows for one row
    return pa.Array.from_buffers(pa.list_(inner.type), len(ends) - 1, buffers, children=[inner])


def column_without_nulls(chunk: RecordBatch, name: str, wanted_by: str, *, of: str = "chunk") -> pa.Array:
    """Return a column; raise `DataError` naming the first row that has no value. `of` says what the rows are a part of."""
    column = chunk.column(chunk.schema.get_field_index(name))
    if column.null_count:
        place = first_null(column)
        raise DataError(
            f"{wanted_by}: column {name!r} of {row_at(chunk, place, of=of)} is null. Fill it with map, or leave such rows out with filter."
        )
    return column


def check_values(found: tuple[pa.Array, Ends], chunk: RecordBatch, name: str, wanted_by: str, *, of: str = "chunk") -> None:
    """Raise `DataError` naming the first row whose list holds a null."""
    values, ends = found
    if values.null_count:
        place = row_of(ends, first_null(values))
        raise DataError(f"{wanted_by}: column {name!r} of {row_at(chunk, place, of=of)} holds a null in its list. Fill it with map.")


def check_same_lengths(first: tuple[str, Ends], second: tuple[str, Ends], chunk: RecordBatch, wanted_by: str, *, of: str = "chunk") -> None:
    """Raise `DataError` naming the first row whose lists in two columns, (name, ends) each, differ in length."""
    if not np.array_equal(first[1], second[1]):
        place = int(np.argmax(first[1] != second[1])) - 1
        found = " and ".join(f"{ends[place + 1] - ends[place]} in column {name!r}" for name, ends in (first, second))
        raise DataError(
            f"{wanted_by}: {row_at(chunk, place, of=of)} has lists of different lengths: {found}. Give both one value for each token."
        )


def first_null(column: pa.Array) -> int:
    """Return the place of the first null of a column that has one."""
    return int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
