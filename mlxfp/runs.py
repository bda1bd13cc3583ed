"""Functions that execute a configuration and write a folder with models, out-of-fold predictions, scores, a submission and a report."""

from mlxfp.app import config as _config
from mlxfp.app import runs as _runs
from mlxfp.app.config import *  # noqa: F403  # the names of `__all__`
from mlxfp.app.runs import *  # noqa: F403  # the names of `__all__`

__all__ = []
__all__ += _config.__all__
__all__ += _runs.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
