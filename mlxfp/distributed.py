"""Training one model with several machines or processes: the only file that calls `mx.distributed`."""

from typing import Any, Literal

import mlx.core as mx
from attrs import field, frozen
from mlx import nn

from mlxfp.core.checks import check_choice
from mlxfp.core.errors import ArgumentError
from mlxfp.core.trees import flatten, unflatten
from mlxfp.data.rows.sharding import World

Backend = Literal["any", "ring", "mpi", "nccl", "jaccl"]


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


def connect(*, backend: Backend = "any") -> Ranks:
    """Connect the processes that `mlx.launch` started; without it, this process is the only rank.

    Pass the result to `train_step(..., ranks=...)`, and let each rank read its own rows. Raises `ArgumentError` if a backend other
    than "any" cannot start, and `UnknownNameError` for an unknown backend.

    >>> connect().world
    World(rank=0, size=1, tensor=1, pipeline=1)
    """
    check_choice(("any", "ring", "mpi", "nccl", "jaccl"), backend=backend)
    try:
        group = mx.distributed.init(strict=backend != "any", backend=backend)
    except RuntimeError as error:
        raise ArgumentError(
            f"The backend {backend!r} cannot start: {error} Start the program with mlx.launch --backend {backend}, or pass backend='any'."
        ) from error
    return Ranks(World(group.rank(), group.size()), group)
