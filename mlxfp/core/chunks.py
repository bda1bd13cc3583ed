"""Chunks: `pyarrow.RecordBatch` values, with two hidden columns that travel with the data.

`__row__` (int64) is the index of the source row. `__key__` (uint64) is a hash of (epoch, row), the seed of all random choices for
the row. User functions never see hidden columns.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.arrow.light_arrays import number_array, numbers_of
from mlxfp.core.arrow.python_columns import is_utf8, to_column
from mlxfp.core.arrow.python_values import to_values
from mlxfp.support.arrow_types import has_times, is_tensor
from mlxfp.support.errors import ArgumentTypeError, DataError, SchemaError
from mlxfp.support.randomness import Keys, fold_in, fold_in_rows, fold_into_rows

Example = Mapping[str, Any]
RecordBatch: TypeAlias = pa.RecordBatch
Schema: TypeAlias = pa.Schema
Indices = NDArray[np.int64]

ROW = "__row__"
KEY = "__key__"
HIDDEN = (ROW, KEY)
EPOCH = "__epoch__"  # name of the column of epoch numbers in the result of `InTable.places` (in `sources.py`)

LEAF_BITS = 44  # number of low bits of `__row__` for the row number; in joined datasets, the high bits hold the index of the data source
LARGE = 64 << 20  # approximate size in bytes of joined chunks; Arrow allows at most 2 GiB per column of a chunk
CHUNK_ROWS = 4096  # default number of rows in a chunk: enough to amortise Arrow calls, few enough to resume quickly


def number_rows(chunk: RecordBatch, epoch: int, first: int) -> RecordBatch:
    """Append the hidden columns `__row__`, counted from `first`, and `__key__`. A chunk with these columns is returned unchanged."""
    if ROW in chunk.schema.names:
        return chunk
    return number_as(chunk, epoch, np.arange(first, first + chunk.num_rows))


def number_as(chunk: RecordBatch, epoch: int, rows: Indices) -> RecordBatch:
    """Append the hidden columns `__row__` and `__key__` for row numbers int64[N]. A chunk with these columns is returned unchanged."""
    if ROW in chunk.schema.names:
        return chunk
    keys = fold_in_rows(fold_in(0, epoch), rows)
    return chunk.append_column(ROW, number_array(rows)).append_column(KEY, number_array(keys))


def number_joined(chunk: RecordBatch, index: int, leaf: int) -> RecordBatch:
    """Make the row numbers and random keys of a chunk unique across joined datasets.

    The argument `index` is the index of the chunk's dataset among the joined datasets, and changes the random keys. The argument `leaf` is
    the number of data sources in all earlier datasets, and is stored in the high bits of `__row__`.
    """
    if leaf:
        chunk = set_column(chunk, ROW, number_array(source_rows(chunk) + (leaf << LEAF_BITS)))
    return set_column(chunk, KEY, number_array(fold_into_rows(row_keys(chunk), "joined", index)))


def visible(chunk: RecordBatch) -> RecordBatch:
    """Return the chunk without the hidden columns `__row__` and `__key__`."""
    names = chunk.schema.names
    return chunk.select([name for name in names if name not in HIDDEN]) if ROW in names else chunk


def with_hidden_of(chunk: RecordBatch, origin: RecordBatch) -> RecordBatch:
    """Append the hidden columns `__row__` and `__key__` of the chunk `origin` to `chunk`. Both chunks have the same number of rows."""
    if ROW not in origin.schema.names:
        return chunk
    return chunk.append_column(ROW, origin.column(ROW)).append_column(KEY, origin.column(KEY))


def source_rows(chunk: RecordBatch) -> Indices:
    """Return the row number in the source for each row: int64[N], -1 for unknown rows.

    >>> import mlxfp as fp
    >>> rows = fp.skip(1)(fp.from_examples([{"x": 5}, {"x": 6}, {"x": 7}]))
    >>> [fp.parts.source_rows(chunk).tolist() for chunk in fp.parts.read_all(rows)]
    [[1, 2]]
    """
    if ROW not in chunk.schema.names:
        return np.full(chunk.num_rows, -1, np.int64)
    return numbers_of(chunk.column(ROW))


def row_keys(chunk: RecordBatch) -> Keys:
    """Return the random key of each row, uint64[N]. A key depends on the epoch and on the source row.

    To derive other keys from the row keys, a stage calls `fold_into_rows`.

    >>> import mlxfp as fp
    >>> [chunk] = fp.parts.read_all(fp.from_examples([{"x": 5}, {"x": 6}]))
    >>> keys = fp.parts.fold_into_rows(fp.parts.row_keys(chunk), "my_stage")
    >>> keys.dtype, keys.shape
    (dtype('uint64'), (2,))
    """
    return numbers_of(chunk.column(KEY))


def concat_chunks(chunks: Sequence[RecordBatch]) -> RecordBatch:
    """Concatenate one or more chunks with equal schemas. Raises `DataError` for more than 2 GiB in a column."""
    if len(chunks) == 1:
        return chunks[0]
    try:
        return pa.concat_batches(chunks)
    except pa.ArrowInvalid as error:
        if "overflow" not in str(error):
            raise
        rows = sum(chunk.num_rows for chunk in chunks)
        raise DataError(
            f"Rows are too large for one chunk: {rows:,} rows have {sum(chunk.nbytes for chunk in chunks):,} bytes, and a column holds at "
            "most 2 GiB. Group fewer rows, or cut long texts with map."
        ) from error


def one_chunk(table: pa.Table) -> RecordBatch:
    """Return a table as one chunk.

    >>> one_chunk(pa.table({"x": pa.chunked_array([[1], [2, 3]])})).num_rows
    3
    """
    return concat_chunks(table.to_batches() or [no_rows(table.schema)])


def no_rows(schema: Schema) -> RecordBatch:
    """Return a chunk without rows."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def set_column(chunk: RecordBatch, name: str, column: pa.Array) -> RecordBatch:
    """Append a column, or replace the column of the same name.

    >>> set_column(pa.record_batch({"x": [1, 2]}), "x", pa.array([3, 4])).to_pydict()
    {'x': [3, 4]}
    """
    index = chunk.schema.get_field_index(name)
    return chunk.append_column(name, column) if index < 0 else chunk.set_column(index, name, column)


