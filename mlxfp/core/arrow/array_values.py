"""Arrays of other libraries as values of rows: those of MLX, torch, JAX, Pillow and Arrow are taken as the numpy arrays that they are.

None of these libraries is imported: an array says what it is through `__array__`, `__array_interface__` or `__dlpack__`.
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
_PLAIN = "biufSU"  # numpy kinds whose scalars are plain Python values; times keep their unit
_LARGEST = 2**63 - 1  # that Arrow takes without being told a type
_DAYS = np.dtype("datetime64[D]")  # but for these, which Arrow takes as dates of Python only


def is_array(kind: type) -> bool:
    """Whether values of a type can be taken as numpy arrays or scalars.

    >>> is_array(np.ndarray), is_array(np.int8), is_array(list), is_array(str)
    (True, True, False, False)
    """
    return issubclass(kind, array) or any(hasattr(kind, name) for name in _OFFERS)


def as_numpy(value: Any) -> Any:
    """Return the numpy array of a value whose type `is_array`, on whatever device it is, as Arrow takes it; a list where it has nulls.

    Raises `SchemaError` where there is none.

    >>> as_numpy(np.ma.array([1, 2], mask=[False, True])), as_numpy(np.array([1, 2], ">i4")).dtype.isnative
    ([1, None], True)
    """
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # torch: away from the device and the graph of gradients
        value = value.detach().cpu()
    if isinstance(value, pa.Array | pa.ChunkedArray):  # as a numpy array, whole numbers with nulls would become floats
        return value.to_pylist()
    if np.ma.is_masked(value) and value.ndim > 1:
        raise SchemaError(
            f"An array of several axes becomes a tensor, which has no nulls, got one of shape {value.shape} with masked values. Fill them "
            "with filled(), or turn it to lists with tolist()."
        )
    try:
        plain = any(hasattr(value, name) for name in _OFFERS[:2]) or isinstance(value, array)
        return _for_arrow(value if np.ma.is_masked(value) else np.asarray(value) if plain else np.from_dlpack(value))
    except (TypeError, ValueError, RuntimeError, BufferError, AttributeError) as error:
        raise SchemaError(
            f"numpy cannot read an array of {type(value).__module__}.{type(value).__name__} of {getattr(value, 'dtype', 'unknown type')}: "
            f"{error}. Cast it, or move it to the CPU, before it becomes a value of a row: bfloat16, which numpy does not have, to float32."
        ) from error


def _for_arrow(value: NDArray[Any]) -> Any:
    """Return an array in the byte order of this machine; as a list what Arrow takes no array of: values that are masked, and text."""
    if value.dtype.kind == "T" or np.ma.is_masked(value):
        return value.tolist()
    if value.dtype.kind == "V" and value.dtype.names is None:
        raise TypeError("Arrow has no such type")
    return value if value.dtype.isnative else value.astype(value.dtype.newbyteorder("="))


def holds_masked(values: Sequence[Any], kind: pa.DataType) -> bool:
    """Whether arrays with masked values are among values of a type, or in their lists and mappings: Arrow takes them as if not masked.

    Numbers and texts in lists are not looked at one by one.

    >>> holds_masked([[[1, 2]], [[1], np.ma.array([1, 2], mask=[False, True])]], pa.list_(pa.list_(pa.int64())))
    True
    """
    if _any_masked(values):
        return True
    if not pa.types.is_nested(kind):
        return False
    if pa.types.is_struct(kind):
        rows = [value for value in values if isinstance(value, Mapping)] if set(map(type, values)) != {dict} else values
        deeper = [each for each in kind if pa.types.is_nested(each.type)]
        return _any_masked(chain.from_iterable([row.values() for row in rows])) or any(
            holds_masked([row.get(each.name) for row in rows], each.type) for each in deeper
        )
    inner = getattr(kind, "value_type", None)  # None of a map and a union
    if inner is None or not pa.types.is_nested(inner) or _is_of_text(inner):
        return False
    return holds_masked(list(chain.from_iterable([value for value in values if isinstance(value, list | tuple)])), inner)


def _is_of_text(kind: pa.DataType) -> bool:
    """Whether a type is a struct of texts alone, such as the turns of a chat: no array becomes one of them."""
    return pa.types.is_struct(kind) and all(is_text(each.type) for each in kind)


def _any_masked(values: Iterable[Any]) -> bool:
    kept = values if isinstance(values, list) else list(values)
    kinds = set(map(type, kept))  # a check of each value would be slow
    return any(issubclass(each, np.ma.MaskedArray) for each in kinds) and any(map(_is_masked, kept))


def _is_masked(value: Any) -> bool:
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def unboxed(value: Any) -> Any:
    """Return a numpy scalar or an array without axes as a plain Python value, anything else as it is.

    >>> unboxed(np.int8(3)), unboxed(np.array(2.5)), unboxed("text")
    (3, 2.5, 'text')
    """
    if not isinstance(value, np.ndarray | np.generic) or value.shape:
        return value
    if value.dtype.kind not in _PLAIN and value.dtype != _DAYS:
        return np.asarray(value)[()]
    plain = value.item()
    return np.asarray(value)[()] if value.dtype.kind == "u" and plain > _LARGEST else plain  # which Arrow takes as it is only with its type


def without_arrays(value: Any) -> Any:
    """Return a value with all arrays in it, in lists and mappings too, as numpy arrays, and those without axes as plain values.

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
    """Return the same for a value in a list or mapping, where Arrow takes arrays of one axis only."""
    if isinstance(value, Mapping):
        return {name: nested(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [nested(part) for part in value]
    found = without_arrays(value)
    return [nested(part) for part in found] if isinstance(found, np.ndarray) and found.ndim > 1 else found
