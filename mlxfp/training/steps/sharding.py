"""Models divided between ranks: how each array is divided, and checks before training.

- `shard_linear` divides a layer between the ranks that share one copy of the model. These ranks send activations to each other (tensor
  parallelism: Shoeybi et al., "Megatron-LM", 2019).
- `fully_shard` divides every parameter between all ranks. Before each use of a parameter, the ranks gather the whole array
  (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", 2020).

An array may be fused, such as one matrix with three segments: queries, keys and values. Every rank gets an equal share of each segment.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import mlx.core as mx
import numpy as np
from attrs import frozen
from mlx import nn, optimizers
from mlx.nn.layers.distributed import (
    AllToShardedLinear,
    FullyShardedModule,
    QuantizedAllToShardedLinear,
    QuantizedShardedToAllLinear,
    ShardedToAllLinear,
)
from mlx.utils import tree_flatten
from numpy.typing import NDArray

from mlxfp.distributed import SEGMENTS, Ranks, connect
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten, paths

# Beginnings of names in a state, for arrays kept per parameter: optimizer moments, averages, and sums of gradients.
_ALONGSIDE = re.compile(r"^(opt(\.states\[\d+\])?|extra\.average\.params|extra\.sums\.gradients)(?=[.\[])")

# Axis along which each array of a layer is divided. Arrays without an entry are whole.
_AXES: dict[type[nn.Module], dict[str, int]] = {
    AllToShardedLinear: {"weight": 0, "bias": 0},
    ShardedToAllLinear: {"weight": 1},
    QuantizedAllToShardedLinear: {"weight": 0, "scales": 0, "biases": 0, "bias": 0},
    QuantizedShardedToAllLinear: {"weight": 1, "scales": 1, "biases": 1},
}


Segments = int | tuple[int, ...] | tuple[float, ...]  # int: count of equal segments; tuple: starts of all segments but the first
ModulePaths = tuple[tuple[str | int, ...], ...]  # paths of modules in a model; a path is a tuple of keys


@frozen
class Shards:
    """Division of a model between ranks. This rank has part number `index` of `count` parts.

    - `axes`: the divided axis of each divided array, by checkpoint name, for example `params.layers[0].weight`.
    - `segments`: the sizes of the segments of each array before the division, by checkpoint name. Segments are, for example, queries, keys
      and values. MLX's `shard_linear` does not record segments.
    - `wrapped`: the paths of modules divided by `fully_shard`. If there are such modules, the gradients of divided arrays are already sums
      over all ranks.
    """

    index: int
    count: int
    axes: Mapping[str, int]
    segments: Mapping[str, tuple[int, ...]]
    wrapped: ModulePaths

    @property
    def label(self) -> str:
        """Text for messages that names the part of the model on this rank, for example "part 1 of 2"."""
        return f"part {self.index + 1} of {self.count}"


def shards_of(model: nn.Module, params: Any, buffers: Any) -> Shards | None:
    """Return the sharding of a model, or None for an undivided model. Divided layers are recognised by type.

    Raises `ArgumentError` for a model divided in several ways.
    """
    ways: dict[tuple[bool, int, int], str] = {}
    for name, layer in model.named_modules():
        if (part := _part_of_layer(layer)) is not None:
            ways[isinstance(layer, FullyShardedModule), *part] = name or "the model"
    if not ways:
        return None
    if len(ways) > 1:
        descriptions = [f"{name} {'by fully_shard' if fully else 'by shard_linear'} in {count}" for (fully, _, count), name in ways.items()]
        raise ArgumentError(
            f"The model, a {type(model).__name__}, is divided in several ways: {', '.join(descriptions)}. Divide all layers alike."
        )
    ((_, index, count),) = ways
    wrapped = tuple(_wrapped(model, ()))
    names = _names(wrapped, {"params": params, "buffers": buffers})
    divisions = [*_divisions(model, params, count, within=False), *_divisions(model, buffers, count, within=False)]
    divided = {name: division for name, division in zip(names, divisions, strict=True) if division is not None}
    axes = {name: axis for name, (axis, _) in divided.items()}
    segments = {name: sizes for name, (_, sizes) in divided.items() if sizes is not None}
    return Shards(index, count, axes, segments, wrapped)


def names_of(shards: Shards | None, trees: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of all arrays in a state, in the order of `flatten`. Dividing a model between ranks does not change the names."""
    return paths(flatten(trees)[0]) if shards is None else _names(shards.wrapped, trees)


