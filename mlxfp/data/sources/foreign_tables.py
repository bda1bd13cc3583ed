"""Conversion of tables of other libraries to Arrow tables. Only methods of the tables are called, so no other library is imported."""

from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any

import numpy as np
import pyarrow as pa

from mlxfp.core.arrow.array_values import as_numpy, holds_masked, is_array
from mlxfp.core.arrow.exact_values import MISFITS, array_of, changes
from mlxfp.core.arrow.gathering import takeable
from mlxfp.core.arrow.python_columns import to_column
from mlxfp.core.chunks import RecordBatch, check_fields
from mlxfp.core.nodes import Pipeline
from mlxfp.data.sources.columns import check_unique_names
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, MlxfpError, SchemaError

# Methods of other libraries that return a table in memory, tried in this order.
# Spark has `toArrow`, Ibis has `to_pyarrow`, and older versions of Daft and cuDF have `to_arrow`.
# Lazy frames of polars and narwhals have `collect`, and datasets and scanners of pyarrow and Lance have `to_table`.
_METHODS = ("to_arrow", "toArrow", "to_pyarrow", "collect", "to_table")


def as_table(table: Any) -> pa.Table:
    """Return a table of another library as an Arrow table. Raise `ArgumentTypeError` for other objects."""
    arrow_table = _as_arrow(table)
    check_unique_names(arrow_table.schema.names, "the table")
    check_fields(arrow_table.schema, "the table")
    movable = pa.schema([field.with_type(takeable(field.type)) for field in arrow_table.schema], arrow_table.schema.metadata)
    return arrow_table if movable.equals(arrow_table.schema) else arrow_table.cast(movable)


def _as_arrow(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, Mapping):
        return pa.Table.from_batches([_from_columns(table)])
    if _is_column(table):
        return pa.Table.from_batches([_from_columns({_name_of(table): table})])
    if _is_stream(table):
        return _streamed(table)
    if hasattr(table, "iter_batches") and hasattr(table, "map_batches"):  # Only a dataset of Ray Data has `iter_batches` and `map_batches`.
        parts = list(table.iter_batches(batch_size=None, batch_format="pyarrow"))
        return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})
    if not _is_connection(table):
        for method in _METHODS:
            if hasattr(table, method) and not isinstance(table, type):
                return _given(getattr(table, method))
    raise ArgumentTypeError(
        f"from_table needs a table with __arrow_c_stream__ or a mapping of columns, got {type(table).__name__}. {_advice(table)}"
    )


def _is_stream(table: Any) -> bool:
    return hasattr(table, "__arrow_c_stream__") or hasattr(table, "__arrow_c_array__")


def _is_column(table: Any) -> bool:
    """Return True for an Arrow array or a named column, such as a pandas or polars Series."""
    return isinstance(table, pa.Array | pa.ChunkedArray) or (
        hasattr(table, "name") and not hasattr(table, "columns") and (_is_stream(table) or hasattr(table, "__array__"))
    )


def _is_connection(table: Any) -> bool:
    return hasattr(table, "execute") and hasattr(table, "cursor")


def _name_of(column: Any) -> str:
    name = getattr(column, "name", None)
    if isinstance(name, str) and name:
        return name
    raise ArgumentTypeError(
        f"from_table needs a name for the column, got a {type(column).__name__} with the name {name!r}. Give a name with "
        "from_table({'x': column})."
    )


def _given(method: Callable[[], Any]) -> pa.Table:
    result = method()
    if not _is_stream(result):
        raise ArgumentTypeError(
            f"from_table needs a table, got {type(result).__name__} from {method.__qualname__}(). Convert the result to an Arrow table, "
            "or use from_iterable for an iterable of dicts."
        )
    return _streamed(result)


