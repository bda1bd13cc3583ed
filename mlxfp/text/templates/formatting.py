"""Functions that read text columns, and convert other columns to strings exactly like Python's `format`.

Each distinct value of a column is formatted only once. Arrow formats integers and strings in fields without a format specification, such
as `{age}`. Python formats all other values, because Arrow writes floats (1e16), booleans and times differently.
"""

import math
from typing import Any

import numpy as np
import pyarrow as pa

from mlxfp.core.arrow.ragged import first_null
from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema, to_rows
from mlxfp.core.row_names import row_at
from mlxfp.support.arrow_types import decoded, is_list_like, is_text, value_type
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.text.templates.random_templates import Field

_MISFITS = (ValueError, TypeError, OverflowError)


def read_text(chunk: RecordBatch, column: str, stage: str) -> pa.Array:
    """Return a text column. Raises `DataError` for a missing text, and names the row in the message."""
    texts = decoded(chunk.column(column))
    if texts.null_count:
        raise DataError(
            f"{stage} needs a text in each row of column {column!r}, but the text of {row_at(chunk, first_null(texts))} is missing. "
            f"To fill missing texts, put this stage before: fp.map(lambda row: {{**row, {column!r}: row[{column!r}] or ''}})."
        )
    return texts


def check_text_column(schema: Schema, column: str, stage: str, argument: str = "") -> None:
    """Raise `SchemaError` if a column is missing or contains no text. `argument` is the name of the argument that names another column."""
    names = [name for name in schema.names if name not in HIDDEN]
    texts = [name for name in names if is_text(value_type(schema.field(name).type))]
    check_columns(
        [column], names, stage, remedy=f" To read another column, write for example {argument}={texts[0]!r}." if argument and texts else ""
    )
    kind = schema.field(column).type
    if not is_text(value_type(kind)):
        raise SchemaError(f"{stage} needs text in column {column!r}, got {kind}. Convert values to text with template first.")


def is_missing(value: object) -> bool:
    """Return True for None and NaN."""
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def format_column(chunk: RecordBatch, field: Field) -> pa.StringArray:
    """Format each value of a column. Missing values (null, NaN) become null.

    Raises `DataError` with field and row for a value that does not fit the format of the field.
    """
    column = decoded(chunk.column(field.name))
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    plain = ("", "s") if is_text(kind) else ("", "d") if pa.types.is_integer(kind) else ()
    if field.conversion is None and field.spec in plain:  # Arrow formats the column
        return column.cast(pa.string())
    try:
        return _by_distinct_value(column, field) if can_encode(kind) else _by_row(chunk, field)
    except _MISFITS:
        _raise_misfit(chunk, field)
        raise


def check_format(kind: pa.DataType, field: Field, pattern: str) -> None:
    """Raise `SchemaError` if the format of the field cannot be applied to any value of this type."""
    sample = _sample(value_type(kind))
    if sample is None:
        return
    try:
        field.write(sample)
    except _MISFITS as error:
        raise SchemaError(
            f"The field {field} does not fit the column {field.name!r} of type {kind}: {error}. "
            f"Change the format in template({pattern!r}), or the type of the column."
        ) from error


def can_encode(kind: pa.DataType) -> bool:
    """Return True if Arrow can dictionary-encode columns of this type."""
    plain_kinds = (is_text, pa.types.is_primitive, pa.types.is_decimal128, pa.types.is_decimal256, pa.types.is_binary)
    return any(test(kind) for test in plain_kinds) and not pa.types.is_float16(kind)  # Arrow cannot dictionary-encode float16


def _by_distinct_value(column: pa.Array, field: Field) -> pa.StringArray:
    encoded = column.dictionary_encode()  # Arrow compares the bits of floats, so 0.0 and -0.0 are two distinct values.
    values = encoded.dictionary
    nan = np.isnan(values.to_numpy()) if pa.types.is_floating(values.type) else None
    return pa.array(list(map(field.write, values.to_pylist())), pa.string(), mask=nan).take(encoded.indices)


def _by_row(chunk: RecordBatch, field: Field) -> pa.StringArray:
    values = [row[field.name] for row in to_rows(chunk.select([field.name]))]
    return pa.array([None if is_missing(value) else field.write(value) for value in values], pa.string())


def _raise_misfit(chunk: RecordBatch, field: Field) -> None:
    """Raise `DataError` for the first row whose value does not fit the format of the field."""
    for index in range(chunk.num_rows):
        try:
            _by_row(chunk.slice(index, 1), field)
        except _MISFITS as error:
            # Arrow formats the value, because Python may have no type for it.
            value = " ".join(str(chunk.column(field.name).slice(index, 1)).split())
            raise DataError(
                f"The field {field} does not fit the value {value:.80} of {row_at(chunk, index)}: {error}. Change the format of the field."
            ) from error


def _sample(kind: pa.DataType) -> Any:
    """Return a sample value of a type as a Python object, or None if no sample is known."""
    if is_text(kind):
        return ""
    if is_list_like(kind):
        return []
    if pa.types.is_struct(kind):
        return {}
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(64))])[0].as_py()
    return None
