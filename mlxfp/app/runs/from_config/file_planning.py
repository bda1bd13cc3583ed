"""Plans of runs on files: the splits of the rows, and a task fitted on the training split."""

from functools import partial
from pathlib import Path
from typing import Any

from mlx import nn

from mlxfp import Splits, load_tokenizer, train_tokenizer
from mlxfp.app.config.classes import RunConfig
from mlxfp.app.runs.from_config.parts import own_parts_of, run_folder, trackers_of, training_of
from mlxfp.app.runs.from_config.problems import file_problems
from mlxfp.app.runs.own_parts import Code, OwnParts
from mlxfp.app.runs.plans import FileModel, FilePlan
from mlxfp.app.tasks.file_tasks import LanguageModel, Pictures, Sounds, as_texts, check_classes, read_parts, read_texts
from mlxfp.app.tasks.own_rows import own_parts_of_rows
from mlxfp.support.errors import ConfigError
from mlxfp.support.structuring import unstructure


def plan_files(config: RunConfig, code: Code) -> FilePlan:
    """Read the splits and fit the task on the training split. Raises `ConfigError` with all invalid options."""
    user_parts = own_parts_of(config, code)
    if problems := tuple(file_problems(config)):
        raise ConfigError("The configuration cannot be run:" + "".join(f"\n  {path}: {problem}" for path, problem in problems))
    task, parts = _task_and_parts(config, user_parts)
    return FilePlan(
        folder=run_folder(config),
        kind=config.task,
        parts=parts,
        model=FileModel(task, user_parts, partial(_model_of, config, task, user_parts)),
        path=config.data.path,
        source=repr(config.data.path) if config.own.rows is None else config.own.rows,
        settings=unstructure(config),
        training=training_of(config, user_parts),
        trackers=trackers_of(config),
        plots=config.observers.plots,
    )


def file_model(config: RunConfig, classes: tuple[str, ...], code: Code) -> FileModel:
    """Return the object that creates the model of a run on media files. `classes` are the class names."""
    task, user_parts = _file_task(config, classes), own_parts_of(config, code)
    return FileModel(task, user_parts, partial(_model_of, config, task, user_parts))


def _task_and_parts(config: RunConfig, user_parts: OwnParts) -> tuple[Any, Splits]:
    data, text, seed = config.data, config.text, config.training.seed
    if user_parts.rows is not None:
        classed = config.task != "language_model"
        parts, classes = own_parts_of_rows(user_parts.rows, data.path or "", classed=classed, seed=seed, limit=data.limit)
    else:
        read = partial(read_texts, column=text.column) if config.task == "language_model" else _file_task(config, ()).rows
        parts, classes = read_parts(str(data.path), read, seed=seed, limit=data.limit)
    if config.task != "language_model":
        return _file_task(config, check_classes(classes, config.task, str(data.path))), parts
    if user_parts.rows is not None:
        valid = None if parts.valid is None else as_texts(parts.valid, text.column)
        parts = Splits(as_texts(parts.train, text.column), valid=valid)
    if Path(text.tokenizer).exists():
        tokenizer = load_tokenizer(text.tokenizer)
    else:
        kind: Any = text.tokenizer
        tokenizer = train_tokenizer(parts.train, kind=kind, vocab_size=text.vocab_size)
    return LanguageModel(tokenizer, text.max_length), parts


def _file_task(config: RunConfig, classes: tuple[str, ...]) -> Pictures | Sounds:
    media = config.media
    return Pictures(classes, media.side) if config.task == "images" else Sounds(classes, media.rate, media.seconds, media.mels)


def _model_of(config: RunConfig, task: Any, user_parts: OwnParts, seed: int) -> nn.Module:
    result: nn.Module | None = user_parts.make_model(config.own.model, task, seed)
    if result is None:
        result = task.model(config.model.size, dropout=config.model.dropout, seed=seed)
    return result
