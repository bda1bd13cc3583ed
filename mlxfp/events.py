"""Events of a training run, and the class `Checkpoint` for the content of checkpoint files."""

from mlxfp.training.loop import events as _events
from mlxfp.training.loop.checkpoints import Checkpoint
from mlxfp.training.loop.events import *  # noqa: F403  # the names of `__all__`

__all__ = ["Checkpoint"]
__all__ += _events.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
