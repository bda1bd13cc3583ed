"""Pieces of many buffers, put end to end in one pass: Arrow copies what views of bytes show, without a loop in Python."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Places = NDArray[np.integer[Any]]

LAST_BYTE = 2**31 - 1  # the last one of a buffer that a view can say
_INLINE = 12  # bytes that a view holds in itself


class Pieces:
    """Pieces that are put one after another in a place each, and joined when all are there.

    >>> pieces = Pieces(3)
    >>> pieces.put(np.array([2, 0]), pa.py_buffer(b"worldhello"), begins=np.array([0, 5]), lengths=np.array([5, 5]))
    >>> pieces.put(np.array([1]), pa.py_buffer(b" "), begins=np.array([0]), lengths=np.array([1]))
    >>> ends, data = pieces.joined()
    >>> ends.tolist(), data.to_pybytes()
    ([0, 5, 6, 11], b'hello world')
    """

    def __init__(self, count: int) -> None:
        """Make room for so many pieces."""
        # https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-view-layout: a view is its length, its first four bytes
        # once more, which are not read here, the number of its buffer, and where it begins there
        self._views = np.empty((count, 4), np.int32)
        self._buffers: list[pa.Buffer] = []

    def put(self, at: Places | slice, buffer: pa.Buffer, begins: Places, lengths: Places) -> None:
        """Define the pieces at the places `at`: `lengths` bytes of a buffer of less than 2 GB, from `begins` on. All are int[N]."""
        apart = not isinstance(at, slice)
        own = np.empty((len(lengths), 4), np.int32) if apart else self._views[at]
        own[:, 0], own[:, 2], own[:, 3] = lengths, len(self._buffers), begins
        short = np.flatnonzero(own[:, 0] <= _INLINE)
        if len(short):
            inside = np.arange(_INLINE)
            raw = np.frombuffer(buffer, np.uint8) if buffer.size else np.zeros(1, np.uint8)
            held = raw[np.minimum(begins[short, None] + inside, len(raw) - 1)]
            own.view(np.uint8)[short, 4:] = np.where(inside < lengths[short, None], held, 0)
        if apart:
            self._views[at] = own
        self._buffers.append(buffer)

    def joined(self) -> tuple[NDArray[np.int64], pa.Buffer]:
        """Copy all pieces, end to end: where each begins and the last one ends, int64[N + 1], and the bytes."""
        views = pa.py_buffer(self._views)
        made = pa.Array.from_buffers(pa.binary_view(), len(self._views), [None, views, *self._buffers]).cast(pa.large_binary())
        _, offsets, data = made.buffers()
        ends = np.frombuffer(offsets, np.int64, len(self._views) + 1)
        return ends, data.slice(0, int(ends[-1])) if data else pa.py_buffer(b"")
