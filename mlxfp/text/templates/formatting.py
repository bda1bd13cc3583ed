"""Columns to strings, exactly as Python's `format` writes each value.

The work is per distinct value: a column is dictionary-encoded, each of its values is formatted once, and the strings are gathered. Integers
and strings without a format are written by Arrow, as it writes them like Python. It writes floats (1e16), booleans and times differently.
"""

import math
from typing import Any

import numpy as np
import pyarrow as pa

from mlxfp.core.arrow.types import decoded, is_list_like, is_text, value_type
from mlxfp.core.chunks import RecordBatch, to_rows
from mlxfp.core.errors import DataError, SchemaError
from mlxfp.core.row_names import row_at
from mlxfp.text.templates.random_templates import Field

_MISFITS = (ValueError, TypeError, OverflowError)


def is_missing(value: object) -> bool:
    """Whether a value is None or NaN."""
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def format_column(chunk: RecordBatch, field: Field) -> pa.StringArray:
    """Write every value of a column; missing ones (null, NaN) become null.

    Raises `DataError` for a value that the field's format does not fit, naming field and row.
    """
    column = decoded(chunk.column(field.name))
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if _arrow_writes(kind, field):
        return column.cast(pa.string())
    try:
        return _by_distinct_value(column, field) if can_encode(kind) else _by_row(chunk, field)
    except _MISFITS as error:
        raise _misfit(chunk, field) from error


def check_format(kind: pa.DataType, field: Field, pattern: str) -> None:
    """Raise `SchemaError` if no value of this type can take the field's format."""
    sample = _sample(value_type(kind))
    if sample is None:
        return
    try:
        field.write(sample)
    except _MISFITS as error:
        raise SchemaError(
            f"The field {field} does not fit the column {field.name!r} of type {kind}: {error}. "
            f"Change the format in template({pattern!r}), or the column's type."
        ) from error


def _arrow_writes(kind: pa.DataType, field: Field) -> bool:
    if field.conversion is not None:
        return False
    return (is_text(kind) and field.spec in ("", "s")) or (pa.types.is_integer(kind) and field.spec in ("", "d"))


def can_encode(kind: pa.DataType) -> bool:
    """Whether Arrow finds the distinct values of a column of this type."""
    plain_kinds = (is_text, pa.types.is_primitive, pa.types.is_decimal128, pa.types.is_decimal256, pa.types.is_binary)
    return any(test(kind) for test in plain_kinds) and not pa.types.is_float16(kind)  # Arrow does not encode those


def _by_distinct_value(column: pa.Array, field: Field) -> pa.StringArray:
    encoded = column.dictionary_encode()  # compares bits: 0.0 and -0.0 stay two values
    values = encoded.dictionary
    nan = np.isnan(values.to_numpy()) if pa.types.is_floating(values.type) else None
    return pa.array(list(map(field.write, values.to_pylist())), pa.string(), mask=nan).take(encoded.indices)


def _by_row(chunk: RecordBatch, field: Field) -> pa.StringArray:
    values = [row[field.name] for row in to_rows(chunk.select([field.name]))]
    return pa.array([None if is_missing(value) else field.write(value) for value in values], pa.string())


def _misfit(chunk: RecordBatch, field: Field) -> DataError:
    """Find the first row that the field does not fit."""
    problems = ((place, _problem(chunk.slice(place, 1), field)) for place in range(chunk.num_rows))
    place, problem = next((place, problem) for place, problem in problems if problem is not None)
    value = " ".join(str(chunk.column(field.name).slice(place, 1)).split())  # as Arrow writes it: Python may have no value for it
    return DataError(f"The field {field} does not fit the value {value:.80} of {row_at(chunk, place)}: {problem}. Change its format.")


def _problem(row: RecordBatch, field: Field) -> Exception | None:
    try:
        _by_row(row, field)
    except _MISFITS as error:
        return error
    return None


def _sample(kind: pa.DataType) -> Any:
    """Return some value of a type, as Python sees it, or None for a type of which none is known."""
    if is_text(kind):
        return ""
    if is_list_like(kind):
        return []
    if pa.types.is_struct(kind):
        return {}
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
        return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(64))])[0].as_py()
    return None
