"""The simple model that runs are compared with: linear, of all columns, on the same folds."""

import warnings
from functools import cached_property
from typing import Any

import numpy as np
from attrs import evolve, frozen

from mlxfp import Splits, select
from mlxfp.app.kaggle.estimators.fitting import estimator
from mlxfp.app.kaggle.validation.cross_validation import unseen
from mlxfp.app.kaggle.validation.folds import Fold, Folds
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold, fold_predictions, out_of_fold
from mlxfp.app.kaggle.validation.scoring import Numbers
from mlxfp.app.tasks.competition_data import CompetitionData
from mlxfp.support.optional import optional
from mlxfp.support.progress import Progress

_MOST_ROWS = 20_000  # that a simple model trains on in a fold: its score hardly changes beyond, its time does
_PARTS_ROWS = (
    10_000  # up to which parts of words are counted, too: a report of 100,000 rows took 34 seconds with them, and takes 10 without
)


@frozen(eq=False)
class LinearModel:
    """A linear model of the rows and folds of a run, trained when the first report asks for it.

    The models of a run with model.name=auto have the same rows and folds, and so one linear model for all of their reports.
    """

    data: CompetitionData
    folds: Folds

    @cached_property
    def oof(self) -> OutOfFold:
        """Its out-of-fold predictions: logistic regression for classes, ridge for values; of many rows, texts count by their words alone.

        Raises `MissingExtraError` without scikit-learn, and what it raises for rows that it cannot be fitted to.
        """
        folds, targets = list(self.folds), self.data.targets
        with warnings.catch_warnings(), Progress("linear model to compare with", unit="fold", total=lambda: len(folds)) as progress:
            warnings.simplefilter("ignore")  # of a linear model that has not converged: it is good enough to compare with
            made = [fold_predictions(fold, _predicted(self, fold, targets[fold.train])) for fold in progress.over(folds)]
        return out_of_fold(self.folds, targets, made)


def _predicted(linear_model: LinearModel, fold: Fold, truth: Numbers) -> Numbers:
    spec, rows = linear_model.data.spec, linear_model.data.rows
    chosen = np.unique(np.linspace(0, len(fold.train) - 1, min(len(fold.train), _MOST_ROWS)).astype(np.int64))
    linear = optional("sklearn.linear_model", extra="kaggle", needed_by="The simple model of a report")
    model: Any = linear.LogisticRegression(max_iter=200) if spec.task.has_classes else linear.Ridge(1.0)
    fit = evolve(estimator(model, spec), parts_of_words=linear_model.folds.size <= _PARTS_ROWS)
    made: Numbers = fit(Splits(select(fold.train[chosen])(rows)))(unseen(fold, rows, spec.target))
    # A line can go far beyond the values that it was fitted to.
    return made if spec.task.has_classes else np.clip(made, truth[chosen].min(axis=0), truth[chosen].max(axis=0))
