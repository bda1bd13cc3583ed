"""Training one model on several machines or processes. The only module that calls `mx.distributed`."""

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Literal

import mlx.core as mx
import numpy as np
from attrs import define, field, frozen
from numpy.typing import NDArray

from mlxfp.data.rows.sharding import World
from mlxfp.support.checks import check_choice
from mlxfp.support.errors import ArgumentError, RankError
from mlxfp.support.trees import flatten, unflatten

if TYPE_CHECKING:
    from mlx import nn

__all__ = ["Ranks", "World", "connect", "shard_linear"]


def __dir__() -> list[str]:
    return __all__


Backend = Literal["any", "ring", "mpi", "nccl", "jaccl"]

SEGMENTS = "_segments"  # name of the layer attribute that stores the argument `segments`; the layers of MLX do not store this argument
_LIMIT = 1800.0  # default time limit for waiting for another rank, in seconds
_MESSAGE = 32 * 1024**2  # maximum message size in bytes when arrays are sent together, as in `average_gradients` of MLX
_BACKEND_PREFIXES = ("[ring]", "[mpi]", "[nccl]", "[jaccl]")  # prefixes of MLX errors about failures of other ranks
_SCATTERS = ("nccl", "jaccl")  # backends of MLX 0.32 that support sum_scatter; with other backends, sum_scatter aborts the process
# Environment variables required by each backend, set by `mlx.launch`.
_NEEDED = {
    "ring": ("MLX_RANK", "MLX_HOSTFILE"),
    "nccl": ("MLX_RANK", "MLX_WORLD_SIZE", "NCCL_HOST_IP", "NCCL_PORT"),
    "jaccl": ("MLX_RANK", "MLX_JACCL_COORDINATOR", "MLX_IBV_DEVICES"),
}


