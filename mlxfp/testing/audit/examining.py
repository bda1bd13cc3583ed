"""Audit of a data loader: `examine` checks all laws. This module contains the laws about the order of rows in an epoch."""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, product

import numpy as np

from mlxfp.support.checks import check_integer
from mlxfp.testing.audit.failing import check_errors, check_locations, check_memory
from mlxfp.testing.audit.resuming import check_other_ranks, check_other_workers, check_ranks, check_resuming
from mlxfp.testing.audit.values import Finding, Loader, first_difference, items_of, lost_and_repeated
from mlxfp.testing.laws.orders import ENOUGH


def examine(
    loader: Loader, *, workers: int = 2, uniform: bool = False, drop_last: bool = False, curriculum: bool = False
) -> tuple[Finding, ...]:
    """Check a loader against the laws below. Return one finding per violation.

    - determinism: equal seed, epoch and number of workers give equal items.
    - permutation: an epoch has each row once.
    - orders: the row orders of any two (seed, epoch) pairs differ. A rotated or reversed order does not count as different. The batches of
      two epochs do not all consist of the same rows.
    - workers: a run with `workers` workers gives the same items as a run without workers.
    - resume: a new run from the state after any item yields exactly the remaining items, and nothing after the last item. A resumed run
      can be resumed too. A state does not change when the run continues or another run resumes from the state.
    - other workers: a run without workers can resume from the state of a run with workers. A run with workers can resume from the state of
      a run without workers. Each row comes once.
    - ranks, only with `Loader.ranks`: together, all ranks of a run read each row once.
    - other ranks, only with `Loader.ranks`: the states of two ranks continue on two, one and four ranks. Each row comes once.
    - errors, only with `Loader.apply`: an error in a row is raised. The epoch does not end early without an error.
    - locations, only with `Loader.apply`: the message or a note of the error contains the number of the row.
    - memory, only with `Loader.apply`: the memory of the process stays flat over 20 epochs.
    - uniform, only with `uniform=True`: rows move as far as in a uniform shuffle, few neighbours stay neighbours, and no row has the same
      index in all orders. Shuffling within a buffer or within blocks breaks this law, possibly on purpose.

    Pass `drop_last=True` if an epoch omits the rows that do not fill a batch. Pass `curriculum=True` if the order is the same for several
    seeds or epochs, for example from easy to difficult rows.

    A loader that raises an error breaks the law under check. `workers=0` skips the checks with workers. Orders are compared only for 12 or
    more rows. Raises `ArgumentTypeError` if `workers` is not an int.

    >>> import mlxfp as fp
    >>> import pyarrow as pa
    >>> from mlxfp.testing import audit
    >>> rows = fp.from_table(pa.table({"x": range(20)}))
    >>> def make(seed, workers):
    ...     return fp.pipe(rows, fp.shuffle(seed=seed), fp.batch(3), fp.prefetch(workers + 1))
    >>> audit.examine(audit.pipeline(make, rows=20))
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


_CASES = tuple(product((0, 1), (0, 1)))  # (seed, epoch) pairs


def _check_determinism(loader: Loader, workers: int) -> Iterator[str]:
    for count in sorted({0, workers}):
        first, second = (items_of(loader, 0, 0, count) for _ in range(2))
        if first != second:
            yield f"{loader.name} with {count} workers gives other items in a second run: {first_difference(first, second)}"


def _check_permutation(loader: Loader, workers: int) -> Iterator[str]:
    cases = {f"in epoch {epoch} of seed {seed}": (seed, epoch, 0) for seed, epoch in _CASES}
    wrong = {where: lost_and_repeated(items_of(loader, *case), [range(loader.rows)]) for where, case in cases.items()}
    if workers and not any(wrong.values()):
        wrong[f"with {workers} workers"] = lost_and_repeated(items_of(loader, 0, 0, workers), [range(loader.rows)])
    yield from (f"{loader.name} {where} {detail}" for where, detail in wrong.items() if detail)


def _check_permutation_without_last(loader: Loader, workers: int) -> Iterator[str]:
    for seed, epoch in _CASES:
        items = items_of(loader, seed, epoch, 0)
        numbers, size = sum(items, ()), max(map(len, items), default=1)
        if len(set(numbers)) < len(numbers) or loader.rows - len(numbers) >= size:
            yield f"{loader.name} in epoch {epoch} of seed {seed} {lost_and_repeated(items, [range(loader.rows)])}"


def _check_orders(loader: Loader, workers: int) -> Iterator[str]:
    if loader.rows < ENOUGH:
        return
    epochs = [[frozenset(item) for item in items_of(loader, *case, 0)] for case in _CASES]
    sets = {rows for items in epochs for rows in items}
    if len(epochs[0]) >= _FEWEST_BATCHES and len(sets) <= len(epochs[0]) + 1 and max(map(len, sets)) > 1:
        yield f"{loader.name} has batches of the same rows in all epochs, such as {sorted(epochs[0][0])}. Shuffle rows before batching"
        return
    orders: dict[tuple[int, int], tuple[int, ...]] = {}
    # Some loaders give all epochs after epoch 1 the same order. Epochs 1 and 2 are therefore compared as well.
    for cases in (_CASES, ((0, 2),)):
        orders |= {case: sum(items_of(loader, *case, 0), ()) for case in cases}
        pairs = [*_equal_orders(orders, lambda order: order, ""), *_equal_orders(orders, _canonical_order, ", rotated or reversed")]
        if pairs:
            yield f"{loader.name} has one order for {pairs[0]}"
            break
    differ = orders[0, 0] != orders[0, 1]
    if workers and differ and items_of(loader, 0, 0, workers) == items_of(loader, 0, 1, workers):
        yield f"{loader.name} with {workers} workers has one order for (seed 0, epoch 0) and (seed 0, epoch 1)"


def _equal_orders(
    orders: Mapping[tuple[int, int], tuple[int, ...]], form_of: Callable[[tuple[int, ...]], object], suffix: str
) -> Iterator[str]:
    """Describe the pairs of epochs with equal row orders, if there are any. Two orders are equal if `form_of` returns equal values."""
    forms = {case: form_of(order) for case, order in orders.items()}
    pairs = [pair for form in dict.fromkeys(forms.values()) for pair in pairwise(case for case in orders if forms[case] == form)]
    if pairs:
        yield ", and for ".join(f"(seed {a[0]}, epoch {a[1]}) and (seed {b[0]}, epoch {b[1]})" for a, b in pairs) + suffix


def _canonical_order(order: tuple[int, ...]) -> tuple[int, ...]:
    """Return a canonical form of a row order. Rotating or reversing the order does not change the canonical form."""
    if not order:
        return order
    minimum = order.index(min(order))
    rotated = (*order[minimum:], *order[:minimum])
    return min(rotated, (rotated[0], *rotated[:0:-1]))


def _check_workers(loader: Loader, workers: int) -> Iterator[str]:
    if workers:
        alone, helped = (items_of(loader, 0, 0, count) for count in (0, workers))
        if alone != helped:
            yield f"{loader.name} gives other items with {workers} workers than with none: {first_difference(helped, alone)}"


def _check_uniformity(loader: Loader, workers: int) -> Iterator[str]:
    if loader.rows < ENOUGH:
        return
    orders = [np.array(sum(items_of(loader, *case, 0), ())) for case in product((0, 1), (0, 1, 2))]
    moved = np.mean([np.abs(order - np.arange(len(order))).mean() / len(order) for order in orders])
    neighbours = np.mean([(np.abs(np.diff(order)) == 1).mean() for order in orders])
    # By chance, fewer than 2 of 10,000 audits report a violation for a correct shuffle of 12 rows or more.
    if moved < _LEAST_MOVED or neighbours > _MOST_NEIGHBOURS:
        yield (
            f"{loader.name} moves rows by {moved:.0%} of the row count on average, and keeps {neighbours:.0%} of neighbours together; "
            f"a uniform shuffle moves rows by {1 / 3:.0%} and keeps {2 / loader.rows:.0%}"
        )
    elif len({len(order) for order in orders}) == 1 and (still := np.flatnonzero((np.diff(orders, axis=0) == 0).all(axis=0))).size:
        yield f"{loader.name} has row {orders[0][still[0]]} at index {still[0]} in all {len(orders)} orders"


_FEWEST_BATCHES = 3  # A loader with only two batches may repeat the batches of another epoch by chance.
_LEAST_MOVED, _MOST_NEIGHBOURS = 0.2, 0.45
_LAWS: Mapping[str, Callable[[Loader, int], Iterator[str]]] = {
    "determinism": _check_determinism,
    "permutation": _check_permutation,
    "orders": _check_orders,
    "workers": _check_workers,
    "resume": check_resuming,
    "other workers": check_other_workers,
    "ranks": check_ranks,
    "other ranks": check_other_ranks,
    "errors": check_errors,
    "locations": check_locations,
    "memory": check_memory,
}
