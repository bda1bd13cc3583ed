"""Shared arrays: arrays that a model uses at several paths but trains as a single array, such as the weights of a shared module."""

import warnings
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlxfp.support.trees import flatten
from mlxfp.training.steps.modules import with_arrays


def shared_indices(model: nn.Module, tree: Any) -> dict[int, int]:
    """Return a dict of leaf indices: each overwritten leaf of a shared layer -> the last leaf of the layer.

    A layer used at several paths of a model has one leaf per path in `tree`. `put_arrays` writes the leaves into the layer in order, so the
    last leaf overwrites the earlier leaves. Only the last leaf affects the results of the model and receives a gradient.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> shared_indices(nn.Sequential(layer, layer), {"layers": [{"weight": mx.zeros((2, 2))}, {"weight": mx.zeros((2, 2))}]})
    {0: 1}
    """
    owners = list(_owners(model, tree))
    last = {owner: index for index, owner in enumerate(owners)}
    return {index: last[owner] for index, owner in enumerate(owners) if last[owner] != index}


def _owners(source: Any, tree: Any) -> Iterator[tuple[int, Any]]:
    """Yield a pair for each leaf of a tree: the `id()` of the module or list that contains the leaf, and the key of the leaf."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, mx.array):
            yield id(source), key
        else:
            yield from _owners(source[key], value)


def with_shared(tree: Any, shared: dict[int, int]) -> Any:
    """Return a tree with the same array at all paths of a shared module."""
    return with_arrays(tree, {index: flatten(tree)[1][last] for index, last in shared.items()}) if shared else tree


def warn_of_tied_arrays(model: nn.Module) -> None:
    """Warn if several trainable modules have the same array, as tied weights in PyTorch. MLX would train separate weights."""
    flat: Any = tree_flatten(model.trainable_parameters())
    first: dict[int, int] = {}
    first_index = {index: first.setdefault(id(array), index) for index, (_, array) in enumerate(flat)}
    shared = shared_indices(model, model.trainable_parameters()) if len(first) < len(flat) else {}
    for index, before in first_index.items():
        if index != before and shared.get(index, index) != shared.get(before, before):
            warnings.warn(
                f"{type(model).__name__} has the same array at {flat[before][0]} and at {flat[index][0]}. MLX updates both separately, "
                "so the weights differ after the first step. To share the weight, use one module at both paths: "
                "self.head = self.tokens, and self.head.as_linear(x). To train two weights, copy the array: mx.array(weight).",
                RuntimeWarning,
                stacklevel=4,  # the warning names the line that calls train_step
            )
            return
