"""Models that are divided between ranks: which of their arrays are parts of larger ones, and what a step does otherwise for them.

`shard_linear` divides one layer between the ranks that hold a copy of the model together, and its layers send activations (tensor
parallelism: Shoeybi et al., "Megatron-LM", 2019). `fully_shard` divides the storage of every parameter between all ranks, which gather it
whenever it is used (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import mlx.core as mx
from attrs import frozen
from mlx import nn
from mlx.nn.layers.distributed import (
    AllToShardedLinear,
    FullyShardedModule,
    QuantizedAllToShardedLinear,
    QuantizedShardedToAllLinear,
    ShardedToAllLinear,
)
from mlx.utils import tree_flatten

from mlxfp.distributed import SEGMENTS, Ranks, connect
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten, paths
from mlxfp.training.optimization.elementwise import check_elementwise
from mlxfp.training.steps.segments import sizes_of

# Trees that have a leaf, or a dict of leaves, at the place of each parameter.
_ALONGSIDE = re.compile(r"^(opt(\.states\[\d+\])?|extra\.average\.params|extra\.sums\.gradients)(?=[.\[])")

# The axis along which each array of a layer is divided; those that are not named are whole.
_AXES: dict[type[nn.Module], dict[str, int]] = {
    AllToShardedLinear: {"weight": 0, "bias": 0},
    ShardedToAllLinear: {"weight": 1},
    QuantizedAllToShardedLinear: {"weight": 0, "scales": 0, "biases": 0, "bias": 0},
    QuantizedShardedToAllLinear: {"weight": 1, "scales": 1, "biases": 1},
}


Places = tuple[tuple[str | int, ...], ...]  # the keys that lead from a model to modules in it


@frozen
class Shards:
    """Which arrays of a model are parts of larger ones, of which this rank holds number `index` of `count`.

    `axes` has the axis along which each is divided, by its name in a checkpoint, as in `params.layers[0].weight`; `segments` the sizes of
    the segments of which the whole axis is made, where they are known: MLX's own `shard_linear` does not keep them. `wrapped` are the
    places of the modules of `fully_shard`; where there are any, gradients of parts are sums over all ranks.
    """

    index: int
    count: int
    axes: Mapping[str, int]
    segments: Mapping[str, tuple[int, ...]]
    wrapped: Places

    @property
    def said(self) -> str:
        """Which part it is, for a message."""
        return f"part {self.index + 1} of {self.count}"


def shards_of(model: nn.Module, params: Any, buffers: Any) -> Shards | None:
    """Return which arrays of a model are parts of larger ones; None if none are. Layers are known by their type.

    Raises `ArgumentError` for a model that is divided in two ways.
    """
    ways: dict[tuple[bool, int, int], str] = {}
    for name, layer in model.named_modules():
        if (way := _way(layer)) is not None:
            ways[isinstance(layer, FullyShardedModule), *way] = name or "the model"
    if not ways:
        return None
    if len(ways) > 1:
        said = [f"{name} {'by fully_shard' if fully else 'by shard_linear'} in {count}" for (fully, _, count), name in ways.items()]
        raise ArgumentError(f"The model, a {type(model).__name__}, is divided in several ways: {', '.join(said)}. Divide it in one way.")
    ((_, index, count),) = ways
    wrapped = tuple(_wrapped(model, ()))
    names = _names(wrapped, {"params": params, "buffers": buffers})
    divisions = [*_divisions(model, params, count, within=False), *_divisions(model, buffers, count, within=False)]
    found = {name: division for name, division in zip(names, divisions, strict=True) if division is not None}
    axes = {name: division.axis for name, division in found.items()}
    segments = {name: division.sizes for name, division in found.items() if division.sizes is not None}
    return Shards(index, count, axes, segments, wrapped)


def names_of(shards: Shards | None, trees: dict[str, Any]) -> tuple[str, ...]:
    """Name the leaves of the trees of a state, in the order of `flatten`, as in a model that is not divided."""
    return paths(flatten(trees)[0]) if shards is None else _names(shards.wrapped, trees)


def axes_in(shards: Shards | None, trees: dict[str, Any]) -> dict[str, int]:
    """Return the axes of all parts in the trees of a state, also of their moments, averages and sums, by `names_of`."""
    return {} if shards is None else {name: shards.axes[path] for name, path in _parameters_of(shards, trees).items()}


def segments_in(shards: Shards | None, trees: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the sizes of the segments of the parts that `axes_in` returns, where they are known."""
    if shards is None:
        return {}
    return {name: shards.segments[path] for name, path in _parameters_of(shards, trees).items() if path in shards.segments}