@frozen(eq=False)
class Ranks:
    """The processes of a run, returned by `connect`.

    `world` holds the index of this process (the rank), and the division of the ranks into copies of the model. Each copy reads its own
    rows with `shard(world.copy, world.copies)`. `backend` is "ring", "nccl", "jaccl" or "mpi", or None if there is only one rank.

    >>> connect()
    Ranks(world=World(rank=0, size=1, tensor=1, pipeline=1), backend=None)
    """

    world: World
    backend: str | None = field(default=None, kw_only=True)
    _group: mx.distributed.Group = field(repr=False)
    _watch: "_Watch" = field(factory=lambda: _Watch(_LIMIT), repr=False, kw_only=True)
    _within: mx.distributed.Group | None = field(default=None, repr=False, kw_only=True)  # group of ranks that share one model copy
    _across: mx.distributed.Group | None = field(default=None, repr=False, kw_only=True)  # group of ranks with the same part of a model
    _sent: list[int] = field(factory=lambda: [0], repr=False, kw_only=True)

    @property
    def tensor_group(self) -> mx.distributed.Group:
        """Communication group for `shard_linear`: this rank, and all other ranks that share one copy of the model with this rank.

        Raises `ArgumentError` if every rank has a complete copy. To store one copy on n ranks, use `connect(tensor=n)`.

        >>> connect().tensor_group.size()
        1
        """
        if self.world.tensor == 1 < self.world.size:
            raise ArgumentError(
                f"Each of the {self.world.size} ranks holds a copy of the model, so there is no group for shard_linear. "
                f"Connect with connect(tensor={self.world.size}) to divide one copy between all ranks."
            )
        return self._group if self._within is None else self._within

    @property
    def bytes_sent(self) -> int:
        """Number of bytes sent by this rank. Calls of a compiled function are counted only when the function is traced.

        The count assumes the ring algorithm. To sum an array over n ranks, each rank sends 2 (n - 1) / n times the size of the array. Each
        rank sends half as much if it receives only one row of the sum.

        >>> connect().bytes_sent
        0
        """
        return self._sent[0]

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Limit the time of a `with` block that waits for other ranks. The argument `limit` of `connect` is the limit in seconds.

        After this time, the process ends, because neither an exception nor Ctrl-C can interrupt MLX. If MLX detects that another rank has
        died, the block raises `RankError`.

        >>> with connect().waiting():
        ...     total = 1 + 1
        """
        if self.world.size == 1:
            yield
            return
        with self._watch.set(watching=True):
            try:
                yield
            except RuntimeError as error:
                if not str(error).startswith(_BACKEND_PREFIXES):
                    raise
                raise self._rank_error(str(error)) from error

    def working(self) -> AbstractContextManager[None]:
        """Suspend the time limit of an enclosing `waiting` block, during work without communication.

        >>> with connect().waiting(), connect().working():
        ...     total = 1 + 1
        """
        return self._watch.set(watching=False) if self.world.size > 1 else nullcontext()

    def add_up(self, tree: Any) -> Any:
        """Sum the arrays of a tree over all copies of the model. The sums are bit-identical on all ranks. Call this method on all ranks.

        Arrays of one dtype are sent together, in messages of up to 32 MiB. Ranks that share a model copy must pass equal arrays. The sum
        contains the arrays of each copy once.

        >>> connect().add_up({"loss": (mx.array(0.5), [])})
        {'loss': (array(0.5, dtype=float32), [])}
        """
        return self._added(tree, self._group if self._across is None else self._across, self.world.copies)

    def add_up_all(self, tree: Any) -> Any:
        """Sum the arrays of a tree over all ranks, including ranks sharing a model copy. Call this method on all ranks.

        >>> connect().add_up_all(mx.array(1))
        array(1, dtype=int32)
        """
        return self._added(tree, self._group, self.world.size)

    def add_up_parts(self, parts: mx.array) -> mx.array:
        """Sum an array [size, ...], with one row per rank, over all ranks. Return row r of the sum on rank r. Call the method on all ranks.

        >>> connect().add_up_parts(mx.array([[1, 2]]))
        array([1, 2], dtype=int32)
        """
        if self.world.size == 1:
            return parts[0]
        if self.backend not in _SCATTERS:
            return self._all_sum(parts, self._group, self.world.size)[self.world.rank]
        self._sent[0] += parts.nbytes * (self.world.size - 1) // self.world.size
        return mx.distributed.sum_scatter(parts, group=self._group).reshape(parts.shape[1:])

    def gather_parts(self, part: mx.array) -> mx.array:
        """Return the equal-shaped arrays of all ranks as one array [size, ...]. Call this method on all ranks.

        >>> connect().gather_parts(mx.array([1, 2])).tolist()
        [[1, 2]]
        """
        if self.world.size == 1:
            return part[None]
        self._sent[0] += part.nbytes * (self.world.size - 1)
        return mx.distributed.all_gather(part[None], group=self._group)

    def gather(self, numbers: Sequence[float]) -> list[list[float]]:
        """Return the list `numbers` of every rank as float64, in rank order. All ranks must pass lists of the same length.

        >>> connect().gather([0.1, 3])
        [[0.1, 3.0]]
        """
        table = np.zeros((self.world.size, 1 + len(numbers)))
        table[self.world.rank] = 1.0, *numbers  # the rows of other ranks stay zero, so the sum over all ranks contains every row
        # MLX cannot send float64 numbers. Each number is therefore sent as two integers of type uint32.
        if self.world.size > 1:
            bits = mx.array(table.view(np.uint32))
            table = self._received(lambda: mx.distributed.all_sum(bits, group=self._group)).view(np.float64)
            if not (table[:, 0] == 1.0).all():  # the backend "ring" may leave out a dead rank without raising an error
                raise self._rank_error("a rank sent no data")
        rows: list[list[float]] = table[:, 1:].tolist()
        return rows

    def gather_bytes(self, content: bytes) -> list[bytes]:
        """Return the bytes of every rank, in rank order. Call this method on all ranks.

        >>> connect().gather_bytes(b"of rank 0")
        [b'of rank 0']
        """
        if self.world.size == 1:
            return [content]
        sizes = [int(size) for (size,) in self.gather([len(content)])]
        sent = content + _digest(content)
        padded = np.zeros((1, max(sizes) + len(_digest(content))), np.uint8)
        padded[0, : len(sent)] = np.frombuffer(sent, np.uint8)
        received = self._received(lambda: mx.distributed.all_gather(mx.array(padded), group=self._group))
        rows = [row.tobytes() for row in received]
        contents = [row[:size] for row, size in zip(rows, sizes, strict=True)]
        if any(not row.startswith(expected + _digest(expected)) for row, expected in zip(rows, contents, strict=True)):
            raise self._rank_error("a rank sent no data")  # the backend "ring" may return outdated bytes for a dead rank
        return contents

    def _added(self, tree: Any, group: mx.distributed.Group, size: int) -> Any:
        if size == 1:
            return tree
        structure, leaves = flatten(tree)
        for indices in _messages(leaves):
            joined = mx.concatenate([leaves[index].reshape(-1) for index in indices])
            ends = list(accumulate(leaves[index].size for index in indices))
            for index, part in zip(indices, mx.split(self._all_sum(joined, group, size), ends[:-1]), strict=True):
                leaves[index] = part.reshape(leaves[index].shape)
        return unflatten(structure, leaves)

    def _all_sum(self, array: mx.array, group: mx.distributed.Group, size: int) -> mx.array:
        self._sent[0] += 2 * array.nbytes * (size - 1) // size
        return mx.distributed.all_sum(array, group=group)

    def _received(self, send: Callable[[], mx.array]) -> NDArray[Any]:
        with self.waiting():
            return np.array(send())

    def _rank_error(self, cause: str) -> RankError:
        return RankError(
            f"Another rank has ended, so rank {self.world.rank} of {self.world.size} cannot continue: {cause}. The output of that rank "
            "shows the cause, unless the rank was killed. Start all ranks again to continue from the saved files."
        )


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def _messages(arrays: Sequence[mx.array]) -> Iterator[list[int]]:
    """Divide arrays into messages to other ranks, by dtype and size. Yield the indices of the arrays in each message."""
    pending: dict[mx.Dtype, list[int]] = {}
    sizes: dict[mx.Dtype, int] = {}
    for index, array in enumerate(arrays):
        pending.setdefault(array.dtype, []).append(index)
        sizes[array.dtype] = sizes.get(array.dtype, 0) + array.nbytes
        if sizes[array.dtype] >= _MESSAGE:
            sizes[array.dtype] = 0
            yield pending.pop(array.dtype)
    yield from pending.values()


@define(eq=False)
class _Watch:
    """Thread that ends the process at a deadline. The thread stops if the deadline is cleared; a new deadline starts a new thread."""

    limit: float  # seconds
    _deadline: float | None = None
    _thread: threading.Thread | None = None
    _lock: threading.Lock = field(factory=threading.Lock)

    @contextmanager
    def set(self, *, watching: bool) -> Iterator[None]:
        """Set a time limit for a `with` block, or no limit if `watching=False`. After the block, restart the limit of the outer block."""
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
                    f"mlxfp: this rank has waited {self.limit:g} seconds for another rank, and ends: a rank has ended or hangs. The output "
                    "of that rank shows the cause. If a rank may need more time, as for an evaluation, pass connect(limit=...) in seconds.",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)


def connect(*, backend: Backend = "any", limit: float = _LIMIT, tensor: int = 1) -> Ranks:
    """Connect the processes started by `mlx.launch`. Without `mlx.launch`, this process is the only rank.

    The argument `tensor` is the number of ranks that share one copy of the model. `shard_linear` divides layers between these ranks.

    - `tensor=1`: every rank has a complete copy. All ranks must read different rows.
    - `tensor` equal to the number of ranks: all ranks share one copy, and must read the same rows.
    - Other values: several copies, only with the backend "mpi". Ranks of the same copy must read the same rows, other ranks other rows.

    If a rank waits longer than `limit` seconds for another rank, the waiting process ends with a message. Pass the result of `connect` to
    `train_step(..., ranks=...)`. Raises `UnknownNameError` for an unknown backend. Raises `ArgumentError` if `tensor` does not divide the
    number of ranks, if the backend cannot start, or if several processes were started but the backend "any" does not connect them.

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
            "MLX found no other ranks, but the environment variables declare several ranks: got "
            f"{', '.join(f'{name}={value}' for name, value in others.items())}. "
            f"Start all ranks with mlx.launch, which sets the missing variables. {_all_lack()}"
        )
    world = World(group.rank(), group.size(), tensor)
    within, across = _divided(world, group)
    return Ranks(world, group, backend=_answered(backend, world.size), watch=_Watch(limit), within=within, across=across)


