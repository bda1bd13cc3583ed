"""One fold of a run: fit, predict, save; finished work is not done again."""

from collections.abc import Iterator, Sequence
from shutil import rmtree

import numpy as np
from attrs import evolve
from mlx import nn
from mlx.optimizers import SGD

from mlxfp.config.classes import RunConfig
from mlxfp.core.describing import length
from mlxfp.core.errors import CheckpointError, DataError
from mlxfp.core.identity import fingerprint
from mlxfp.core.pipelines import pipe
from mlxfp.kaggle.validation.cross_validation import unseen
from mlxfp.kaggle.validation.folds import Fold
from mlxfp.kaggle.validation.out_of_fold import fold_predictions
from mlxfp.runs.events import FoldBegan, FoldEnded, Noted, RunEvent, Trained
from mlxfp.runs.files import read_json, write_array, write_json
from mlxfp.runs.folders import BEST, CHECKPOINTS, FOLD_OOF, FOLD_TEST, LOG, MODEL, RECIPE, RESULT, FoldFolder
from mlxfp.runs.from_config import model_of, observers_of, optimizer_of, step_of, stops_by
from mlxfp.runs.own_parts import OwnParts
from mlxfp.runs.plans import Plan
from mlxfp.runs.quickstart import PreparedFold, budget, prepare_fold
from mlxfp.settings.structuring import structure, unstructure
from mlxfp.tasks.objectives import Predictor, evaluation_state
from mlxfp.tasks.recipes import Recipe
from mlxfp.training import observers
from mlxfp.training.loop import events
from mlxfp.training.loop.checkpoints import Checkpoint, load_latest, load_state, save_state
from mlxfp.training.loop.control import Control
from mlxfp.training.loop.fitting import evaluate, fit
from mlxfp.training.loop.nonfinite import NonFiniteError
from mlxfp.training.steps.state import TrainState, train_state

_STOPPING, _HELD_OUT = "stopping", "held_out"  # rows that decide when to stop; rows that are watched, and decide nothing
_DIVERGED = "Begin another run, as in name=second, with a lower optimizer.learning_rate, with optimizer.clip_norm=1"


def run_fold(plan: Plan, fold: Fold, files: FoldFolder, extra: Sequence[events.Observer]) -> Iterator[RunEvent]:
    """Train a fold, or continue it, and predict; yield what happens. Finished work is read from its files.

    Damaged files are made again, as far as damage can be detected. Raises `CheckpointError`, naming the file, for a damaged checkpoint.
    """
    for path in files.damaged():
        yield Noted(plan.folder, f"{path} is missing or damaged, and is made again.")
        path.unlink(missing_ok=True)
        (files / RESULT).unlink(missing_ok=True)
    if not files.done:
        try:
            yield from _train_and_predict(plan, fold, files, extra)
        except CheckpointError as error:
            error.add_note("Remove that file and run again: whatever is missing of a fold is made again.")
            raise
    yield FoldEnded(plan.folder, files.fold, plan.metric.name, files.result()["score"])


def load_fold(config: RunConfig, files: FoldFolder, own: OwnParts) -> Predictor:
    """Read a trained fold: a function from rows to predictions."""
    recipe = structure(read_json(files / RECIPE), Recipe, what=str(files / RECIPE))
    return _load(files, recipe, model_of(config, recipe, own, seed=0), config.competition.views)


