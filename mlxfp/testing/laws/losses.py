"""Laws of losses and metrics: the total is the same, however a batch is split."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mlxfp.support.errors import DataError

__tracebackhide__ = True


def assert_merges(metric: Callable[..., Any], arrays: Sequence[Any], sizes: Sequence[int], *, tolerance: float = 1e-5) -> None:
    """Check that a metric can be computed in parts: the merged values of the parts of a batch equal the value of the whole batch.

    `arrays` are the arguments of the metric, each of shape [B, ...] with one row per example. `sizes` holds the number of examples in each
    part. The order and grouping of the parts must not matter. If the metric is undefined for the whole batch (`DataError`), the metric must
    also be undefined for the merged parts. A metric or loss that returns a pair (sum, weight) must add up: both numbers are sums over the
    parts.

    >>> import mlx.core as mx
    >>> import mlxfp as fp
    >>> assert_merges(fp.metrics.rmse, (mx.arange(5.0), mx.zeros(5)), [2, 3])
    """
    from mlxfp.evaluation.metrics import merge

    values, whole = _of_parts(metric, arrays, sizes), metric(*arrays)
    parts = [{"metric": value} for value in values]
    expected, cut = _computed({"metric": whole}), len(parts) // 2
    for grouping in (parts, parts[::-1], [merge(parts[:cut]), merge(parts[cut:])]):
        actual = _computed(merge(grouping))
        close = np.isclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert close, f"a metric merges, but parts of sizes {list(sizes)} give {actual}, and all of the batch gives {expected}"
    for name, total, *split in zip(("sum", "weight"), whole, *values, strict=True) if isinstance(whole, tuple) else ():
        actual, expected = sum(map(float, split)), float(total)
        close = np.isclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert close, f"a loss adds up, but parts of sizes {list(sizes)} give the {name} {actual}, and all of the batch gives {expected}"


def assert_ignores(metric: Callable[..., Any], arrays: Sequence[Any], *, index: int, value: float, tolerance: float = 1e-5) -> None:
    """Check that a metric ignores each row of a batch in which all elements of `arrays[index]` equal `value`.

    For example, `value` is the label of ignored rows, or a mask of 0. A loss that counts ignored rows in its weight breaks the law.

    >>> import mlx.core as mx
    >>> import mlxfp as fp
    >>> assert_ignores(fp.losses.cross_entropy, (mx.zeros((2, 3)), mx.array([0, -100])), index=1, value=-100)
    """
    import mlx.core as mx

    rows = [mx.array(array)[:1] for array in arrays]
    rows[index] = mx.full(rows[index].shape, value, rows[index].dtype)
    longer = [mx.concatenate([mx.array(array), row]) for array, row in zip(arrays, rows, strict=True)]
    actual, expected = _computed({"metric": metric(*longer)}), _computed({"metric": metric(*arrays)})
    close = np.isclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
    assert close, (
        f"a metric ignores a row with {value} in array {index}, but the row changes the metric from {expected} to {actual}. Count only the "
        "other rows in the weight"
    )


def _of_parts(function: Callable[..., Any], arrays: Sequence[Any], sizes: Sequence[int]) -> list[Any]:
    edges = np.cumsum([0, *sizes]).tolist()
    return [function(*(array[start:stop] for array in arrays)) for start, stop in pairwise(edges)]


def _computed(totals: Any) -> float:
    """Compute a metric from its totals. Returns NaN if the metric is undefined for these totals."""
    from mlxfp.evaluation.metrics import compute

    try:
        return compute(totals)["metric"]
    except DataError:
        return float("nan")
