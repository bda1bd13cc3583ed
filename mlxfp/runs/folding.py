"""One fold of a run: fit, predict, keep; whatever of it is done already is not done again."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np
from attrs import evolve, frozen
from mlx import nn
from mlx.optimizers import SGD

from mlxfp.config.classes import RunConfig
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.core.errors import CheckpointError, DataError
from mlxfp.core.identity import fingerprint
from mlxfp.core.pipelines import pipe
from mlxfp.data.rows.dataset_splits import Splits
from mlxfp.data.rows.selecting import select
from mlxfp.kaggle.specs.reading import hash_file
from mlxfp.kaggle.specs.specs import DatasetSpec
from mlxfp.kaggle.validation.cross_validation import parts_of, unseen
from mlxfp.kaggle.validation.folds import Fold
from mlxfp.kaggle.validation.out_of_fold import FoldPredictions, fold_predictions
from mlxfp.kaggle.validation.scoring import Numbers
from mlxfp.runs.events import FoldBegan, FoldEnded, Noted, RunEvent, Trained
from mlxfp.runs.folders import MODEL, is_as_written, read_array, read_json, write_array, write_json
from mlxfp.runs.plans import Plan
from mlxfp.tasks import objectives
from mlxfp.tasks.objectives import make_model, make_optimizer, make_step, objective, shown
from mlxfp.tasks.quickstart import labelled_batches, training_batches
from mlxfp.tasks.recipes import Recipe, fit_recipe, recipe_from_plain, recipe_to_plain
from mlxfp.training import observers
from mlxfp.training.loop import events
from mlxfp.training.loop.checkpoints import Checkpoint, load_latest, load_state, save_state
from mlxfp.training.loop.fitting import evaluate, fit
from mlxfp.training.loop.nonfinite import NonFiniteError
from mlxfp.training.steps.state import TrainState, train_state

_OOF, _TEST, _RECIPE, _RESULT, _LOG, _BEST = "oof.npy", "test.npy", "recipe.json", "result.json", "log.jsonl", "best.safetensors"
_CHECKPOINTS = "checkpoints"
_STOPPING, _HELD_OUT = "stopping", "held_out"  # rows that decide when to stop; rows that are watched, and decide nothing
_ASTRAY = "Begin another run, as in name=second, with a lower optimizer.learning_rate, with optimizer.clip_norm=1"
_SHARE = 0.1  # of a fold's training rows, held out of them to stop early by


@frozen
class FoldFolder:
    """The files of a fold, counted from 1."""

    run: Path
    fold: int

    @property
    def path(self) -> Path:
        """Where they are."""
        return self.run / f"fold-{self.fold:02}"

    @property
    def log(self) -> Path:
        """The log of the training."""
        return self.path / _LOG

    @property
    def done(self) -> bool:
        """Whether the fold has been trained and has predicted, and its files are as they were written."""
        return (self.path / _RESULT).is_file() and not self.damaged()

    def damaged(self) -> list[Path]:
        """Find what is missing of a fold that was done, or is no longer as it was written."""
        if not (self.path / _RESULT).is_file():
            return []
        files = self.result()["files"]
        return [path for path, digest in ((self.path / name, files[name]) for name in files) if not is_as_written(path, digest)]

    def hashes(self) -> dict[str, str]:
        """Return the hash of each file that predictions are made of, or are in."""
        return {path.name: hash_file(path) for path in (self.path / name for name in (_RECIPE, MODEL, _OOF, _TEST)) if path.is_file()}

    def result(self) -> dict[str, Any]:
        """Return what is known of a fold that is done."""
        return read_json(self.path / _RESULT)

    def oof(self, fold: Fold) -> FoldPredictions:
        """Return what it said of the rows that it validates with."""
        return fold_predictions(fold, read_array(self.path / _OOF))

    def test(self) -> Any:
        """Return what it said of the test rows, or None."""
        return read_array(self.path / _TEST) if (self.path / _TEST).is_file() else None


def run_fold(plan: Plan, fold: Fold, files: FoldFolder, beside: Sequence[events.Observer]) -> Iterator[RunEvent]:
    """Train a fold, or go on with it, and predict; yield what happens. What is done already is read from its files.

    Files that are damaged, as far as can be told, are made again. Raises `CheckpointError`, naming the file, where it cannot be told.
    """
    for path in files.damaged():
        yield Noted(plan.folder, f"{path} is missing or damaged, and is made again.")
        path.unlink(missing_ok=True)
        (files.path / _RESULT).unlink(missing_ok=True)
    if not files.done:
        try:
            yield from _trained_and_predicted(plan, fold, files, beside)
        except CheckpointError as error:
            error.add_note("Remove that file and run again: what is missing of a fold is made again.")
            raise
    yield FoldEnded(plan.folder, files.fold, plan.metric.name, files.result()["score"])


def load_fold(config: RunConfig, spec: DatasetSpec, files: FoldFolder) -> objectives.Trained:
    """Read a trained fold: a function from rows to predictions."""
    recipe = recipe_from_plain(read_json(files.path / _RECIPE), spec, config.text)
    return _loaded(files, recipe, make_model(recipe, config.model, seed=0), config.competition.views)


@frozen
class _Work:
    """A fold on the table: what it is trained on, and what was fitted for it."""

    plan: Plan
    fold: Fold
    files: FoldFolder
    parts: Splits
    recipe: Recipe
    model: nn.Module


def _trained_and_predicted(plan: Plan, fold: Fold, files: FoldFolder, beside: Sequence[events.Observer]) -> Iterator[RunEvent]:
    config, seed = plan.config, plan.seed_of(fold)
    parts = parts_of(fold, plan.rows, "none" if config.observers.patience is None else "inner", _SHARE)
    others, test = unseen(fold, plan.rows, plan.problem.spec.target), plan.problem.test
    recipe = fit_recipe(plan.problem.spec, parts.train, text=config.text, model=config.model, seed=seed)
    every = {"train on": parts.train, "stop by": parts.valid, "judge by": others, "predict": test}
    yield from _budgeted(plan, recipe, {name: rows for name, rows in every.items() if rows is not None})
    for number in range(1, config.competition.views):
        recipe.view(others, number)  # what cannot be seen so says so now, and not after the training
    write_json(files.path / _RECIPE, recipe_to_plain(recipe))
    work = _Work(plan, fold, files, parts, recipe, make_model(recipe, config.model, seed=seed))
    if not (files.path / MODEL).is_file():
        yield from _training(work, beside)
    predict = _loaded(files, recipe, work.model, config.competition.views)
    made = fold_predictions(fold, _finite(predict(others), files))
    write_array(files.path / _OOF, made.predictions)
    if test is not None:
        write_array(files.path / _TEST, predict(test))
    try:
        score: float | None = plan.metric(plan.problem.targets[fold.valid], made.predictions)
    except DataError as error:
        score = None
        yield Noted(plan.folder, f"{plan.metric.name} is undefined on {fold!r}: {error}")
    batches = training_batches(recipe, parts.train, config.training, prefetched=0)
    rows = {"train": length(parts.train), "predicted": len(fold.valid)}
    result = {"metric": plan.metric.name, "score": score, "steps": predict.state.step, "seed": seed, "rows": rows}
    write_json(files.path / _RESULT, {**result, "pipeline": fingerprint(batches), "files": files.hashes()})


def _finite(predictions: Numbers, files: FoldFolder) -> Numbers:
    if not np.isfinite(predictions).all():
        raise DataError(
            f"The model of fold {files.fold} predicts NaN or infinity: its training went astray. {_ASTRAY}, or with "
            "training.compute_dtype=float32."
        )
    return predictions


def _budgeted(plan: Plan, recipe: Recipe, parts: Mapping[str, Dataset[Any]]) -> Iterator[RunEvent]:
    """Refuse rows that are too long before anything is trained, or say how many are cut."""
    for name, rows in parts.items():
        budget = recipe.budget(rows)
        if budget.over:
            cut = f"To {name}: {100 * budget.over:.1f} % of {budget.rows:,} rows are cut off at {budget.max_length} tokens."
            yield Noted(plan.folder, cut)


def _training(work: _Work, beside: Sequence[events.Observer]) -> Iterator[RunEvent]:
    plan, files, recipe, parts = work.plan, work.files, work.recipe, work.parts
    config, goal, seed = plan.config, objective(recipe), plan.seed_of(work.fold)
    watched, training = config.observers, config.training
    batches = training_batches(recipe, parts.train, training, prefetched=config.data.prefetch)
    updates = max(2, training.epochs * (length(batches) or 0) // training.accumulate)
    optimizer = make_optimizer(config.optimizer, config.schedule, updates=updates)
    step = make_step(work.model, goal, optimizer, config.optimizer, training)
    start = step.start(train_state(work.model, optimizer, seed=seed))
    begin = load_latest(files.path / _CHECKPOINTS, start)
    if parts.valid is not None and begin.history and not (files.path / _BEST).is_file():
        rmtree(files.path / _CHECKPOINTS)  # the best state so far is lost, so the fold begins anew
        begin = Checkpoint(start)
    yield FoldBegan(plan.folder, files.fold, length(parts.train) or 0, begin.state.step)

    check, stops = evaluate(work.model, goal.measure), parts.valid is not None
    valid = labelled_batches(recipe, select(work.fold.valid)(plan.rows) if parts.valid is None else parts.valid)
    stream = pipe(
        fit(
            step,
            begin.state,
            batches,
            epochs=training.epochs,
            cursor=begin.cursor,
            history=begin.history,
            running=begin.running,
            log_every=watched.every,
        ),
        observers.evaluate_every(lambda state: check(shown(state), valid), name=_STOPPING if stops else _HELD_OUT),
        *(_stopping(files, watched.patience) if stops else []),
        *([] if watched.minutes is None else [observers.time_budget(60 * watched.minutes)]),
        observers.checkpoint(files.path / _CHECKPOINTS, steps=watched.checkpoint_every, keep=watched.keep),
        *beside,
        observers.log_metrics(files.log),
        *([observers.progress()] if watched.progress else []),
    )
    end: events.Event | None = None
    try:
        for event in stream:
            end = event
            yield Trained(plan.folder, files.fold, event)
    except NonFiniteError as error:
        error.add_note(f"The training of fold {files.fold} went astray. {_ASTRAY}, or with training.skip_nonfinite=true.")
        raise
    assert end is not None
    best = files.path / _BEST  # none where time was up before the first evaluation
    state = load_state(best, begin.state).state if stops and best.is_file() else end.state
    save_state(files.path / MODEL, _weights(state))


def _stopping(files: FoldFolder, patience: int | None) -> list[events.Observer]:
    assert patience is not None
    metric = f"{_STOPPING}/loss"
    return [
        observers.checkpoint_best(files.path / _BEST, metric, mode="min"),
        observers.early_stopping(metric, mode="min", patience=patience),
    ]


def _weights(state: TrainState) -> TrainState:
    """Return what predicts, without what only training needs."""
    return evolve(shown(state), opt={}, extra={})


def _loaded(files: FoldFolder, recipe: Recipe, model: nn.Module, views: int) -> objectives.Trained:
    """Read the weights from the file in any case: what predicts is what was kept."""
    like = _weights(train_state(model, SGD(0.0), seed=0))
    return objectives.Trained(recipe, model, load_state(files.path / MODEL, like).state, views)
