"""Arrow arrays of numbers, and constants, made of their buffers.

`pa.array` and `pa.scalar` import pandas where it is installed, which takes a third of a second in each fresh process and worker.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def number_array(values: NDArray[Any]) -> pa.Array:
    """Make the array of numbers that `pa.array` makes, without a copy where they are next to each other; of others, by `pa.array`.

    >>> number_array(np.arange(6)[::2]).to_pylist()
    [0, 2, 4]
    """
    if values.dtype.kind not in "iuf" or not values.dtype.isnative or values.ndim != 1:
        return pa.array(values)
    data = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(data.dtype), len(data), [None, pa.py_buffer(data)])


def text_scalar(text: str) -> pa.StringScalar:
    """Make the scalar of a text that `pa.scalar` makes.

    >>> text_scalar("a").equals(pa.scalar("a"))
    True
    """
    data = text.encode()
    return pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(data)], np.int32)), pa.py_buffer(data))[0]


def numbers_of(array: pa.Array) -> NDArray[Any]:
    """Return what `to_numpy` does: integers and truth values without nulls by their buffer, integers without a copy.

    >>> numbers_of(pa.array([3, 1, 2])[1:]), numbers_of(pa.array([True, False]))
    (array([1, 2]), array([ True, False]))
    """
    kind = array.type
    if array.null_count or not len(array) or not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        found: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return found
    if pa.types.is_boolean(kind):
        truths: NDArray[Any] = numbers_of(array.cast(pa.uint8())).view(bool)
        return truths
    values: NDArray[Any] = np.frombuffer(array.buffers()[1], str(kind))
    return values[array.offset : array.offset + len(array)]