def set_field(schema: Schema, name: str, kind: pa.DataType) -> Schema:
    """Append a field, or replace the field of the same name.

    >>> set_field(pa.schema({"x": pa.int64()}), "y", pa.string()).names
    ['x', 'y']
    """
    index = schema.get_field_index(name)
    field = pa.field(name, kind)
    return schema.append(field) if index < 0 else schema.set(index, field)


def to_rows(chunk: RecordBatch) -> list[dict[str, Any]]:
    """Return one dict for each row. Fixed-shape tensors become numpy arrays, all other values plain Python values.

    Raises `DataError` if Python cannot hold a date, a time or a duration.
    """
    seen = visible(chunk)
    if not any(is_tensor(field.type) or has_times(field.type) for field in seen.schema):
        rows: list[dict[str, Any]] = seen.to_pylist()
        return rows
    numbers = source_rows(chunk)
    columns = {name: to_values(column, name, numbers) for name, column in zip(seen.schema.names, seen.columns, strict=True)}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def from_rows(rows: Sequence[Example], schema: Schema | None, numbers: Sequence[int] | Indices) -> RecordBatch:
    """Convert a list of rows to a chunk with the given schema, or with an inferred schema if `schema` is None.

    The argument `numbers` holds the source row numbers for error messages. Missing columns are null. Raises `SchemaError` for a value that
    does not fit the schema, and for a column outside the schema. Raises `DataError` if a column needs more than 2 GiB.
    """
    columns, fields = _columns(rows, schema, numbers)
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    for name, column in zip(fields.names, columns, strict=True):
        if isinstance(column, pa.ChunkedArray):
            raise DataError(
                f"Rows are too large for one chunk: {len(rows):,} rows from row {numbers[0]} on have {column.nbytes:,} bytes in the column "
                f"{name!r}, and a column holds at most 2 GiB. Cut long texts before this stage."
            )
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def table_from_rows(rows: Sequence[Example], schema: Schema | None) -> pa.Table:
    """Convert a list of rows to a table. Unlike in `from_rows`, the size of a column is not limited."""
    columns, fields = _columns(rows, schema, range(len(rows)))
    return pa.Table.from_arrays(columns, schema=fields) if columns else pa.Table.from_batches([from_rows(rows, schema, range(len(rows)))])


