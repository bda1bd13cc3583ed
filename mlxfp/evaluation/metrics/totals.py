"""Values of metrics on batches, and functions that merge values and compute the final numbers.

The value of a metric on a batch is a pair (sum, weight), or an instance of a subclass of `Measured`. Values can be merged in any order. A
sum is divided by its weight only at the end. The result therefore does not depend on batch sizes or on the number of machines.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from math import fsum, isfinite
from typing import Any

import attrs
import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from mlxfp.support.errors import ArgumentTypeError, DataError
from mlxfp.support.trees import tree_map


class Measured(ABC):
    """Base class for values of a metric on some examples, such as sums. The fields are numbers or arrays (MLX arrays for a single batch).

    >>> from attrs import frozen
    >>> @frozen
    ... class Largest(Measured):
    ...     number: float
    ...     @staticmethod
    ...     def join(values):
    ...         return max(values)
    ...     def value(self, name):
    ...         return float(self.number)
    >>> compute(merge([{"largest": Largest(2)}, {"largest": Largest(5)}]))
    {'largest': 5.0}
    """

    __slots__ = ()

    @staticmethod
    @abstractmethod
    def join(values: Sequence[Any]) -> Any:
        """Combine the values of a field from several batches, for example by addition."""

    @abstractmethod
    def value(self, name: str) -> float:
        """Compute the metric. Raises `DataError` with the metric's `name` if the metric is undefined for the examples."""


Number = float | mx.array
Totals = Mapping[str, tuple[Number, Number] | Measured]


def merge(parts: Iterable[Totals]) -> dict[str, Any]:
    """Combine the sums of several batches by metric name. The result for an empty iterable is {}, the initial state of an evaluation.

    Sums are exact (`math.fsum`) and rounded once, so the order of the batches does not matter. All values are moved to the host: numbers
    become Python floats, arrays become NumPy arrays. Raises `ArgumentTypeError` if values with the same metric name have different types.

    >>> merge([{"accuracy": (3, 4)}, {"accuracy": (1, 4), "loss": (2.5, 4)}])
    {'accuracy': (4.0, 8.0), 'loss': (2.5, 4.0)}

    See also: `compute`.
    """
    gathered: dict[str, list[Any]] = {}
    for part in parts:
        for name, total in part.items():
            gathered.setdefault(name, []).append(total)
    return {name: _merge(name, totals) for name, totals in gathered.items()}


def compute(totals: Totals) -> dict[str, float]:
    """Compute each metric from its merged sums. For a pair, such as (hits, rows), divide the first number by the second.

    Raises `DataError` for a mean with weight 0, and for a metric that is undefined for the examples, for example `roc_auc` of one class.

    >>> compute({"accuracy": (4, 8)})
    {'accuracy': 0.5}
    """
    return {name: total.value(name) if isinstance(total, Measured) else mean(name, *total) for name, total in merge([totals]).items()}


def to_numpy(tree: Any) -> Any:
    """Copy each MLX array of a tree to a NumPy array. bfloat16 becomes float32, because NumPy has no bfloat16.

    `np.asarray` would return a view, and writing to the view would change the MLX array.
    """
    return tree_map(_copy, tree)


def mean(name: str, total: float, weight: float) -> float:
    """Divide a sum by its weight. Raises `DataError` if the weight is 0."""
    if weight == 0:
        raise DataError(f"The metric {name!r} has a total weight of 0: there is nothing to average over. Check the labels and the mask.")
    return float(total / weight)


def added(values: Sequence[Any]) -> Any:
    """Return the sum of numbers without rounding errors, or the sum of arrays of the same shape."""
    # The type test comes first because `np.ndim` is slow for floats, and a run adds floats at each step.
    if type(values[0]) is not float and np.ndim(values[0]):
        return np.sum(values, axis=0)
    numbers = [float(value) for value in values]
    return fsum(numbers) if all(map(isfinite, numbers)) else float(sum(numbers))  # `fsum` raises for inf - inf, `sum` gives NaN


def joined(values: Sequence[Any]) -> Any:
    """Concatenate arrays."""
    return np.concatenate(values)


def _merge(name: str, totals: Sequence[Any]) -> Any:
    kind = type(totals[0])
    other = next((type(total) for total in totals if type(total) is not kind), kind)
    if other is not kind:
        raise ArgumentTypeError(
            f"Two metrics named {name!r} have different types: one is a {kind.__name__}, the other a {other.__name__}. Rename one metric."
        )
    if kind is tuple:
        return tuple(added([_on_host(name, part) for part in column]) for column in zip(*totals, strict=True))
    fields = [[_on_host(name, getattr(total, field.name)) for total in totals] for field in attrs.fields(kind)]
    return kind(*map(kind.join, fields))


def _copy(array: object) -> NDArray[Any]:
    if not isinstance(array, mx.array):
        raise ArgumentTypeError(f"Predictions must be MLX arrays, got {type(array).__name__}: {array!r:.80}. Return mx.array values.")
    return np.array(array.astype(mx.float32) if array.dtype == mx.bfloat16 else array)


def _on_host(name: str, value: Any) -> Any:
    if type(value) is float:
        return value
    numbers = np.asarray(to_numpy(value) if isinstance(value, mx.array) else value)
    if np.iscomplexobj(numbers):
        raise ArgumentTypeError(f"The metric {name!r} must be a real number, got complex numbers: {value!r:.60}. Return mx.real(sum).")
    return numbers.astype(np.float64, copy=False)
