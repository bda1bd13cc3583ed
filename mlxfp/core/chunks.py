"""Chunks: `pyarrow.RecordBatch` values, with two hidden columns that travel with the data.

`__row__` (int64) is the index of the source row. `__key__` (uint64) is a hash of (epoch, row), the seed of all random choices for
the row. User functions never see hidden columns.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.arrow.array_values import as_numpy, holds_masked, is_array, nested, unboxed
from mlxfp.core.arrow.exact_casts import array_of, largest_exact
from mlxfp.core.arrow.light_arrays import number_array, numbers_of
from mlxfp.support.arrow_types import is_tensor, type_code
from mlxfp.support.errors import ArgumentTypeError, DataError, SchemaError
from mlxfp.support.randomness import Keys, fold_in, fold_in_rows, fold_into_rows

Example = Mapping[str, Any]
RecordBatch: TypeAlias = pa.RecordBatch
Schema: TypeAlias = pa.Schema
Indices = NDArray[np.int64]

ROW = "__row__"
KEY = "__key__"
HIDDEN = (ROW, KEY)
EPOCH = "__epoch__"  # column of epoch numbers, used by `collate` to find rows in a table in memory (see `InTable` in `sources.py`)

LEAF_BITS = 44  # in joined datasets, the low bits of `__row__` hold the row number, and the high bits the number of the data source
LARGE = 64 << 20  # size in bytes up to which chunks are joined; Arrow allows at most 2 GiB per column of a chunk
CHUNK_ROWS = 4096  # default number of rows in a chunk: enough to amortise Arrow calls, few enough to resume quickly

_TENSORS = "iuf"
_WIDEST = 8  # maximum number of bytes of a number
MISFITS = (pa.ArrowException, OverflowError, UnicodeError, TypeError)


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
    """Change the row numbers and random keys of one of several joined datasets, so that they differ from the rows of the other datasets.

    The argument `index` is the position of the dataset among the joined datasets. The argument `leaf` counts the data sources before the
    dataset. The high bits of `__row__` store `leaf`.
    """
    if leaf:
        chunk = set_column(chunk, ROW, number_array(source_rows(chunk) + (leaf << LEAF_BITS)))
    return set_column(chunk, KEY, number_array(fold_into_rows(row_keys(chunk), "joined", index)))


def visible(chunk: RecordBatch) -> RecordBatch:
    """Return the chunk without the hidden columns `__row__` and `__key__`."""
    names = chunk.schema.names
    return chunk.select([name for name in names if name not in HIDDEN]) if ROW in names else chunk


def with_hidden_of(chunk: RecordBatch, origin: RecordBatch) -> RecordBatch:
    """Append the hidden columns `__row__` and `__key__` of `origin` to `chunk`, which has the same number of rows."""
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

    A stage calls `fold_into_rows` to derive its own keys from the row keys.

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
    """Return one dict for each row. Fixed-shape tensors become numpy arrays, all other values plain Python values."""
    seen = visible(chunk)
    tensors = [field.name for field in seen.schema if is_tensor(field.type)]
    if not tensors:
        rows: list[dict[str, Any]] = seen.to_pylist()
        return rows
    columns = {name: _values(seen.column(name)) for name in seen.schema.names}
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
    """Convert a list of rows to a table. In contrast to a chunk from `from_rows`, a column of the table may need more than 2 GiB."""
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
    """Raise `SchemaError` for fields with equal names, because values are selected by name, and for types without row selection.

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
    """Yield the columns of a schema, and then the fields of each nested type. A loop, because a type may have thousands of levels."""
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
            raise SchemaError(f"The column name {name!r} is reserved; rename the column.")
        if not _is_utf8(name):
            raise SchemaError(f"A column name is not Unicode text: got {name!r}, with half of a surrogate pair. Rename the column.")


def _values(column: pa.Array) -> list[Any]:
    if is_tensor(column.type):
        arrays = iter(column.drop_null().to_numpy_ndarray())
        return [next(arrays) if valid else None for valid in column.is_valid().to_pylist()]
    values: list[Any] = column.to_pylist()
    return values


def to_column(values: list[Any], kind: pa.DataType | None, name: str, numbers: Sequence[int] | Indices) -> pa.Array:
    """Return the values of one column as an Arrow array. Raises `SchemaError` for a value that does not fit the type."""
    arrays = {type_ for type_ in set(map(type, values)) if is_array(type_)}  # checking every value is slow, so check each type once
    if any(not issubclass(type_, np.ndarray | np.generic) or issubclass(type_, np.ma.MaskedArray) for type_ in arrays):
        values = [
            _read(as_numpy, value, name, number) if type(value) in arrays else value for value, number in zip(values, numbers, strict=True)
        ]
    shapes = {value.shape: value.dtype for value in values if isinstance(value, np.ndarray)} if arrays else {}
    if kind is None and len(shapes) > 1 and _differ_in_length(shapes):
        return _lists_of_tensors(values)
    if is_tensor(kind) or (kind is None and any(len(shape) > 1 for shape in shapes)):
        return _tensors(values, kind, name, numbers)
    if arrays:
        values = [unboxed(value) for value in values]
    failed = None
    try:
        column = array_of(values, kind)
        if not (pa.types.is_nested(column.type) and holds_masked(values, column.type)):
            return column
    except MISFITS as error:
        failed = error
    # Search lists and mappings for arrays only if the fast conversion above fails. The search visits every value.
    plain = [_read(nested, value, name, number) for value, number in zip(values, numbers, strict=True)]
    if not _fails(plain, kind):
        return array_of(plain, kind)
    index = bisect_left(range(len(plain)), 1, key=lambda index: _fails(plain[: index + 1], kind))
    row, value, problem = numbers[index], values[index], _misfit(plain, index, kind)
    raise SchemaError(f"Column {name!r} of row {row}: {value!r:.80} {problem}") from failed


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _misfit(values: list[Any], index: int, kind: pa.DataType | None) -> str:
    if isinstance(values[index], str) and not _is_utf8(values[index]):
        return "is not Unicode text: it has half of a surrogate pair. Replace the half: text.encode(errors='replace').decode()."
    if kind is None and not index:
        return (
            "does not fit the type of any Arrow column. Make it a number of at most 64 bits, text, bytes, a time, or a list, dict or array "
            "of these, before it becomes a value of a row."
        )
    expected = f"{pa.array(values[:index]).type} of the rows before it" if kind is None else kind
    return f"does not fit the type {expected}. Make the values of a column one type, or declare it with schema=."


