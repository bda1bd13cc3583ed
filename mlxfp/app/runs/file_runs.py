"""Runs with one validation split: image classification, audio classification and language models."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve

from mlxfp import Dataset, batch, collate, evaluate, functional, length, pipe, predict
from mlxfp.app.kaggle.specs.reading import hash_file
from mlxfp.app.kaggle.validation.out_of_fold import Score
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import read_json, write_json
from mlxfp.app.run_folders.folders import FoldFolder
from mlxfp.app.runs.events import Began, Ended, FoldEnded, RunEvent
from mlxfp.app.runs.outcomes import claim_environment, environment
from mlxfp.app.runs.plans import FileModel, FilePlan
from mlxfp.app.runs.tracking import track
from mlxfp.app.runs.training import Work, load_weights, naming_the_cure, train, without_damage
from mlxfp.app.tasks.file_tasks import LanguageModel
from mlxfp.app.tasks.own_rows import own_part
from mlxfp.distributed import Ranks
from mlxfp.inspect import fingerprint
from mlxfp.models import save
from mlxfp.observers import Observer
from mlxfp.support.errors import ConfigError, DataError
from mlxfp.support.structuring import flatten, unstructure

MODEL_FOLDER = "model"  # folder of a language model in the format of the Hugging Face hub
_SCORES = {"images": "accuracy", "audio": "accuracy", "language_model": "perplexity"}
_TO_PREDICT = 64  # files in a batch
_COUNTED = 10_000  # rows read at a time to count the rows


def file_work(plan: FilePlan) -> Work:
    """Return the model with its training and validation batches. Raises `ConfigError` if a split has too few rows for a batch."""
    training, model = plan.training, plan.model
    splits = model.task.batches(plan.parts, size=training.size, seed=training.seed, folder=training.cache)
    if training.ahead is not None:
        splits = evolve(splits, train=training.ahead(splits.train))
    for part, batches in (("training", splits.train), ("validation", splits.valid)):
        if not length(batches):
            raise ConfigError(
                f"A batch has {training.size} rows, but the {part} split of {plan.source} has fewer. Reduce training.size, or add data."
            )
    return Work(model.make(training.seed), model.goal, splits.train, splits.valid, _count(plan.parts.train), training.seed)


def _count(rows: Dataset[Any]) -> int:
    """Return the number of rows. If the number is unknown, as for the lines of a text file, read all rows."""
    known = length(rows)
    return sum(map(len, batch(_COUNTED)(rows))) if known is None else known


def run_files(plan: FilePlan, ranks: Ranks | None = None) -> Iterator[RunEvent]:
    """Train on files, or continue the training, and evaluate. The caller must have locked the run folder and checked its configuration."""
    folder, files = plan.folder, FoldFolder(plan.folder, 1)
    folders.claim_data(folder, file_identities(plan))
    folders.update_paths(folder, plan.settings)
    yield from claim_environment(folder)
    yield from without_damage(folder, files)
    yield Began(folder, 1, int(files.done))
    tracking = None
    if not (files.done and (folder / folders.METRICS).is_file()):
        tracking = yield from track(plan.trackers, folder, Path(plan.path or plan.kind).stem)
        tracked = yield from tracking.fold(1)
        with naming_the_cure():
            yield from _train_and_evaluate(plan, files, tracked, ranks)
    result = files.result()
    yield FoldEnded(folder, 1, result["metric"], result["score"])
    write_json(
        folder / folders.RECEIPT,
        {
            "config": flatten(plan.settings),
            "versions": environment(),
            "data": read_json(folder / folders.DATA),
            "folds": [result],
            "outputs": {folders.METRICS: hash_file(folder / folders.METRICS)},
        },
    )
    if tracking is not None:
        yield from tracking.ended([(f"valid/{result['metric']}", result["score"], 0)])
    yield Ended(folder, Score(result["metric"], (result["score"],), result["score"]), None)


def predict_files(model: FileModel, files: FoldFolder, path: Path) -> dict[str, Any]:
    """Predict the class of each file in a folder. Return the columns `path` and `class`, and a column of probabilities for each class.

    If `own.rows` names a function, predict the rows of its split "test". The column `row` (row number) replaces the column `path`.
    """
    task, user_parts = model.task, model.user_parts
    rows = task.rows(str(path)) if user_parts.rows is None else own_part(user_parts.rows, str(path), "test")
    if rows is None:
        raise DataError(f"There are no rows to predict: own.rows returned None for the split 'test' of {str(path)!r}. Return a dataset.")
    network = model.make(0)
    batches = pipe(task.to_predict(rows), batch(_TO_PREDICT), collate(task.collator(None)))
    answers = predict(network, task.goal.answers)(load_weights(files, network), batches)
    chances = np.concatenate([np.asarray(part, np.float64) for part in answers])
    source: Any = rows.source
    return {
        **({"row": list(range(len(chances)))} if user_parts.rows is not None else {"path": list(source.names)}),
        "class": [task.classes[index] for index in chances.argmax(axis=1)],
        **dict(zip(task.classes, chances.T, strict=True)),
    }


def _train_and_evaluate(plan: FilePlan, files: FoldFolder, extra: Sequence[Observer], ranks: Ranks | None) -> Iterator[RunEvent]:
    folder, task, work, valid = plan.folder, plan.model.task, file_work(plan), plan.parts.valid
    assert valid is not None
    if not (files / folders.MODEL).is_file():
        yield from train(plan.training, folder, work, files, (*plan.model.user_parts.observers, *extra), ranks)
    state = load_weights(files, work.model)
    if isinstance(task, LanguageModel):
        save(files / MODEL_FOLDER, functional(work.model).bind(state.params, state.buffers), tokenizer=task.tokenizer)
    else:
        write_json(files / folders.RECIPE, unstructure(task))
    numbers, metric = evaluate(work.model, work.goal.measure)(state, work.held_out), _SCORES[plan.kind]
    (folder / folders.REPORT).unlink(missing_ok=True)  # remove an old report, which may describe another model
    write_json(folder / folders.METRICS, {"metric": metric, **numbers, "rows": {"train": work.rows, "valid": _count(valid)}})
    result = {"metric": metric, "score": numbers[metric], "steps": state.step, "seed": work.seed}
    write_json(files / folders.RESULT, {**result, "pipeline": fingerprint(work.batches), "files": files.hashes()})


def file_identities(plan: FilePlan) -> dict[str, str]:
    """Return the fingerprints of options, data and code. A run can continue only with the same fingerprints."""
    modules = {f"module {name}": hash_file(file) for name, file in plan.model.user_parts.files.items()}
    return {"config": folders.config_fingerprint(plan.settings), **_identity(plan), **modules}


def _identity(plan: FilePlan) -> dict[str, str]:
    """Return hashes that reveal changes of the input data. Folders are hashed by file names and sizes, datasets by fingerprint."""
    if plan.model.user_parts.rows is None:
        return {"files": _listing(str(plan.path))}
    return {name: fingerprint(part) for name, part in {"rows": plan.parts.train, "valid": plan.parts.valid}.items()}


def _listing(path: str) -> str:
    """Return a hash of the names and sizes of the files at a path. For a remote address, hash the address."""
    root = Path(path)
    files = sorted(root.rglob("*")) if root.is_dir() else [root]
    names = [f"{file.relative_to(root).as_posix()} {file.stat().st_size}" for file in files if file.is_file()]
    return sha256("\n".join(names or [path]).encode()).hexdigest()
