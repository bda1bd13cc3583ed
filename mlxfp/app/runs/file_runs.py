"""Runs over files in a folder, or rows of a user's own in their place: pictures and sounds of classes, and texts for a language model.

One part of them validates.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from mlx import nn

from mlxfp import Splits, batch, collate, evaluate, functional, length, load_tokenizer, pipe, predict, train_tokenizer
from mlxfp.app.config.classes import RunConfig
from mlxfp.app.kaggle.specs.reading import hash_file
from mlxfp.app.kaggle.validation.out_of_fold import Score
from mlxfp.app.runs import folders
from mlxfp.app.runs.events import Began, Ended, FoldEnded, RunEvent
from mlxfp.app.runs.files import read_json, write_json
from mlxfp.app.runs.folders import FoldFolder
from mlxfp.app.runs.outcomes import claim_environment, environment
from mlxfp.app.runs.own_parts import Code, OwnParts, own_parts
from mlxfp.app.runs.problems import file_problems
from mlxfp.app.runs.tracking import track
from mlxfp.app.runs.training import Work, load_weights, naming_the_cure, train, without_damage
from mlxfp.app.tasks.file_tasks import LanguageModel, Pictures, Sounds, as_texts, check_classes, read_parts, read_texts
from mlxfp.app.tasks.own_rows import own_part, own_parts_of_rows
from mlxfp.distributed import Ranks
from mlxfp.inspect import fingerprint
from mlxfp.models import save
from mlxfp.observers import Observer
from mlxfp.support.errors import ConfigError, DataError
from mlxfp.support.structuring import unstructure

MODEL_FOLDER = "model"  # of a language model, as the hub of Hugging Face has it
_SCORES = {"images": "accuracy", "audio": "accuracy", "language_model": "perplexity"}
_TO_PREDICT = 64  # files in a batch


@frozen
class FileRun:
    """A task over files with the parts of its rows; made by `prepare_files`."""

    task: Any
    parts: Splits
    own: OwnParts

    @property
    def goal(self) -> Any:
        """What the model learns, with the loss of the user's own if there is one."""
        return evolve(self.task.goal, own=self.own.loss)

    def model(self, config: RunConfig, seed: int) -> nn.Module:
        """Make the model, or let the user's own function make it."""
        own: nn.Module | None = self.own.make_model(config.own.model, self.task, seed)
        made: nn.Module = self.task.model(config.model.size, dropout=config.model.dropout, seed=seed) if own is None else own
        return made

    def work(self, config: RunConfig) -> Work:
        """Make the model and its batches; raises `ConfigError` where the training rows do not fill a batch."""
        training, rows = config.training, length(self.parts.train)
        made = self.task.batches(self.parts, size=training.size, seed=training.seed, prefetched=config.data.prefetch)
        for part, batches in (("train on", made.train), ("validate with", made.valid)):
            if not length(batches):
                raise ConfigError(
                    f"training.size: got {training.size} rows in a batch, and those to {part} in {_data_name(config)} do not make one. "
                    "Give a smaller size, or more data."
                )
        return Work(self.model(config, training.seed), self.goal, made.train, made.valid, rows or 0, training.seed)


def prepare_files(config: RunConfig, code: Code) -> FileRun:
    """Read the parts of a folder, and fit the task on the one that trains."""
    own = own_parts(config, code)
    if problems := tuple(file_problems(config)):
        raise ConfigError("The configuration cannot be run:" + "".join(f"\n  {path}: {problem}" for path, problem in problems))
    data, text, seed = config.data, config.text, config.training.seed
    if own.rows is not None:
        classed = config.task != "language_model"
        parts, classes = own_parts_of_rows(own.rows, data.path or "", classed=classed, seed=seed, limit=data.limit)
    else:
        read = partial(read_texts, column=text.column) if config.task == "language_model" else file_task(config, ()).rows
        parts, classes = read_parts(str(data.path), read, seed=seed, limit=data.limit)
    if config.task != "language_model":
        return FileRun(file_task(config, check_classes(classes, config.task, str(data.path))), parts, own)
    if own.rows is not None:
        valid = None if parts.valid is None else as_texts(parts.valid, text.column)
        parts = Splits(as_texts(parts.train, text.column), valid=valid)
    if Path(text.tokenizer).exists():
        tokenizer = load_tokenizer(text.tokenizer)
    else:
        kind: Any = text.tokenizer
        tokenizer = train_tokenizer(parts.train, kind=kind, vocab_size=text.vocab_size)
    return FileRun(LanguageModel(tokenizer, text.max_length), parts, own)


def file_task(config: RunConfig, classes: tuple[str, ...]) -> Pictures | Sounds:
    """Make the task of a configuration with these classes."""
    media = config.media
    return Pictures(classes, media.side) if config.task == "images" else Sounds(classes, media.rate, media.seconds, media.mels)


