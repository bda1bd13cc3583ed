"""Checks of any data loader for determinism, permutation, workers and resuming.

The checked loader reads the numbers 0 to `rows` - 1 in shuffled order, one number per row. `torch`, `stateful_dataloader`, `grain`,
`datasets`, `mlx_data` and `pipeline` return a `Loader` for a loader factory of their package. For any other loader, write the `run`
function of a `Loader`. `examine` returns printable findings. This module imports neither MLX nor any of these packages.
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

Items = tuple[tuple[int, ...], ...]  # the row numbers in each item of an epoch


# Run one epoch of a loader, given (seed, epoch, workers, state). Yield pairs of an item (a row or a batch) and the state after the item.
# `state` is a state yielded earlier, or None for the start of the epoch. Each call starts a new run, as in a new process.
Run = Callable[[int, int, int, Any], Iterator[tuple[Any, Any]]]


@frozen
class Loader:
    """Data loader to be checked: name, number of rows and run function. An item may be a number or nested sequences of numbers.

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
    """Broken law, with a description of what is wrong.

    >>> print(Finding("resume", "lost the rows [3, 4]"))
    resume: lost the rows [3, 4]
    """

    law: str
    detail: str

    def __str__(self) -> str:
        return f"{self.law}: {self.detail}"


def examine(
    loader: Loader, *, workers: int = 2, uniform: bool = False, drop_last: bool = False, curriculum: bool = False
) -> tuple[Finding, ...]:
    """Check a loader against the laws and return one finding per violation.

    - determinism: equal seed, epoch and number of workers give equal items.
    - permutation: an epoch has each row once.
    - orders: the orders of any two (seed, epoch) pairs differ, even after a rotation or a reversal, and batches do not always hold the
      same rows.
    - workers: a run with `workers` workers gives the same items as a run without workers.
    - resume: a new run from the state after any item yields exactly the remaining items, and nothing after the last item. Continuing the
      run or resuming another run from a state does not change the state.
    - uniform, only with `uniform=True`: rows move as far as in a uniform shuffle, few neighbours stay neighbours, and no row has the same
      index in all orders. Shuffling within a buffer or within blocks breaks this law, possibly on purpose.

    Two arguments state intended exceptions. With `drop_last=True`, an epoch may omit the rows that do not fill a batch. With
    `curriculum=True`, the order may be the same for several seeds or epochs, for example from easy to difficult rows.

    A loader that raises an error breaks the law that is being checked. `workers=0` skips the checks with workers. Orders are compared only
    for 12 or more rows. Raises `ArgumentTypeError` if `workers` is not an int.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> rows = fp.from_table(pa.table({"x": range(20)}))
    >>> examine(pipeline(lambda seed, workers: fp.pipe(rows, fp.shuffle(seed=seed), fp.batch(3), fp.prefetch(workers + 1)), rows=20))
    ()
    """
    check_integer(workers=workers)
    findings: list[Finding] = []
    laws = {**_LAWS, **({"uniform": _check_uniformity} if uniform else {})}
    if drop_last:
        laws["permutation"] = _check_permutation_without_last
    if curriculum:
        del laws["orders"]
    for law, violations_of in laws.items():
        try:
            details = list(violations_of(loader, workers))
        except Exception as error:  # noqa: BLE001  # errors of another package's loader are findings
            details = [f"{loader.name} raised {type(error).__name__}: {error}"]
        findings += [Finding(law, detail) for detail in details]
    return tuple(findings)


