"""What a score is worth: the scores of a constant and of a simple model on the same folds."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from attrs import evolve

from mlxfp.core._optional import optional
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import DataError, MlxfpError
from mlxfp.core.running.showing import Showing
from mlxfp.data.rows.selecting import Splits, select
from mlxfp.kaggle.estimators.fitting import estimator
from mlxfp.kaggle.specs.specs import CLASSED
from mlxfp.kaggle.validation.cross_validation import unseen
from mlxfp.kaggle.validation.folds import Fold
from mlxfp.kaggle.validation.out_of_fold import OutOfFold, Score, fold_predictions, out_of_fold, score
from mlxfp.kaggle.validation.scoring import Numbers
from mlxfp.report.reading import FinishedRun, Scored

_MOST_ROWS = 20_000  # that a simple model trains on in a fold: its score hardly changes beyond, its time does
_PARTS_ROWS = (
    10_000  # up to which parts of words are counted, too: a report of 100,000 rows took 34 seconds with them, and takes 10 without
)


def constant_oof(scored: Scored) -> OutOfFold:
    """Predict every row by the best constant of its fold's training rows: shares of classes, or the mean, median or mean logarithm."""
    return _by_fold(scored, lambda fold: _constant(scored, fold))


def simple_oof(run: FinishedRun) -> OutOfFold:
    """Predict every row by a linear model of all columns, fitted to its fold's training rows.

    It is a `kaggle.estimator`: logistic regression for classes, ridge for values; of many rows, texts count by their words alone. Raises
    `MissingExtraError` without scikit-learn, `DataError` where the rows cannot be read.
    """
    scored, made = run.scored, run.plan
    if scored is None or made is None:
        raise DataError(f"The rows of the run in {run.folder} cannot be read: {run.missing or 'it has no folds'}. Restore the data.")
    count = len(list(scored.oof.folds))
    with warnings.catch_warnings(), Showing("linear model to compare with", unit="fold", total=lambda: count) as shown:
        warnings.simplefilter("ignore")  # of a linear model that has not converged: it is good enough to compare with
        return _by_fold(scored, lambda fold: _linear(scored, made.rows, fold, shown))


def baseline_scores(run: FinishedRun) -> dict[str, Score | str]:
    """Score the baselines; where one cannot be scored, say why."""
    assert run.scored is not None
    scored, found = run.scored, dict[str, Score | str]()
    makers: dict[str, Callable[[], OutOfFold]] = {"a constant": lambda: constant_oof(scored), "a linear model": lambda: simple_oof(run)}
    for name, make in makers.items():
        try:
            found[name] = score(make(), scored.metric)
        except (MlxfpError, ValueError) as error:  # also of scikit-learn: a baseline must not end a run that is done
            found[name] = str(error)
    return found


def _by_fold(scored: Scored, predict: Callable[[Fold], Numbers]) -> OutOfFold:
    folds = scored.oof.folds
    return out_of_fold(folds, scored.oof.targets, [fold_predictions(fold, predict(fold)) for fold in folds])


def _constant(scored: Scored, fold: Fold) -> Numbers:
    truth = scored.oof.targets[fold.train]
    if scored.single and scored.oof.predictions.ndim == 3:
        values = np.bincount(truth.astype(np.int64), minlength=scored.oof.predictions.shape[2]) / len(truth)
    elif scored.predicts_classes:
        values = np.asarray(truth.mean(axis=0))
    else:
        values = np.asarray(_CENTERS[scored.metric.errors](truth))
    return np.broadcast_to(values, (len(fold.valid), *values.shape)).copy()


_CENTERS: dict[str, Callable[[Numbers], Any]] = {
    "squared": lambda truth: truth.mean(axis=0),
    "absolute": lambda truth: np.median(truth, axis=0),
    "logarithmic": lambda truth: np.expm1(np.log1p(truth).mean(axis=0)),
}


def _linear(scored: Scored, rows: Dataset[Any], fold: Fold, shown: Showing) -> Numbers:
    train, spec = fold.train, scored.spec
    if len(train) > _MOST_ROWS:
        train = train[np.linspace(0, len(train) - 1, _MOST_ROWS).astype(np.int64)]
    linear = optional("sklearn.linear_model", extra="kaggle", needed_by="The simple model of a report")
    model = linear.LogisticRegression(max_iter=200) if spec.kind in CLASSED else linear.Ridge(1.0)
    fit = evolve(estimator(model, spec), parts_of_words=scored.oof.folds.size <= _PARTS_ROWS)
    made = fit(Splits(select(train)(rows)))(unseen(fold, rows, spec.target))
    shown.add()
    truth = scored.oof.targets[train]  # a line can go far beyond the values that it was fitted to
    return made if spec.kind in CLASSED else np.clip(made, truth.min(axis=0), truth.max(axis=0))
