"""Arrays that are at several places of a model: those of a module that is used twice, which train as one."""

import warnings
from collections.abc import Iterator
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from mlxfp.support.trees import flatten
from mlxfp.training.steps.modules import with_arrays


def shared_places(model: nn.Module, tree: Any) -> dict[int, int]:
    """Return, for the leaves of a tree that lie in a module which is at several places, which leaf that module ends up with.

    `put_arrays` puts all of them into the one module, so the last one is that which is used, and has the gradient.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> shared_places(nn.Sequential(layer, layer), {"layers": [{"weight": mx.zeros((2, 2))}, {"weight": mx.zeros((2, 2))}]})
    {0: 1}
    """
    owners = list(_owners(model, tree))
    last = {owner: place for place, owner in enumerate(owners)}
    return {place: last[owner] for place, owner in enumerate(owners) if last[owner] != place}


def _owners(source: Any, tree: Any) -> Iterator[tuple[int, Any]]:
    """Yield for each leaf of a tree the module or list that holds it, by identity, and under which key."""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, mx.array):
            yield id(source), key
        else:
            yield from _owners(source[key], value)


def with_shared(tree: Any, shared: dict[int, int]) -> Any:
    """Give the places of a tree that belong to one module, see `shared_places`, the array that this module uses."""
    return with_arrays(tree, {place: flatten(tree)[1][last] for place, last in shared.items()}) if shared else tree


def warn_of_tied_arrays(model: nn.Module) -> None:
    """Warn where one array is assigned to several modules that train, as torch ties weights: each would train a weight of its own."""
    flat: Any = tree_flatten(model.trainable_parameters())
    first: dict[int, int] = {}
    again = {place: first.setdefault(id(array), place) for place, (_, array) in enumerate(flat)}
    shared = shared_places(model, model.trainable_parameters()) if len(first) < len(flat) else {}
    for place, before in again.items():
        if place != before and shared.get(place, place) != shared.get(before, before):
            warnings.warn(
                f"{type(model).__name__} has one array at {flat[before][0]} and at {flat[place][0]}. MLX updates them apart, so they are "
                "two weights after the first step. To train one, use one module at both places: self.head = self.tokens, and "
                "self.head.as_linear(x). To train two, copy it: mx.array(weight).",
                RuntimeWarning,
                stacklevel=4,  # where train_step is called, through `explain_call`
            )
            return