def _parameters_of(shards: Shards, trees: dict[str, Any]) -> dict[str, str]:
    """Return the name of the parameter that each part in the trees of a state is, or belongs to."""
    arrays = dict(zip(names_of(shards, trees), flatten(trees)[1], strict=True))
    found = {}
    for name, array in arrays.items():
        path = _ALONGSIDE.sub("params", name)
        for each in (path, path.rpartition(".")[0]):  # moments have names of their own, below that of the parameter
            if each in shards.axes and arrays[each].shape == array.shape:
                found[name] = each
    return found


@frozen
class Parts:
    """The places of arrays that are parts, among the leaves of the parameters and of the buffers."""

    params: frozenset[int]
    buffers: frozenset[int]


def parts_in(shards: Shards | None, params: Any, buffers: Any) -> Parts:
    """Return where the parts are in the two trees."""
    trees = {"params": params}, {"buffers": buffers}
    axes = {} if shards is None else shards.axes
    return Parts(*(frozenset(place for place, name in enumerate(names_of(shards, tree)) if name in axes) for tree in trees))


def check_ranks(model: nn.Module, shards: Shards | None, ranks: Ranks | None, user: str) -> None:
    """Raise `ArgumentError` unless the ranks are those between which a model is divided, if it is."""
    if shards is None:
        return
    names = ", ".join(name or "itself" for name, layer in model.named_modules() if _way(layer) is not None)
    what = f"The model, a {type(model).__name__}, is divided between {shards.count} ranks, at {names:.200}"
    tensor = 1 if shards.wrapped else shards.count
    if ranks is None:
        raise ArgumentError(f"{what}, and {user} is told of none. Pass ranks=connect({'' if tensor == 1 else f'tensor={tensor}'}).")
    if ranks.world.tensor != tensor or (shards.wrapped and ranks.world.size != shards.count):
        raise ArgumentError(
            f"{what}, by {'fully_shard' if shards.wrapped else 'shard_linear'}, and the ranks of {user} are {ranks.world}. "
            + ("Divide it between all of connect(), without group=." if shards.wrapped else f"Pass ranks=connect(tensor={tensor}).")
        )


def check_shards(model: nn.Module, shards: Shards | None, params: Any, optimizer: Any, ranks: Ranks | None) -> None:
    """Raise `ArgumentError` where a step cannot train a model that is divided."""
    check_ranks(model, shards, ranks, "the step")
    if shards is None:
        return
    kept = [name for name, layer in model.named_modules() if isinstance(layer, FullyShardedModule) and any(map(_keeps, layer.modules()))]
    if kept:
        raise ArgumentError(
            f"Batch normalisation in a module of fully_shard would never change its running statistics, which MLX divides too; it is in "
            f"{', '.join(name or 'the model' for name in kept):.200}. Call fully_shard on the layers around it."
        )
    adapted = sorted(name for name, layer in model.named_modules() if "lora_a" in layer and isinstance(layer.get("linear"), tuple(_AXES)))
    if adapted:
        raise ArgumentError(
            f"Adapters of layers that shard_linear divides would be whole, and their layers are parts: got {', '.join(adapted):.200}. "
            "Leave these layers without adapters, or divide the model with them by fully_shard."
        )
    flat: Any = tree_flatten(params)
    path_of = {id(leaf): name for name, leaf in flat}
    places = parts_in(shards, params, {}).params
    divided = [leaf for place, leaf in enumerate(flatten(params)[1]) if place in places]
    check_elementwise(optimizer, {path_of[id(leaf)]: leaf for leaf in divided})


