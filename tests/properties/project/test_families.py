"""A family is a module that imports like any other, and `dir` lists its public names."""

import ast
import pickle
from importlib import import_module
from types import ModuleType

import pytest

import mlxfp as fp
from tests.properties.project.test_import import run_python

FAMILIES = [name for name in fp.__all__ if isinstance(getattr(fp, name), ModuleType)]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_is_the_module_of_its_name(name):
    assert import_module(f"mlxfp.{name}") is getattr(fp, name)


@pytest.mark.parametrize("name", FAMILIES)
def test_dir_lists_the_public_names_of_a_family_and_nothing_else(name):
    family = getattr(fp, name)
    assert dir(family) == sorted(set(family.__all__))
    assert [each for each in family.__all__ if not hasattr(family, each)] == []


@pytest.mark.parametrize("code", ["import mlxfp.losses as it", "from mlxfp import losses as it", "import mlxfp; it = mlxfp.losses"])
def test_a_family_is_the_same_in_whatever_way_it_is_imported(code):
    home = "import mlxfp; from mlxfp.training.losses import mse"
    assert ast.literal_eval(run_python(f"{code}\n{home}\nprint((it is mlxfp.losses, it.mse is mse))")) == (True, True)


def test_names_of_a_family_import_and_pickle_as_before():
    from mlxfp.events import Stopped
    from mlxfp.losses import cross_entropy
    from mlxfp.metrics import accuracy
    from mlxfp.observers import progress
    from mlxfp.optimizers import adamw
    from mlxfp.schedules import cosine_decay

    values = [Stopped, cross_entropy, accuracy, progress, adamw, cosine_decay]
    homes = ["training.loop.events", "training.losses.classification", "evaluation.metrics.classification", "training.observers.reporting",
             "training.optimization.optimizers", "training.optimization.schedules"]  # fmt: skip
    assert [value.__module__ for value in values] == [f"mlxfp.{home}" for home in homes]
    assert pickle.loads(pickle.dumps(values)) == values


def test_help_begins_with_words_for_users():
    assert fp.__doc__.startswith("Data pipelines and training for MLX")
    assert "import mlxfp as fp" in fp.__doc__
    assert "__init__" not in fp.__doc__
