"""Fused arrays, such as one matrix with three segments: queries, keys and values. Every rank gets an equal share of each segment."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

Segments = int | tuple[int, ...] | tuple[float, ...]  # int: count of equal segments; tuple: starts of all segments but the first


def sizes_of(segments: Segments, size: int) -> tuple[int, ...]:
    """Return the sizes of the segments of an axis, divided as in MLX's `shard_linear`.

    >>> sizes_of(3, 12), sizes_of((8, 10), 12), sizes_of((0.5, 0.75), 12)
    ((4, 4, 4), (8, 2, 2), (6, 3, 3))
    """
    if isinstance(segments, int):
        return (size // segments,) * segments
    ends = [bound if isinstance(bound, int) else int(bound * size) for bound in segments]
    return tuple(end - begin for begin, end in pairwise((0, *ends, size)))


def rows_of(sizes: Sequence[int], index: int, count: int) -> NDArray[np.int64]:
    """Return the indices of the rows of a fused array that one rank gets. Each rank gets an equal share of each segment.

    `sizes` has the number of rows of each segment, such as queries, keys and values. The rank is number `index` of `count` ranks.

    >>> rows_of((4, 2), 1, 2).tolist()
    [2, 3, 5]
    """
    begins = accumulate(sizes, initial=0)
    pieces = [np.arange(index * (size // count), (index + 1) * (size // count)) + begin for begin, size in zip(begins, sizes, strict=False)]
    return np.concatenate(pieces)


def part_of(whole: mx.array, axis: int, sizes: Sequence[int], index: int, count: int) -> mx.array:
    """Return part `index` of `count` of an array, as a copy. A slice would keep the whole array in memory.

    >>> part_of(mx.arange(6), 0, (4, 2), 0, 2).tolist()
    [0, 1, 4]
    """
    return mx.take(whole, mx.array(rows_of(sizes, index, count)), axis)


def joined(parts: Sequence[mx.array], axis: int, sizes: Sequence[int]) -> mx.array:
    """Join the parts of an array, given in rank order.

    >>> joined([mx.array([0, 1, 4]), mx.array([2, 3, 5])], 0, (4, 2)).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    array = mx.concatenate(list(parts), axis)
    if len(sizes) == 1:
        return array
    order = np.argsort(np.concatenate([rows_of(sizes, index, len(parts)) for index in range(len(parts))]))
    return mx.take(array, mx.array(order), axis)