def _columns(rows: Sequence[Example], schema: Schema | None, numbers: Sequence[int] | Indices) -> tuple[list[Any], Schema]:
    """Return the columns of rows, and their schema. A column of more than 2 GiB is a chunked array."""
    names = schema.names if schema is not None else list(dict.fromkeys(chain.from_iterable(rows)))
    _check_names(names)
    if schema is not None:
        known = set(names)
        if not known.issuperset(chain.from_iterable(rows)):
            row, number = next((row, number) for row, number in zip(rows, numbers, strict=True) if not known.issuperset(row))
            extra = ", ".join(repr(name) for name in row if name not in known)
            raise SchemaError(
                f"Row {number} has the column {extra}, which the schema lacks. Columns: {', '.join(map(repr, names)) or 'none'}. "
                "Declare the column with schema=, or return the same columns for every row."
            )
    kinds = [None] * len(names) if schema is None else schema.types
    columns = [to_column([row.get(name) for row in rows], kind, name, numbers) for name, kind in zip(names, kinds, strict=True)]
    return columns, schema if schema is not None else pa.schema([pa.field(n, c.type) for n, c in zip(names, columns, strict=True)])


def check_schema(schema: object) -> None:
    """Raise `ArgumentTypeError` unless a declared schema is a pyarrow schema, or None."""
    if schema is not None and not isinstance(schema, pa.Schema):
        raise ArgumentTypeError(
            f"schema must be a pyarrow schema, as in pa.schema({{'x': pa.int64()}}), got {type(schema).__name__}: {schema!r:.60}."
        )
    check_fields(schema or (), "schema=")


def check_fields(fields: Iterable[pa.Field], where: str) -> None:
    """Raise `SchemaError` if two fields have the same name, or if Arrow cannot select rows of a field (run-end-encoded types).

    >>> check_fields(pa.schema([("x", pa.int64()), ("x", pa.int64())]), "the table")
    Traceback (most recent call last):
    mlxfp.support.errors.SchemaError: Several columns have the same name: got 'x' more than once, in the table. Rename the columns.
    """
    for level, kind, inside in _levels(fields):
        doubled = sorted(name for name, count in Counter(member.name for member in level).items() if count > 1)
        if doubled:
            raise SchemaError(
                f"Several {kind} have the same name: got {', '.join(map(repr, doubled))} more than once, in {inside}{where}. "
                f"Rename the {kind}."
            )
        encoded = next((member for member in level if pa.types.is_run_end_encoded(member.type)), None)
        if encoded is not None:
            raise SchemaError(
                f"Arrow cannot select rows of a run-end-encoded column: got {encoded.name!r} of {encoded.type}, in {inside}{where}. "
                f"Decode the column: pyarrow.compute.run_end_decode(table[{encoded.name!r}])."
            )


def _levels(fields: Iterable[pa.Field]) -> Iterator[tuple[list[pa.Field], str, str]]:
    """Yield the columns of a schema, and then the fields of each nested type. Recursion would fail for types with thousands of levels."""
    columns = list(fields)
    yield columns, "columns", ""
    pending = [(column.type, column.name) for column in columns if column.type.num_fields]
    while pending:
        kind, name = pending.pop()
        inner = [kind.field(index) for index in range(kind.num_fields)]
        yield inner, "fields", f"the column {name!r} of "
        pending += [(member.type, name) for member in inner if member.type.num_fields]


def _check_names(names: Sequence[Any]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise SchemaError(f"Column names are strings, got {name!r} among {', '.join(map(repr, names)):.80}.")
        if name in HIDDEN:
            raise SchemaError(
                f"A column has a reserved name: got {name!r} among {', '.join(map(repr, names)):.80}. Return the values under "
                f"another name, such as {name.strip('_')!r}."
            )
        if not is_utf8(name):
            raise SchemaError(f"A column name is not Unicode text: got {name!r}, with half of a surrogate pair. Rename the column.")
