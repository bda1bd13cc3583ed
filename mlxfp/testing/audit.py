"""Check data loaders, ours or others, against the laws of determinism, permutation, workers and resuming.

A loader under audit reads the numbers 0 to `rows` - 1, shuffled, one in each row. `grain`, `datasets`, `stateful_dataloader` and `pipeline`
make a `Loader` from a function that makes a loader of that package; for any other loader, write the `run` of a `Loader`. `examine` returns
its findings, as values that print.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise, product
from typing import Any

import numpy as np
from attrs import field, frozen

from mlxfp.core.checks import check_callable, check_integer, check_positive
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import iterate
from mlxfp.testing.laws.orders import ENOUGH

Items = tuple[tuple[int, ...], ...]  # the numbers of the rows in each item of an epoch


# Runs one epoch of a loader, from (seed, epoch, workers, state): yields each item (a row or a batch) with the state after it. `state` is
# one of these, or None for the start of the epoch. Each call is a new run, as if in a new process.
Run = Callable[[int, int, int, Any], Iterator[tuple[Any, Any]]]


@frozen
class Loader:
    """A loader under audit: how to run it, and how many rows it reads. An item may be a number, or nested sequences of numbers.

    >>> def counting(seed, epoch, workers, state):
    ...     yield from ((number, number) for number in range(0 if state is None else state + 1, 12))
    >>> for finding in examine(Loader("counting", 12, counting)):
    ...     print(finding)
    orders: counting has one order for (seed 0, epoch 0) and (seed 0, epoch 1), (seed 0, epoch 1) and (seed 1, epoch 0), \
(seed 1, epoch 0) and (seed 1, epoch 1)
    """

    name: str
    rows: int = field(validator=lambda loader, attribute, value: check_positive(rows=value))
    run: Run = field(validator=lambda loader, attribute, value: check_callable(run=value))


@frozen
class Finding:
    """A law that a loader breaks, and where.

    >>> print(Finding("resume", "lost the rows [3, 4]"))
    resume: lost the rows [3, 4]
    """

    law: str
    detail: str

    def __str__(self) -> str:
        return f"{self.law}: {self.detail}"


def examine(loader: Loader, *, workers: int = 2) -> tuple[Finding, ...]:
    """Check a loader against the laws, and return a finding for each that it breaks.

    - determinism: the same seed, epoch and number of workers give the same items;
    - permutation: an epoch has each row once;
    - orders: each (seed, epoch) has a different order;
    - workers: a run with `workers` workers gives the same items as a run without;
    - resume: from the state after any item, a new run gives exactly the rest.

    A loader that raises an error breaks the law being checked. `workers=0` leaves out the checks with workers. Orders are compared from 12
    rows on. Raises `ArgumentTypeError` for `workers` that is not an int.

    >>> import pyarrow as pa
    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.lengths.batching import batch
    >>> from mlxfp.data.running.prefetching import prefetch
    >>> from mlxfp.data.rows.shuffling import shuffle
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> rows = from_table(pa.table({"x": range(20)}))
    >>> examine(pipeline(lambda seed, workers: pipe(rows, shuffle(seed=seed), batch(3), prefetch(workers + 1)), rows=20))
    ()
    """
    check_integer(workers=workers)
    found: list[Finding] = []
    for law, look in _LAWS.items():
        try:
            details = list(look(loader, workers))
        except Exception as error:  # noqa: BLE001  # any error of another package's loader is a finding
            details = [f"{loader.name} raised {type(error).__name__}: {error}"]
        found += [Finding(law, detail) for detail in details]
    return tuple(found)


def grain(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Audit a loader of Google's grain: `make(seed, workers)` returns a `DataLoader` or dataset that runs for two epochs or more.

    Its epoch e starts after e times `rows` rows, so `rows` must be a multiple of the batch size.

    >>> grain(lambda seed, workers: ..., rows=24).name
    'grain'
    """

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[tuple[Any, Any]]:
        iterator = iter(make(seed, workers))
        before, seen = epoch * rows, 0
        if state is not None:
            seen, saved = state
            iterator.set_state(saved)
        while seen < before + rows and (item := next(iterator, None)) is not None:
            seen += len(_numbers(item))
            if seen > before:
                yield item, (seen, iterator.get_state())

    return Loader("grain", rows, run)


def datasets(make: Callable[[int], Any], *, rows: int) -> Loader:
    """Audit a streamed dataset of Hugging Face: `make(seed)` returns an `IterableDataset`. It has no workers of its own.

    >>> datasets(lambda seed: ..., rows=24).name
    'datasets'
    """

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[tuple[Any, Any]]:
        dataset = make(seed)
        dataset.set_epoch(epoch)
        if state is not None:
            dataset.load_state_dict(state)
        for item in dataset:
            yield item, dataset.state_dict()

    return Loader("datasets", rows, run)


