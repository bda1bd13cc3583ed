"""Arrays of other libraries as row values: conversion of MLX, torch, JAX, Pillow and Arrow arrays to numpy.

These libraries are not imported. Arrays are recognised by `__array__`, `__array_interface__` or `__dlpack__`.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.support.arrow_types import is_text
from mlxfp.support.errors import SchemaError

_OFFERS = ("__array__", "__array_interface__", "__dlpack__")
_PLAIN = "biufSU"  # dtype kinds of numpy that convert to plain Python scalars
_LARGEST = 2**63 - 1  # largest Python integer that Arrow converts without a declared type
_DAYS = np.dtype("datetime64[D]")  # numpy dtype of dates, which Arrow accepts only as Python dates


def is_array(kind: type) -> bool:
    """Return True if values of a type can be converted to numpy arrays or scalars.

    >>> is_array(np.ndarray), is_array(np.int8), is_array(list), is_array(str)
    (True, True, False, False)
    """
    return issubclass(kind, array) or any(hasattr(kind, name) for name in _OFFERS)


def as_numpy(value: Any) -> Any:
    """Convert an array of any device to a numpy array for Arrow, or to a list if some values are masked.

    The type must pass `is_array`. Raises `SchemaError` if the conversion fails.

    >>> as_numpy(np.ma.array([1, 2], mask=[False, True])), as_numpy(np.array([1, 2], ">i4")).dtype.isnative
    ([1, None], True)
    """
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # a torch tensor is copied from the device and detached from the gradient graph
        value = value.detach().cpu()
    if isinstance(value, pa.Array | pa.ChunkedArray):  # Arrow arrays become Python values: numpy would turn integers with nulls into floats
        return value.to_pylist()
    if np.ma.is_masked(value) and value.ndim > 1:
        raise SchemaError(
            f"An array with several axes must have no masked values, because tensors have no nulls: got an array of shape {value.shape} "
            "with masked values. Fill the masked values with filled(), or convert the array to lists with tolist()."
        )
    try:
        plain = any(hasattr(value, name) for name in _OFFERS[:2]) or isinstance(value, array)
        return _for_arrow(value if np.ma.is_masked(value) else np.asarray(value) if plain else np.from_dlpack(value))
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as error:
        raise SchemaError(
            f"numpy cannot read an array of {type(value).__module__}.{type(value).__name__} of {getattr(value, 'dtype', 'unknown type')}: "
            f"{error}. Cast the array, or move it to the CPU, before storing it in a row. Cast bfloat16, unknown to numpy, to float32."
        ) from error


def _for_arrow(value: NDArray[Any]) -> Any:
    """Return an array in native byte order. Return masked values and text as a list, because Arrow does not accept these arrays."""
    if value.dtype.kind == "T" or np.ma.is_masked(value):
        return value.tolist()
    if value.dtype.kind == "V" and value.dtype.names is None:
        raise TypeError("Arrow has no such type")
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


def holds_masked(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Return True if the values of a column contain a masked array. Arrow would ignore the mask.

    Arrays inside lists and mappings are checked as well. For speed, lists that can contain only numbers or texts are not searched.

    >>> holds_masked([[[1, 2]], [[1], np.ma.array([1, 2], mask=[False, True])]], pa.list_(pa.list_(pa.int64())))
    True
    """
    if _any_masked(values):
        return True
    if not pa.types.is_nested(kind):
        return False
    if pa.types.is_struct(kind):
        rows = [value for value in values if isinstance(value, Mapping)] if set(map(type, values)) != {dict} else values
        deeper = [member for member in kind if pa.types.is_nested(member.type)]
        return _any_masked(chain.from_iterable([row.values() for row in rows])) or any(
            holds_masked([row.get(member.name) for row in rows], member.type) for member in deeper
        )
    inner = getattr(kind, "value_type", None)  # Arrow types of maps and unions have no `value_type`, so the values inside are not searched.
    if inner is None or not pa.types.is_nested(inner):
        return False
    if pa.types.is_struct(inner) and all(is_text(member.type) for member in inner):  # no arrays, as in chat messages
        return False
    return holds_masked(list(chain.from_iterable([value for value in values if isinstance(value, list | tuple)])), inner)


def _any_masked(values: Iterable[Any]) -> bool:
    value_list = values if isinstance(values, list) else list(values)
    kinds = {type_ for type_ in set(map(type, value_list)) if issubclass(type_, np.ma.MaskedArray)}  # faster than a check of all values
    return bool(kinds) and any(type(value) in kinds and np.ma.is_masked(value) for value in value_list)


def unboxed(value: Any) -> Any:
    """Return a numpy scalar or an array without axes as a Python value, and any other value unchanged.

    >>> unboxed(np.int8(3)), unboxed(np.array(2.5)), unboxed("text")
    (3, 2.5, 'text')
    """
    if not isinstance(value, np.ndarray | np.generic) or value.shape:
        return value
    if value.dtype.kind not in _PLAIN and value.dtype != _DAYS:
        return np.asarray(value)[()]
    plain = value.item()
    return np.asarray(value)[()] if value.dtype.kind == "u" and plain > _LARGEST else plain  # Arrow rejects Python integers above _LARGEST


def without_arrays(value: Any) -> Any:
    """Convert all arrays in a value to numpy arrays, and arrays without axes to Python values.

    Arrays inside lists and mappings are converted as well.

    >>> import mlx.core as mx
    >>> without_arrays({"a": mx.array(3), "b": [mx.array([1, 2])]})
    {'a': 3, 'b': [array([1, 2], dtype=int32)]}
    """
    if isinstance(value, Mapping):
        return {name: without_arrays(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [without_arrays(part) for part in value]
    return unboxed(as_numpy(value)) if is_array(type(value)) else value


def nested(value: Any) -> Any:
    """Convert a value as `without_arrays` does, and also turn arrays with several axes into lists. Arrow rejects such arrays in lists."""
    if isinstance(value, Mapping):
        return {name: nested(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [nested(part) for part in value]
    converted = without_arrays(value)
    return [nested(part) for part in converted] if isinstance(converted, np.ndarray) and converted.ndim > 1 else converted
