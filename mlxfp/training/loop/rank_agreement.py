"""Ranks that make the same steps: one that ended its epoch alone, or failed, would leave the others waiting for ever.

So before each step they tell each other whether they have a batch: a message of a few bytes. Where a rank has died, MLX may never return;
the watch of `Ranks` ends the others then.
"""

import warnings
from collections.abc import Generator, Iterator
from typing import TypeVar

from mlxfp.core.errors import ArgumentError, MlxfpError
from mlxfp.distributed import Ranks
from mlxfp.training.loop.events import Event

T = TypeVar("T")


class RankError(MlxfpError, RuntimeError):
    """Another rank has failed, so this one cannot go on. That one says why.

    >>> raise RankError("Rank 1 of 2 failed.")
    Traceback (most recent call last):
    mlxfp.training.loop.rank_agreement.RankError: Rank 1 of 2 failed.
    """


def check_beginning(ranks: Ranks | None, step: int) -> None:
    """Raise `ArgumentError` on all ranks unless they begin at the same step."""
    if ranks is None or ranks.world.size == 1:
        return
    steps = [int(each) for (each,) in ranks.gather([step])]
    if len(set(steps)) > 1:
        raise ArgumentError(
            f"The ranks begin at different steps: {', '.join(map(str, steps))}. Continue all of them from one, with "
            "load_latest(folder, like, ranks=ranks)."
        )


def watched(ranks: Ranks | None, events: Iterator[Event]) -> Iterator[Event]:
    """Return the events of a run; a rank that waits too long for the next one, because another is gone, ends."""
    return events if ranks is None or ranks.world.size == 1 else _watched(ranks, events)


def _watched(ranks: Ranks, events: Iterator[Event]) -> Iterator[Event]:
    while True:
        with ranks.waiting():
            event = next(events, None)
        if event is None:
            return
        yield event


def in_step(ranks: Ranks | None, feed: Generator[T, None, None]) -> Iterator[T]:
    """Yield as long as every rank has something to yield. Warns (`RuntimeWarning`) on ranks that have something left then.

    Where the feed of a rank fails, it raises its error there, and `RankError` on the others.
    """
    return feed if ranks is None or ranks.world.size == 1 else _in_step(ranks, feed)


def _in_step(ranks: Ranks, feed: Generator[T, None, None]) -> Iterator[T]:
    own, size = ranks.world.rank, ranks.world.size
    while True:
        fed, failure = None, None
        try:
            with ranks.working():
                fed = next(feed, None)
        except Exception as error:  # noqa: BLE001  # raised below, when the others know
            failure = error
        found = [state for (state,) in ranks.gather([-1 if failure else fed is not None])]
        if failure is not None:
            raise failure
        if min(found) < 0:
            raise RankError(
                f"Rank {found.index(-1)} of {size} failed while it made its next batch, so this one, rank {own}, cannot go on. The output "
                "of that rank says why: correct it, and start all ranks again."
            )
        there = sum(state > 0 for state in found)
        if there < size:
            if fed is not None:
                warnings.warn(
                    f"{size - there} of {size} ranks have no batch left, and this one, rank {own}, has: the epoch ends here on all ranks. "
                    'Give them equally many batches: shard(..., ends="drop") or ends="pad".',
                    RuntimeWarning,
                    stacklevel=2,
                )
            return
        yield fed  # type: ignore[misc]  # not None: all ranks have something
