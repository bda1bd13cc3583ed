"""Checks of a data loader: a resumed run gives the remaining items, also with another number of workers or ranks."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any

from mlxfp.testing.audit.values import Items, Loader, first_difference, lost_and_repeated, numbers_of

Resume = Callable[[Any], Iterator[tuple[Any, Any]]]  # function that starts a run from a saved state


def check_resuming(loader: Loader, workers: int) -> Iterator[str]:
    """Check that a run resumed from a saved state gives the remaining items. Yield the errors without workers and with workers."""
    for count in sorted({0, workers}):
        # Workers are tested in epoch 0, because some loaders need seconds to skip an epoch with workers.
        epoch = 0 if count else 1
        full_run = [(numbers_of(item), state, deepcopy(state)) for item, state in loader.run(0, epoch, count, None)]
        items = tuple(numbers for numbers, _, _ in full_run)
        error_after = partial(_resuming_error, items, partial(loader.run, 0, epoch, count))
        middle, last = len(full_run) // 2, len(full_run) - 1
        stops = filter(None, dict.fromkeys((middle, last))) if count else range(1, len(full_run) + 1)
        errors = [error for stop in stops if (error := error_after(stop, deepcopy(full_run[stop - 1][2])))][:1]
        if full_run and not errors and (error := _second_error(items, partial(loader.run, 0, epoch, count), full_run)):
            errors.append(error)
        if full_run and not count and not errors:
            middle = (len(full_run) + 1) // 2
            _, yielded_state, state_copy = full_run[middle - 1]
            if error := error_after(middle, deepcopy(yielded_state)):
                errors.append(f"changes the state yielded with item {middle} later on: yield a copy. The run {error}")
            error_after(middle, state_copy)
            if error := error_after(middle, state_copy):
                errors.append(f"changes the state given to `run`: copy the state before use. A second run from the state {error}")
        yield from (f"{loader.name} with {count} workers, {error}" for error in errors)


def check_other_workers(loader: Loader, workers: int) -> Iterator[str]:
    """Yield a description of the rows that are lost or repeated by resuming with another number of workers."""
    for before, after in ((workers, 0), (0, workers)) if workers else ():
        full_run = list(loader.run(0, 0, before, None))
        items, stop = tuple(numbers_of(item) for item, _ in full_run), len(full_run) // 2
        error = _resuming_error(items, partial(loader.run, 0, 0, after), stop, full_run[stop - 1][1], exact=False)
        if error:
            yield f"{loader.name} with {before} workers, then {after}, {error}"


def check_ranks(loader: Loader, workers: int) -> Iterator[str]:
    """Yield a description of the rows that two ranks lose or repeat."""
    if loader.ranks and (wrong := lost_and_repeated(_items_of_ranks(loader.ranks(2, None)), [range(loader.rows)])):
        yield f"{loader.name} with 2 ranks {wrong}"


def check_other_ranks(loader: Loader, workers: int) -> Iterator[str]:
    """Stop a run on two ranks, and continue on two, one and four ranks. Yield a description of lost or repeated rows."""
    if not loader.ranks:
        return
    full_run, stop = loader.ranks(2, None), 3
    states, start = [deepcopy(rank[stop - 1][1]) for rank in full_run], _items_of_ranks([rank[:stop] for rank in full_run])
    for count in (2, 1, 4):
        where = f"{loader.name} with 2 ranks, resumed on {count} after {stop} items of each rank,"
        try:
            rest = _items_of_ranks(loader.ranks(count, states))
        except Exception as error:  # noqa: BLE001  # errors of another package's loader are findings
            yield f"{where} raises {type(error).__name__}: {error}"
            continue
        if wrong := lost_and_repeated([*start, *rest], _items_of_ranks(full_run)):
            yield f"{where} {wrong}"


def _items_of_ranks(ranks: Any) -> Items:
    return tuple(numbers_of(item) for rank in ranks for item, _ in rank)


def _resuming_error(items: Items, run: Resume, stop: int, state: Any, *, exact: bool = True) -> str:
    """Return a description of the first error of a run resumed after `stop` items, or an empty string."""
    where = f"resumed after item {stop} of {len(items)},"
    try:
        rest = tuple(numbers_of(item) for item, _ in run(state))
    except Exception as error:  # noqa: BLE001  # errors of another package's loader are findings
        return f"{where} raises {type(error).__name__}: {error}"
    if rest == items[stop:]:
        return ""
    wrong = lost_and_repeated((*items[:stop], *rest), items)
    if not wrong and exact:
        wrong = f"gives other items: {first_difference(rest, items[stop:])}"
    return f"{where} {wrong}" if wrong else ""


def _second_error(items: Items, run: Resume, full_run: list[tuple[Any, Any, Any]]) -> str:
    """Resume a run, stop the resumed run, and resume again. Return a description of the first error, or an empty string."""
    first, second = max(1, len(items) // 3), len(items) * 2 // 3
    if second <= first:
        return ""
    resumed = run(deepcopy(full_run[first - 1][2]))
    state = deepcopy([state for _, state in islice(resumed, second - first)][-1])
    del resumed  # end the run, because some loaders allow only one run at a time
    error = _resuming_error(items, run, second, state)
    return error and f"resumed after item {first}, then {error}"
