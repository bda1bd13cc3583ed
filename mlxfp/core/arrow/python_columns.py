"""Conversion of Python values to Arrow columns."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.arrow.array_values import as_numpy, holds_masked, is_array, nested, unboxed
from mlxfp.core.arrow.exact_casts import largest_exact
from mlxfp.core.arrow.exact_values import MISFITS, array_of
from mlxfp.support.arrow_types import is_tensor, type_code
from mlxfp.support.errors import DataError, SchemaError

_TENSORS = "iuf"
_WIDEST = 8  # maximum number of bytes of one array element


def to_column(values: list[Any], kind: pa.DataType | None, name: str, numbers: Sequence[int] | NDArray[np.int64]) -> pa.Array:
    """Return Python values as an Arrow array. Raises `SchemaError` with column name and row number for a value that does not fit."""
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
    if kind is None and _are_pairs(value):
        problem = "is a list of pairs, as in a column of maps. Declare the type with schema=, for example pa.map_(pa.string(), pa.int64())."
    raise SchemaError(f"Column {name!r} of row {row}: {value!r:.80} {problem}") from failed


def is_utf8(text: str) -> bool:
    """Return False for text with half of a surrogate pair, which UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _misfit(values: list[Any], index: int, kind: pa.DataType | None) -> str:
    if isinstance(values[index], str) and not is_utf8(values[index]):
        return "is not Unicode text: it has half of a surrogate pair. Replace the half: text.encode(errors='replace').decode()."
    if isinstance(values[index], int) and 1 << 63 <= values[index] < 1 << 64 and kind != pa.uint64():
        return f"does not fit the type {kind or pa.int64()}. Declare the column as pa.uint64() with schema=."
    if kind is None and not index:
        return (
            "does not fit the type of any Arrow column. Make it a number of at most 64 bits, text, bytes, a time without a time zone, a "
            "date with a time, or a list, dict or array of these, before it becomes a value of a row. Write None for a missing value."
        )
    expected = f"{pa.array(values[:index]).type} of the rows before it" if kind is None else kind
    return f"does not fit the type {expected}. Make the values of a column one type, or declare it with schema=."


def _are_pairs(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, tuple) and len(item) == 2 for item in value)


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
    """Return a column of lists of fixed-size lists. The arrays in `values` differ in the length of the first axis. None becomes null."""
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


def _tensors(values: list[Any], kind: pa.DataType | None, name: str, numbers: Sequence[int] | NDArray[np.int64]) -> pa.Array:
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
