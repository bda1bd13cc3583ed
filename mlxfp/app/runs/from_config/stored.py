"""The configurations that folders of runs have, and what is made of them."""

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from attrs import evolve

from mlxfp.app.config.classes import RunConfig, hint
from mlxfp.app.config.loading import apply_overrides, load_config
from mlxfp.app.config.presets import PRESETS
from mlxfp.app.runs.folders import CONFIG, Settings
from mlxfp.app.runs.from_config.file_planning import file_model
from mlxfp.app.runs.from_config.parts import own_parts_of
from mlxfp.app.runs.from_config.planning import models_of, plan, start
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.plans import FileModel, Models, Plan, Start
from mlxfp.support.errors import MissingFileError
from mlxfp.support.structuring import flatten, structure, unstructure
from mlxfp.support.yaml_files import read_document


def read_config(folder: str | PathLike[str]) -> RunConfig:
    """Read the configuration of a run from its folder; raises `MissingFileError` where there is none."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise MissingFileError(f"{str(folder)!r} is not the folder of a run: it has no {CONFIG}. Give a folder that mlxfp run has made.")
    return structure(read_document(path).values, RunConfig, origin=lambda _: str(path), hint=hint)


def stored_settings(folder: Path) -> Settings:
    """Read the options of a run as its folder has them. Raises what `read_config` does."""
    return unstructure(read_config(folder))


def settings_in(folder: str | PathLike[str]) -> dict[str, Any]:
    """Read the options of a run, with the name and output that its folder has now. Raises what `read_config` does."""
    return unstructure(_located(folder))


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


def usual_settings() -> dict[str, dict[str, Any]]:
    """Return the options of the defaults and of each preset, by their paths."""
    known = {"the defaults": RunConfig(), **{f"the preset {name}": load_config(preset=name).config for name in PRESETS}}
    return {name: flatten(unstructure(config)) for name, config in known.items()}


def _located(folder: str | PathLike[str]) -> RunConfig:
    path = Path(folder) if Path(folder).name == Path(folder).resolve().name else Path(folder).resolve()  # "." has no parent
    return evolve(read_config(path), output=fspath(path.parent), name=path.name)
