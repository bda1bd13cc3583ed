"""Optimizers that update an array as a whole: a rank cannot update a part of the array alone."""

from collections.abc import Mapping

import mlx.core as mx
from mlx import optimizers

from mlxfp.support.errors import ArgumentError

_LEAST_AXES = {optimizers.Adafactor: 0, optimizers.Muon: 2}  # fewest axes of an array that the optimizer updates as a whole


def check_elementwise(optimizer: optimizers.Optimizer, arrays: Mapping[str, mx.array]) -> None:
    """Raise `ArgumentError` if MLX's optimizer for one of these arrays, by path, does not update each number by itself.

    >>> check_elementwise(optimizers.Muon(0.1), {"weight": mx.zeros((4, 4))})
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: Muon does not update each number by itself, and this rank has only a part of weight. Use ...
    """
    for path, array in arrays.items():
        used = _optimizer_of(optimizer, path, array)
        if any(isinstance(used, kind) and array.ndim >= axes for kind, axes in _LEAST_AXES.items()):
            raise ArgumentError(
                f"{type(used).__name__} does not update each number by itself, and this rank has only a part of {path}. Use another "
                "optimizer for the arrays that are divided between ranks, such as adamw, or keep them whole."
            )


def _optimizer_of(optimizer: optimizers.Optimizer, path: str, array: mx.array) -> optimizers.Optimizer:
    while isinstance(optimizer, optimizers.MultiOptimizer):
        optimizer = next(each for each, where in zip(optimizer.optimizers, optimizer.filters, strict=True) if where(path, array))
    return optimizer
