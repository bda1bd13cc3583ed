"""Optimizers of MLX as pure functions `start` and `update`, parameter groups, optimizers by name, and averaged weights."""

from mlxfp.support.foreign_names import name_hint
from mlxfp.training.optimization import optimizers as _optimizers
from mlxfp.training.optimization.optimizers import *  # noqa: F403  # the names of `__all__`
from mlxfp.training.steps.averaging import ema_weights

__all__ = ["ema_weights"]
__all__ += _optimizers.__all__


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> object:
    hint = name_hint(name)
    message = f"module {__name__!r} has no attribute {name!r}{hint and f'. Write {hint}, or use the optimizers of mlx.optimizers.'}"
    raise AttributeError(message, name=name)
