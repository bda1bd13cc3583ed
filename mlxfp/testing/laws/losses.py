"""Laws of losses and metrics: the total is the same, however a batch is split."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mlxfp.support.errors import DataError

__tracebackhide__ = True

Loss = Callable[..., tuple[Any, Any]]  # function from arrays to two scalars: sum and weight


def assert_adds_up(loss: Loss, arrays: Sequence[Any], sizes: Sequence[int], *, tolerance: float = 1e-5) -> None:
    """Check that a loss of a batch can be computed in parts. A loss returns a pair (sum, weight): both must add up over the parts.

    `arrays` are the arguments of the loss, each of shape [B, ...] with one row per example. `sizes` is the number of examples in each part.

    >>> import mlx.core as mx
    >>> import mlxfp as fp
    >>> assert_adds_up(fp.losses.mse, (mx.arange(5.0), mx.zeros(5)), [2, 0, 3])
    """
    parts = _of_parts(loss, arrays, sizes)
    for name, whole, *split in zip(("sum", "weight"), loss(*arrays), *parts, strict=True):
        added, total = sum(float(part) for part in split), float(whole)
        close = np.isclose(total, added, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert close, f"a loss adds up, but parts of sizes {list(sizes)} give the {name} {added}, and all of the batch gives {total}"


def assert_merges(metric: Callable[..., Any], arrays: Sequence[Any], sizes: Sequence[int], *, tolerance: float = 1e-5) -> None:
    """Check that a metric can be computed in parts: the merged values of the parts of a batch equal the value of the whole batch.

    `arrays` are the arguments of the metric, each of shape [B, ...] with one row per example. `sizes` holds the number of examples in each
    part. The order and grouping of the parts must not matter. If the metric is undefined for the whole batch (`DataError`), the metric must
    also be undefined for the merged parts.

    >>> import mlx.core as mx
    >>> import mlxfp as fp
    >>> assert_merges(fp.metrics.rmse, (mx.arange(5.0), mx.zeros(5)), [2, 3])
    """
    from mlxfp.evaluation.metrics import merge

    parts = [{"metric": value} for value in _of_parts(metric, arrays, sizes)]
    expected, cut = _computed({"metric": metric(*arrays)}), len(parts) // 2
    for grouping in (parts, parts[::-1], [merge(parts[:cut]), merge(parts[cut:])]):
        actual = _computed(merge(grouping))
        close = np.isclose(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=True)
        assert close, f"a metric merges, but parts of sizes {list(sizes)} give {actual}, and all of the batch gives {expected}"


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
