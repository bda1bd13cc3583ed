"""Tasks: data and folds of a competition, recipes from rows to batches, models with objectives, and predictions."""

from mlxfp.app.tasks.competition_data import FOLD_METHODS, CompetitionData, make_folds, read_competition
from mlxfp.app.tasks.models import make_model
from mlxfp.app.tasks.objectives import Objective, Predictor, objective
from mlxfp.app.tasks.recipes import Recipe, TextFormat, fit_recipe
from mlxfp.app.tasks.scaling import Scales, fit_scales
from mlxfp.app.tasks.tables import TableRecipe, fit_table_recipe, make_table_model
from mlxfp.app.tasks.targets import Target, fit_target

__all__ = [
    "FOLD_METHODS",
    "CompetitionData",
    "Objective",
    "Predictor",
    "Recipe",
    "Scales",
    "TableRecipe",
    "Target",
    "TextFormat",
    "fit_recipe",
    "fit_scales",
    "fit_table_recipe",
    "fit_target",
    "make_folds",
    "make_model",
    "make_table_model",
    "objective",
    "read_competition",
]


def __dir__() -> list[str]:
    return __all__
