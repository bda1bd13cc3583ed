"""Pool for several ranks that write a dataset together. Each rank writes some of the files and learns when other ranks end or fail."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Protocol

from mlxfp.data.rows.calling import context_until
from mlxfp.data.rows.sharding import World
from mlxfp.data.running.pools import Inline
from mlxfp.support.errors import ArgumentError, RankError

_BUSY, _FAILED = -1.0, -2.0
# Shortest and longest pause between two messages to other ranks, in seconds. The pauses grow, so that short jobs end quickly.
_FIRST_PAUSE, _LAST_PAUSE = 0.005, 0.5
_DIGITS = 8  # Ranks exchange a fingerprint as numbers. Each number holds 8 hexadecimal digits.


class Peers(Protocol):
    """Protocol with the methods of `distributed.Ranks` that `write` uses."""

    @property
    def world(self) -> World:
        """Index of this rank, and the number of ranks."""

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Send `numbers` to all ranks. Return a list with the numbers that each rank sent. Exit the process if a rank does not answer."""


class RankPool(Inline):
    """Pool of a rank that writes together with other ranks.

    Jobs run in a separate thread. The main thread can thus exchange heartbeats with the other ranks.
    """

    def __init__(self, peers: Peers) -> None:
        """Store the connection to the other ranks, and create the thread that runs jobs."""
        super().__init__()
        self.held = ExitStack()  # resources, such as the lock of the folder, that the job thread opens and closes
        self.rank, self.size = peers.world.rank, peers.world.size
        self._peers, self._closed = peers, False
        self._thread = ThreadPoolExecutor(1, "mlxfp-rank")

    def check_same(self, fingerprint: str) -> None:
        """Raise `ArgumentError` on all ranks unless the pipelines of all ranks are equal."""
        starts = range(0, len(fingerprint), _DIGITS)
        fingerprints = self._peers.gather([float(int(fingerprint[start : start + _DIGITS], 16)) for start in starts])
        others = [rank for rank, numbers in enumerate(fingerprints) if numbers != fingerprints[0]]
        if others:
            raise ArgumentError(
                "Ranks that write together need the same pipeline and the same source files, but rank "
                f"{others[0]} differs from rank 0. Remove shard and all other steps that depend on the rank: runners.ranks() divides the "
                "files. Source files must have the same sizes and times on all machines."
            )

    def meet(self, work: Callable[[], float]) -> list[float]:
        """Run `work` on every rank, wait for all ranks, and return the results of all ranks. `work` must not return a negative number.

        A rank that fails raises its error. The other ranks then stop before their next row and raise `RankError`.
        """
        context = context_until(lambda: self._closed)
        future, pause = self._thread.submit(context.run, work), _FIRST_PAUSE
        while True:
            wait([future], timeout=pause)
            done = future.done()
            status = _BUSY if not done else _FAILED if future.exception() else future.result()
            statuses = [number for (number,) in self._peers.gather([status])]
            if status == _FAILED:
                future.result()
            if _FAILED in statuses:
                raise RankError(
                    f"Rank {statuses.index(_FAILED)} of {self.size} failed while writing its files, so rank {self.rank} stops. Fix "
                    "the error in the output of that rank, and start all ranks again. Finished files are not written again."
                )
            if _BUSY not in statuses:
                return statuses
            pause = min(2 * pause, _LAST_PAUSE)

    def close(self) -> None:
        """Stop the thread. The thread ends before its next row."""
        self._closed = True
        self._thread.submit(self.held.close)
        self._thread.shutdown(wait=True)
