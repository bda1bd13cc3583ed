"""For `functional`: take the arrays out of an `mlx.nn` module, copy the module, and put arrays back."""

from copy import copy
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.models.layers import Dropout, Embedding, QuantizedEmbedding, copy_modules
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten, unflatten

_DROPOUTS: dict[type, tuple[int, ...]] = {nn.Dropout: (), nn.Dropout2d: (-2, -3), nn.Dropout3d: (-2, -3, -4)}
_EMBEDDINGS: dict[type, type[nn.Module]] = {nn.Embedding: Embedding, nn.QuantizedEmbedding: QuantizedEmbedding}
_SMALL = 4096  # numbers in an array that is cheap to handle whether it changed or not


def split_arrays(model: nn.Module) -> tuple[Any, Any]:
    """Return the arrays that train, and all others: frozen ones, running statistics, integers. Two trees of dicts and lists."""
    hidden = [f"{name}.{key}".removeprefix(".") for name, module in model.named_modules() for key, value in module.items() if _hides(value)]
    if hidden:
        raise ArgumentError(
            f"{type(model).__name__} keeps modules in a tuple, at {', '.join(hidden)}. MLX does not look into tuples, so their weights "
            "would neither train nor be saved. Keep them in a list."
        )
    params = model.filter_and_map(_trains, copy)  # other objects: `model.weight += 1` would change the array itself
    return params, _rest(model.parameters(), params) or {}


def copy_module(model: nn.Module) -> nn.Module:
    """Copy a module and the modules in it, with our dropout and embeddings instead of MLX's; modules that are shared in it stay shared."""
    new: nn.Module = copy_modules(model, _dropout, classes=_EMBEDDINGS)
    return new


def resting_parts(model: nn.Module) -> list[nn.Module]:
    """Return the frozen parts of a module in training mode that are in evaluation mode, as a body whose statistics have to stay.

    Where the whole module is in evaluation mode, as after generating, or a part of it that trains, training is what is meant.

    >>> model = nn.Sequential(nn.BatchNorm(2), nn.Linear(2, 2))
    >>> _ = model.layers[0].freeze().eval()
    >>> resting_parts(model) == [model.layers[0]], resting_parts(model.eval())
    (True, [])
    """
    return [part for part in model.modules() if model.training and not part.training and _is_frozen(part)]


def put_arrays(target: Any, tree: Any) -> None:
    """Put the arrays of a tree into a module, at the same places."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if not isinstance(value, mx.array):
            put_arrays(target[key], value)
        elif value is not target[key]:
            target[key] = copy(value)  # another object, for the same reason as in `split_arrays`


def get_arrays(source: Any, tree: Any) -> Any:
    """Return the arrays that a module has at the places of a tree."""
    if isinstance(tree, dict):
        return {key: get_arrays(source[key], value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [get_arrays(source[key], value) if isinstance(value, mx.array) or value else {} for key, value in enumerate(tree)]
    return source


def changed_arrays(before: Any, after: Any) -> dict[int, mx.array]:
    """Return the buffers that a module may have changed, by place among the leaves: arrays that were assigned, and all small ones.

    An array changed by `+=` is the same object, so such a change cannot be seen. A large array that was not assigned is taken for a
    frozen weight, which would cost much to select, to send or to compute twice.
    """
    pairs = enumerate(zip(flatten(before)[1], flatten(after)[1], strict=True))
    return {place: new for place, (old, new) in pairs if new is not old or new.size <= _SMALL}


def with_arrays(tree: Any, news: dict[int, mx.array]) -> Any:
    """Put arrays into a tree, by place among its leaves."""
    structure, leaves = flatten(tree)
    return unflatten(structure, [news.get(place, leaf) for place, leaf in enumerate(leaves)])


def _hides(value: object) -> bool:
    return isinstance(value, tuple) and any(isinstance(item, nn.Module) for item in value)


def _trains(module: nn.Module, name: str, value: Any) -> bool:
    floating = not isinstance(value, mx.array) or mx.issubdtype(value.dtype, mx.floating)
    return floating and bool(nn.Module.trainable_parameter_filter(module, name, value))


def _is_frozen(module: nn.Module) -> bool:
    return bool(flatten(module.parameters())[1]) and not flatten(module.trainable_parameters())[1]


def _rest(tree: Any, part: Any) -> Any:
    """Return the arrays of a tree that are not in `part`, with {} in lists at the places of those that are; None if nothing is left."""
    if isinstance(tree, dict):
        return {key: rest for key, value in tree.items() if (rest := _rest(value, part.get(key, {}))) is not None} or None
    if isinstance(tree, list):
        rests = [_rest(value, part[index] if part else {}) for index, value in enumerate(tree)]
        return None if all(rest is None for rest in rests) else [{} if rest is None else rest for rest in rests]
    return None if isinstance(part, mx.array) else copy(tree)


def _dropout(value: Any) -> Dropout | None:
    axes = _DROPOUTS.get(type(value))
    return None if axes is None else Dropout(1 - value._p_1, shared_axes=axes)  # noqa: SLF001  # MLX keeps the rate nowhere else
