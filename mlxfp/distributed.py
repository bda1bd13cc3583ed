"""Training one model with several machines or processes: the only file that calls `mx.distributed`."""

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from attrs import define, field, frozen
from mlx import nn
from numpy.typing import NDArray

from mlxfp.core.checks import check_choice
from mlxfp.core.errors import ArgumentError, RankError
from mlxfp.core.trees import flatten, unflatten
from mlxfp.data.rows.sharding import World

__all__ = ["Ranks", "connect"]


def __dir__() -> list[str]:
    return __all__


Backend = Literal["any", "ring", "mpi", "nccl", "jaccl"]

_LIMIT = 1800.0  # seconds: as other libraries wait for ranks
# What each backend needs in the environment, as `mlx.launch` sets it.
_NEEDED = {
    "ring": ("MLX_RANK", "MLX_HOSTFILE"),
    "nccl": ("MLX_RANK", "MLX_WORLD_SIZE", "NCCL_HOST_IP", "NCCL_PORT"),
    "jaccl": ("MLX_RANK", "MLX_JACCL_COORDINATOR", "MLX_IBV_DEVICES"),
}


@frozen(eq=False)
class Ranks:
    """The processes of a run, made by `connect`. `world` tells which of them this one is: `shard(world.copy, world.copies)`.

    `backend` is what connects them: "ring", "nccl", "jaccl" or "mpi"; None: this process is alone.

    >>> connect()
    Ranks(world=World(rank=0, size=1, tensor=1, pipeline=1), backend=None)
    """

    world: World
    backend: str | None = field(default=None, kw_only=True)
    _group: mx.distributed.Group = field(repr=False)
    _watch: "_Watch" = field(factory=lambda: _Watch(_LIMIT), repr=False, kw_only=True)

    def waiting(self) -> AbstractContextManager[None]:
        """End this process if the code within takes longer than the limit of `connect`, because it waits for a rank that is gone.

        MLX waits in the kernel then, where neither an exception nor Ctrl-C reaches it.

        >>> with connect().waiting():
        ...     total = 1 + 1
        """
        return self._watch.set(watching=True) if self.world.size > 1 else nullcontext()

    def working(self) -> AbstractContextManager[None]:
        """Take as long as it takes for the code within, also inside of `waiting`: it does not wait for another rank.

        >>> with connect().waiting(), connect().working():
        ...     total = 1 + 1
        """
        return self._watch.set(watching=False) if self.world.size > 1 else nullcontext()

    def add_up(self, tree: Any) -> Any:
        """Add up the arrays of a tree over all ranks; every rank gets the same sums, bit for bit. All ranks must call it.

        If all arrays have the same dtype they are sent in messages of at least 32 MiB, else one by one.

        >>> connect().add_up({"loss": (mx.array(0.5), [])})
        {'loss': (array(0.5, dtype=float32), [])}
        """
        if self.world.size == 1:
            return tree
        structure, leaves = flatten(tree)
        means = nn.average_gradients(leaves, self._group)  # passed as a list, because MLX turns tuples into lists
        return unflatten(structure, [mean * self.world.size for mean in means])

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return the numbers of every rank, in order and exactly. All ranks must call it, each with equally many numbers.

        >>> connect().gather([0.1, 3])
        [[0.1, 3.0]]
        """
        table = np.zeros((self.world.size, 1 + len(numbers)))
        table[self.world.rank] = 1.0, *numbers
        if self.world.size > 1:  # as whole numbers, which are added to zeros: MLX has no float64 to send
            bits = mx.array(table.view(np.uint32))
            table = self._sent(lambda: mx.distributed.all_sum(bits, group=self._group)).view(np.float64)
            if not (table[:, 0] == 1.0).all():  # a ring whose rank has died may leave its numbers out, without an error
                raise self._gone("it has sent nothing")
        rows: list[list[float]] = table[:, 1:].tolist()
        return rows

    def gather_bytes(self, content: bytes) -> list[bytes]:
        """Return the bytes of every rank, in order. All ranks must call it.

        >>> connect().gather_bytes(b"of rank 0")
        [b'of rank 0']
        """
        if self.world.size == 1:
            return [content]
        sizes = [int(size) for (size,) in self.gather([len(content)])]
        padded = np.zeros((1, max(1, *sizes)), np.uint8)
        padded[0, : len(content)] = np.frombuffer(content, np.uint8)
        found = self._sent(lambda: mx.distributed.all_gather(mx.array(padded), group=self._group))
        return [row[:size].tobytes() for row, size in zip(found, sizes, strict=True)]

    def _sent(self, send: Callable[[], mx.array]) -> NDArray[Any]:
        """Send a message, and wait for those of the others. Raises `RankError` where MLX says that one is gone."""
        with self.waiting():
            try:
                return np.array(send())
            except RuntimeError as error:
                raise self._gone(str(error)) from error

    def _gone(self, why: str) -> RankError:
        return RankError(
            f"Another rank is gone, so this one, rank {self.world.rank} of {self.world.size}, cannot go on: {why}. The output of that rank "
            "says why, unless it was killed. Start all ranks again, to go on with what is written."
        )


@define(eq=False)
class _Watch:
    """A thread that ends the process at a deadline. It ends itself where there is none, and begins again with the next."""

    limit: float  # seconds
    _deadline: float | None = None
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(factory=threading.Lock)

    @contextmanager
    def set(self, *, watching: bool) -> Iterator[None]:
        """Set a deadline for the code within, or none; after it the limit begins again for what is around it."""
        before = self._deadline is not None
        self._begin(watching=watching)
        try:
            yield
        finally:
            self._begin(watching=before)

    def _begin(self, *, watching: bool) -> None:
        with self._lock:
            self._deadline = monotonic() + self.limit if watching else None
            if watching and self._thread is None:
                self._thread = threading.Thread(target=self._look, name="mlxfp-ranks", daemon=True)
                self._thread.start()

    def _look(self) -> None:
        while True:
            sleep(min(1.0, self.limit / 10))
            with self._lock:
                deadline = self._deadline
                if deadline is None:
                    self._thread = None
                    return
            if monotonic() > deadline:
                print(  # noqa: T201  # the thread that could raise an error waits in MLX
                    f"mlxfp: this rank has waited {self.limit:g} seconds for another one, and ends: a rank has ended, or hangs. Its own "
                    "output says why. Where a rank may take that long, as for an evaluation, pass connect(limit=...), in seconds.",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)


def connect(*, backend: Backend = "any", limit: float = _LIMIT) -> Ranks:
    """Connect the processes that `mlx.launch` started; without it, this process is the only rank.

    A rank that waits longer than `limit` seconds for the others, because one has died or hangs, ends its process with a message: MLX
    itself would wait for ever.

    Pass the result to `train_step(..., ranks=...)`, and let each rank read its own rows. Raises `ArgumentError` if a backend other
    than "any" cannot start, and with "any" where the environment says that there are other processes and none can be reached; and
    `UnknownNameError` for an unknown backend.

    >>> connect().world
    World(rank=0, size=1, tensor=1, pipeline=1)
    """
    check_choice(("any", "ring", "mpi", "nccl", "jaccl"), backend=backend)
    if not limit > 0:
        raise ArgumentError(f"limit must be above 0, got limit={limit!r}.")
    try:
        group = mx.distributed.init(strict=backend != "any", backend=backend)
    except RuntimeError as error:
        start = f"mlx.launch --backend {backend}, or pass backend='any'" if backend != "any" else "mlx.launch"
        message = f"The backend {backend!r} cannot start: {str(error).rstrip('.')}. {_lacks(backend)}Start the program with {start}."
        raise ArgumentError(message) from error
    others = {
        name: os.environ[name] for name, alone in (("MLX_RANK", "0"), ("MLX_WORLD_SIZE", "1")) if os.environ.get(name, alone) != alone
    }
    if group.size() == 1 and others:
        raise ArgumentError(
            "This process would be the only one, got "
            f"{', '.join(f'{name}={value}' for name, value in others.items())} in the environment, which says that there are others. "
            f"Start all with mlx.launch, which sets what is missing. {_all_lack()}"
        )
    return Ranks(World(group.rank(), group.size()), group, backend=_answered(backend, group.size()), watch=_Watch(limit))


def _answered(backend: str, size: int) -> str | None:
    """Return the backend that connects the ranks, which MLX does not say: with "any", the one that has what it needs."""
    if size == 1 or backend != "any":
        return None if size == 1 else backend
    return next((name for name in _NEEDED if not _unset(name)), "mpi")


def _unset(backend: str) -> list[str]:
    return [name for name in _NEEDED.get(backend, ()) if not os.environ.get(name)]


def _all_lack() -> str:
    """Say what every backend lacks in the environment."""
    return " ".join(f"The backend {name} lacks {', '.join(_unset(name)) or 'nothing, and cannot start'}." for name in _NEEDED)


def _lacks(backend: str) -> str:
    """Say what a backend lacks in the environment, with a space at the end, or nothing."""
    unset = _unset(backend)
    hosts = os.environ.get("MLX_HOSTFILE")
    gone = f"MLX_HOSTFILE is {hosts!r}, and there is no such file. " if hosts and not Path(hosts).is_file() else ""
    named = ", ".join(unset)
    return f"{f'Not set in the environment: {named}. ' if unset else ''}{gone}"