def _way(layer: nn.Module) -> tuple[int, int] | None:
    """Return which part of how many this rank has of a layer; None if the layer is whole."""
    if isinstance(layer, FullyShardedModule):
        own: Any = tree_flatten(layer.module.parameters(), destination={})
        shards = [own[path] for path in layer._paths]  # noqa: SLF001
        return connect().world.rank, layer._gather_fn(shards)[0].shape[0] // shards[0].shape[0]  # noqa: SLF001  # not computed
    if not isinstance(layer, tuple(_AXES)) or layer.group.size() == 1:
        return None
    return layer.group.rank(), layer.group.size()


def _wrapped(source: Any, place: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(source, FullyShardedModule):
        yield place
    if isinstance(source, dict | list):  # a module is a dict
        for key, part in source.items() if isinstance(source, dict) else enumerate(source):
            yield from _wrapped(part, (*place, key))


def _names(wrapped: Places, trees: dict[str, Any]) -> tuple[str, ...]:
    """Name leaves without the key `module`, which modules of `fully_shard` add to their place."""
    plain = {name: _unwrapped(tree, wrapped, ()) for name, tree in trees.items()}
    if isinstance(states := plain.get("opt", {}).get("states"), list):  # of MultiOptimizer
        plain["opt"] = {**plain["opt"], "states": [_unwrapped(each, wrapped, ()) for each in states]}
    if extra := plain.get("extra"):
        plain["extra"] = {key: _unwrapped_in(part, wrapped, key) for key, part in extra.items()}
    return paths(flatten(plain)[0])


def _unwrapped_in(part: Any, wrapped: Places, key: str) -> Any:
    inner = {"average": "params", "sums": "gradients"}.get(key)
    return part if inner is None else {**part, inner: _unwrapped(part[inner], wrapped, ())}


def _unwrapped(tree: Any, wrapped: Places, place: tuple[str | int, ...]) -> Any:
    if isinstance(tree, list):
        return [_unwrapped(part, wrapped, (*place, key)) for key, part in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    plain: dict[str, Any] = {}
    for key, part in tree.items():
        below = _unwrapped(part, wrapped, (*place, key))
        plain.update(below if key == "module" and place in wrapped else {key: below})
    return plain


@frozen
class _Division:
    """Along which axis an array is divided, and the sizes of the segments of the whole axis; None: they are not known."""

    axis: int
    sizes: tuple[int, ...] | None


def _divisions(source: Any, tree: Any, count: int, *, within: bool) -> Iterator[_Division | None]:
    """Yield how each array of a tree of the module is divided, in the order of `flatten`; None for one that is whole."""
    within = within or isinstance(source, FullyShardedModule)
    for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(part, mx.array):
            yield _Division(0, (part.shape[0] * count,)) if within else _of_linear(source, str(key), part)
        else:
            yield from _divisions(source[key], part, count, within=within)


def _of_linear(layer: Any, name: str, part: mx.array) -> _Division | None:
    kind = next((kind for kind in _AXES if isinstance(layer, kind)), None)
    axis = None if kind is None or layer.group.size() == 1 else _AXES[kind].get(name)
    if axis is None:
        return None
    segments = getattr(layer, SEGMENTS, None)
    return _Division(axis, None if segments is None else sizes_of(segments, part.shape[axis] * layer.group.size()))


def _keeps(layer: nn.Module) -> bool:
    return isinstance(layer, nn.BatchNorm) and "running_mean" in layer