def run_files(config: RunConfig, folder: Path, code: Code, ranks: Ranks | None = None) -> Iterator[RunEvent]:
    """Train on the files in a folder, or continue, and evaluate; the folder of the run is locked and claimed."""
    prepared, files = prepare_files(config, code), FoldFolder(folder, 1)
    modules = {f"module {name}": hash_file(file) for name, file in prepared.own.files.items()}
    given = _identity(config, prepared)
    folders.claim_data(folder, {"config": fingerprint(folders.decisive(config)), **given, **modules})
    folders.update_paths(folder, config)
    yield from claim_environment(folder)
    yield from without_damage(folder, files)
    yield Began(folder, 1, int(files.done))
    tracking = None
    if not (files.done and (folder / folders.METRICS).is_file()):
        tracking = yield from track(config, folder, Path(config.data.path or config.task).stem)
        tracked = yield from tracking.fold(1)
        with naming_the_cure():
            yield from _train_and_evaluate(config, prepared, folder, files, tracked, ranks)
    result = files.result()
    yield FoldEnded(folder, 1, result["metric"], result["score"])
    write_json(
        folder / folders.RECEIPT,
        {
            "config": folders.flat(config),
            "versions": environment(),
            "data": read_json(folder / folders.DATA),
            "folds": [result],
            "outputs": {folders.METRICS: hash_file(folder / folders.METRICS)},
        },
    )
    if tracking is not None:
        yield from tracking.ended([(f"valid/{result['metric']}", result["score"], 0)])
    yield Ended(folder, Score(result["metric"], (result["score"],), result["score"]), None)


def predict_files(config: RunConfig, files: FoldFolder, path: Path, code: Code) -> dict[str, Any]:
    """Predict the class of each file in a folder: columns by name, the path first, then the class and the probability of each.

    Rows of a user's own, the part "test", have their number in place of the path.
    """
    classes = tuple(read_json(files / folders.RECIPE)["classes"])
    task, own = file_task(config, classes), own_parts(config, code)
    rows = task.rows(str(path)) if own.rows is None else own_part(own.rows, str(path), "test")
    if rows is None:
        raise DataError(f"There are no rows to predict: own.rows gave None for the part 'test' of {str(path)!r}. Return a dataset.")
    model = FileRun(task, Splits(rows), own).model(config, 0)
    batches = pipe(task.to_predict(rows), batch(_TO_PREDICT), collate(task.collator(None)))
    answers = predict(model, task.goal.answers)(load_weights(files, model), batches)
    chances = np.concatenate([np.asarray(part, np.float64) for part in answers])
    source: Any = rows.source
    return {
        **({"row": list(range(len(chances)))} if own.rows is not None else {"path": list(source.names)}),
        "class": [classes[place] for place in chances.argmax(axis=1)],
        **dict(zip(classes, chances.T, strict=True)),
    }


def _train_and_evaluate(  # noqa: PLR0913, PLR0917  # as of a fold
    config: RunConfig, prepared: FileRun, folder: Path, files: FoldFolder, extra: Sequence[Observer], ranks: Ranks | None
) -> Iterator[RunEvent]:
    task, work, valid = prepared.task, prepared.work(config), prepared.parts.valid
    assert valid is not None
    if not (files / folders.MODEL).is_file():
        yield from train(config, work, folder, files, (*prepared.own.observers, *extra), ranks)
    state = load_weights(files, work.model)
    if isinstance(task, LanguageModel):
        save(files / MODEL_FOLDER, functional(work.model).bind(state.params, state.buffers), tokenizer=task.tokenizer)
    else:
        write_json(files / folders.RECIPE, unstructure(task))
    numbers, metric = evaluate(work.model, work.goal.measure)(state, work.held_out), _SCORES[config.task]
    (folder / folders.REPORT).unlink(missing_ok=True)  # it may show another model
    write_json(folder / folders.METRICS, {"metric": metric, **numbers, "rows": {"train": work.rows, "valid": length(valid)}})
    result = {"metric": metric, "score": numbers[metric], "steps": state.step, "seed": work.seed}
    write_json(files / folders.RESULT, {**result, "pipeline": fingerprint(work.batches), "files": files.hashes()})


def _data_name(config: RunConfig) -> str:
    return repr(config.data.path) if config.own.rows is None else str(config.own.rows)


def _identity(config: RunConfig, prepared: FileRun) -> dict[str, str]:
    """Return what identifies the rows: the files that are read, or the datasets of a user's own."""
    if config.own.rows is None:
        return {"files": _listing(str(config.data.path))}
    parts = {"rows": prepared.parts.train, "valid": prepared.parts.valid}
    return {name: fingerprint(part) for name, part in parts.items()}


def _listing(path: str) -> str:
    """Return what identifies the files at a path: their names and sizes; of a remote address, itself."""
    place = Path(path)
    found = sorted(place.rglob("*")) if place.is_dir() else [place]
    names = [f"{file.relative_to(place).as_posix()} {file.stat().st_size}" for file in found if file.is_file()]
    return sha256("\n".join(names or [path]).encode()).hexdigest()
