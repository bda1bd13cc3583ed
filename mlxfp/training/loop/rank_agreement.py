"""Ranks that make the same steps: one that ended its epoch alone, or failed, would leave the others waiting for ever.

So they tell each other whether they have a batch, by a message of a few bytes: before every step, or, where all are known to have equally
many, before those after which the metrics are read. Where a rank has died, MLX may never return; the watch of `Ranks` ends the others then.
"""

import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from hashlib import blake2b
from itertools import count
from typing import Any, TypeVar

import mlx.core as mx
import numpy as np

from mlxfp.core.arrow.serialization import pack, unpack
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.distributed import Ranks
from mlxfp.support.errors import ArgumentError, RankError
from mlxfp.support.trees import flatten
from mlxfp.training.loop.events import Event
from mlxfp.training.steps.sharding import axes_in, names_of
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import Batch

T = TypeVar("T")
_DIGEST = 6  # bytes: as many as a float holds exactly


def same_number(ranks: Ranks | None, batches: Iterable[Batch], step: int) -> int | None:
    """Return how many batches all ranks have in an epoch; None if that differs or is not known.

    Raises `ArgumentError` on all ranks unless they begin at the same step.
    """
    if ranks is None or ranks.world.size == 1:
        return None
    known = length(batches) if isinstance(batches, Dataset) else None
    lengths, steps = zip(*ranks.gather([-1 if known is None else known, step]), strict=True)
    if len(set(steps)) > 1:
        raise ArgumentError(
            f"The ranks begin at different steps: {', '.join(str(int(each)) for each in steps)}. Continue all of them from one, with "
            "load_latest(folder, like, ranks=ranks)."
        )
    return known if len(set(lengths)) == 1 else None


def check_same_parameters(ranks: Ranks | None, state: TrainState) -> None:
    """Raise `ArgumentError` on all ranks unless they begin with the same parameters, but for those that are parts of larger ones."""
    if ranks is None or ranks.world.size == 1:
        return
    trees = {"params": state.params}
    parts = axes_in(state.shards, trees)
    named = zip(names_of(state.shards, trees), flatten(trees)[1], strict=True)
    with ranks.working():
        digests = {name: _digest(array) for name, array in named if name not in parts}
    own = blake2b(b"".join(digests.values()), digest_size=_DIGEST).digest()
    found = [number for (number,) in ranks.gather([float(int.from_bytes(own, "big"))])]
    others = [rank for rank, number in enumerate(found) if number != found[0]]
    if not others:
        return
    first, *rest = ranks.gather_bytes(b"".join(digests.values()))
    place = next(
        place for place in range(0, len(first) + 1, _DIGEST) if any(each[place:][:_DIGEST] != first[place:][:_DIGEST] for each in rest)
    )
    name = [*digests, "the end of the list"][place // _DIGEST]
    raise ArgumentError(
        f"The ranks begin with different parameters: rank {others[0]} has others than rank 0, the first of them at {name}. Make the model "
        "with the same seed on all of them, or load it from one checkpoint. A model that is divided between ranks is known by the layers "
        "of fully_shard and shard_linear; arrays that shard_inplace has cut cannot be told from whole ones."
    )


def _digest(array: mx.array) -> bytes:
    content = np.array(array.reshape(-1).view(mx.uint8)).data
    return blake2b(content, digest_size=_DIGEST, key=f"{array.shape} {array.dtype}".encode()[:64]).digest()


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


def in_step(ranks: Ranks | None, feed: Generator[T, None, None], first: int, size: int | None, read: Callable[[int], bool]) -> Iterator[T]:
    """Yield as long as every rank has something to yield. Warns (`RuntimeWarning`) on ranks that have something left then.

    `first` steps were made before; all ranks have `size` batches, if that is known, and `read(step)` tells whether the metrics of a step
    are read. Where the feed of a rank fails, it raises its error there, and `RankError` on the others, before they are read again: up to
    then that rank goes on with the batch before, because the others count on it.
    """
    if ranks is None or ranks.world.size == 1:
        return feed
    ends = None if size is None else (first + 1, first + size + 1)
    return _in_step(ranks, feed, count(first + 1), lambda step: ends is None or step in ends or read(step))


def exchanged(ranks: Ranks, part: str, make: Callable[[], Any]) -> list[Any]:
    """Return what every rank has made, in order: plain values and arrays of numpy. `part` says what of, in an error.

    Where one fails, it raises its error there, and `RankError` on the others.
    """
    failure: Exception | None = None
    try:
        with ranks.working():
            content = pack(make(), {})
    except Exception as error:  # noqa: BLE001  # raised below, when the others know
        content, failure = b"", error
    found = ranks.gather_bytes(content)
    if failure is not None:
        raise failure
    if b"" in found:
        raise RankError(
            f"Rank {found.index(b'')} of {ranks.world.size} failed in its part of {part}, so this one, rank {ranks.world.rank}, cannot go "
            "on. The output of that rank says why: correct it, and start all ranks again."
        )
    return [unpack(each, {}) for each in found]


def _in_step(ranks: Ranks, feed: Generator[T, None, None], steps: Iterable[int], agree: Callable[[int], bool]) -> Iterator[T]:
    own, size = ranks.world.rank, ranks.world.size
    fed: T | None = None
    failure: Exception | None = None
    for step in steps:
        try:
            with ranks.working():
                fed = next(feed, None) if failure is None else fed
        except Exception as error:  # noqa: BLE001  # raised below, when the others know
            failure = error
        if agree(step) or fed is None:
            found = [state for (state,) in ranks.gather([-1 if failure else fed is not None])]
            if failure is not None:
                raise failure
            if min(found) < 0:
                raise RankError(
                    f"Rank {found.index(-1)} of {size} failed while it made its next batch, so this one, rank {own}, cannot go on. The "
                    "output of that rank says why: correct it, and start all ranks again."
                )
            there = sum(state > 0 for state in found)
            if there < size:
                if fed is not None:
                    warnings.warn(
                        f"{size - there} of {size} ranks have no batch left, and this one, rank {own}, has: the epoch ends here on all "
                        'ranks. Give them equally many batches: shard(..., ends="drop") or ends="pad".',
                        RuntimeWarning,
                        stacklevel=2,
                    )
                return
        yield fed  # type: ignore[misc]  # not None, or they would have agreed
