"""What a step does otherwise for a model that is divided between ranks: gradients of parts, and decisions that all ranks must share."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.nn.layers.distributed import FullyShardedModule

from mlxfp.distributed import Ranks


def sum_gradients(model: nn.Module, ranks: Ranks) -> None:
    """Make fully sharded modules add up the gradients of their parts over all ranks.

    This edits the module: pass one that is used only here.
    MLX's own divide them by the number of ranks, and use an operation that not all backends have.
    """
    for layer in model.modules():
        if isinstance(layer, FullyShardedModule):
            layer._gather_fn = partial(_gathered, ranks, layer._gather_fn)  # noqa: SLF001  # MLX has no other place for it


def agreed(ranks: Ranks, finite: mx.array) -> mx.array:
    """Tell whether something holds on all ranks: a bool scalar."""
    return ranks.add_up_all(finite.astype(mx.float32)) == ranks.world.size  # type: ignore[no-any-return]


def add_up_squares(ranks: Ranks, held: list[int], squares: list[mx.array]) -> mx.array:
    """Add up numbers over all ranks, where `held` says how many ranks have each of them."""
    own = mx.stack([square / count for square, count in zip(squares, held, strict=True)]).sum()
    return ranks.add_up_all(own)  # type: ignore[no-any-return]


def _gathered(ranks: Ranks, gather: Callable[[list[mx.array]], list[mx.array]], shards: list[mx.array]) -> list[mx.array]:
    """Return the whole parameters of which this rank has these parts, as MLX's own function does; gradients are added up over all ranks."""
    wholes = gather(shards)  # not computed: they say the shapes, and the dtype of the layer
    kind, shapes = wholes[0].dtype, [whole.shape for whole in wholes]
    ends = list(accumulate(shard.size for shard in shards))[:-1]

    @mx.custom_function
    def gathered(shards: list[mx.array]) -> list[mx.array]:
        rows = ranks.gather_parts(mx.concatenate([shard.reshape(-1).astype(kind) for shard in shards]))
        return [part.reshape(shape) for part, shape in zip(mx.split(rows, ends, axis=1), shapes, strict=True)]

    @gathered.vjp
    def added(shards: list[mx.array], cotangents: list[mx.array], _: Any) -> list[mx.array]:
        rows = mx.concatenate([each.astype(mx.float32).reshape(ranks.world.size, -1) for each in cotangents], axis=1)
        own = mx.split(ranks.add_up_parts(rows), ends)
        return [part.reshape(shard.shape).astype(shard.dtype) for part, shard in zip(own, shards, strict=True)]

    return gathered(shards)  # type: ignore[return-value]
