"""Whether an optimizer updates each number by itself, so that a part of an array can be updated without the rest."""

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from itertools import starmap
from typing import Any

import mlx.core as mx
from mlx import optimizers

from mlxfp.support.errors import ArgumentError
from mlxfp.training.optimization.optimizers import start, update

_SIZE = 4  # of each axis of the arrays that are tried
_RATE, _STEP = 0.1, 10_000  # of the updates that are tried: after a warm-up, as rounding hides how small ones differ
_SAME = 1e-3  # the largest difference, as a share of the largest change: rounding is far below it, other updates are far above


def check_elementwise(optimizer: optimizers.Optimizer, arrays: Mapping[str, mx.array]) -> None:
    """Raise `ArgumentError` if an optimizer updates a part of one of these arrays, by path, otherwise than in the whole.

    >>> check_elementwise(optimizers.Muon(0.1), {"weight": mx.zeros((4, 4))})
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: Muon does not update each number by itself, and this rank has only a part of weight. Use ...
    """
    tried: dict[tuple[int, int], tuple[optimizers.Optimizer, str]] = {}
    for path, array in arrays.items():
        own = _optimizer_of(optimizer, path, array)
        tried.setdefault((id(own), array.ndim), (own, path))
    for (_, axes), (own, path) in tried.items():
        if not _is_elementwise(own, axes):
            raise ArgumentError(
                f"{type(own).__name__} does not update each number by itself, and this rank has only a part of {path}. Use another "
                "optimizer for the arrays that are divided between ranks, such as adamw, or keep them whole."
            )


def _optimizer_of(optimizer: optimizers.Optimizer, path: str, array: mx.array) -> optimizers.Optimizer:
    while isinstance(optimizer, optimizers.MultiOptimizer):
        optimizer = next(each for each, where in zip(optimizer.optimizers, optimizer.filters, strict=True) if where(path, array))
    return optimizer


def _is_elementwise(optimizer: optimizers.Optimizer, axes: int) -> bool:
    """Try it: update an array, and its halves along each axis."""
    numbers = mx.random.normal((4, *[_SIZE] * axes), key=mx.random.key(0))
    first, second, spread, params = numbers
    parts = (params, first, second * mx.exp(3 * spread))  # gradients whose size varies between numbers and steps
    own = deepcopy(optimizer)
    own._schedulers.pop("learning_rate", None)  # noqa: SLF001  # MLX has no public way to take a schedule away
    whole = _updated(own, *parts)
    most = _SAME * mx.abs(whole - params).max()
    return all(
        (mx.abs(mx.concatenate(list(starmap(partial(_updated, own), _halves(parts, axis))), axis) - whole).max() <= most).item()
        for axis in range(axes)
    )


def _halves(arrays: tuple[mx.array, ...], axis: int) -> Any:
    return zip(*(mx.split(array, 2, axis) for array in arrays), strict=True)


def _updated(optimizer: optimizers.Optimizer, params: mx.array, *gradients: mx.array) -> mx.array:
    tree = {"": params}
    state = start(optimizer, tree)
    state |= {name: value for name, value in (("learning_rate", mx.array(_RATE)), ("step", mx.array(_STEP))) if name in state}
    for gradient in gradients:
        tree, state = update(optimizer, {"": gradient}, state, tree)
    return tree[""]
