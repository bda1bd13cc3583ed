"""Token columns: lists of integers, read as numpy arrays."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import Ends, check_same_lengths, check_values, column_without_nulls, read_lists, row_of
from mlxfp.core.chunks import HIDDEN, Indices, RecordBatch, Schema, set_field
from mlxfp.core.row_names import row_at
from mlxfp.support.arrow_types import is_list_like
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import DataError, SchemaError

TOKENS = pa.list_(pa.int32())  # the type of every column of tokens that we make


def check_tokens(schema: Schema, column: str, stage: str) -> None:
    """Raise `SchemaError` unless the schema has the column and it holds lists of integers."""
    check_columns([column], [name for name in schema.names if name not in HIDDEN], stage)
    kind = schema.field(column).type
    if not (is_list_like(kind) and pa.types.is_integer(kind.value_type)):
        raise SchemaError(f"{stage} needs lists of integers in column {column!r}, got {kind}. Make ids of text with tokenize first.")


def aligned_schema(schema: Schema, column: str, aligned: Sequence[str], stage: str) -> Schema:
    """Return the schema with token ids in `column` and lists in the aligned columns; raise `SchemaError` where they hold other things."""
    check_tokens(schema, column, stage)
    check_columns(aligned, [name for name in schema.names if name not in HIDDEN], stage)
    for name in aligned:
        kind = schema.field(name).type
        if not is_list_like(kind):
            raise SchemaError(f"{stage} needs lists in column {name!r}, which is aligned with tokens, got {kind}. Choose other columns.")
        schema = set_field(schema, name, pa.list_(kind.value_type))
    return set_field(schema, column, TOKENS)


def lengths_of(chunk: RecordBatch, column: str, stage: str) -> Indices:
    """Count the tokens of each row: int64[N]. Raises `DataError` naming a row whose list is null."""
    ends = read_lists(column_without_nulls(chunk, column, stage))[1]
    return ends[1:] - ends[:-1]


def read_tokens(chunk: RecordBatch, column: str, stage: str) -> tuple[NDArray[np.int32], Ends]:
    """Return the tokens of all rows, end to end, int32[T], and where each row ends, int64[N + 1].

    Raises `DataError` naming the row of a list that is null, holds a null, or holds an id beyond 32 bits.
    """
    values, ends = read_lists(column_without_nulls(chunk, column, stage))
    check_values((values, ends), chunk, column, stage)
    ids = values.to_numpy(zero_copy_only=True)
    if not np.can_cast(ids.dtype, np.int32):
        wrong = (ids > np.iinfo(np.int32).max) | (ids < np.iinfo(np.int32).min)
        if wrong.any():
            place = int(np.argmax(wrong))
            raise DataError(
                f"{stage}: column {column!r} of {row_at(chunk, row_of(ends, place))} holds {ids[place]}, beyond 32-bit integers. "
                "Token ids are int32: check what made the column."
            )
    return ids.astype(np.int32, copy=False), ends


def read_aligned(chunk: RecordBatch, name: str, tokens: tuple[str, Ends], stage: str) -> pa.Array:
    """Return the values of an aligned column, end to end; `tokens` are the name and the ends of the column of tokens.

    Raises `DataError` naming a row whose list is null, or has another number of values than there are tokens.
    """
    values, ends = read_lists(column_without_nulls(chunk, name, stage))
    check_same_lengths(tokens, (name, ends), chunk, stage)
    return values
