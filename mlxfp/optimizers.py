"""Optimizers: any `mlx.optimizers.Optimizer` as two pure functions, parameter groups, optimizers by name, and averaged weights."""

from mlxfp.training.optimization import optimizers as _optimizers
from mlxfp.training.optimization.optimizers import *  # noqa: F403  # the names of `__all__`
from mlxfp.training.steps.averaging import ema_weights

__all__ = ["ema_weights"]
__all__ += _optimizers.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
