"""Baseline scores for comparison with a run: a constant and a linear model, on the same folds."""

from collections.abc import Callable
from shlex import quote
from typing import Any

import numpy as np

from mlxfp.app.kaggle.validation.folds import Fold
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold, Score, fold_predictions, out_of_fold, score
from mlxfp.app.kaggle.validation.scoring import Numbers
from mlxfp.app.reports.reading import FinishedRun, Scored
from mlxfp.support.errors import DataError, MlxfpError

_LINEAR = ("tfidf", "sklearn.linear_model:")  # model names of linear models


def constant_oof(scored: Scored) -> OutOfFold:
    """Return out-of-fold predictions of a baseline that predicts the same value for every row of a fold.

    The value is computed from the training rows. Depending on task and metric, it is the class fractions, the mean, the median, or
    exp(mean(log(1 + target))) - 1.
    """
    folds = scored.oof.folds
    return out_of_fold(folds, scored.oof.targets, [fold_predictions(fold, _constant(scored, fold)) for fold in folds])


def constant_score(scored: Scored) -> float | None:
    """Return the score of a constant prediction, or None if the metric is undefined for a constant."""
    try:
        return score(constant_oof(scored), scored.metric).overall
    except (MlxfpError, ValueError):
        return None


def simple_oof(run: FinishedRun) -> OutOfFold:
    """Return out-of-fold predictions of a linear model on the run's folds.

    Raises `DataError` if the rows cannot be read or the training would take too long, and the errors of `LinearModel.oof`.
    """
    if run.linear is None:
        reason = run.missing or "the run has no folds"
        raise DataError(f"A linear model needs the rows of the run in {run.folder}, but reading failed: {reason}. Restore the data files.")
    if run.linear.oof is None:
        raise DataError(
            f"All {run.linear.folds.count} folds would take longer than {run.linear.seconds:.0f} seconds, 5 % of the time limit. "
            f"To train the linear model: mlxfp report {quote(str(run.folder))}"
        )
    return run.linear.oof


def baseline_scores(run: FinishedRun) -> dict[str, Score | str]:
    """Return the score of each baseline, or the error message if a baseline has no score. A linear run needs no linear baseline."""
    assert run.scored is not None
    scored, results = run.scored, dict[str, Score | str]()
    makers: dict[str, Callable[[], OutOfFold]] = {"a constant": lambda: constant_oof(scored)}
    if not str(run.settings.get("model", {}).get("name")).startswith(_LINEAR):
        makers["a linear model"] = lambda: simple_oof(run)
    for name, make in makers.items():
        try:
            results[name] = score(make(), scored.metric)
        except (MlxfpError, ValueError) as error:  # a failed baseline must not fail the report of a finished run
            results[name] = str(error)
    return results


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
