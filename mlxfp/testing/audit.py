"""Check data loaders, ours or others, against the laws of determinism, permutation, workers and resuming.

A loader under audit reads the numbers 0 to `rows` - 1, shuffled, one in each row. `torch`, `stateful_dataloader`, `grain`, `datasets`,
`mlx_data` and `pipeline` make a `Loader` from a function that makes a loader of that package; for any other loader, write the `run` of a
`Loader`. `examine` returns its findings, as values that print. Neither MLX nor any of these packages is imported here.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise, product
from typing import Any

import numpy as np
from attrs import field, frozen

from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import iterate
from mlxfp.support.checks import check_callable, check_integer, check_positive
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


def examine(loader: Loader, *, workers: int = 2, uniform: bool = False) -> tuple[Finding, ...]:
    """Check a loader against the laws, and return a finding for each that it breaks.

    - determinism: the same seed, epoch and number of workers give the same items;
    - permutation: an epoch has each row once;
    - orders: each (seed, epoch) has a different order, and not that of another one, reversed or begun at another row;
    - workers: a run with `workers` workers gives the same items as a run without;
    - resume: from the state after any item, a new run gives exactly the rest, and after the last item nothing; a state stays as it is when
      the run goes on, and when another run is resumed from it;
    - uniform, only with `uniform=True`: rows move as far as in a uniform shuffle, few of them stay next to each other, and none has one
      place in all orders. Shuffling within a buffer or within blocks breaks it, and that may be meant.

    A loader that raises an error breaks the law being checked. `workers=0` leaves out the checks with workers. Orders are compared from 12
    rows on. Raises `ArgumentTypeError` for `workers` that is not an int.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> rows = fp.from_table(pa.table({"x": range(20)}))
    >>> examine(pipeline(lambda seed, workers: fp.pipe(rows, fp.shuffle(seed=seed), fp.batch(3), fp.prefetch(workers + 1)), rows=20))
    ()
    """
    check_integer(workers=workers)
    found: list[Finding] = []
    for law, look in {**_LAWS, **({"uniform": _mixing} if uniform else {})}.items():
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


def torch(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Audit a `DataLoader` of torch: `make(seed, workers)` returns one. Iterating it again starts the next epoch.

    Where its sampler or its dataset has `set_epoch`, that is called instead. It has no state: a run is resumed as is usual with it, by
    leaving out the first items.

    >>> torch(lambda seed, workers: ..., rows=24).name
    'torch'
    """

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[tuple[Any, Any]]:
        loader = make(seed, workers)
        parts: list[Any] = [getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset")]
        counting = [part for part in parts if hasattr(part, "set_epoch")]
        for part in counting:
            part.set_epoch(epoch)
        yield from _after(loader, 0 if counting else epoch, state)

    return Loader("torch", rows, run)


def mlx_data(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Audit a stream or a buffer of mlx-data: `make(seed, workers)` returns one, after `mlx.data.core.set_state(seed)`.

    The next epoch starts after `reset()`, where there is one. It has no state: a run is resumed by leaving out the first items.

    >>> mlx_data(lambda seed, workers: ..., rows=24).name
    'mlx_data'
    """
    return Loader("mlx_data", rows, lambda seed, epoch, workers, state: _after(make(seed, workers), epoch, state))


def _after(loader: Any, epochs: int, state: int | None) -> Iterator[tuple[Any, int]]:
    """Yield the items after some epochs and `state` items, each with the number of items so far."""
    reset = getattr(loader, "reset", lambda: None)
    for _ in range(epochs):
        for _ in loader:
            pass
        reset()
    for place, item in enumerate(loader, 1):
        if place > (state or 0):
            yield item, place


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

    >>> import mlxfp as fp
    >>> pipeline(lambda seed, workers: fp.from_examples([{"x": 0}]), rows=1).name
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
    orders: dict[tuple[int, int], tuple[int, ...]] = {}
    for cases in (_CASES, ((0, 2),)):  # some keep the order of the second epoch
        orders |= {case: sum(_items(loader, *case, 0), ()) for case in cases}
        found = [*_alike(orders, lambda order: order, ""), *_alike(orders, _circle, ", begun at another row or reversed")]
        if found:
            yield f"{loader.name} has one order for {found[0]}"
            return


def _alike(orders: Mapping[tuple[int, int], tuple[int, ...]], seen: Callable[[tuple[int, ...]], object], how: str) -> Iterator[str]:
    """Yield, if there are any, the cases whose orders look the same."""
    looks = {case: seen(order) for case, order in orders.items()}
    pairs = [pair for look in dict.fromkeys(looks.values()) for pair in pairwise(case for case in orders if looks[case] == look)]
    if pairs:
        yield ", ".join(f"(seed {a[0]}, epoch {a[1]}) and (seed {b[0]}, epoch {b[1]})" for a, b in pairs) + how


def _circle(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return what an order has in common with those that begin at another row, or go in the other direction."""
    if not order:
        return order
    begins = order.index(min(order))
    rotated = (*order[begins:], *order[:begins])
    return min(rotated, (rotated[0], *rotated[:0:-1]))


def _working(loader: Loader, workers: int) -> Iterator[str]:
    if workers:
        alone, helped = (_items(loader, 0, 0, count) for count in (0, workers))
        if alone != helped:
            yield f"{loader.name} gives other items with {workers} workers than with none: {_differing(helped, alone)}"


def _resuming(loader: Loader, workers: int) -> Iterator[str]:
    for count in sorted({0, workers}):
        epoch = 0 if count else 1  # starting workers takes seconds, in some loaders again for each earlier epoch
        whole = [(_numbers(item), state, deepcopy(state)) for item, state in loader.run(0, epoch, count, None)]
        items = tuple(numbers for numbers, _, _ in whole)
        wrong_from = partial(_resumed, items, partial(loader.run, 0, epoch, count))
        stops = [len(whole) // 2] if count else range(1, len(whole) + 1)
        found = [wrong for stop in stops if (wrong := wrong_from(stop, deepcopy(whole[stop - 1][2])))][:1]
        if whole and not count and not found:
            middle = (len(whole) + 1) // 2
            _, given, kept = whole[middle - 1]
            if wrong := wrong_from(middle, deepcopy(given)):
                found.append(f"changes the state of item {middle} when it goes on: give a copy. From that state, {wrong}")
            wrong_from(middle, kept)
            if wrong := wrong_from(middle, kept):
                found.append(f"changes the state that it is resumed from: copy it first. The second time, {wrong}")
        yield from (f"{loader.name} with {count} workers, {wrong}" for wrong in found)


def _resumed(items: Items, run: Callable[[Any], Iterator[tuple[Any, Any]]], stop: int, state: Any) -> str:
    """Say what is wrong with a run that is resumed from the state after `stop` items, if anything is."""
    where = f"resumed after item {stop} of {len(items)},"
    try:
        rest = tuple(_numbers(item) for item, _ in run(state))
    except Exception as error:  # noqa: BLE001  # any error of another package's loader is a finding
        return f"{where} raises {type(error).__name__}: {error}"
    if rest == items[stop:]:
        return ""
    wrong = _lost_and_repeated((*items[:stop], *rest), items) or f"gives other items: {_differing(rest, items[stop:])}"
    return f"{where} {wrong}"


def _mixing(loader: Loader, workers: int) -> Iterator[str]:
    if loader.rows < ENOUGH:
        return
    orders = [np.array(sum(_items(loader, *case, 0), ())) for case in product((0, 1), (0, 1, 2))]
    moved = np.mean([np.abs(order - np.arange(len(order))).mean() / len(order) for order in orders])
    neighbours = np.mean([(np.abs(np.diff(order)) == 1).mean() for order in orders])
    # In a uniform order of 12 rows or more, over 6 epochs, each of these is by chance beyond its bound in fewer than one audit in 10,000.
    if moved < _LEAST_MOVED or neighbours > _MOST_NEIGHBOURS:
        yield (
            f"{loader.name} moves rows by {moved:.0%} of their number on average, and leaves {neighbours:.0%} of them next to each other; "
            f"a uniform shuffle moves them by {1 / 3:.0%} and leaves {2 / loader.rows:.0%}"
        )
    elif len({len(order) for order in orders}) == 1 and (still := np.flatnonzero((np.diff(orders, axis=0) == 0).all(axis=0))).size:
        yield f"{loader.name} has row {orders[0][still[0]]} at place {still[0]} of all of {len(orders)} orders"


_LEAST_MOVED, _MOST_NEIGHBOURS = 0.2, 0.45
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
    wrong = {"loses": sorted((wanted - found).elements()), "repeats": sorted((found - wanted).elements())}
    return " and ".join(f"{what} the rows {rows}" for what, rows in wrong.items() if rows)


def _differing(found: Items, expected: Items) -> str:
    place = next((place for place, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected)))
    shown = [list(items[place]) if place < len(items) else "nothing" for items in (found, expected)]
    return f"item {place} is {shown[0]}, not {shown[1]}"
