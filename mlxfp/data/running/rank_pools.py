"""The pool of ranks that write together. Each rank writes its own files, and all ranks learn of the end or of a failure."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Protocol

from mlxfp.data.rows.calling import context_until
from mlxfp.data.rows.sharding import World
from mlxfp.data.running.pools import Inline
from mlxfp.support.errors import ArgumentError, RankError

_BUSY, _FAILED = -1.0, -2.0
_FIRST_PAUSE, _LAST_PAUSE = 0.005, 0.5  # seconds between two messages; the first pauses are short, for short work
_DIGITS = 8  # digits of a fingerprint in one number


class Peers(Protocol):
    """The methods of `distributed.Ranks` that writing needs."""

    @property
    def world(self) -> World:
        """Index of this rank, and the number of ranks."""

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return the numbers of every rank, or end this process if a rank does not answer."""


class RankPool(Inline):
    """One of several processes that write together. Jobs run in a thread, so this process can send signs of life to the other ranks."""

    def __init__(self, peers: Peers) -> None:
        """Start with nothing."""
        super().__init__()
        self.held = ExitStack()  # resources opened by `meet`, closed in the same thread
        self.rank, self.size = peers.world.rank, peers.world.size
        self._peers, self._closed = peers, False
        self._thread = ThreadPoolExecutor(1, "mlxfp-rank")

    def check_same(self, fingerprint: str) -> None:
        """Raise `ArgumentError` on all ranks unless they are to write the same."""
        starts = range(0, len(fingerprint), _DIGITS)
        found = self._peers.gather([float(int(fingerprint[start : start + _DIGITS], 16)) for start in starts])
        others = [rank for rank, numbers in enumerate(found) if numbers != found[0]]
        if others:
            raise ArgumentError(
                f"Ranks that write together need the same pipeline over the same files, got another one on rank {others[0]} than on rank "
                "0. Leave out shard, and whatever else depends on the rank: runners.ranks() divides the files. Files that are read must "
                "have the same sizes and times on all machines."
            )

    def meet(self, work: Callable[[], float]) -> list[float]:
        """Do this rank's part, wait until all have done theirs, and return the number, 0 or more, that each has made.

        Where one fails, its error is raised there, and `RankError` on the others, which stop at their next row.
        """
        context = context_until(lambda: self._closed)
        future, pause = self._thread.submit(context.run, work), _FIRST_PAUSE
        while True:
            wait([future], timeout=pause)
            done = future.done()
            own = _BUSY if not done else _FAILED if future.exception() else future.result()
            found = [number for (number,) in self._peers.gather([own])]
            if own == _FAILED:
                future.result()
            if _FAILED in found:
                raise RankError(
                    f"Rank {found.index(_FAILED)} of {self.size} failed while it wrote its files, so this one, rank {self.rank}, stops. "
                    "The output of that rank says why: correct it, and start all ranks again. What is written is not written again."
                )
            if _BUSY not in found:
                return found
            pause = min(2 * pause, _LAST_PAUSE)

    def close(self) -> None:
        """End the thread, at its next row."""
        self._closed = True
        self._thread.submit(self.held.close)
        self._thread.shutdown(wait=True)
