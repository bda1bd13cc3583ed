"""Hive partitions: columns in folder names such as `year=2024/month=3/a.parquet`, as written by Hive, Spark, pyarrow, polars and DuckDB."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.core.arrow.exact_casts import cast_exactly
from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.data.sources.columns import Types, check_unique_names
from mlxfp.support.arrow_types import decoded, schema_code, value_type
from mlxfp.support.errors import DataError, SchemaError

Partition = tuple[tuple[str, str | None], ...]  # pairs of column name and value. The value is text, or None for a missing value.

_NULL = "__HIVE_DEFAULT_PARTITION__"


def is_partition(folder: str) -> bool:
    """Return True if a folder name has the form `column=value`.

    >>> is_partition("year=2024"), is_partition("2024")
    (True, False)
    """
    return folder.find("=") > 0


def partition_of(folders: Iterable[str]) -> Partition:
    """Return the columns and values in folder names. Folder names without `=` are ignored.

    >>> partition_of(["data", "year=2024", "city=S%C3%A3o Paulo", "state=__HIVE_DEFAULT_PARTITION__"])
    (('year', '2024'), ('city', 'São Paulo'), ('state', None))
    """
    pairs = (map(_unquoted, folder.split("=", 1)) for folder in folders if is_partition(folder))
    return tuple((name, None if value == _NULL else value) for name, value in pairs)


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:  # A text that is not percent-encoded stays unchanged.
        return text


@lru_cache(maxsize=64)
def partition_types(partitions: tuple[Partition, ...]) -> Types:
    """Return the names and types of all partition columns, in order.

    The type of a column is int32 if all its values are 32-bit integers, otherwise string.
    """
    values: dict[str, set[str | None]] = {}
    for name, text in (pair for partition in dict.fromkeys(partitions) for pair in partition):
        values.setdefault(name, set()).add(text)
    return tuple((name, _type_of(texts - {None})) for name, texts in values.items())


def fit(chunk: RecordBatch, schema: Schema, partition: Partition, path: str) -> RecordBatch:
    """Return a chunk with the columns and types of the schema, without the metadata of the file.

    A missing column gets its value from the folder names, such as `year=2026`, or nulls. Raises `DataError` for a value that does not fit
    its column or contradicts the folder names.
    """
    texts = dict(partition)
    return pa.RecordBatch.from_arrays([_fitted(chunk, column, texts, path) for column in schema], schema=schema)


def stated(text: str | None, kind: pa.DataType, name: str, path: str) -> pa.Array:
    """Return the partition value of a column as an array of length 1.

    Raises `SchemaError` for a value that does not fit the column type.
    """
    try:
        return cast_exactly(pa.array([text], pa.string()), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"A folder name does not fit the column {name!r} of {kind}: got {text!r}, in {path}. Declare another type for the "
            "column, or rename the folder."
        ) from error


def check_partition(partition: Sequence[tuple[str, Any]], path: str) -> None:
    """Raise `SchemaError` for a repeated or reserved column name in the folder names."""
    check_unique_names([name for name, _ in partition], path)


def _type_of(texts: Iterable[str | None]) -> pa.DataType:
    values = pa.array(texts, pa.string())
    try:
        cast_exactly(values, pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int32() if len(values) else pa.string()


def _fitted(chunk: RecordBatch, column: pa.Field, texts: dict[str, str | None], path: str) -> pa.Array:
    index = chunk.schema.get_field_index(column.name)
    if index < 0:
        return _repeated(texts.get(column.name), column.type, chunk.num_rows, column.name, path)
    values = chunk.column(index)
    try:
        values = values if values.type == column.type else cast_exactly(values, column.type)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"A value does not fit the column {column.name!r} of {column.type}: {error}, in {path}. "
            f"Declare another type, such as {schema_code([(column.name, values.type)])}, or correct the value."
        ) from error
    except pa.ArrowNotImplementedError as error:  # Arrow cannot convert the type in the file to the type of the column.
        raise SchemaError(
            f"Column {column.name!r} of {values.type} cannot be read as {column.type}: {error}, in {path}. Declare another type."
        ) from error
    if column.name in texts:
        _check_agree(values, texts[column.name], column.name, path)
    return values


def _repeated(text: str | None, kind: pa.DataType, count: int, name: str, path: str) -> pa.Array:
    if text is None:
        return pa.nulls(count, kind)
    values = _constant(text, kind, 1 << (count - 1).bit_length() if count else 0, name, path)
    return values.slice(0, count)


@lru_cache(maxsize=64)
def _constant(text: str, kind: pa.DataType, count: int, name: str, path: str) -> pa.Array:
    """Return a column of `count` equal values. The result is cached, so that all chunks of a file share one array."""
    return stated(text, kind, name, path).take(pa.nulls(count, pa.int32()).fill_null(0))


def _check_agree(values: pa.Array, text: str | None, name: str, path: str) -> None:
    expected = stated(text, value_type(values.type), name, path)[0]
    # A null in the column is allowed, even if the folder name gives a value for the column.
    differing = pc.is_valid(values) if text is None else pc.not_equal(decoded(values), expected)
    if pc.any(differing).as_py():
        value = values.filter(differing)[0].as_py()
        raise DataError(
            f"A file contradicts its folder name: column {name!r} has the value {value!r}, but the folder name has {text!r}, in "
            f"{path}. Correct the value or the folder name, or drop the column."
        )
