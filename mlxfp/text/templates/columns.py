"""Columns of text, as templates and tokenizers read them."""

import pyarrow as pa

from mlxfp.core.arrow.ragged import first_null
from mlxfp.core.arrow.types import decoded, is_text, value_type
from mlxfp.core.checks import check_columns
from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema
from mlxfp.core.errors import DataError, SchemaError
from mlxfp.core.row_names import row_at


def read_text(chunk: RecordBatch, column: str, stage: str) -> pa.Array:
    """Return a column of text, raising `DataError` for a missing text, naming its row."""
    texts = decoded(chunk.column(column))
    if texts.null_count:
        raise DataError(
            f"{stage} needs text in column {column!r}, which is missing in {row_at(chunk, first_null(texts))}. "
            "Leave such rows out with filter, or write something in its place with template or map."
        )
    return texts


def check_text_column(schema: Schema, column: str, stage: str) -> None:
    """Raise `SchemaError` unless the schema has the column and it holds text."""
    check_columns([column], [name for name in schema.names if name not in HIDDEN], stage)
    kind = schema.field(column).type
    if not is_text(value_type(kind)):
        raise SchemaError(f"{stage} needs text in column {column!r}, got {kind}. Write values as text with template first.")
