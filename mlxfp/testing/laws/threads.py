"""The law of wrappers such as `prefetch`: they change how a dataset runs, not what it gives."""

from collections.abc import Iterator
from typing import Any

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import iterate
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws.datasets import Transform


def assert_transparent(transform: Transform, dataset: Dataset[Any], *, epoch: int = 0) -> None:
    """Law: a transform changes neither the items nor where an error is raised, also after resuming, and when the consumer stops early.

    For transforms that change how a dataset runs and not what it gives: prefetching, caching, profiling.

    >>> import mlxfp as fp
    >>> assert_transparent(fp.prefetch(2), fp.from_examples([{"x": 1}, {"x": 2}]))
    """
    wrapped = transform(dataset)
    plain, found = _outcomes(iterate(dataset, epoch=epoch)), _outcomes(iterate(wrapped, epoch=epoch))
    expected = [outcome for outcome, _ in plain]
    assert_same([outcome for outcome, _ in found], expected, f"{wrapped!r} gives what {dataset!r} gives, errors included")
    for place, (_, cursor) in enumerate(found, 1):
        if cursor is not None:
            rest = [outcome for outcome, _ in _outcomes(iterate(wrapped, cursor))]
            assert_same(rest, expected[place:], f"{wrapped!r} continues after item {place - 1} as {dataset!r} does")
            stopped = iterate(wrapped, epoch=epoch)
            early = [item for _, (item, _) in zip(range(place), stopped, strict=False)]
            stopped.close()  # type: ignore[attr-defined]  # a generator
            assert_same(early, expected[:place], f"{wrapped!r} gives the first {place} items to a consumer that then stops")


def _outcomes(items: Iterator[tuple[Any, Cursor]]) -> list[tuple[Any, Cursor | None]]:
    """Collect the items with their cursors, and at the end the error, if one was raised."""
    found: list[tuple[Any, Cursor | None]] = []
    try:
        found.extend(items)
    except Exception as error:  # noqa: BLE001  # any error of a user's function
        found.append(((type(error).__name__, str(error)), None))
    return found
