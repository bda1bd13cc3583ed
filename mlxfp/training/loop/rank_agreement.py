"""Ranks that make the same number of steps: one that ends its epoch alone would leave the others waiting in the next step for ever."""

import warnings
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.distributed import Ranks
from mlxfp.training.steps.steps import Batch

T = TypeVar("T")


def same_number(ranks: Ranks | None, batches: Iterable[Batch]) -> bool:
    """Tell whether it is known that all ranks have equally many batches, so that they need not agree before each step."""
    if ranks is None or ranks.world.size == 1:
        return True
    known = length(batches) if isinstance(batches, Dataset) else None
    lengths = [number for (number,) in ranks.gather([-1 if known is None else known])]
    return lengths[0] >= 0 and len(set(lengths)) == 1


def in_step(ranks: Ranks, feed: Generator[T, None, None]) -> Iterator[T]:
    """Yield as long as every rank has something to yield. Warns (`RuntimeWarning`) on ranks that have something left then."""
    while True:
        fed = next(feed, None)
        there = sum(number > 0 for (number,) in ranks.gather([fed is not None]))
        if there < ranks.world.size:
            if fed is not None:
                warnings.warn(
                    f"{ranks.world.size - there} of {ranks.world.size} ranks have no batch left, and this one, rank {ranks.world.rank}, "
                    'has: the epoch ends here on all ranks. Give them equally many batches: shard(..., ends="drop") or ends="pad".',
                    RuntimeWarning,
                    stacklevel=2,
                )
            return
        yield fed  # type: ignore[misc]  # not None: all ranks have something
