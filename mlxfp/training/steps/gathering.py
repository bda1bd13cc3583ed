"""Communication of a divided model: ranks sum gradients and norms, and check together that results are finite."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.nn.layers.distributed import FullyShardedModule

from mlxfp.distributed import Ranks


def sum_gradients(model: nn.Module, ranks: Ranks) -> None:
    """Make fully sharded modules sum the gradients of their parts over all ranks.

    This function modifies the module, so pass a private copy. MLX's own `fully_shard` divides the sums by the number of ranks, and uses an
    operation that some backends lack.
    """
    for layer in model.modules():
        if isinstance(layer, FullyShardedModule):
            layer._gather_fn = partial(_gathered, ranks, layer._gather_fn)  # noqa: SLF001  # the only hook in MLX


def agreed(ranks: Ranks, finite: mx.array) -> mx.array:
    """Return a bool scalar: True if `finite` is true on all ranks."""
    return ranks.add_up_all(finite.astype(mx.float32)) == ranks.world.size  # type: ignore[no-any-return]


def add_up_squares(ranks: Ranks, holders: list[int], squares: list[mx.array]) -> mx.array:
    """Sum squared norms over all ranks. Each square is divided by its entry in `holders`, the number of ranks with the same array."""
    total = mx.stack([square / count for square, count in zip(squares, holders, strict=True)]).sum()
    return ranks.add_up_all(total)  # type: ignore[no-any-return]


def _gathered(ranks: Ranks, gather: Callable[[list[mx.array]], list[mx.array]], shards: list[mx.array]) -> list[mx.array]:
    """Gather whole parameters from the parts of all ranks, as MLX's `gather` does. The backward pass sums gradients over all ranks."""
    wholes = gather(shards)  # these lazy arrays are used only for shapes and dtype, and never computed
    kind, shapes = wholes[0].dtype, [whole.shape for whole in wholes]
    ends = list(accumulate(shard.size for shard in shards))[:-1]

    @mx.custom_function
    def gathered(shards: list[mx.array]) -> list[mx.array]:
        rows = ranks.gather_parts(mx.concatenate([shard.reshape(-1).astype(kind) for shard in shards]))
        return [part.reshape(shape) for part, shape in zip(mx.split(rows, ends, axis=1), shapes, strict=True)]

    @gathered.vjp
    def added(shards: list[mx.array], cotangents: list[mx.array], _: Any) -> list[mx.array]:
        rows = mx.concatenate([cotangent.astype(mx.float32).reshape(ranks.world.size, -1) for cotangent in cotangents], axis=1)
        gradients = mx.split(ranks.add_up_parts(rows), ends)
        return [part.reshape(shard.shape).astype(shard.dtype) for part, shard in zip(gradients, shards, strict=True)]

    return gathered(shards)  # type: ignore[return-value]
