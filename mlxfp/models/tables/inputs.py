"""What networks for tables do with their inputs: checks, and categories as numbers."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlxfp.models.layers import Input
from mlxfp.models.tables.columns import CATEGORIES, CLIP, NUMBERS, TableColumns, robust_scale
from mlxfp.support.errors import ArgumentError

_TWO = 2  # categories, which become one number


def one_hot(categories: mx.array, count: int) -> mx.array:
    """Write categories, int[B], as float32[B, count]: 1 at each, and zeros for 0 and for categories above `count`; two as 1 and -1.

    >>> one_hot(mx.array([0, 1, 3]), 3).tolist(), one_hot(mx.array([0, 1, 2]), 2).tolist()
    ([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], [[0.0], [1.0], [-1.0]])
    """
    known = (categories[:, None] == mx.arange(1, count + 1)).astype(mx.float32)
    return known[:, :1] - known[:, 1:] if count == _TWO else known


def one_hot_scales(counts: Sequence[int]) -> tuple[tuple[float, float], ...]:
    """Return a median and a factor for each number of `one_hot`, from how many rows have each category, from 0 on.

    They are those of a column of numbers, see `NumberColumn`. Without counts, there are none.

    >>> one_hot_scales([0, 30, 70]), one_hot_scales([10, 5, 5, 80]), one_hot_scales([])
    (((-1.0, 0.5),), ((0.0, 2.0), (0.0, 2.0), (1.0, 2.0)), ())
    """
    if len(counts) == _TWO + 1:
        return (_scale((-1.0, 0.0, 1.0), (counts[2], counts[0], counts[1])),)
    return tuple(_scale((0.0, 1.0), (sum(counts) - count, count)) for count in counts[1:])


def _scale(values: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Scale numbers in ascending order, each of which so many rows have."""
    known, ends = np.array(values), np.cumsum(counts)
    places = np.array([0, 0.25, 0.5, 0.75, 1]) * (ends[-1] - 1)  # of the quantiles among the rows
    below, above = (known[np.searchsorted(ends, edge(places), side="right")] for edge in (np.floor, np.ceil))
    return robust_scale(*(below + (above - below) * (places % 1)))


def scaled(numbers: mx.array, scales: Sequence[mx.array]) -> mx.array:
    """Scale numbers, float32[B, N], by their medians and factors, and clip them smoothly; without scales, leave them as they are.

    >>> scaled(mx.array([[1.0, 0.0]]), (mx.array([0.0, 0.0]), mx.array([2.0, 2.0]))).round(decimals=3).tolist()
    [[1.6640000343322754, 0.0]]
    """
    if not scales:
        return numbers
    medians, factors = scales
    centered = (numbers - medians) * factors
    return centered * mx.rsqrt(1 + (centered / CLIP) ** 2)


def check_inputs(columns: TableColumns, numbers: Input, categories: Input) -> None:
    """Raise `ArgumentError` unless the arrays are there and have the columns that a network was made for."""
    given = {NUMBERS: (numbers, len(columns.numbers)), CATEGORIES: (categories, len(columns.kinds))}
    for name, (array, count) in given.items():
        if array is None and not count:
            continue
        if array is None or array.ndim != 2 or array.shape[1] != count:
            got = "none" if array is None else list(array.shape)
            raise ArgumentError(
                f"The model needs {name} of shape [B, {count}], got {got}. Make the batches with its own columns: pipe(rows, columns, ...)."
            )


def check_width(width: int, kind: str) -> None:
    """Raise `ArgumentError` if there is nothing to learn from."""
    if not width:
        raise ArgumentError(f"A {kind} needs columns with values, got none. Fit others: fit_columns(rows, numbers=[...]).")
