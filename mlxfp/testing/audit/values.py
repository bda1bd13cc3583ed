"""Classes for checking a data loader (`Loader` and `Finding`), and functions that compare the items of a loader."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from mlxfp.support.checks import check_callable, check_positive

Items = tuple[tuple[int, ...], ...]  # the row numbers in each item of an epoch


# Type of a function (seed, epoch, workers, state) that runs one epoch of a loader.
# A `Run` function yields pairs of an item (a row or a batch) and the state after the item.
# `state` is a state yielded earlier, or None for the start of the epoch. Each call starts a new run, as in a new process.
Run = Callable[[int, int, int, Any], Iterator[tuple[Any, Any]]]
# Type of the function `apply` of a loader: `apply(function, epochs, workers)` runs several epochs and yields the items.
# The argument `function` converts a row number to a row, and can be pickled.
Apply = Callable[[Callable[[int], Any], int, int], Iterator[Any]]
# Type of the function `ranks` of a loader: `ranks(count, states)` runs the first epoch on `count` ranks.
# The function returns one sequence per rank, with pairs of an item and the state after the item.
# A list `states` resumes a run from one state per rank, all after the same number of items. `states=None` starts a new run.
Ranks = Callable[[int, Sequence[Any] | None], Sequence[Sequence[tuple[Any, Any]]]]


@frozen
class Loader:
    """A data loader for an audit: name, number of rows, and functions that run the loader.

    The loader yields items (rows or batches). An item is a row number, or nested sequences of row numbers.

    `run` is required, and is enough for most checks. With `apply`, the audit also checks errors in rows and memory growth. With `ranks`,
    the audit also checks distributed runs.

    >>> from mlxfp.testing import audit
    >>> def counting(seed, epoch, workers, state):
    ...     yield from ((number, number) for number in range(0 if state is None else state + 1, 12))
    >>> for finding in audit.examine(audit.Loader("counting", 12, counting)):
    ...     print(finding)
    orders: counting has one order for (seed 0, epoch 0) and (seed 0, epoch 1), and for (seed 0, epoch 1) and (seed 1, epoch 0), \
and for (seed 1, epoch 0) and (seed 1, epoch 1)
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
    """Return the row numbers in each item of one epoch."""
    return tuple(numbers_of(item) for item, _ in loader.run(seed, epoch, workers, None))


def numbers_of(item: Any) -> tuple[int, ...]:
    """Return all numbers in an item, in order. Accepts mappings, sequences, and arrays or tensors of any package."""
    if isinstance(item, Mapping):
        return sum(map(numbers_of, item.values()), ())
    if isinstance(item, Sequence):
        return sum(map(numbers_of, item), ())
    return tuple(int(number) for number in np.asarray(item).reshape(-1))


def lost_and_repeated(items: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> str:
    """Describe the rows that `items` lose or repeat. Returns an empty string if `items` and `expected` have the same rows."""
    actual_counts, expected_counts = (Counter(number for item in parts for number in item) for parts in (items, expected))
    differences = {
        "loses": sorted((expected_counts - actual_counts).elements()),
        "repeats": sorted((actual_counts - expected_counts).elements()),
    }
    return " and ".join(f"{verb} the rows {rows}" for verb, rows in differences.items() if rows)


def first_difference(actual: Items, expected: Items) -> str:
    """Describe the first item of `actual` that differs from the item in `expected`."""
    index = next((index for index, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b), min(len(actual), len(expected)))
    shown = [list(items[index]) if index < len(items) else "nothing" for items in (actual, expected)]
    return f"item {index} is {shown[0]}, not {shown[1]}"
