"""Loaders under audit, findings, and comparisons of items."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from mlxfp.support.checks import check_callable, check_positive

Items = tuple[tuple[int, ...], ...]  # the row numbers in each item of an epoch


# Run one epoch of a loader, given (seed, epoch, workers, state). Yield pairs of an item (a row or a batch) and the state after the item.
# `state` is a state yielded earlier, or None for the start of the epoch. Each call starts a new run, as in a new process.
Run = Callable[[int, int, int, Any], Iterator[tuple[Any, Any]]]
# Run epochs, given (function, epochs, workers). Yield items of rows after `function`, a pickleable function of a row number.
Apply = Callable[[Callable[[int], Any], int, int], Iterator[Any]]
# Function called as run(ranks, states) that runs the first epoch on several ranks and returns (item, state) pairs of each rank.
# `states` has the states of all ranks of an earlier run after equally many items, or is None for the start of the epoch.
Ranks = Callable[[int, Sequence[Any] | None], Sequence[Sequence[tuple[Any, Any]]]]


@frozen
class Loader:
    """A loader under audit: name, number of rows and run functions. An item may be a number or nested sequences of numbers.

    `run` is enough for most laws. `apply` adds the laws of errors and memory, and `ranks` adds the laws of ranks.

    >>> from mlxfp.testing import audit
    >>> def counting(seed, epoch, workers, state):
    ...     yield from ((number, number) for number in range(0 if state is None else state + 1, 12))
    >>> for finding in audit.examine(audit.Loader("counting", 12, counting)):
    ...     print(finding)
    orders: counting has one order for (seed 0, epoch 0) and (seed 0, epoch 1), (seed 0, epoch 1) and (seed 1, epoch 0), \
(seed 1, epoch 0) and (seed 1, epoch 1)
    """

    name: str
    rows: int = field(validator=lambda loader, attribute, value: check_positive(rows=value))
    run: Run = field(validator=lambda loader, attribute, value: check_callable(run=value))
    apply: Apply | None = None
    ranks: Ranks | None = None


@frozen
class Finding:
    """A broken law and a description of the violation.

    >>> print(Finding("resume", "lost the rows [3, 4]"))
    resume: lost the rows [3, 4]
    """

    law: str
    detail: str

    def __str__(self) -> str:
        return f"{self.law}: {self.detail}"


def items_of(loader: Loader, seed: int, epoch: int, workers: int) -> Items:
    """Return the items of an epoch as row numbers."""
    return tuple(numbers_of(item) for item, _ in loader.run(seed, epoch, workers, None))


def numbers_of(item: Any) -> tuple[int, ...]:
    """Return all numbers in an item, in order. Accepts mappings, sequences, and arrays or tensors of any package."""
    if isinstance(item, Mapping):
        return sum(map(numbers_of, item.values()), ())
    if isinstance(item, Sequence):
        return sum(map(numbers_of, item), ())
    return tuple(int(number) for number in np.asarray(item).reshape(-1))


def lost_and_repeated(items: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> str:
    """Describe the rows that `items` lack or have too often, or return an empty string."""
    actual_counts, expected_counts = (Counter(number for item in parts for number in item) for parts in (items, expected))
    differences = {
        "loses": sorted((expected_counts - actual_counts).elements()),
        "repeats": sorted((actual_counts - expected_counts).elements()),
    }
    return " and ".join(f"{verb} the rows {rows}" for verb, rows in differences.items() if rows)


def first_difference(actual: Items, expected: Items) -> str:
    """Describe the first different item."""
    index = next((index for index, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b), min(len(actual), len(expected)))
    shown = [list(items[index]) if index < len(items) else "nothing" for items in (actual, expected)]
    return f"item {index} is {shown[0]}, not {shown[1]}"
