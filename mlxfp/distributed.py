"""Training one model with several machines or processes: the only file that calls `mx.distributed`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from attrs import field, frozen
from mlx import nn

from mlxfp.core.checks import check_choice
from mlxfp.core.errors import ArgumentError
from mlxfp.core.trees import flatten, unflatten
from mlxfp.data.rows.sharding import World

__all__ = ["Ranks", "connect"]


def __dir__() -> list[str]:
    return __all__


Backend = Literal["any", "ring", "mpi", "nccl", "jaccl"]

# What each backend needs in the environment, as `mlx.launch` sets it.
_NEEDED = {
    "ring": ("MLX_RANK", "MLX_HOSTFILE"),
    "nccl": ("MLX_RANK", "MLX_WORLD_SIZE", "NCCL_HOST_IP", "NCCL_PORT"),
    "jaccl": ("MLX_RANK", "MLX_JACCL_COORDINATOR", "MLX_IBV_DEVICES"),
}


@frozen(eq=False)
class Ranks:
    """The processes of a run, made by `connect`. `world` tells which of them this one is: `shard(world.copy, world.copies)`.

    >>> connect().world.copies
    1
    """

    world: World
    _group: mx.distributed.Group = field(repr=False)

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
        table = np.zeros((self.world.size, len(numbers)))
        table[self.world.rank] = numbers
        if self.world.size > 1:  # as whole numbers, which are added to zeros: MLX has no float64 to send
            bits = mx.distributed.all_sum(mx.array(table.view(np.uint32)), group=self._group)
            table = np.array(bits).view(np.float64)
        rows: list[list[float]] = table.tolist()
        return rows


def connect(*, backend: Backend = "any") -> Ranks:
    """Connect the processes that `mlx.launch` started; without it, this process is the only rank.

    Pass the result to `train_step(..., ranks=...)`, and let each rank read its own rows. Raises `ArgumentError` if a backend other
    than "any" cannot start, and with "any" where the environment says that there are other processes and none can be reached; and
    `UnknownNameError` for an unknown backend.

    >>> connect().world
    World(rank=0, size=1, tensor=1, pipeline=1)
    """
    check_choice(("any", "ring", "mpi", "nccl", "jaccl"), backend=backend)
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
            "Start all with mlx.launch, or name the backend, to be told what it lacks: connect(backend='ring')."
        )
    return Ranks(World(group.rank(), group.size()), group)


def _lacks(backend: str) -> str:
    """Say what a backend lacks in the environment, with a space at the end, or nothing."""
    unset = [name for name in _NEEDED.get(backend, ()) if not os.environ.get(name)]
    hosts = os.environ.get("MLX_HOSTFILE")
    gone = f"MLX_HOSTFILE is {hosts!r}, and there is no such file. " if hosts and not Path(hosts).is_file() else ""
    named = ", ".join(unset)
    return f"{f'Not set in the environment: {named}. ' if unset else ''}{gone}"