def shard_linear(
    layer: "nn.Module",
    sharding: Literal["all-to-sharded", "sharded-to-all"],
    *,
    ranks: Ranks,
    segments: "int | Sequence[int] | Sequence[float]" = 1,
) -> Any:
    """Divide a linear layer between the ranks that share a model copy, and record the division for checkpoints.

    Calls the function of the same name in MLX (`mlx.nn.layers.distributed`). Stores `segments` in the divided layer. `load_latest` reads
    the stored value if a run resumes with another number of ranks. A layer may join several matrices. Each matrix is then a segment, and is
    divided separately. For matrices of equal size, `segments` is the number of matrices (3 for queries, keys and values). For matrices of
    different sizes, `segments` is a list with the start of the second and every later matrix, as indices or as fractions.

    >>> from mlx import nn
    >>> shard_linear(nn.Linear(4, 12), "all-to-sharded", ranks=connect(), segments=3)
    AllToShardedLinear(input_dims=4, output_dims=12, bias=True)
    """
    from mlx.nn.layers import distributed

    check_choice(("all-to-sharded", "sharded-to-all"), sharding=sharding)
    segment_value = segments if isinstance(segments, int) else list(segments)
    divided: nn.Module = distributed.shard_linear(layer, sharding, segments=segment_value, group=ranks.tensor_group)
    stored = segment_value if isinstance(segment_value, int) else tuple(segment_value)
    object.__setattr__(divided, SEGMENTS, stored)  # `object.__setattr__`, because Module.__setattr__ would store the value as a parameter
    return divided