def _read(read: Callable[[Any], Any], value: Any, name: str, number: int) -> Any:
    try:
        return read(value)
    except SchemaError as error:
        raise SchemaError(f"Column {name!r} of row {number}: {error}") from error.__cause__


def _fails(values: list[Any], kind: pa.DataType | None) -> bool:
    try:
        array_of(values, kind)
    except MISFITS:
        return True
    return False


def _measured(value: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of an array or nested lists. Ragged lists have dtype object."""
    try:
        array = np.asarray(value)
    except ValueError:
        array = np.asarray(value, object)
    return array.shape, array.dtype


def _differ_in_length(shapes: Mapping[tuple[int, ...], np.dtype[Any]]) -> bool:
    """Return True for numeric arrays of at least two axes that differ only in the length of the first axis."""
    numeric = len(set(shapes.values())) == 1 and all(kind.kind in _TENSORS and kind.itemsize <= _WIDEST for kind in shapes.values())
    return numeric and len(next(iter(shapes))) > 1 and len({shape[1:] for shape in shapes}) == 1


def _lists_of_tensors(values: list[Any]) -> pa.Array:
    """Return arrays [T, ...] with different T as lists of fixed-size lists. None becomes null."""
    arrays = [value for value in values if value is not None]
    column = pa.array(np.concatenate(arrays).reshape(-1))
    for size in reversed(arrays[0].shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    ends = np.cumsum([0, *(0 if value is None else len(value) for value in values)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends, mask=np.array([*(value is None for value in values), False])), column)


def _rounds(value: Any, given: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    """Return True for an array of 64-bit integers that floats of 64 bits would round."""
    if wanted.kind != "f" or given.kind not in "iu" or given.itemsize < _WIDEST:
        return False
    integers, limit = np.asarray(value), largest_exact(pa.float64())
    return bool(((integers > limit) | (integers < -limit)).any())


def _tensors(values: list[Any], kind: pa.DataType | None, name: str, numbers: Sequence[int] | Indices) -> pa.Array:
    if kind is None:
        first = next(value for value in values if isinstance(value, np.ndarray))
        if not first.size or first.dtype.kind not in _TENSORS or first.dtype.itemsize > _WIDEST:
            raise SchemaError(
                f"Column {name!r} cannot hold arrays of shape {first.shape} and dtype {first.dtype}: Arrow tensors hold integers or "
                "floats, and are not empty. Cast the arrays, or convert them to lists with tolist()."
            )
        kind = pa.fixed_shape_tensor(pa.from_numpy_dtype(first.dtype), first.shape)
    order = kind.permutation or range(len(kind.shape))  # for each logical axis of the tensor, the index of the axis in memory
    shape = tuple(kind.shape[axis] for axis in order)
    # Up to pyarrow 25, the method `to_pandas_dtype` needs pandas.
    dtype = pa.array([], kind.value_type).to_numpy(zero_copy_only=False).dtype
    lists = reduce(lambda inner, _: pa.list_(inner), shape, kind.value_type)
    for value, number in zip(values, numbers, strict=True):
        if value is None or holds_masked([value], lists):
            problem = "is null" if value is None else "has masked values"
            raise DataError(f"Column {name!r} of row {number} {problem}, and a column of fixed-shape tensors {shape} cannot hold nulls.")
        actual = _measured(value)
        if actual[0] != shape or not np.can_cast(actual[1], dtype) or _rounds(value, actual[1], dtype):
            raise SchemaError(
                f"Column {name!r} of row {number} has shape {actual[0]} and dtype {actual[1]}, not {shape} and {dtype}. "
                f"Make shapes equal, or declare lists: pa.schema({{{name!r}: pa.list_(pa.list_({type_code(kind.value_type)}))}})."
            )
    stacked = np.stack([np.asarray(v, dtype) for v in values]) if values else np.empty((0, *shape), dtype)
    stacked = stacked.transpose(0, *(np.argsort(order) + 1))
    flat = pa.FixedSizeListArray.from_arrays(pa.array(stacked.reshape(-1)), int(np.prod(shape)))
    return pa.ExtensionArray.from_storage(kind, flat.cast(kind.storage_type))