def stateful_dataloader(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Audit a `StatefulDataLoader` of torchdata: `make(seed, workers)` returns one. Iterating it again starts the next epoch.

    >>> stateful_dataloader(lambda seed, workers: ..., rows=24).name
    'stateful_dataloader'
    """

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[tuple[Any, Any]]:
        loader = make(seed, workers)
        if state is None:
            for _ in range(epoch):
                for _ in loader:
                    pass
        else:
            loader.load_state_dict(state)
        for item in loader:
            yield item, loader.state_dict()

    return Loader("stateful_dataloader", rows, run)


def pipeline(make: Callable[[int, int], Dataset[Any]], *, rows: int) -> Loader:
    """Audit a pipeline of ours: `make(seed, workers)` returns a dataset.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> pipeline(lambda seed, workers: from_examples([{"x": 0}]), rows=1).name
    'pipeline'
    """
    return Loader("pipeline", rows, lambda seed, epoch, workers, state: iterate(make(seed, workers), state, epoch=epoch))


_CASES = tuple(product((0, 1), (0, 1)))  # seeds and epochs


def _deterministic(loader: Loader, workers: int) -> Iterator[str]:
    for count in sorted({0, workers}):
        first, again = (_items(loader, 0, 0, count) for _ in range(2))
        if first != again:
            yield f"{loader.name} with {count} workers gives other items when it is run again: {_differing(first, again)}"


def _permuting(loader: Loader, workers: int) -> Iterator[str]:
    for seed, epoch in _CASES:
        wrong = _lost_and_repeated(_items(loader, seed, epoch, 0), [range(loader.rows)])
        if wrong:
            yield f"{loader.name} in epoch {epoch} of seed {seed} {wrong}"


def _ordering(loader: Loader, workers: int) -> Iterator[str]:
    if loader.rows < ENOUGH:
        return
    orders = {case: sum(_items(loader, *case, 0), ()) for case in _CASES}
    alike = [
        f"(seed {a[0]}, epoch {a[1]}) and (seed {b[0]}, epoch {b[1]})"
        for order in dict.fromkeys(orders.values())
        for a, b in pairwise(case for case in _CASES if orders[case] == order)
    ]
    if alike:
        yield f"{loader.name} has one order for {', '.join(alike)}"


def _working(loader: Loader, workers: int) -> Iterator[str]:
    if workers:
        alone, helped = (_items(loader, 0, 0, count) for count in (0, workers))
        if alone != helped:
            yield f"{loader.name} gives other items with {workers} workers than with none: {_differing(helped, alone)}"


def _resuming(loader: Loader, workers: int) -> Iterator[str]:
    for count in sorted({0, workers}):
        epoch = 0 if count else 1  # starting workers takes seconds, in some loaders again for each earlier epoch
        whole = [(_numbers(item), deepcopy(state)) for item, state in loader.run(0, epoch, count, None)]
        items = tuple(numbers for numbers, _ in whole)
        for stop in [len(whole) // 2] if count else range(1, len(whole)):
            rest = tuple(_numbers(item) for item, _ in loader.run(0, epoch, count, deepcopy(whole[stop - 1][1])))
            if rest != items[stop:]:
                wrong = _lost_and_repeated((*items[:stop], *rest), items) or f"gives other items: {_differing(rest, items[stop:])}"
                yield f"{loader.name} with {count} workers, resumed after item {stop} of {len(whole)}, {wrong}"
                break


_LAWS: Mapping[str, Callable[[Loader, int], Iterator[str]]] = {
    "determinism": _deterministic,
    "permutation": _permuting,
    "orders": _ordering,
    "workers": _working,
    "resume": _resuming,
}


def _items(loader: Loader, seed: int, epoch: int, workers: int) -> Items:
    return tuple(_numbers(item) for item, _ in loader.run(seed, epoch, workers, None))


def _numbers(item: Any) -> tuple[int, ...]:
    """Return the numbers in an item, in order: in mappings, sequences, and arrays or tensors of any package."""
    if isinstance(item, Mapping):
        return sum(map(_numbers, item.values()), ())
    if isinstance(item, Sequence):
        return sum(map(_numbers, item), ())
    return tuple(int(number) for number in np.asarray(item).reshape(-1))


def _lost_and_repeated(items: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> str:
    found, wanted = (Counter(number for item in parts for number in item) for parts in (items, expected))
    lost, repeated = sorted((wanted - found).elements()), sorted((found - wanted).elements())
    return f"loses the rows {lost} and repeats {repeated}" if lost or repeated else ""


def _differing(found: Items, expected: Items) -> str:
    place = next((place for place, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected)))
    shown = [list(items[place]) if place < len(items) else "nothing" for items in (found, expected)]
    return f"item {place} is {shown[0]}, not {shown[1]}"