def _divided(world: World, group: mx.distributed.Group) -> tuple[mx.distributed.Group | None, mx.distributed.Group | None]:
    """Return the two communication groups of this rank, for a run with several copies of a divided model. Otherwise return (None, None).

    The ranks of the first group hold one copy. The second group has one rank of each copy, with the same part of the model.
    """
    if world.tensor in (1, world.size):
        return None, None
    try:
        groups = group.split(world.copy), group.split(world.rank % world.tensor)
    except RuntimeError as error:
        raise ArgumentError(
            f"This backend cannot divide {world.size} ranks into groups of tensor={world.tensor} ranks: {error} Pass tensor={world.size} "
            "to divide one copy of the model between all ranks, or tensor=1. Only the backend mpi forms groups: mlx.launch --backend mpi."
        ) from error
    for subgroup in groups:  # keep each group forever: MLX 0.32 would free the group after the end of MPI, and the process would abort
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(subgroup))
    return groups


def _answered(backend: str, size: int) -> str | None:
    """Return the communication backend in use. For "any", MLX takes the first backend with all required environment variables."""
    if size == 1 or backend != "any":
        return None if size == 1 else backend
    return next((name for name in _NEEDED if not _unset(name)), "mpi")


def _unset(backend: str) -> list[str]:
    return [name for name in _NEEDED.get(backend, ()) if not os.environ.get(name)]


def _all_lack() -> str:
    return " ".join(f"The backend {name} lacks {', '.join(_unset(name)) or 'nothing, and cannot start'}." for name in _NEEDED)


def _lacks(backend: str) -> str:
    unset = _unset(backend)
    hosts = os.environ.get("MLX_HOSTFILE")
    missing_file = f"MLX_HOSTFILE is {hosts!r}, but this file does not exist. " if hosts and not Path(hosts).is_file() else ""
    named = ", ".join(unset)
    return f"{f'Not set in the environment: {named}. ' if unset else ''}{missing_file}"
