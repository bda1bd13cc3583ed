"""Plans of runs from configurations: data, folds and model factories."""

from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from mlxfp import length
from mlxfp.app.config.classes import RunConfig, hint
from mlxfp.app.config.loading import apply_overrides, read_config
from mlxfp.app.kaggle.validation.folds import Folds
from mlxfp.app.run_folders.folders import config_file, located, with_values
from mlxfp.app.runs.from_config.file_planning import file_model, plan_files
from mlxfp.app.runs.from_config.parts import (
    AUTO,
    CHOICES,
    competition_data,
    estimator_of,
    is_estimator,
    model_of,
    own_parts_of,
    recipe_class,
    recipe_of,
    run_folder,
    trackers_of,
    training_of,
)
from mlxfp.app.runs.from_config.problems import Problem, config_problems, data_problems
from mlxfp.app.runs.own_parts import Code, OwnParts
from mlxfp.app.runs.plans import FileModel, Models, Plan, Start
from mlxfp.app.runs.submission import make_submission
from mlxfp.app.tasks.competition_data import CompetitionData, make_folds
from mlxfp.support.errors import ConfigError, DataError
from mlxfp.support.hub import is_hub_name, model_folder
from mlxfp.support.structuring import structure, unstructure

_PRETRAINED = ("*.json", "model*.safetensors", "*.txt", "*.model")  # glob patterns of the files to download for a pretrained model


def start(config: RunConfig, code: Code) -> Start:
    """Return a `Start`: the options of a run with absolute paths, before the data are read."""
    config = _with_absolute_paths(config)
    planned = partial(plan, config, code=code) if config.task == "competition" else partial(plan_files, config, code)
    return Start(run_folder(config), unstructure(config), code, planned)


def plan(config: RunConfig, *, code: Code = None) -> Plan:
    """Read the data of a configuration, assign the folds and choose the metric, without training.

    Without `data.path`, synthetic rows are written to the folder `data` of the run. `code` is the folder of the modules in the section
    `own`, and is required if this section names modules. Raises `MissingFileError`, `ConfigError` and `DataError` for a
    configuration that cannot be run.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     made = fp.runs.plan(fp.runs.load_config(preset="titanic", overrides=[f"output={folder}"]).config)
    >>> made.folds, made.metric.name
    (stratified: 600 rows in 5 folds, 'accuracy')
    """
    config = structure(unstructure(config), RunConfig, choices=CHOICES)
    if config.task != "competition":
        raise ConfigError(
            f"task: task={config.task} has no folds, so there is no plan. Run the configuration: mlxfp run CONFIG, or fp.runs.run(config)."
        )
    config = evolve(config, model=evolve(config.model, path=_pretrained_folder(config.model.path)))
    user_parts = own_parts_of(config, code)
    data = competition_data(config, run_folder(config), user_parts)
    if problems := (*config_problems(config), *data_problems(config, data)):
        raise ConfigError("The configuration does not fit the data:" + "".join(f"\n  {path}: {problem}" for path, problem in problems))
    _check_sample(data, decided=config.competition.threshold)
    chosen = config.validation
    folds = make_folds(data, method=chosen.method, count=chosen.folds, repeats=chosen.repeats, seed=chosen.seed)
    return _plan(config, data, folds, user_parts)


def changed(before: Plan, values: Mapping[str, Any]) -> Plan:
    """Return a run plan with other values of options such as "training.epochs". Rows, folds and imported functions stay the same."""
    config = structure(with_values(before.settings, values), RunConfig, what="a trial", choices=CHOICES, hint=hint)
    return _plan(config, before.data, before.folds, before.user_parts)


def plan_problem(plan: Plan) -> Problem | None:
    """Return the first invalid option of a plan, or None."""
    return next(config_problems(structure(plan.settings, RunConfig)), None)


def plan_in(folder: Path, code: Code) -> Plan:
    """Return the plan of the run in a folder. Raises the errors of `plan`."""
    return plan(_located(folder), code=code)


