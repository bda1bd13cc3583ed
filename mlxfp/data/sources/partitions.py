"""Columns in the names of folders, as in `year=2024/month=3/a.parquet`: written so by Hive, Spark, pyarrow, polars and DuckDB."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.data.sources.columns import Types, check_unique_names
from mlxfp.support.arrow_types import decoded, value_type
from mlxfp.support.errors import DataError, SchemaError

Partition = tuple[tuple[str, str | None], ...]  # columns and their values as text; None where the value is missing

_NULL = "__HIVE_DEFAULT_PARTITION__"


def is_partition(folder: str) -> bool:
    """Return whether the name of a folder states a column and its value.

    >>> is_partition("year=2024"), is_partition("2024")
    (True, False)
    """
    return folder.find("=") > 0


def partition_of(folders: Iterable[str]) -> Partition:
    """Return the columns that the names of folders state.

    >>> partition_of(["data", "year=2024", "city=S%C3%A3o Paulo", "state=__HIVE_DEFAULT_PARTITION__"])
    (('year', '2024'), ('city', 'São Paulo'), ('state', None))
    """
    pairs = (map(_unquoted, folder.split("=", 1)) for folder in folders if is_partition(folder))
    return tuple((name, None if value == _NULL else value) for name, value in pairs)


def _unquoted(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:  # not an encoded text, though it has a percent sign
        return text


@lru_cache(maxsize=64)
def partition_types(partitions: tuple[Partition, ...]) -> Types:
    """Return the columns that any of the partitions has, in order, with their types: int32 where all values are such numbers, else text."""
    values: dict[str, set[str | None]] = {}
    for name, text in (pair for partition in dict.fromkeys(partitions) for pair in partition):
        values.setdefault(name, set()).add(text)
    return tuple((name, _type_of(texts - {None})) for name, texts in values.items())


def fit(chunk: RecordBatch, schema: Schema, partition: Partition, path: str) -> RecordBatch:
    """Give a chunk of a file the columns and types of the schema; drop the metadata of the file.

    Columns that the chunk lacks have the value that the partition states, or are null. Raises `DataError` for a value that does not fit its
    column, or that differs from the one in the partition.
    """
    texts = dict(partition)
    return pa.RecordBatch.from_arrays([_fitted(chunk, column, texts, path) for column in schema], schema=schema)


def stated(text: str | None, kind: pa.DataType, name: str, path: str) -> pa.Array:
    """Return the value that a partition states for a column, as an array of one; raise where it does not fit the type of the column."""
    try:
        return pa.array([text], pa.string()).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # Arrow: no such value, and a type that no text becomes
        raise SchemaError(
            f"The name of a folder does not fit the column {name!r} of {kind}: got {text!r}, in {path}. Declare another type for the "
            "column, or rename the folder."
        ) from error


def check_partition(partition: Sequence[tuple[str, Any]], path: str) -> None:
    """Raise `SchemaError` where folders state two columns of one name, or one with a reserved name."""
    check_unique_names([name for name, _ in partition], path)


def _type_of(texts: Iterable[str | None]) -> pa.DataType:
    found = pa.array(texts, pa.string())
    try:
        found.cast(pa.int32())
    except pa.ArrowInvalid:
        return pa.string()
    return pa.int32() if len(found) else pa.string()


def _fitted(chunk: RecordBatch, column: pa.Field, texts: dict[str, str | None], path: str) -> pa.Array:
    place = chunk.schema.get_field_index(column.name)
    if place < 0:
        return _repeated(texts.get(column.name), column.type, chunk.num_rows, column.name, path)
    values = chunk.column(place)
    try:
        values = values if values.type == column.type else values.cast(column.type)
    except pa.ArrowInvalid as error:
        raise DataError(
            f"A value does not fit the column {column.name!r} of {column.type}: {error}, in {path}. Declare another type, or correct it."
        ) from error
    except pa.ArrowNotImplementedError as error:  # Arrow's error for two types of which one cannot become the other
        raise SchemaError(
            f"Column {column.name!r} of {values.type} cannot be read as {column.type}: {error}, in {path}. Declare another type."
        ) from error
    if column.name in texts:
        _check_agree(values, texts[column.name], column.name, path)
    return values


def _repeated(text: str | None, kind: pa.DataType, count: int, name: str, path: str) -> pa.Array:
    if text is None:
        return pa.nulls(count, kind)
    held = _held(text, kind, 1 << (count - 1).bit_length() if count else 0, name, path)
    return held.slice(0, count)


@lru_cache(maxsize=64)
def _held(text: str, kind: pa.DataType, count: int, name: str, path: str) -> pa.Array:
    """Make the column once for all chunks of a file: random access holds a chunk of each, which are then slices of one array."""
    return stated(text, kind, name, path).take(pa.nulls(count, pa.int32()).fill_null(0))


def _check_agree(values: pa.Array, text: str | None, name: str, path: str) -> None:
    expected = stated(text, value_type(values.type), name, path)[0]
    differing = pc.is_valid(values) if text is None else pc.not_equal(decoded(values), expected)  # a null contradicts nothing
    if pc.any(differing).as_py():
        found = values.filter(differing)[0].as_py()
        raise DataError(
            f"A file and the name of its folder differ: the column {name!r} has the value {found!r}, and the folder says {text!r}, in "
            f"{path}. Correct one of them, or leave the column out."
        )
