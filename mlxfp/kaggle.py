"""Competitions: dataset specs, folds, scores, estimators, ensembles and submissions, and tasks with recipes and models."""

from mlxfp.app import kaggle as _kaggle
from mlxfp.app import tasks as _tasks
from mlxfp.app.kaggle import *  # noqa: F403  # the names of `__all__`
from mlxfp.app.tasks import *  # noqa: F403  # the names of `__all__`
from mlxfp.training.small_models import SmallFit, small_fit

__all__ = ["SmallFit", "small_fit"]
__all__ += _kaggle.__all__
__all__ += _tasks.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