def models_in(folder: Path, code: Code) -> Models:
    """Return the functions that create the models of a run. The argument `folder` is the run folder."""
    config = _located(folder)
    return models_of(config, own_parts_of(config, code))


def file_model_in(folder: Path, classes: tuple[str, ...], code: Code) -> FileModel:
    """Return the object that creates the model of a run on media files. `classes` are the class names of the finished run."""
    return file_model(_located(folder), classes, code)


def start_again(folder: str | PathLike[str], overrides: Sequence[str], code: Code) -> tuple[Start, int]:
    """Apply overrides to the configuration of the run in a folder. Return the new `Start`, and the old value of `training.epochs`."""
    before = _located(folder)
    config = evolve(apply_overrides(before, overrides), output=before.output, name=before.name)
    return start(config, code), before.training.epochs


def models_of(config: RunConfig, user_parts: OwnParts) -> Models:
    """Return the functions that create the models of a configuration."""
    return Models(
        name=config.model.name,
        pretrained=config.model.path is not None,
        estimator=partial(estimator_of, config, user_parts=user_parts) if is_estimator(config) else None,
        recipe=partial(recipe_of, config),
        recipe_class=recipe_class(config),
        network=partial(model_of, config, user_parts=user_parts),
        views=config.competition.views,
    )


def _plan(config: RunConfig, data: CompetitionData, folds: Folds, user_parts: OwnParts) -> Plan:
    result = config.competition
    return Plan(
        folder=run_folder(config),
        data=data,
        folds=folds,
        settings=unstructure(config),
        user_parts=user_parts,
        models=models_of(config, user_parts),
        training=training_of(config, user_parts),
        trackers=trackers_of(config),
        submission=result.submission,
        threshold=result.threshold,
        plots=config.observers.plots,
        auto=config.model.name == AUTO,
        minutes=config.observers.minutes,
        synthetic=config.data.path is None,
        inferred=config.data.spec is None and config.own.spec is None,
        inputs=tuple(Path(path) for path in (config.model.path, config.text.tokenizer) if path is not None),
    )


def _check_sample(data: CompetitionData, *, decided: bool) -> None:
    """Fill the sample submission with constants, so that errors in the sample file are raised before the training."""
    spec, count = data.spec, 0 if data.test is None else length(data.test) or 0
    width = len(spec.outputs)
    flat = width == 1 or (spec.task.one_class and width == 2)
    try:
        predictions = np.full(count if flat else (count, width), 0.0 if decided else 0.4)
        make_submission(data, predictions)
    except DataError as error:
        error.add_note(
            "Nothing was trained, because no submission can be written with these files. Correct the files, or leave out sample in "
            "the spec."
        )
        raise


def _with_absolute_paths(config: RunConfig) -> RunConfig:
    """Return the configuration with absolute paths of input files."""
    data, text, model = config.data, config.text, config.model
    spec = data.spec if data.spec is None or not Path(data.spec).is_file() else _absolute(data.spec)
    tokenizer = _absolute(text.tokenizer) if Path(text.tokenizer).exists() else text.tokenizer
    return evolve(
        config,
        data=evolve(data, path=_absolute(data.path), spec=spec),
        text=evolve(text, tokenizer=tokenizer),
        model=evolve(model, path=_absolute(_pretrained_folder(model.path))),
    )


def _pretrained_folder(path: str | None) -> str | None:
    """Return the path of pretrained weights. For a model name on the hub, download the files and return their folder in the cache."""
    if path is None or not is_hub_name(path):
        return path
    folder, _ = model_folder(path, revision=None, files=_PRETRAINED)
    return str(folder)


def _absolute(path: str | None) -> Any:
    return None if path is None else str(Path(path).resolve())


def _located(folder: str | PathLike[str]) -> RunConfig:
    path = located(folder)
    return evolve(read_config(config_file(path)), output=fspath(path.parent), name=path.name)
