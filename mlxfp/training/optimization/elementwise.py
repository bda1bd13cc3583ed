"""A check for optimizers with whole-array updates. Such an optimizer cannot update an array that is divided between ranks."""

from collections.abc import Mapping

import mlx.core as mx
from mlx import optimizers

from mlxfp.support.errors import ArgumentError

# Optimizers that update arrays as a whole, if an array has at least the given number of axes.
_LEAST_AXES = {optimizers.Adafactor: 0, optimizers.Muon: 2}


def check_elementwise(optimizer: optimizers.Optimizer, arrays: Mapping[str, mx.array]) -> None:
    """Raise `ArgumentError` if the optimizer of any array does not update each element separately.

    The argument `arrays` maps parameter paths to arrays.

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