def _train_and_predict(plan: Plan, fold: Fold, files: FoldFolder, extra: Sequence[events.Observer]) -> Iterator[RunEvent]:
    config, test = plan.config, plan.data.test
    prepared = prepare_fold(plan, fold)
    recipe, train, valid = prepared.recipe, prepared.splits.train, prepared.splits.valid
    others = unseen(fold, plan.rows, plan.data.spec.target)
    stopping = {"stop by": valid} if stops_by(config) else {}
    parts = {"train on": train, **stopping, "validate with": others, "predict": test}
    for name, rows in parts.items():  # refuses rows that are too long before anything is trained
        found = None if rows is None else budget(recipe, rows)
        if found is not None and found.over:
            cut = f"To {name}: {100 * found.over:.1f} % of {found.rows:,} rows are cut off at {found.max_length} tokens."
            yield Noted(plan.folder, cut)
    for number in range(1, config.competition.views):
        recipe.view(others, number)  # raises now what would be raised after the training
    write_json(files / RECIPE, unstructure(recipe))
    if not (files / MODEL).is_file():
        yield from _training(prepared, files, extra)
    predict = _load(files, recipe, prepared.model, config.competition.views)
    answers = predict(others)
    if not np.isfinite(answers).all():
        raise DataError(
            f"The model of fold {files.fold} predicts NaN or infinity: its training diverged. {_DIVERGED}, or with "
            "training.compute_dtype=float32."
        )
    made = fold_predictions(fold, answers)
    write_array(files / FOLD_OOF, made.predictions)
    if test is not None:
        write_array(files / FOLD_TEST, predict(test))
    try:
        score: float | None = plan.metric(plan.data.targets[fold.valid], made.predictions)
    except DataError as error:
        score = None
        yield Noted(plan.folder, f"{plan.metric.name} is undefined on {fold!r}: {error}")
    counts = {"train": length(train), "predicted": len(fold.valid)}
    result = {"metric": plan.metric.name, "score": score, "steps": predict.state.step, "seed": plan.seed_of(fold), "rows": counts}
    pipeline = fingerprint(prepared.training_batches(prefetched=0))
    write_json(files / RESULT, {**result, "pipeline": pipeline, "files": files.hashes()})


def _training(prepared: PreparedFold, files: FoldFolder, extra: Sequence[events.Observer]) -> Iterator[RunEvent]:
    plan, goal = prepared.plan, prepared.objective
    config, batches, seed = plan.config, prepared.batches, plan.seed_of(prepared.fold)
    watched, training = config.observers, config.training
    updates = max(2, training.epochs * (length(batches) or 0) // training.accumulate)
    optimizer = optimizer_of(config, updates=updates)
    step = step_of(config, prepared.model, goal, optimizer)
    start, stops = step.start(train_state(prepared.model, optimizer, seed=seed)), watched.patience is not None
    name, control = _STOPPING if stops_by(config) else _HELD_OUT, Control()
    begin = load_latest(files / CHECKPOINTS, start)
    if stops and begin.history and not (files / BEST).is_file():
        rmtree(files / CHECKPOINTS)  # the best state so far is lost, so the fold starts over
        begin = Checkpoint(start)
    yield FoldBegan(plan.folder, files.fold, length(prepared.splits.train) or 0, begin.state.step)

    check, held_out = evaluate(prepared.model, goal.measure), prepared.held_out
    stream = pipe(
        fit(
            step,
            begin.state,
            batches,
            epochs=training.epochs,
            cursor=begin.cursor,
            history=begin.history,
            running=begin.running,
            control=control,
            log_every=watched.every,
        ),
        observers.evaluate_every(lambda state: check(evaluation_state(state), held_out), steps=watched.evaluate_every, name=name),
        *observers_of(config, f"{name}/loss", files / BEST, control),
        observers.checkpoint(files / CHECKPOINTS, steps=watched.checkpoint_every, keep=watched.keep),
        *plan.own.observers,
        *extra,
        observers.log_metrics(files / LOG),
        *([observers.progress()] if watched.progress else []),
    )
    end: events.Event | None = None
    try:
        for event in stream:
            end = event
            yield Trained(plan.folder, files.fold, event)
    except NonFiniteError as error:
        error.add_note(f"The training of fold {files.fold} diverged. {_DIVERGED}, or with training.skip_nonfinite=true.")
        raise
    assert end is not None
    # There is no best state where the time was up before the first evaluation.
    state = load_state(files / BEST, begin.state).state if stops and (files / BEST).is_file() else end.state
    save_state(files / MODEL, _weights(state))


def _weights(state: TrainState) -> TrainState:
    """Return the weights that predict, without the parts of a state that only training needs."""
    return evolve(evaluation_state(state), opt={}, extra={})


def _load(files: FoldFolder, recipe: Recipe, model: nn.Module, views: int) -> Predictor:
    """Read the weights from the file even if they are in memory: the saved weights must be those that predict."""
    like = _weights(train_state(model, SGD(0.0), seed=0))
    return Predictor(recipe, model, load_state(files / MODEL, like).state, views)
