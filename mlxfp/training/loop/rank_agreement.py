"""Agreement between ranks on the number of steps, so that no rank waits forever for a rank that failed or ended its epoch early.

Before every step, ranks send each other a message of a few bytes about their next batch. If all ranks are known to have equally many
batches, a message before each reading of the metrics is enough. If a rank dies, a call to MLX may never return; the watchdog of `Ranks`
then ends the other processes.
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
from mlxfp.training.steps.batches import kind
from mlxfp.training.steps.sharding import axes_in, names_of
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import Batch

T = TypeVar("T")


def same_number(ranks: Ranks | None, batches: Iterable[Batch], step: int) -> int | None:
    """Return the number of batches per epoch if the number is known and equal on all ranks, else None.

    Raises `ArgumentError` on all ranks if the ranks start at different steps.
    """
    if ranks is None or ranks.world.size == 1:
        return None
    known = length(batches) if isinstance(batches, Dataset) else None
    lengths, steps = zip(*ranks.gather([-1 if known is None else known, step]), strict=True)
    if len(set(steps)) > 1:
        listed = ", ".join(str(int(first_step)) for first_step in steps)
        raise ArgumentError(
            f"The ranks begin at different steps: {listed}. Continue all ranks from the same checkpoint with "
            "load_latest(folder, like, ranks=ranks)."
        )
    return known if len(set(lengths)) == 1 else None


def check_same_parameters(ranks: Ranks | None, state: TrainState) -> None:
    """Raise `ArgumentError` on all ranks if their initial parameters differ. Arrays divided between ranks are not compared."""
    if ranks is None or ranks.world.size == 1:
        return
    trees = {"params": state.params}
    parts = axes_in(state.shards, trees)
    named = zip(names_of(state.shards, trees), flatten(trees)[1], strict=True)
    digests = exchanged(ranks, "the comparison of parameters", lambda: {name: _digest(array) for name, array in named if name not in parts})
    other = next((rank for rank, table in enumerate(digests) if table != digests[0]), None)
    if other is not None:
        name = next(name for name in digests[0] | digests[other] if digests[0].get(name) != digests[other].get(name))
        raise ArgumentError(
            f"The ranks begin with different parameters: rank {other} differs from rank 0, first at {name}. Create the model with the same "
            "seed on all ranks, or load the same checkpoint. If shard_inplace divided the model between ranks, use fully_shard or "
            "shard_linear instead: an array divided by shard_inplace cannot be distinguished from a whole array."
        )


def _digest(array: mx.array) -> str:
    return kind(array) + blake2b(np.array(array.reshape(-1).view(mx.uint8)).data).hexdigest()


def watched(ranks: Ranks | None, events: Iterator[Event]) -> Iterator[Event]:
    """Yield the given events. End this process if an event takes longer than the argument `limit` of `connect`, in seconds."""
    if ranks is None or ranks.world.size == 1:
        yield from events
        return
    while True:
        with ranks.waiting():
            event = next(events, None)
        if event is None:
            return
        yield event


def in_step(ranks: Ranks | None, feed: Generator[T, None, None], first: int, size: int | None, read: Callable[[int], bool]) -> Iterator[T]:
    """Yield batches until one of the ranks has no batch left. Ranks with remaining batches warn (`RuntimeWarning`).

    - `first`: the number of completed steps.
    - `size`: the number of batches on every rank, or None if unknown.
    - `read`: a function that returns True for each step number at which `fit` reads metrics.

    In an exchange, each rank tells the other ranks whether its next batch is ready. If `size` is None, every step begins with an exchange.
    Otherwise exchanges take place before the first step, before steps that read metrics, and after the last batch.

    A rank that fails to prepare a batch repeats its last batch until the next exchange, because the other ranks wait for its gradients.
    The failed rank then raises the error, and the other ranks raise `RankError`.
    """
    if ranks is None or ranks.world.size == 1:
        yield from feed
        return
    ends = () if size is None else (first + 1, first + size + 1)
    item: T | None = None
    failure: Exception | None = None
    for step in count(first + 1):
        try:
            with ranks.working():
                item = next(feed, None) if failure is None else item
        except Exception as error:  # noqa: BLE001  # raised below, after the other ranks know
            failure = error
        if size is None or step in ends or read(step) or item is None:
            states = [state for (state,) in ranks.gather([-1 if failure else item is not None])]
            if failure is not None:
                raise failure
            if min(states) < 0:
                raise _rank_error(ranks, states.index(-1), "to prepare its next batch")
            active = sum(state > 0 for state in states)
            if active < len(states):
                if item is not None:
                    warnings.warn(
                        f"{len(states) - active} of {len(states)} ranks have no batch left, but rank {ranks.world.rank} still has batches. "
                        'The epoch ends here on all ranks. Give all ranks equally many batches: shard(..., ends="drop") or ends="pad".',
                        RuntimeWarning,
                        stacklevel=2,
                    )
                return
        yield item  # type: ignore[misc]  # None always leads to an exchange and ends the loop


def exchanged(ranks: Ranks, part: str, make: Callable[[], Any]) -> list[Any]:
    """Return the results of `make()` from all ranks in rank order, as plain values and NumPy arrays.

    If `make` fails on a rank, that rank raises the error and the other ranks raise `RankError`. The argument `part` names the work in error
    messages.
    """
    failure: Exception | None = None
    try:
        with ranks.working():
            content = pack(make(), {})
    except Exception as error:  # noqa: BLE001  # raised below, after the other ranks know
        content, failure = b"", error
    contents = ranks.gather_bytes(content)
    if failure is not None:
        raise failure
    if b"" in contents:
        raise _rank_error(ranks, contents.index(b""), f"in its part of {part}")
    return [unpack(packed, {}) for packed in contents]


def _rank_error(ranks: Ranks, failed: int, work: str) -> RankError:
    return RankError(
        f"Rank {failed} of {ranks.world.size} failed {work}, so rank {ranks.world.rank} cannot continue. Read the error in the output of "
        f"rank {failed}, correct the cause, and restart all ranks."
    )