def grain(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Return a `Loader` for Google's grain. `make(seed, workers)` returns a `DataLoader` or dataset that runs for two or more epochs.

    Epoch e starts after e * `rows` rows, so `rows` must be a multiple of the batch size.

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
    """Return a `Loader` for a streamed Hugging Face dataset. `make(seed)` returns an `IterableDataset`, which runs without workers.

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
    """Return a `Loader` for a torch `DataLoader`. `make(seed, workers)` returns the `DataLoader`. A second iteration is the next epoch.

    If the sampler, batch sampler or dataset has `set_epoch`, the audit calls `set_epoch` instead of iterating earlier epochs. A
    `DataLoader` has no state. To resume, the audit skips the first items.

    >>> torch(lambda seed, workers: ..., rows=24).name
    'torch'
    """

    def run(seed: int, epoch: int, workers: int, state: Any) -> Iterator[tuple[Any, Any]]:
        loader = make(seed, workers)
        parts: list[Any] = [getattr(loader, name, None) for name in ("sampler", "batch_sampler", "dataset")]
        counting = [part for part in parts if hasattr(part, "set_epoch")]
        for part in counting:
            part.set_epoch(epoch)
        yield from _remaining_items(loader, 0 if counting else epoch, state)

    return Loader("torch", rows, run)


def mlx_data(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Return a `Loader` for a stream or buffer of mlx-data.

    `make(seed, workers)` calls `mlx.data.core.set_state(seed)` and returns the stream or buffer. The next epoch starts after `reset()`, if
    the method exists. Streams and buffers have no state. To resume, the audit skips the first items.

    >>> mlx_data(lambda seed, workers: ..., rows=24).name
    'mlx_data'
    """
    return Loader("mlx_data", rows, lambda seed, epoch, workers, state: _remaining_items(make(seed, workers), epoch, state))


def _remaining_items(loader: Any, epochs: int, state: int | None) -> Iterator[tuple[Any, int]]:
    """Skip `epochs` epochs and `state` items. Then yield the remaining items of the epoch, each with the number of items so far."""
    reset = getattr(loader, "reset", lambda: None)
    for _ in range(epochs):
        for _ in loader:
            pass
        reset()
    for count, item in enumerate(loader, 1):
        if count > (state or 0):
            yield item, count


def stateful_dataloader(make: Callable[[int, int], Any], *, rows: int) -> Loader:
    """Return a `Loader` for a `StatefulDataLoader` of torchdata. `make(seed, workers)` returns the `StatefulDataLoader`.

    A second iteration is the next epoch.

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
    """Return a `Loader` for an mlxfp pipeline. `make(seed, workers)` returns a dataset.

    >>> import mlxfp as fp
    >>> pipeline(lambda seed, workers: fp.from_examples([{"x": 0}]), rows=1).name
    'pipeline'
    """
    return Loader("pipeline", rows, lambda seed, epoch, workers, state: iterate(make(seed, workers), state, epoch=epoch))


_CASES = tuple(product((0, 1), (0, 1)))  # (seed, epoch) pairs


def _check_determinism(loader: Loader, workers: int) -> Iterator[str]:
    for count in sorted({0, workers}):
        first, second = (_items(loader, 0, 0, count) for _ in range(2))
        if first != second:
            yield f"{loader.name} with {count} workers gives other items in a second run: {_first_difference(first, second)}"


def _check_permutation(loader: Loader, workers: int) -> Iterator[str]:
    for seed, epoch in _CASES:
        wrong = _lost_and_repeated(_items(loader, seed, epoch, 0), [range(loader.rows)])
        if wrong:
            yield f"{loader.name} in epoch {epoch} of seed {seed} {wrong}"


def _check_permutation_without_last(loader: Loader, workers: int) -> Iterator[str]:
    for seed, epoch in _CASES:
        items = _items(loader, seed, epoch, 0)
        numbers, size = sum(items, ()), max(map(len, items), default=1)
        if len(set(numbers)) < len(numbers) or loader.rows - len(numbers) >= size:
            yield f"{loader.name} in epoch {epoch} of seed {seed} {_lost_and_repeated(items, [range(loader.rows)])}"


def _check_orders(loader: Loader, workers: int) -> Iterator[str]:
    if loader.rows < ENOUGH:
        return
    epochs = [[frozenset(item) for item in _items(loader, *case, 0)] for case in _CASES]
    sets = {rows for items in epochs for rows in items}
    if len(epochs[0]) >= _FEWEST_BATCHES and len(sets) <= len(epochs[0]) + 1 and max(map(len, sets)) > 1:
        yield f"{loader.name} has batches of the same rows in all epochs, such as {sorted(epochs[0][0])}. Shuffle rows before batching"
        return
    orders: dict[tuple[int, int], tuple[int, ...]] = {}
    for cases in (_CASES, ((0, 2),)):  # the third epoch is checked as well, because some loaders repeat the order of the second epoch
        orders |= {case: sum(_items(loader, *case, 0), ()) for case in cases}
        pairs = [*_equal_orders(orders, lambda order: order, ""), *_equal_orders(orders, _canonical_order, ", rotated or reversed")]
        if pairs:
            yield f"{loader.name} has one order for {pairs[0]}"
            return


def _equal_orders(
    orders: Mapping[tuple[int, int], tuple[int, ...]], form_of: Callable[[tuple[int, ...]], object], suffix: str
) -> Iterator[str]:
    """Describe which (seed, epoch) pairs have equal orders. Yields nothing if all orders differ.

    `form_of` converts an order before the comparison.
    """
    forms = {case: form_of(order) for case, order in orders.items()}
    pairs = [pair for form in dict.fromkeys(forms.values()) for pair in pairwise(case for case in orders if forms[case] == form)]
    if pairs:
        yield ", ".join(f"(seed {a[0]}, epoch {a[1]}) and (seed {b[0]}, epoch {b[1]})" for a, b in pairs) + suffix


def _canonical_order(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return a form of an order that is the same for all its rotations and reversals."""
    if not order:
        return order
    minimum = order.index(min(order))
    rotated = (*order[minimum:], *order[:minimum])
    return min(rotated, (rotated[0], *rotated[:0:-1]))


def _check_workers(loader: Loader, workers: int) -> Iterator[str]:
    if workers:
        alone, helped = (_items(loader, 0, 0, count) for count in (0, workers))
        if alone != helped:
            yield f"{loader.name} gives other items with {workers} workers than with none: {_first_difference(helped, alone)}"


def _check_resuming(loader: Loader, workers: int) -> Iterator[str]:
    for count in sorted({0, workers}):
        epoch = 0 if count else 1  # Starting workers takes seconds, and some loaders start workers in every skipped epoch.
        full_run = [(_numbers(item), state, deepcopy(state)) for item, state in loader.run(0, epoch, count, None)]
        items = tuple(numbers for numbers, _, _ in full_run)
        error_after = partial(_resuming_error, items, partial(loader.run, 0, epoch, count))
        stops = [len(full_run) // 2] if count else range(1, len(full_run) + 1)
        errors = [error for stop in stops if (error := error_after(stop, deepcopy(full_run[stop - 1][2])))][:1]
        if full_run and not count and not errors:
            middle = (len(full_run) + 1) // 2
            _, yielded_state, state_copy = full_run[middle - 1]
            if error := error_after(middle, deepcopy(yielded_state)):
                errors.append(f"changes the state yielded with item {middle} later on: yield a copy. The run {error}")
            error_after(middle, state_copy)
            if error := error_after(middle, state_copy):
                errors.append(f"changes the state given to `run`: copy the state before use. A second run from the state {error}")
        yield from (f"{loader.name} with {count} workers, {error}" for error in errors)


def _resuming_error(items: Items, run: Callable[[Any], Iterator[tuple[Any, Any]]], stop: int, state: Any) -> str:
    """Describe the first error of a run that is resumed after `stop` items. Returns an empty string if there is no error."""
    where = f"resumed after item {stop} of {len(items)},"
    try:
        rest = tuple(_numbers(item) for item, _ in run(state))
    except Exception as error:  # noqa: BLE001  # errors of another package's loader are findings
        return f"{where} raises {type(error).__name__}: {error}"
    if rest == items[stop:]:
        return ""
    wrong = _lost_and_repeated((*items[:stop], *rest), items) or f"gives other items: {_first_difference(rest, items[stop:])}"
    return f"{where} {wrong}"


def _check_uniformity(loader: Loader, workers: int) -> Iterator[str]:
    if loader.rows < ENOUGH:
        return
    orders = [np.array(sum(_items(loader, *case, 0), ())) for case in product((0, 1), (0, 1, 2))]
    moved = np.mean([np.abs(order - np.arange(len(order))).mean() / len(order) for order in orders])
    neighbours = np.mean([(np.abs(np.diff(order)) == 1).mean() for order in orders])
    # A uniform shuffle fails each bound by chance in fewer than 1 of 10,000 audits (12 or more rows, 6 epochs).
    if moved < _LEAST_MOVED or neighbours > _MOST_NEIGHBOURS:
        yield (
            f"{loader.name} moves rows by {moved:.0%} of the row count on average, and keeps {neighbours:.0%} of neighbours together; "
            f"a uniform shuffle moves rows by {1 / 3:.0%} and keeps {2 / loader.rows:.0%}"
        )
    elif len({len(order) for order in orders}) == 1 and (still := np.flatnonzero((np.diff(orders, axis=0) == 0).all(axis=0))).size:
        yield f"{loader.name} has row {orders[0][still[0]]} at index {still[0]} in all {len(orders)} orders"


_FEWEST_BATCHES = 3  # Minimum number of batches. With two batches, the same rows may be together in several epochs by chance.
_LEAST_MOVED, _MOST_NEIGHBOURS = 0.2, 0.45
_LAWS: Mapping[str, Callable[[Loader, int], Iterator[str]]] = {
    "determinism": _check_determinism,
    "permutation": _check_permutation,
    "orders": _check_orders,
    "workers": _check_workers,
    "resume": _check_resuming,
}


def _items(loader: Loader, seed: int, epoch: int, workers: int) -> Items:
    return tuple(_numbers(item) for item, _ in loader.run(seed, epoch, workers, None))


def _numbers(item: Any) -> tuple[int, ...]:
    """Return all numbers in an item, in order. Accepts mappings, sequences, and arrays or tensors of any package."""
    if isinstance(item, Mapping):
        return sum(map(_numbers, item.values()), ())
    if isinstance(item, Sequence):
        return sum(map(_numbers, item), ())
    return tuple(int(number) for number in np.asarray(item).reshape(-1))


def _lost_and_repeated(items: Sequence[Sequence[int]], expected: Sequence[Sequence[int]]) -> str:
    actual_counts, expected_counts = (Counter(number for item in parts for number in item) for parts in (items, expected))
    differences = {
        "loses": sorted((expected_counts - actual_counts).elements()),
        "repeats": sorted((actual_counts - expected_counts).elements()),
    }
    return " and ".join(f"{verb} the rows {rows}" for verb, rows in differences.items() if rows)


def _first_difference(actual: Items, expected: Items) -> str:
    index = next((index for index, (a, b) in enumerate(zip(actual, expected, strict=False)) if a != b), min(len(actual), len(expected)))
    shown = [list(items[index]) if index < len(items) else "nothing" for items in (actual, expected)]
    return f"item {index} is {shown[0]}, not {shown[1]}"
