"""Arrow columns as the text room reads and writes them: text, and ragged rows of numbers."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.checks import check_columns
from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema, source_rows
from mlxfp.core.errors import DataError, SchemaError
from mlxfp.core.row_names import row_name


def plain(column: pa.Array) -> pa.Array:
    """Decode dictionary-encoded, run-end-encoded and view columns: the same values in a plain layout."""
    kind = column.type
    if pa.types.is_string(kind):  # by far the most common type: the tests below take as long as a short text
        return column
    if pa.types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return plain(pc.run_end_decode(column))
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    if pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    return column


def name_row(chunk: RecordBatch, place: int) -> str:
    """Name the row at `place` of a chunk by its number in the source, or in the chunk where that is not known."""
    row = int(source_rows(chunk)[place])
    return f"row {row_name(row)}" if row >= 0 else f"row {place} of the chunk"


@frozen
class Ragged:
    """Rows of different lengths: row `i` is `values[starts[i] : starts[i] + lengths[i]]`."""

    values: NDArray[Any]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]


def read_ragged(column: pa.Array) -> Ragged:
    """See a list column without nulls as numpy arrays, without a copy where Arrow has none to make."""
    offsets = column.offsets.to_numpy().astype(np.int64, copy=False)
    return Ragged(column.values.to_numpy(zero_copy_only=False), offsets[:-1], np.diff(offsets))


def read_text(chunk: RecordBatch, column: str, stage: str) -> pa.Array:
    """Return a column of text, raising `DataError` for a missing text, naming its row."""
    texts = plain(chunk.column(column))
    if texts.null_count:
        place = int(np.argmax(texts.is_null().to_numpy(zero_copy_only=False)))
        raise DataError(
            f"{stage} needs text in column {column!r}, which is missing in {name_row(chunk, place)}. "
            "Leave such rows out with filter, or write something in its place with template or map."
        )
    return texts


def check_text_column(schema: Schema, column: str, stage: str) -> None:
    """Raise `SchemaError` unless the schema has the column and it holds text."""
    check_columns([column], [name for name in schema.names if name not in HIDDEN], stage)
    kind = schema.field(column).type
    inner = kind.value_type if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind) else kind
    if not (pa.types.is_string(inner) or pa.types.is_large_string(inner) or pa.types.is_string_view(inner)):
        raise SchemaError(f"{stage} needs text in column {column!r}, got {kind}. Write values as text with template first.")


def to_lists(values: NDArray[Any], lengths: NDArray[np.int64]) -> pa.ListArray:
    """Cut values, end to end, into a list column of rows with these lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    lengths.cumsum(out=offsets[1:])
    if offsets[-1] >= 2**31:
        raise DataError(f"A column of lists holds fewer than 2**31 values in a chunk, got {offsets[-1]}. Read fewer rows at a time.")
    inner = pa.array(values)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32))]  # ListArray.from_arrays takes three times as long, which shows for one row
    return pa.Array.from_buffers(pa.list_(inner.type), len(lengths), buffers, children=[inner])
