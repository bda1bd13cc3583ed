"""Functions that read token columns (lists of integers) as NumPy arrays."""

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

TOKENS = pa.list_(pa.int32())  # type of all token columns created by mlxfp


def check_tokens(schema: Schema, column: str, stage: str) -> None:
    """Raise `SchemaError` unless `column` exists and contains lists of integers."""
    check_columns([column], [name for name in schema.names if name not in HIDDEN], stage)
    kind = schema.field(column).type
    if not (is_list_like(kind) and pa.types.is_integer(kind.value_type)):
        raise SchemaError(f"{stage} needs lists of integers in column {column!r}, got {kind}. Use tokenize first to turn text into ids.")


def aligned_schema(schema: Schema, column: str, aligned: Sequence[str], stage: str) -> Schema:
    """Return the schema after a check. Raises `SchemaError` unless `column` holds token ids and the columns in `aligned` hold lists."""
    check_tokens(schema, column, stage)
    check_columns(aligned, [name for name in schema.names if name not in HIDDEN], stage)
    for name in aligned:
        kind = schema.field(name).type
        if not is_list_like(kind):
            raise SchemaError(f"{stage} needs lists with one value per token in column {name!r}, got {kind}. Remove {name!r} from aligned.")
        schema = set_field(schema, name, pa.list_(kind.value_type))
    return set_field(schema, column, TOKENS)


def prompt_masks(schema: Schema) -> list[str]:
    """Return `["prompt"]` if the column `prompt` contains lists of booleans. The stage `chat` adds such a column as prompt mask.

    Otherwise return an empty list.
    """
    masks = (field for field in schema if field.name == "prompt" and is_list_like(field.type))
    return [field.name for field in masks if pa.types.is_boolean(field.type.value_type)]


def lengths_of(chunk: RecordBatch, column: str, stage: str) -> Indices:
    """Return the number of tokens of each row: int64[N]. Raises `DataError` for a row with a null list."""
    ends = read_lists(column_without_nulls(chunk, column, stage))[1]
    return ends[1:] - ends[:-1]


def read_tokens(chunk: RecordBatch, column: str, stage: str) -> tuple[NDArray[np.int32], Ends]:
    """Return the concatenated tokens of all rows, int32[T], and the row bounds, int64[N + 1].

    Raises `DataError` for a null list, a null in a list, or an id outside int32. The error message names the row.
    """
    values, ends = read_lists(column_without_nulls(chunk, column, stage))
    check_values((values, ends), chunk, column, stage)
    ids = values.to_numpy(zero_copy_only=True)
    if not np.can_cast(ids.dtype, np.int32):
        wrong = (ids > np.iinfo(np.int32).max) | (ids < np.iinfo(np.int32).min)
        if wrong.any():
            index = int(np.argmax(wrong))
            raise DataError(
                f"{stage}: column {column!r} of {row_at(chunk, row_of(ends, index))} holds {ids[index]}, beyond 32-bit integers. "
                "Token ids are int32: check the source of the column."
            )
    return ids.astype(np.int32, copy=False), ends


def read_aligned(chunk: RecordBatch, name: str, tokens: tuple[str, Ends], stage: str) -> pa.Array:
    """Return the concatenated values of the column `name`, which has one value per token.

    The argument `tokens` contains the name of the token column and the offsets of its rows. Raises `DataError` for a row with a null list,
    or with more or fewer values than tokens.
    """
    values, ends = read_lists(column_without_nulls(chunk, name, stage))
    check_same_lengths(tokens, (name, ends), chunk, stage)
    return values
