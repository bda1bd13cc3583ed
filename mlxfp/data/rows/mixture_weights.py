"""Weights of the datasets in a mixture: constant weights, or weights that change after a number of examples or tokens."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.support.checks import check_not_negative, check_types
from mlxfp.support.errors import ArgumentError

Times = NDArray[np.float64]


@frozen(repr=False)
class Weights:
    """Weights of N datasets, which may change during a run.

    A run consists of phases with constant weights. Phase k has the weights `weights[k]` and starts after `starts[k]` examples or tokens.

    A mixture sorts items by due time. Due times start at 0. While the due time increases by 1, a dataset of weight w yields w examples or
    tokens. The due time of an item thus follows from the number of examples or tokens that the dataset yields before the item.
    """

    starts: tuple[int, ...]
    weights: tuple[tuple[float, ...], ...]

    def __repr__(self) -> str:
        return repr(self.weights[0] if len(self.starts) == 1 else dict(zip(self.starts, self.weights, strict=True)))

    @property
    def positive(self) -> tuple[bool, ...]:
        """For each dataset, True if the weight of the dataset is above 0 in at least one phase."""
        return tuple(any(column) for column in zip(*self.weights, strict=True))

    def due(self, index: int, given: Any) -> Times:
        """Return the due times of M items of dataset `index`, float64[M]. A due time is the sort key of an item in the mixture.

        For each item, the argument `given` holds the number of examples or tokens that the dataset yields before this item. The due time is
        infinite if all later weights of the dataset are 0.
        """
        begins, amounts, weights = self._phases
        phases = np.searchsorted(amounts[:, index], given, side="right") - 1
        rates = weights[phases, index]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(rates > 0, begins[phases] + (given - amounts[phases, index]) / rates, np.inf)

    def wanted(self, total: int) -> tuple[float, ...]:
        """Return the share of each dataset in the first `total` examples or tokens of the mixture."""
        ends = (*self.starts[1:], np.inf)
        lengths = [min(end, max(total, 1)) - start for start, end in zip(self.starts, ends, strict=True)]
        parts = [(length, weights) for length, weights in zip(lengths, self.weights, strict=True) if length > 0]
        if len(parts) == 1:
            return tuple(weight / sum(parts[0][1]) for weight in parts[0][1])
        amounts = sum(length * np.array(weights) / sum(weights) for length, weights in parts)
        return tuple((np.array(amounts) / total).tolist())

    @cached_property
    def _phases(self) -> tuple[Times, Times, Times]:
        """Arrays that describe the K phases of N datasets. The weights are constant during a phase.

        - start time of each phase, [K]
        - number of items or tokens that a dataset yields before a phase, [K, N]
        - weight of a dataset during a phase, [K, N]
        """
        rates = np.array(self.weights)
        durations = np.diff(self.starts) / rates[:-1].sum(axis=1)
        begins = np.concatenate([[0.0], np.cumsum(durations)])
        amounts = np.concatenate([np.zeros((1, rates.shape[1])), np.cumsum(durations[:, None] * rates[:-1], axis=0)])
        return begins, amounts, rates


def weights_for(count: int, weights: Sequence[float] | Mapping[int, Sequence[float]]) -> Weights:
    """Return the weights of `count` datasets as a `Weights`.

    Raises `ArgumentError` for a negative or missing weight, and if all datasets have the weight 0 at the same time.
    """
    check_types((Sequence, np.ndarray, Mapping), weights=weights)
    phases = dict(weights) if isinstance(weights, Mapping) else {0: weights}
    for start in phases:
        check_not_negative(**{"start of weights": start})
    if 0 not in phases or any(before >= after for before, after in pairwise(phases)):
        raise ArgumentError(
            f"If weights is a mapping, the keys must start at 0 and ascend, got the keys {list(phases)}. "
            "Write weights={0: [3, 1], 10_000: [1, 1]} to change the weights after 10,000 examples."
        )
    return Weights(tuple(phases), tuple(tuple(_checked(count, values)) for values in phases.values()))


def _checked(count: int, weights: Any) -> Iterator[float]:
    check_types((Sequence, np.ndarray), weights=weights)
    for weight in weights:
        check_types(Real, weight=weight)
    if len(weights) != count:
        raise ArgumentError(f"mix needs one weight for each of the {count} datasets, got {list(weights)}.")
    if min(weights) < 0 or not 0 < sum(weights) < float("inf"):
        raise ArgumentError(f"weights must be at least 0 and not all 0, got {list(weights)}.")
    return map(float, weights)
