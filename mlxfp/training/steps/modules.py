"""Helpers of `functional`: extract the arrays of an `mlx.nn` module, copy a module, and insert arrays."""

from copy import copy
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.models.layers import Dropout, Embedding, QuantizedEmbedding, copy_modules
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten, unflatten

_DROPOUTS: dict[type, tuple[int, ...]] = {nn.Dropout: (), nn.Dropout2d: (-2, -3), nn.Dropout3d: (-2, -3, -4)}
_EMBEDDINGS: dict[type, type[nn.Module]] = {nn.Embedding: Embedding, nn.QuantizedEmbedding: QuantizedEmbedding}
_SMALL = 4096  # maximum number of elements of a small array, see `changed_arrays`


def split_arrays(model: nn.Module) -> tuple[Any, Any]:
    """Return the trainable arrays and all other arrays (frozen, running statistics, integers), as two trees of dicts and lists."""
    hidden = [
        f"{name}.{key}".removeprefix(".")
        for name, module in model.named_modules()
        for key, value in module.items()
        if isinstance(value, tuple) and any(isinstance(item, nn.Module) for item in value)
    ]
    if hidden:
        raise ArgumentError(
            f"{type(model).__name__} keeps modules in a tuple, at {', '.join(hidden)}. MLX does not look into tuples, so their weights "
            "would neither train nor be saved. Store the modules in a list."
        )
    params = model.filter_and_map(_is_trainable, copy)  # copy the arrays, because `model.weight += 1` changes an array object in place
    return params, _missing_arrays(model.parameters(), params) or {}


def copy_module(model: nn.Module) -> nn.Module:
    """Copy a module with its submodules. Dropout and embeddings of MLX become layers of `models.layers`. Shared submodules stay shared."""
    new: nn.Module = copy_modules(model, _dropout, classes=_EMBEDDINGS)
    return new


def resting_parts(model: nn.Module) -> list[nn.Module]:
    """Return the frozen submodules that stay in evaluation mode during training, such as a backbone with fixed statistics.

    All returned submodules are frozen and were already in evaluation mode. Trainable submodules always train in training mode. If the whole
    module is in evaluation mode, for example after text generation, the result is empty, and all submodules train in training mode.

    >>> model = nn.Sequential(nn.BatchNorm(2), nn.Linear(2, 2))
    >>> _ = model.layers[0].freeze().eval()
    >>> resting_parts(model) == [model.layers[0]], resting_parts(model.eval())
    (True, [])
    """
    return [part for part in model.modules() if model.training and not part.training and _is_frozen(part)]


def put_arrays(target: Any, tree: Any) -> None:
    """Insert the arrays of a tree into a module, at the same paths."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if not isinstance(value, mx.array):
            put_arrays(target[key], value)
        elif value is not target[key]:
            target[key] = copy(value)  # copy the array, because `model.weight += 1` changes an array object in place


def get_arrays(source: Any, tree: Any) -> Any:
    """Return the arrays that the module `source` has at the paths of `tree`, in a tree of the same structure."""
    if isinstance(tree, dict):
        return {key: get_arrays(source[key], value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [get_arrays(source[key], value) if isinstance(value, mx.array) or value else {} for key, value in enumerate(tree)]
    return source


def changed_arrays(before: Any, after: Any) -> dict[int, mx.array]:
    """Compare the buffers before and after a call of a module. Return the arrays of possibly changed buffers, by leaf index.

    A buffer counts as changed if the call assigned a new array object. A change in place, as with `+=`, keeps the array object and cannot
    be detected. Buffers of at most 4,096 elements therefore always count as changed. Larger buffers with the old object count as unchanged,
    because sending large arrays to other ranks is expensive.
    """
    pairs = enumerate(zip(flatten(before)[1], flatten(after)[1], strict=True))
    return {index: new for index, (old, new) in pairs if new is not old or new.size <= _SMALL}


def with_arrays(tree: Any, news: dict[int, mx.array]) -> Any:
    """Return a tree with some leaves replaced. `news` maps leaf indices to new arrays."""
    structure, leaves = flatten(tree)
    return unflatten(structure, [news.get(index, leaf) for index, leaf in enumerate(leaves)])


def _is_trainable(module: nn.Module, name: str, value: Any) -> bool:
    floating = not isinstance(value, mx.array) or mx.issubdtype(value.dtype, mx.floating)
    return floating and bool(nn.Module.trainable_parameter_filter(module, name, value))


def _is_frozen(module: nn.Module) -> bool:
    return bool(flatten(module.parameters())[1]) and not flatten(module.trainable_parameters())[1]


def _missing_arrays(tree: Any, part: Any) -> Any:
    """Return the arrays that `tree` has and `part` lacks, in the structure of `tree`. Return None if `part` has all arrays.

    In a list, an empty dict replaces each item without missing arrays.
    """
    if isinstance(tree, dict):
        return {key: missing for key, value in tree.items() if (missing := _missing_arrays(value, part.get(key, {}))) is not None} or None
    if isinstance(tree, list):
        parts = [_missing_arrays(value, part[index] if part else {}) for index, value in enumerate(tree)]
        return None if all(missing is None for missing in parts) else [{} if missing is None else missing for missing in parts]
    return None if isinstance(part, mx.array) else copy(tree)


def _dropout(value: Any) -> Dropout | None:
    axes = _DROPOUTS.get(type(value))
    return None if axes is None else Dropout(1 - value._p_1, shared_axes=axes)  # noqa: SLF001  # the only attribute with the rate