def axes_in(shards: Shards | None, trees: dict[str, Any]) -> dict[str, int]:
    """Map the name of each divided array in a state to its divided axis.

    Optimizer moments, averages and gradient sums are divided like their parameters.
    """
    return {} if shards is None else {name: shards.axes[path] for name, path in _parameters_of(shards, trees).items()}


def segments_in(shards: Shards | None, trees: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Map the name of each divided array in a state to the sizes of its segments (such as queries and keys). Unknown sizes are omitted."""
    if shards is None:
        return {}
    return {name: shards.segments[path] for name, path in _parameters_of(shards, trees).items() if path in shards.segments}


def _parameters_of(shards: Shards, trees: dict[str, Any]) -> dict[str, str]:
    """Map the name of each divided array in a state to a parameter name. For example, an optimizer moment maps to its parameter."""
    arrays = dict(zip(names_of(shards, trees), flatten(trees)[1], strict=True))
    parameters = {}
    for name, array in arrays.items():
        path = _ALONGSIDE.sub("params", name)
        for candidate in (path, path.rpartition(".")[0]):  # the path of an optimizer moment is the path of its parameter and one more key
            if candidate in shards.axes and arrays[candidate].shape == array.shape:
                parameters[name] = candidate
    return parameters


def divided_in(shards: Shards | None, trees: dict[str, Any]) -> frozenset[int]:
    """Return the leaf indices of all parameters or buffers divided between ranks."""
    axes = {} if shards is None else shards.axes
    return frozenset(index for index, name in enumerate(names_of(shards, trees)) if name in axes)


def check_ranks(model: nn.Module, shards: Shards | None, ranks: Ranks | None, function: str) -> None:
    """Raise `ArgumentError` if a model is not divided between the ranks in `ranks`."""
    if shards is None:
        return
    layers = ", ".join(name or "the model" for name, layer in model.named_modules() if _part_of_layer(layer) is not None)
    method, tensor = ("fully_shard", 1) if shards.wrapped else ("shard_linear", shards.count)
    model_is_divided = f"The model, a {type(model).__name__}, is divided by {method} between {shards.count} ranks (layers: {layers:.200})"
    if ranks is None:
        call = "connect()" if tensor == 1 else f"connect(tensor={tensor})"
        raise ArgumentError(f"{model_is_divided}, but {function} was called without ranks=. Pass ranks={call}.")
    if ranks.world.tensor != tensor or (shards.wrapped and ranks.world.size != shards.count):
        remedy = "Call fully_shard without group=, to divide the model between all ranks."
        if not shards.wrapped:
            remedy = f"Pass ranks=connect(tensor={tensor})."
        raise ArgumentError(
            f"{model_is_divided}, but the argument ranks of {function} has another division of ranks: {ranks.world}. {remedy}"
        )


def check_shards(model: nn.Module, shards: Shards | None, params: Any, optimizer: Any, ranks: Ranks | None) -> None:
    """Raise `ArgumentError` if the step cannot train a divided model."""
    check_ranks(model, shards, ranks, "train_step")
    if shards is None:
        return
    normalised = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, FullyShardedModule) and any(map(_has_running_statistics, layer.modules()))
    ]
    if normalised:
        layers = ", ".join(name or "the model" for name in normalised)
        raise ArgumentError(
            "Batch normalisation in a module of fully_shard never updates its running statistics, because fully_shard divides the "
            f"statistics between ranks; got {layers:.200}. Call fully_shard on the surrounding layers instead."
        )
    adapted = sorted(name for name, layer in model.named_modules() if "lora_a" in layer and isinstance(layer.get("linear"), tuple(_AXES)))
    if adapted:
        raise ArgumentError(
            f"Layers divided by shard_linear cannot have adapters, because adapters are not divided: got {', '.join(adapted):.200}. "
            "Leave these layers without adapters, or divide the model by fully_shard."
        )
    flat: Any = tree_flatten(params)
    path_of = {id(leaf): name for name, leaf in flat}
    indices = divided_in(shards, {"params": params})
    divided = [leaf for index, leaf in enumerate(flatten(params)[1]) if index in indices]
    check_elementwise(optimizer, {path_of[id(leaf)]: leaf for leaf in divided})


def _part_of_layer(layer: nn.Module) -> tuple[int, int] | None:
    """Return the index of this rank's part of a layer and the number of parts, or None for a whole layer."""
    if isinstance(layer, FullyShardedModule):
        parameters: Any = tree_flatten(layer.module.parameters(), destination={})
        shards = [parameters[path] for path in layer._paths]  # noqa: SLF001
        return connect().world.rank, layer._gather_fn(shards)[0].shape[0] // shards[0].shape[0]  # noqa: SLF001  # only the shape is used
    if not isinstance(layer, tuple(_AXES)) or layer.group.size() == 1:
        return None
    return layer.group.rank(), layer.group.size()


def _wrapped(source: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(source, FullyShardedModule):
        yield path
    if isinstance(source, dict | list):  # `nn.Module` is a dict
        for key, part in source.items() if isinstance(source, dict) else enumerate(source):
            yield from _wrapped(part, (*path, key))


def _names(wrapped: ModulePaths, trees: dict[str, Any]) -> tuple[str, ...]:
    """Return leaf names without the key `module`, which `fully_shard` adds to the paths."""
    plain = {name: _unwrapped(tree, wrapped, ()) for name, tree in trees.items()}
    if isinstance(states := plain.get("opt", {}).get("states"), list):  # MultiOptimizer has a list of states
        plain["opt"] = {**plain["opt"], "states": [_unwrapped(state, wrapped, ()) for state in states]}
    if extra := plain.get("extra"):
        plain["extra"] = {key: _unwrapped_in(part, wrapped, key) for key, part in extra.items()}
    return paths(flatten(plain)[0])


def _unwrapped_in(part: Any, wrapped: ModulePaths, key: str) -> Any:
    inner = {"average": "params", "sums": "gradients"}.get(key)
    return part if inner is None else {**part, inner: _unwrapped(part[inner], wrapped, ())}


def _unwrapped(tree: Any, wrapped: ModulePaths, path: tuple[str | int, ...]) -> Any:
    if isinstance(tree, list):
        return [_unwrapped(part, wrapped, (*path, key)) for key, part in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    plain: dict[str, Any] = {}
    for key, part in tree.items():
        below = _unwrapped(part, wrapped, (*path, key))
        plain.update(below if key == "module" and path in wrapped else {key: below})
    return plain


_Division = tuple[int, tuple[int, ...] | None]  # divided axis of an array, and segment sizes of the whole array; None: unknown sizes


def _divisions(source: Any, tree: Any, count: int, *, within: bool) -> Iterator[_Division | None]:
    """Yield a `_Division` for each array divided between ranks, and None for each whole array, in the order of `flatten(tree)`."""
    within = within or isinstance(source, FullyShardedModule)
    for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(part, mx.array):
            yield (0, (part.shape[0] * count,)) if within else _of_linear(source, str(key), part)
        else:
            yield from _divisions(source[key], part, count, within=within)


def _of_linear(layer: Any, name: str, part: mx.array) -> _Division | None:
    kind = next((kind for kind in _AXES if isinstance(layer, kind)), None)
    axis = None if kind is None or layer.group.size() == 1 else _AXES[kind].get(name)
    if axis is None:
        return None
    segments = getattr(layer, SEGMENTS, None)
    return axis, None if segments is None else sizes_of(segments, part.shape[axis] * layer.group.size())


def _has_running_statistics(layer: nn.Module) -> bool:
    return isinstance(layer, nn.BatchNorm) and "running_mean" in layer


# Optimizers that need the whole array for an update. Adafactor needs all arrays, and Muon needs arrays with 2 or more axes.
_LEAST_AXES = {optimizers.Adafactor: 0, optimizers.Muon: 2}


def check_elementwise(optimizer: optimizers.Optimizer, arrays: Mapping[str, mx.array]) -> None:
    """Raise `ArgumentError` if the optimizer of a divided array needs the whole array, as Muon does. `arrays` maps paths to divided arrays.

    >>> check_elementwise(optimizers.Muon(0.1), {"weight": mx.zeros((4, 4))})
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: Muon updates whole arrays, but this rank has only a part of weight. Use ...
    """
    for path, array in arrays.items():
        used = _optimizer_of(optimizer, path, array)
        if any(isinstance(used, kind) and array.ndim >= axes for kind, axes in _LEAST_AXES.items()):
            raise ArgumentError(
                f"{type(used).__name__} updates whole arrays, but this rank has only a part of {path}. Use another optimizer, such as "
                "adamw, for arrays divided between ranks, or keep these arrays whole."
            )


def _optimizer_of(optimizer: optimizers.Optimizer, path: str, array: mx.array) -> optimizers.Optimizer:
    while isinstance(optimizer, optimizers.MultiOptimizer):
        optimizer = next(candidate for candidate, where in zip(optimizer.optimizers, optimizer.filters, strict=True) if where(path, array))
    return optimizer


def sizes_of(segments: Segments, size: int) -> tuple[int, ...]:
    """Return the sizes of the segments of an axis, divided as in MLX's `shard_linear`.

    >>> sizes_of(3, 12), sizes_of((8, 10), 12), sizes_of((0.5, 0.75), 12)
    ((4, 4, 4), (8, 2, 2), (6, 3, 3))
    """
    if isinstance(segments, int):
        return (size // segments,) * segments
    ends = [bound if isinstance(bound, int) else int(bound * size) for bound in segments]
    return tuple(end - begin for begin, end in pairwise((0, *ends, size)))


def rows_of(sizes: Sequence[int], index: int, count: int) -> NDArray[np.int64]:
    """Return the indices of the rows of a fused array that one rank gets. Each rank gets an equal share of each segment.

    `sizes` has the number of rows of each segment, such as queries, keys and values. The rank is number `index` of `count` ranks.

    >>> rows_of((4, 2), 1, 2).tolist()
    [2, 3, 5]
    """
    begins = accumulate(sizes, initial=0)
    pieces = [np.arange(index * (size // count), (index + 1) * (size // count)) + begin for begin, size in zip(begins, sizes, strict=False)]
    return np.concatenate(pieces)


def part_of(whole: mx.array, axis: int, sizes: Sequence[int], index: int, count: int) -> mx.array:
    """Return part `index` of `count` of an array, as a copy. A slice would keep the whole array in memory.

    >>> part_of(mx.arange(6), 0, (4, 2), 0, 2).tolist()
    [0, 1, 4]
    """
    return mx.take(whole, mx.array(rows_of(sizes, index, count)), axis)


def joined(parts: Sequence[mx.array], axis: int, sizes: Sequence[int]) -> mx.array:
    """Join the parts of an array, given in rank order.

    >>> joined([mx.array([0, 1, 4]), mx.array([2, 3, 5])], 0, (4, 2)).tolist()
    [0, 1, 2, 3, 4, 5]
    """
    array = mx.concatenate(list(parts), axis)
    if len(sizes) == 1:
        return array
    order = np.argsort(np.concatenate([rows_of(sizes, index, len(parts)) for index in range(len(parts))]))
    return mx.take(array, mx.array(order), axis)
