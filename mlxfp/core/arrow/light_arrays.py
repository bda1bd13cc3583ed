"""Creation of Arrow arrays with numbers, and of Arrow scalars with text, without an import of pandas.

`pa.array` and `pa.scalar` import pandas if installed, which takes a third of a second in every new process and worker.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def number_array(values: NDArray[Any]) -> pa.Array:
    """Return a numpy array as an Arrow array, without a copy of contiguous numbers. The result equals the result of `pa.array`.

    >>> number_array(np.arange(6)[::2]).to_pylist()
    [0, 2, 4]
    """
    if values.dtype.kind not in "iuf" or not values.dtype.isnative or values.ndim != 1:
        return pa.array(values)
    data = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(data.dtype), len(data), [None, pa.py_buffer(data)])


def text_scalar(text: str) -> pa.StringScalar:
    """Return a text as an Arrow scalar, equal to the result of `pa.scalar`.

    >>> text_scalar("a").equals(pa.scalar("a"))
    True
    """
    data = text.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data))[0]


def numbers_of(array: pa.Array) -> NDArray[Any]:
    """Return an Arrow array as a numpy array, equal to the result of `to_numpy`. Integers without nulls share memory with the Arrow array.

    >>> numbers_of(pa.array([3, 1, 2])[1:]), numbers_of(pa.array([True, False]))
    (array([1, 2]), array([ True, False]))
    """
    kind = array.type
    if array.null_count or not len(array) or not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        numbers: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return numbers
    if pa.types.is_boolean(kind):
        booleans: NDArray[Any] = numbers_of(array.cast(pa.uint8())).view(bool)
        return booleans
    values: NDArray[Any] = np.frombuffer(array.buffers()[1], str(kind))
    return values[array.offset : array.offset + len(array)]