def _streamed(table: Any) -> pa.Table:
    kinds = getattr(table, "schema", None)
    objects = [name for name, kind in kinds.items() if str(kind) == "Object"] if isinstance(kinds, Mapping) else []
    if objects:  # polars would pass Python objects to Arrow as memory addresses
        raise SchemaError(f"Python objects have no Arrow type, got objects in the columns {objects}. Cast or drop the columns.")
    try:
        result = pa.table(table)
        for name in result.schema.names if hasattr(table, "dropna") else ():  # `dropna` identifies a data frame of pandas.
            _check_objects(table.get(name), result.column(name), name)
    except MISFITS as error:
        if isinstance(error, MlxfpError) or isinstance(table, pa.RecordBatchReader | Pipeline):
            raise  # The error comes from the generator that produces the rows, not from the conversion.
        kind = f"{type(table).__module__.partition('.')[0]}.{type(table).__qualname__}"
        reason = ": ".join(map(str, error.args))
        raise SchemaError(
            f"A table cannot be converted to Arrow: got a {kind}, and {reason}. Give every column a unique name. "
            "Convert each column to one type with astype or cast, or drop the column."
        ) from error
    return result


def _check_objects(column: Any, result: pa.Array | pa.ChunkedArray, name: str) -> None:
    """Raise `ArrowInvalid` if Arrow has changed a value in a column of Python objects, such as a datetime among dates."""
    if str(getattr(column, "dtype", "")) == "object":
        values = [value for value, valid in zip(column, result.is_valid().to_pylist(), strict=True) if valid]
        if changes(values, result.type):
            raise pa.ArrowInvalid(f"the column {name!r} has values of several types")


def _advice(table: Any) -> str:
    if _is_connection(table):
        return "A connection is not a table. Pass the result of a query, in DuckDB from_table(connection.sql('SELECT * FROM name'))."
    if isinstance(table, str | PathLike):
        return "Use read_parquet, read_csv, read_jsonl or read_arrow for files."
    if is_array(type(table)):
        return "Name the column with from_table({'x': array})."
    return "Use from_examples for a list of dicts, or from_iterable for an iterable of dicts."


def _from_columns(columns: Mapping[str, Any]) -> RecordBatch:
    sizes = {name: _length(column, name) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ArgumentError(f"The columns of a table must have the same length, got {sizes}.")
    return pa.RecordBatch.from_pydict({name: _to_array(column, name) for name, column in columns.items()})


def _length(column: Any, name: str) -> int:
    try:
        return len(column)
    except TypeError as error:
        raise ArgumentTypeError(
            f"Every column of a table must be a sequence or an array with an axis of rows, got {type(column).__name__} for {name!r}: "
            f"{column!r:.60}. Give a value for each row."
        ) from error


def _to_array(column: Any, name: str) -> pa.Array:
    masked = isinstance(column, np.ma.MaskedArray) and column.ndim == 1  # `pa.array` below turns masked values into nulls.
    # an array of NumPy, MLX or torch, not a column of a table library
    if hasattr(column, "__dlpack__") and not _is_stream(column) and not masked:
        column = as_numpy(column)
    try:
        if getattr(column, "ndim", 1) > 1 and all(column.shape[1:]) and column.dtype.kind in "iuf":
            return _to_tensors(column)
        if isinstance(column, list | tuple):
            array = array_of(list(column), None)
        else:
            array = pa.chunked_array(column) if hasattr(column, "__arrow_c_stream__") else pa.array(column)
            _check_objects(column, array, name)
        if isinstance(column, list | tuple) and holds_masked(column, array.type):
            array = to_column(list(column), None, name, range(len(column)))
    except MISFITS:
        array = to_column(list(column), None, name, range(len(column)))
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _to_tensors(column: Any) -> pa.Array:
    """Return an array with at least two axes as a column of tensors. The first axis counts the rows and may have length 0."""
    if not len(column):
        return _to_tensors(np.zeros((1, *column.shape[1:]), column.dtype))[:0]
    flat = np.ascontiguousarray(column).reshape(-1)  # Arrow rejects an array such as x[None], whose first axis has stride 0
    return pa.FixedShapeTensorArray.from_numpy_ndarray(flat.reshape(column.shape))
