"""Access by name to the arrays of a batch: a mapping, tuple or list of arrays of any library, also nested.

This module imports no array library, not even MLX. See `array_values`.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.arrow.array_values import as_numpy, is_array
from mlxfp.support.errors import ArgumentTypeError


def named_parts(batch: Any) -> dict[str, Any]:
    """Return the arrays and the lists of texts of a batch by name. Arrays stay unchanged, and lists of texts become tuples.

    An element of a mapping is named by its key, an element of a tuple or list by its index. A dot joins nested names. A single array has
    the name "0". Raises `ArgumentTypeError` for a value that is neither an array nor a list of texts.

    >>> list(named_parts({"x": np.zeros(2), "names": ["a", "b"]})), list(named_parts((np.zeros(2), {"y": np.ones(2)})))
    (['x', 'names'], ['0', '1.y'])
    """
    return dict(_parts("", (batch,) if is_array(type(batch)) else batch))


def named_arrays(batch: Any) -> dict[str, Any]:
    """Return the elements of a batch by name, with arrays converted to numpy. If possible, the arrays share memory with the batch.

    >>> import mlx.core as mx
    >>> named_arrays({"x": mx.array([1, 2])})
    {'x': array([1, 2], dtype=int32)}
    """
    return {name: part if isinstance(part, tuple) else host_array(part) for name, part in named_parts(batch).items()}


def host_array(array: Any) -> NDArray[Any]:
    """Return an array of any library as a numpy array. bfloat16 becomes float32, because numpy has no bfloat16.

    >>> import mlx.core as mx
    >>> host_array(mx.ones(2, mx.bfloat16))
    array([1., 1.], dtype=float32)
    """
    if hasattr(array, "dtype") and dtype_name(array) == "bfloat16":
        module = sys.modules[type(array).__module__]
        array = array.float() if hasattr(array, "float") else array.astype(getattr(module, "float32", np.float32))
    return np.asarray(as_numpy(array))


def dtype_name(array: Any) -> str:
    """Return the name of the dtype of an array of any library.

    >>> import mlx.core as mx
    >>> dtype_name(mx.array([1])), dtype_name(np.zeros(1))
    ('int32', 'float64')
    """
    return str(array.dtype).rpartition(".")[2]


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if is_array(type(value)):
        yield name, value
    elif name and _is_texts(value):
        yield name, tuple(value)
    elif _is_container(value):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, part in items:
            yield from _parts(f"{name}.{key}" if name else str(key), part)
    else:
        where = f"{name!r}" if name else "the batch"
        raise ArgumentTypeError(
            f"A batch holds arrays and lists of texts, in a mapping or a tuple, but {where} is {type(value).__name__}: {value!r:.200}. "
            "Convert the value to an array."
        )


def _is_texts(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(text, str) for text in value)


def _is_container(value: Any) -> bool:
    """Return True for a mapping, and for a tuple or list of arrays, texts or containers. A list of numbers is no container."""
    if isinstance(value, Mapping):
        return True
    return isinstance(value, tuple | list) and all(is_array(type(part)) or _is_texts(part) or _is_container(part) for part in value)
