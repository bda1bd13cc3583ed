"""Ranks that make the same number of steps: one that ends its epoch alone would leave the others waiting in the next step for ever.

One that fails ends its process, and with it the connections to the others: their next step raises an error of MLX.
"""

import warnings
from collections.abc import Generator, Iterable, Iterator
from typing import TypeVar

from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.core.errors import ArgumentError
from mlxfp.distributed import Ranks
from mlxfp.training.loop.events import Event
from mlxfp.training.steps.steps import Batch

T = TypeVar("T")


def same_number(ranks: Ranks | None, batches: Iterable[Batch], step: int) -> bool:
    """Tell whether it is known that all ranks have equally many batches, so that they need not agree before each step.

    Raises `ArgumentError` on all unless they begin at the same step.
    """
    if ranks is None or ranks.world.size == 1:
        return True
    known = length(batches) if isinstance(batches, Dataset) else None
    lengths, steps = zip(*ranks.gather([-1 if known is None else known, step]), strict=True)
    if len(set(steps)) > 1:
        raise ArgumentError(
            f"The ranks begin at different steps: {', '.join(f'{int(each)}' for each in steps)}. Continue all of them from one, with "
            "load_latest(folder, like, ranks=ranks)."
        )
    return lengths[0] >= 0 and len(set(lengths)) == 1


def noting_lost_ranks(ranks: Ranks | None, events: Iterator[Event]) -> Iterator[Event]:
    """Return the events of a run; an error of MLX because another rank is gone says so, and what to do."""
    return events if ranks is None or ranks.world.size == 1 else _noting_lost_ranks(ranks, events)


def _noting_lost_ranks(ranks: Ranks, events: Iterator[Event]) -> Iterator[Event]:
    step: int | None = None
    try:
        for event in events:
            step = event.step
            yield event
    except RuntimeError as error:
        if "peer" in str(error):  # "[ring] connection to a peer was lost"
            error.add_note(
                f"Rank {ranks.world.rank} of {ranks.world.size} lost the connection to another one after step {step}: that process has "
                "ended, and its own output says why. Start all ranks again; with load_latest(folder, like, ranks=ranks) they continue from "
                "their checkpoints."
            )
        raise


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
