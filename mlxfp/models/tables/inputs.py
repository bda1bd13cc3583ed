"""What networks for tables do with their inputs: checks, and categories as numbers."""

import mlx.core as mx

from mlxfp.core.errors import ArgumentError
from mlxfp.models.layers import Input
from mlxfp.models.tables.columns import CATEGORIES, NUMBERS, TableColumns


def one_hot(categories: mx.array, count: int) -> mx.array:
    """Write categories, int[B], as float32[B, count]: 1 at each, and zeros for 0 and for categories above `count`; two as 1 and -1.

    >>> one_hot(mx.array([0, 1, 3]), 3).tolist(), one_hot(mx.array([0, 1, 2]), 2).tolist()
    ([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], [[0.0], [1.0], [-1.0]])
    """
    known = (categories[:, None] == mx.arange(1, count + 1)).astype(mx.float32)
    return known[:, :1] - known[:, 1:] if count == 2 else known


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
