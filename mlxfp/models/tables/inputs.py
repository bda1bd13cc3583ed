"""Input functions of table networks: shape checks, one-hot encoding and scaling."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxfp.models.layers import Input
from mlxfp.models.tables.columns import CATEGORIES, CLIP, NUMBERS, TableColumns, robust_scale
from mlxfp.support.errors import ArgumentError

_TWO = 2  # a column of two categories becomes one number


def one_hot(categories: mx.array, count: int) -> mx.array:
    """Return the one-hot encoding of categories. The shape [B] becomes [B, count], or [B, 1] if `count` is 2.

    Category 0 (missing) and categories above `count` become zeros. If `count` is 2, category 1 becomes 1, and category 2 becomes -1.

    >>> one_hot(mx.array([0, 1, 3]), 3).tolist(), one_hot(mx.array([0, 1, 2]), 2).tolist()
    ([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], [[0.0], [1.0], [-1.0]])
    """
    known = (categories[:, None] == mx.arange(1, count + 1)).astype(mx.float32)
    return known[:, :1] - known[:, 1:] if count == _TWO else known


def one_hot_scales(counts: Sequence[int]) -> tuple[tuple[float, float], ...]:
    """Return a pair (median, scale factor) for each number in the one-hot encoding of a category column.

    `counts` holds the number of training rows of each category, beginning with category 0. Median and scale factor are computed from the
    encoded training rows. If `counts` is empty, the result is empty.

    >>> one_hot_scales([0, 30, 70]), one_hot_scales([10, 5, 5, 80]), one_hot_scales([])
    (((-1.0, 0.5),), ((0.0, 2.0), (0.0, 2.0), (1.0, 2.0)), ())
    """
    if len(counts) == _TWO + 1:
        return (_scale((-1.0, 0.0, 1.0), (counts[2], counts[0], counts[1])),)
    return tuple(_scale((0.0, 1.0), (sum(counts) - count, count)) for count in counts[1:])


def _scale(values: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Return the median and scale factor of a column. `values` are ascending numbers, `counts` the number of rows with each value."""
    known, ends = np.array(values), np.cumsum(counts)
    positions = np.array([0, 0.25, 0.5, 0.75, 1]) * (ends[-1] - 1)  # indices of minimum, quartiles and maximum in the sorted rows
    below, above = (known[np.searchsorted(ends, edge(positions), side="right")] for edge in (np.floor, np.ceil))
    return robust_scale(*(below + (above - below) * (positions % 1)))


def scaled(numbers: mx.array, scales: Sequence[mx.array]) -> mx.array:
    """Return (numbers - medians) * factors, clipped smoothly, for numbers float32[B, N]. `scales` is (medians, factors), or empty.

    If `scales` is empty, the numbers are returned unchanged.

    >>> scaled(mx.array([[1.0, 0.0]]), (mx.array([0.0, 0.0]), mx.array([2.0, 2.0]))).round(decimals=3).tolist()
    [[1.6640000343322754, 0.0]]
    """
    if not scales:
        return numbers
    medians, factors = scales
    centered = (numbers - medians) * factors
    return centered * mx.rsqrt(1 + (centered / CLIP) ** 2)


def check_inputs(columns: TableColumns, numbers: Input, categories: Input) -> None:
    """Raise `ArgumentError` unless the arrays have the shapes expected by the network."""
    given = {NUMBERS: (numbers, len(columns.numbers)), CATEGORIES: (categories, len(columns.kinds))}
    for name, (array, count) in given.items():
        if array is None and not count:
            continue
        if array is None or array.ndim != 2 or array.shape[1] != count:
            shape = "none" if array is None else list(array.shape)
            raise ArgumentError(
                f"The model needs {name} of shape [B, {count}], got {shape}. Create the batches with the columns of the model: "
                f"pipe(rows, columns, ...)."
            )


def check_width(width: int, kind: str) -> None:
    """Raise `ArgumentError` if the network has no inputs."""
    if not width:
        raise ArgumentError(f"A {kind} needs columns with values, got none. Fit other columns: fit_columns(rows, numbers=[...]).")
