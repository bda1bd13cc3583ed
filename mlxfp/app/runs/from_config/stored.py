"""The configurations that folders of runs have, and what is made of them."""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path

from attrs import evolve

from mlxfp.app.config.classes import RunConfig
from mlxfp.app.config.loading import apply_overrides, read_config
from mlxfp.app.run_folders.folders import config_file, located
from mlxfp.app.runs.from_config.file_planning import file_model
from mlxfp.app.runs.from_config.parts import own_parts_of
from mlxfp.app.runs.from_config.planning import models_of, plan, start
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.plans import FileModel, Models, Plan, Start


def plan_in(folder: Path, code: Code) -> Plan:
    """Plan the run in a folder again. Raises what `plan` does."""
    return plan(_located(folder), code=code)


def models_in(folder: Path, code: Code) -> Models:
    """Return the functions that make the models of the run in a folder."""
    config = _located(folder)
    return models_of(config, own_parts_of(config, code))


def file_model_in(folder: Path, classes: tuple[str, ...], code: Code) -> FileModel:
    """Return the model of the run over files in a folder, with these classes."""
    return file_model(_located(folder), classes, code)


def start_again(folder: str | PathLike[str], overrides: Sequence[str], code: Code) -> tuple[Start, int]:
    """Begin the run in a folder with `overrides`; return it with the number of epochs that the folder had."""
    before = _located(folder)
    config = evolve(apply_overrides(before, overrides), output=before.output, name=before.name)
    return start(config, code), before.training.epochs


def _located(folder: str | PathLike[str]) -> RunConfig:
    path = located(folder)
    return evolve(read_config(config_file(path)), output=fspath(path.parent), name=path.name)
