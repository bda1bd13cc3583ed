"""Totals: the values of metrics before the last division, which merge with others and are computed at the end.

The total of a metric is a pair (sum, weight), or a value of a subclass of `Measured`. Totals of one metric merge in any order and any
grouping, and nothing is divided before the end: so the result does not depend on batches, or on which machine saw which examples.
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
    """The total of a metric over some examples. Its fields are numbers or arrays; those of a batch may still be on the device.

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
        """Combine the values of a field from several batches, for example by adding them."""

    @abstractmethod
    def value(self, name: str) -> float:
        """Compute the metric. Raises `DataError`, with its name, if the metric is undefined for the examples."""


Totals = Mapping[str, tuple[float, float] | Measured]


def merge(parts: Iterable[Totals]) -> dict[str, Any]:
    """Merge totals, name by name; without parts the result is {}, the start of an evaluation.

    Sums are exact (`math.fsum`) and rounded once, so the order of the parts does not matter. All values are moved from the device: numbers
    become Python floats, arrays numpy arrays. Raises `ArgumentTypeError` if one name has two kinds of metrics.

    >>> merge([{"accuracy": (3, 4)}, {"accuracy": (1, 4), "loss": (2.5, 4)}])
    {'accuracy': (4.0, 8.0), 'loss': (2.5, 4.0)}

    See also: `compute`.
    """
    gathered: dict[str, list[Any]] = {}
    for part in parts:
        for name, one in part.items():
            gathered.setdefault(name, []).append(one)
    return {name: _merge(name, several) for name, several in gathered.items()}


def compute(totals: Totals) -> dict[str, float]:
    """Compute every metric: for a pair, the sum divided by the weight.

    Raises `DataError` for a mean over nothing, and for a metric that is undefined for the examples, such as `roc_auc` of one class.

    >>> compute({"accuracy": (4, 8)})
    {'accuracy': 0.5}
    """
    return {name: one.value(name) if isinstance(one, Measured) else mean(name, *one) for name, one in merge([totals]).items()}


def to_numpy(tree: Any) -> Any:
    """Copy every MLX array of a tree to a numpy array; bfloat16, which numpy does not have, becomes float32.

    It copies because `np.asarray` returns a view, and writing to it would change the MLX array.
    """
    return tree_map(_copy, tree)


def mean(name: str, total: float, weight: float) -> float:
    """Divide a sum by its weight; raises `DataError` for a weight of 0."""
    if weight == 0:
        raise DataError(f"The metric {name!r} has a total weight of 0: there is nothing to average over. Check the labels and the mask.")
    return float(total / weight)


def added(values: Sequence[Any]) -> Any:
    """Add up numbers exactly, or arrays of one shape."""
    if type(values[0]) is not float and np.ndim(values[0]):  # a run adds up floats all the time, and numpy takes long to say what they are
        return np.sum(values, axis=0)
    numbers = [float(value) for value in values]
    return fsum(numbers) if all(map(isfinite, numbers)) else float(sum(numbers))  # fsum raises for inf - inf, which is NaN


def joined(values: Sequence[Any]) -> Any:
    """Concatenate arrays."""
    return np.concatenate(values)


def _merge(name: str, several: Sequence[Any]) -> Any:
    kind = type(several[0])
    other = next((type(one) for one in several if type(one) is not kind), kind)
    if other is not kind:
        raise ArgumentTypeError(f"The metric {name!r} is a {kind.__name__} in one part and a {other.__name__} in another. Rename one.")
    if kind is tuple:
        return tuple(added([_on_host(part) for part in column]) for column in zip(*several, strict=True))
    fields = [[_on_host(getattr(one, field.name)) for one in several] for field in attrs.fields(kind)]
    return kind(*map(kind.join, fields))


def _copy(array: object) -> NDArray[Any]:
    if not isinstance(array, mx.array):
        raise ArgumentTypeError(f"Predictions must be MLX arrays, got {type(array).__name__}: {array!r:.80}. Return mx.array values.")
    return np.array(array.astype(mx.float32) if array.dtype == mx.bfloat16 else array)


def _on_host(value: Any) -> Any:
    return value if type(value) is float else np.asarray(to_numpy(value) if isinstance(value, mx.array) else value, np.float64)
