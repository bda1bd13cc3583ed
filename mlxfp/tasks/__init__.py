"""Tasks: a competition's folder and a configuration, made into datasets, tokenizer, collator, model, loss and metrics."""

from mlxfp.tasks.objectives import Objective, Trained, make_model, make_optimizer, make_step, objective
from mlxfp.tasks.problems import Problem, deal, problem
from mlxfp.tasks.quickstart import Task, task
from mlxfp.tasks.recipes import Recipe, fit_recipe
from mlxfp.tasks.scaling import Scales, fit_scales
from mlxfp.tasks.targets import Target, fit_target

__all__ = [
    "Objective",
    "Problem",
    "Recipe",
    "Scales",
    "Target",
    "Task",
    "Trained",
    "deal",
    "fit_recipe",
    "fit_scales",
    "fit_target",
    "make_model",
    "make_optimizer",
    "make_step",
    "objective",
    "problem",
    "task",
]
