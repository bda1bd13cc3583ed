"""Arrays of other libraries as values of rows: those of MLX, torch, JAX, Pillow and Arrow are taken as the numpy arrays that they are.

None of these libraries is imported: an array says what it is through `__array__`, `__array_interface__` or `__dlpack__`.
"""

from array import array
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from mlxfp.core.errors import SchemaError

_OFFERS = ("__array__", "__array_interface__", "__dlpack__")
_PLAIN = "biufSU"  # numpy kinds whose scalars are plain Python values; times keep their unit
_DAYS = np.dtype("datetime64[D]")  # but for these, which Arrow takes as dates of Python only


def is_array(kind: type) -> bool:
    """Whether values of a type can be taken as numpy arrays or scalars.

    >>> is_array(np.ndarray), is_array(np.int8), is_array(list), is_array(str)
    (True, True, False, False)
    """
    return issubclass(kind, array) or any(hasattr(kind, name) for name in _OFFERS)


def as_numpy(value: Any) -> Any:
    """Return the numpy array of a value whose type `is_array`, on whatever device it is. Raises `SchemaError` where there is none."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):  # torch: away from the device and the graph of gradients
        value = value.detach().cpu()
    if isinstance(value, pa.Array | pa.ChunkedArray):  # as a numpy array, whole numbers with nulls would become floats
        return value.to_pylist()
    try:
        return np.asarray(value) if any(hasattr(value, name) for name in _OFFERS[:2]) or isinstance(value, array) else np.from_dlpack(value)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        raise SchemaError(
            f"numpy cannot read an array of {type(value).__module__}.{type(value).__name__} of {getattr(value, 'dtype', 'unknown type')}: "
            f"{error}. Cast it before it becomes a value of a row: bfloat16, which numpy does not have, to float32."
        ) from error


def unboxed(value: Any) -> Any:
    """Return a numpy scalar or an array without axes as a plain Python value, anything else as it is.

    >>> unboxed(np.int8(3)), unboxed(np.array(2.5)), unboxed("text")
    (3, 2.5, 'text')
    """
    if not isinstance(value, np.ndarray | np.generic) or value.shape:
        return value
    return value.item() if value.dtype.kind in _PLAIN or value.dtype == _DAYS else np.asarray(value)[()]


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
