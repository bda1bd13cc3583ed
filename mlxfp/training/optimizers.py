"""Optimizers: any `mlx.optimizers.Optimizer` as two pure functions, and AdamW with the defaults one means.

An optimizer object is configuration here. Its state lives in `TrainState.opt`; the object itself is never changed.
"""

import copy
from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx import optimizers

from mlxfp.core.errors import ArgumentError, ArgumentTypeError
from mlxfp.core.trees import difference, flatten, tree_map
from mlxfp.training.schedules import Schedule


def adamw(
    learning_rate: float | Schedule, *, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8, weight_decay: float = 0.01
) -> optimizers.Optimizer:
    """Make AdamW with bias correction, which MLX's own leaves out unless asked.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019. The learning rate is a number or a schedule.

    >>> adamw(1e-3).bias_correction
    True
    """
    return optimizers.AdamW(learning_rate, betas=list(betas), eps=eps, weight_decay=weight_decay, bias_correction=True)


def start(optimizer: optimizers.Optimizer, params: Any) -> Any:
    """Give the optimizer's state before the first update of `params`: a tree of arrays.

    Raises `ArgumentTypeError` for what is not an optimizer and `ArgumentError` for one that has been used already.

    >>> sorted(start(adamw(0.5), {"w": mx.zeros(2)}))
    ['learning_rate', 'step', 'w']
    """
    _check(optimizer)
    own = copy.deepcopy(optimizer)
    own.init(params)
    return tree_map(_check_leaf, own.state)


def update(optimizer: optimizers.Optimizer, gradients: Any, state: Any, params: Any) -> tuple[Any, Any]:
    """Make one update: (new params, new state). Pure: neither the optimizer nor a tree that was passed changes.

    >>> sgd = optimizers.SGD(0.5)
    >>> params, state = update(sgd, {"w": mx.ones(2)}, start(sgd, {"w": mx.zeros(2)}), {"w": mx.zeros(2)})
    >>> params["w"].tolist(), state["step"].item()
    ([-0.5, -0.5], 1)
    """
    own = copy.deepcopy(optimizer)  # a shallow copy would share the inner optimizers of MultiOptimizer
    own.state = tree_map(copy.copy, state)  # the optimizer edits dicts and, with +=, arrays in place: these are its own
    updated = own.apply_gradients(gradients, tree_map(copy.copy, params))
    changed = difference(flatten(state)[0], flatten(own.state)[0])
    if changed:
        raise ArgumentError(f"{type(optimizer).__name__} changed the structure of its state in an update. {changed} Create it in init.")
    return _like(params, updated), own.state


def _like(tree: Any, other: Any) -> Any:
    """Arrange the arrays of `other` as those of `tree`, which keeps what is not there: MultiOptimizer merges in any order."""
    if isinstance(tree, dict):
        return {key: _like(value, other[key]) if key in other else value for key, value in tree.items()}
    if isinstance(tree, list):
        return [_like(value, other[place]) if place < len(other) else value for place, value in enumerate(tree)]
    return other


def _check(optimizer: optimizers.Optimizer) -> None:
    if not isinstance(optimizer, optimizers.Optimizer):
        raise ArgumentTypeError(f"optimizer must be an mlx.optimizers.Optimizer, got {type(optimizer).__name__}: {optimizer!r:.80}.")
    states = optimizer.state["states"] if isinstance(optimizer, optimizers.MultiOptimizer) else [optimizer.state]
    used = [state for state in states if isinstance(state, Mapping) and int(state["step"]) > 0]
    if used:
        raise ArgumentError(
            f"{type(optimizer).__name__} has made {int(used[0]['step'])} updates elsewhere; here its state is a part of TrainState. "
            "Pass a new optimizer."
        )


def _check_leaf(leaf: object) -> object:
    if not isinstance(leaf, mx.array):
        raise ArgumentTypeError(f"The state of an optimizer must be MLX arrays, got {type(leaf).__name__}: {leaf!r:.80}.")
    return leaf
