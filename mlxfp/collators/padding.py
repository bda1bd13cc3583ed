"""Padding ragged rows to a rectangle with whole-column numpy."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Side = Literal["left", "right"]


def padded_length(longest: int, multiple: int) -> int:
    """Round the longest length up to a multiple; at least one multiple, so no array is empty.

    >>> padded_length(33, 32), padded_length(0, 8)
    (64, 8)
    """
    return max(1, -(-longest // multiple)) * multiple


def real_places(ends: NDArray[np.int64], length: int, side: Side) -> NDArray[np.bool_]:
    """Return where rows that end at `ends` int64[B + 1] have values after padding: bool[B, length].

    >>> real_places(np.array([0, 1, 3]), 3, "right").astype(int).tolist()
    [[1, 0, 0], [1, 1, 0]]
    """
    lengths = ends[1:] - ends[:-1]
    places = np.arange(length)
    real: NDArray[np.bool_] = places < lengths[:, None] if side == "right" else places >= length - lengths[:, None]
    return real


def pad_rows(values: NDArray[Any], real: NDArray[np.bool_], fill: int) -> NDArray[Any]:
    """Lay out the values of all rows, end to end, at the real places: [B, length] of the values' dtype, `fill` elsewhere.

    >>> pad_rows(np.array([5, 6, 7]), np.array([[True, False], [True, True]]), 0).tolist()
    [[5, 0], [6, 7]]
    """
    out = np.full(real.shape, fill, values.dtype)
    out[real] = values
    return out
