"""Work on each fold of a run: fit the model, predict, and save the results. Finished folds are skipped."""

from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from attrs import evolve
from mlx import nn

from mlxfp import Dataset, length, observers
from mlxfp.app.kaggle.estimators.files import load_estimator, save_estimator
from mlxfp.app.kaggle.estimators.fitting import Estimator, FittedEstimator
from mlxfp.app.kaggle.validation.cross_validation import Predict, parts_of, unseen
from mlxfp.app.kaggle.validation.folds import Fold
from mlxfp.app.kaggle.validation.out_of_fold import fold_predictions
from mlxfp.app.run_folders.files import read_json, write_array, write_json
from mlxfp.app.run_folders.folders import FOLD_OOF, FOLD_TEST, MODEL, RECIPE, RESULT, FoldFolder
from mlxfp.app.runs.events import FoldBegan, FoldEnded, Noted, RunEvent
from mlxfp.app.runs.plans import Models, Plan
from mlxfp.app.runs.quickstart import SHARE, PreparedFold, budget, prepare_fold
from mlxfp.app.runs.training import DIVERGENCE_REMEDY, Work, load_weights, naming_the_cure, without_damage
from mlxfp.app.runs.training import train as train_model
from mlxfp.app.tasks.objectives import Predictor
from mlxfp.app.tasks.recipes import AnyRecipe
from mlxfp.distributed import Ranks
from mlxfp.inspect import fingerprint
from mlxfp.support.errors import DataError
from mlxfp.support.structuring import structure, unstructure

Events = Generator[RunEvent, None, None]
Train = Callable[[Work, FoldFolder], Iterator[RunEvent]]


def run_fold(
    plan: Plan, fold: Fold, files: FoldFolder, extra: Sequence[observers.Observer], *, ranks: Ranks | None = None
) -> Iterator[RunEvent]:
    """Train a fold or continue its training, predict, and yield the events. For a finished fold, read the result from the folder.

    The argument `ranks` trains the fold on several ranks. Damaged files of a finished fold are computed again. Raises `CheckpointError`
    with the path of a damaged checkpoint.
    """
    yield from without_damage(plan.folder, files)
    if not files.done:
        with naming_the_cure():
            train = partial(train_model, plan.training, plan.folder, extra=(*plan.user_parts.observers, *extra), ranks=ranks)
            yield from _train_and_predict(plan, fold, files, train)
    yield FoldEnded(plan.folder, files.fold, plan.metric.name, files.result()["score"])


def load_fold(models: Models, files: FoldFolder) -> Predictor:
    """Load the trained network of a fold. The result is a function from rows to predictions."""
    recipe = structure(read_json(files / RECIPE), models.recipe_class, what=str(files / RECIPE))
    return _load(files, recipe, models.network(recipe, seed=0), models.views)


def load_predictor(models: Models, files: FoldFolder) -> Predictor | FittedEstimator:
    """Load the trained network or estimator of a fold. The result is a function from rows to predictions."""
    return load_fold(models, files) if models.estimator is None else load_estimator((files / RECIPE).parent)


def _train_and_predict(plan: Plan, fold: Fold, files: FoldFolder, train: Train) -> Iterator[RunEvent]:
    test, others = plan.data.test, unseen(fold, plan.rows, plan.data.spec.target)
    if plan.models.estimator is None:
        predict, rows, entries = yield from _train(prepare_fold(plan, fold), files, others, train)
    else:
        predict, rows, entries = yield from _fit(plan, fold, files, plan.models.estimator)
    answers = predict(others)
    if not np.isfinite(answers).all():
        raise DataError(
            f"The model of fold {files.fold} predicts NaN or infinity, because the training diverged. {DIVERGENCE_REMEDY} "
            "Another remedy: set training.compute_dtype=float32."
        )
    predictions = fold_predictions(fold, answers).predictions
    write_array(files / FOLD_OOF, predictions)
    if test is not None:
        write_array(files / FOLD_TEST, predict(test))
    try:
        score: float | None = plan.metric(plan.data.targets[fold.valid], predictions)
    except DataError as error:
        score = None
        yield Noted(plan.folder, f"{plan.metric.name} is undefined on {fold!r}: {error}")
    counts = {"train": rows, "predicted": len(fold.valid)}
    result = {"metric": plan.metric.name, "score": score, **entries, "seed": plan.seed_of(fold), "rows": counts}
    write_json(files / RESULT, {**result, "files": files.hashes()})


FittedFold = tuple[Predict, int, dict[str, Any]]  # a prediction function, the number of training rows, and the entries of result.json


def _fit(plan: Plan, fold: Fold, files: FoldFolder, make: Callable[..., Estimator]) -> Generator[RunEvent, None, FittedFold]:
    """Fit an estimator to a fold. Estimators have no checkpoints: an interrupted fit restarts."""
    estimator = evolve(make(plan.data.spec, rows=len(fold.train), seed=plan.seed_of(fold)), seconds=plan.training.seconds)
    stops = plan.training.patient and estimator.library.stops
    if plan.training.patient and not stops:
        yield Noted(plan.folder, f"{plan.models.name} has no early stopping, so observers.patience is ignored.")
    parts = parts_of(fold, plan.rows, "inner" if stops else "none", SHARE)
    count = length(parts.train) or 0
    yield FoldBegan(plan.folder, files.fold, count, 0)
    target = (files / RECIPE).parent
    save_estimator(estimator(parts), target)
    return load_estimator(target), count, {"estimator": repr(estimator.model)}


def work_of(prepared: PreparedFold) -> Work:
    """Return the model, batches and seed of a prepared fold."""
    plan, count = prepared.plan, length(prepared.splits.train) or 0
    return Work(prepared.model, prepared.objective, prepared.batches, prepared.held_out, count, plan.seed_of(prepared.fold))


def _train(prepared: PreparedFold, files: FoldFolder, others: Dataset[Any], train_on: Train) -> Generator[RunEvent, None, FittedFold]:
    """Train a network on a fold, or continue its training."""
    plan, test = prepared.plan, prepared.plan.data.test
    recipe, train, valid = prepared.recipe, prepared.splits.train, prepared.splits.valid
    stopping = {"stop by": valid} if plan.training.decided else {}
    parts = {"train on": train, **stopping, "validate with": others, "predict": test}
    for name, rows in parts.items():  # rows longer than text.max_length raise an error here, before the training
        tokens = None if rows is None else budget(recipe, rows)
        if tokens is not None and tokens.over:
            cut = f"Rows to {name}: {100 * tokens.over:.1f} % of {tokens.rows:,} rows are cut off at {tokens.max_length} tokens."
            yield Noted(plan.folder, cut)
    for number in range(1, plan.models.views):
        recipe.view(others, number)  # prepare the prediction rows now, so that errors occur before the training
    write_json(files / RECIPE, unstructure(recipe))
    count = length(train) or 0
    if not (files / MODEL).is_file():
        yield from train_on(work_of(prepared), files)
    predict = _load(files, recipe, prepared.model, plan.models.views)
    pipeline = fingerprint(prepared.training_batches(ahead=None))
    return predict, count, {"steps": predict.state.step, "pipeline": pipeline}


def _load(files: FoldFolder, recipe: AnyRecipe, model: nn.Module, views: int) -> Predictor:
    return Predictor(recipe, model, load_weights(files, model), views)
