"""Token columns: lists of integers, seen as numpy arrays and made of them."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.checks import check_columns
from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema, source_rows
from mlxfp.core.errors import DataError, SchemaError
from mlxfp.core.row_names import row_name

TOKENS = pa.list_(pa.int32())  # the type of every column of tokens that we make

Indices = NDArray[np.int64]


def check_tokens(schema: Schema, column: str, stage: str) -> None:
    """Raise `SchemaError` unless the schema has the column and it holds lists of integers."""
    check_columns([column], [name for name in schema.names if name not in HIDDEN], stage)
    kind = schema.field(column).type
    if not (is_listed(kind) and pa.types.is_integer(kind.value_type)):
        raise SchemaError(f"{stage} needs lists of integers in column {column!r}, got {kind}. Make ids of text with tokenize first.")


def is_listed(kind: pa.DataType) -> bool:
    """Whether a column of this type holds lists."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def lengths_of(chunk: RecordBatch, column: str, stage: str) -> Indices:
    """Count the tokens of each row: int64[N]. Raises `DataError` naming a row whose list is null."""
    lists = chunk.column(column)
    if lists.null_count:
        place = int(np.argmax(lists.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(
            f"{stage}: the list in column {column!r} of {name_row(chunk, place)} is missing. Leave such rows out with filter, or fill them."
        )
    lengths: Indices = np.diff(_plain(lists).offsets.to_numpy()).astype(np.int64, copy=False)
    return lengths


def read_tokens(chunk: RecordBatch, column: str, stage: str) -> tuple[NDArray[np.int32], Indices]:
    """Return the tokens of all rows, end to end, int32[T], and how many each row has, int64[N].

    Raises `DataError` naming the row of a list that is null, holds a null, or holds an id beyond 32 bits.
    """
    lengths = lengths_of(chunk, column, stage)
    values = flat_values(chunk.column(column))
    if values.null_count:
        place = int(np.argmax(values.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(f"{stage}: the list in column {column!r} of {_owner(chunk, lengths, place)} holds a null. Token ids are integers.")
    plain = values.to_numpy(zero_copy_only=True)
    if not np.can_cast(plain.dtype, np.int32):
        wrong = (plain > np.iinfo(np.int32).max) | (plain < np.iinfo(np.int32).min)
        if wrong.any():
            place = int(np.argmax(wrong))
            raise DataError(
                f"{stage}: column {column!r} of {_owner(chunk, lengths, place)} holds the id {plain[place]}, which is beyond 32 bits."
            )
    return plain.astype(np.int32, copy=False), lengths


def flat_values(lists: pa.Array) -> pa.Array:
    """Return the values of all lists, end to end; there is no null list among them."""
    plain = _plain(lists)
    first, last = plain.offsets[0].as_py(), plain.offsets[-1].as_py()
    return plain.values.slice(first, last - first)


def to_lists(values: Any, ends: Indices) -> pa.ListArray:
    """Cut values, an Arrow or numpy array, into a column of lists that end at `ends`, int64[N + 1] from 0 on."""
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values if isinstance(values, pa.Array) else pa.array(values))


def ends_of(lengths: Indices) -> Indices:
    """Return where rows of these lengths end when they stand end to end: int64[N + 1], with 0 in front.

    >>> ends_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def counted(lengths: Indices) -> Indices:
    """Count from 0 on within each row: int64[sum of lengths].

    >>> counted(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = ends_of(lengths)
    return np.arange(ends[-1]) - np.repeat(ends[:-1], lengths)


def name_row(chunk: RecordBatch, place: int) -> str:
    """Say which row of the source stands at `place` of a chunk."""
    row = int(source_rows(chunk)[place])
    return f"source row {row_name(row)}" if row >= 0 else f"row {place} of the chunk"


def _owner(chunk: RecordBatch, lengths: Indices, place: int) -> str:
    """Name the row that the token at `place` of all tokens belongs to."""
    return name_row(chunk, int(np.searchsorted(np.cumsum(lengths), place, side="right")))


def _plain(lists: pa.Array) -> pa.Array:
    return lists.cast(pa.list_(lists.type.value_type)) if pa.types.is_fixed_size_list(lists.type) else lists
