"""Linear baseline model on all columns and on the folds of a run."""

import warnings
from functools import cached_property
from time import monotonic
from typing import Any

import numpy as np
from attrs import evolve, frozen

from mlxfp import Splits, select
from mlxfp.app.kaggle.estimators.fitting import estimator
from mlxfp.app.kaggle.validation.cross_validation import unseen
from mlxfp.app.kaggle.validation.folds import Fold, Folds
from mlxfp.app.kaggle.validation.out_of_fold import FoldPredictions, OutOfFold, fold_predictions, out_of_fold
from mlxfp.app.kaggle.validation.scoring import Numbers
from mlxfp.app.tasks.competition_data import CompetitionData
from mlxfp.support.optional import optional
from mlxfp.support.progress import Progress

_MOST_ROWS = 20_000  # maximum training rows per fold: more rows hardly change the score, but take more time
# For tables with more rows, the linear model uses words, but no character n-grams.
# For a table of 100,000 rows, the report takes 34 seconds with n-grams, and 10 seconds without n-grams.
_PARTS_ROWS = 10_000


@frozen(eq=False)
class LinearModel:
    """Linear baseline on the rows and folds of a run. The first access to the predictions trains the models.

    The models of a run with model.name=auto share one linear baseline. `seconds` limits the training time.
    """

    data: CompetitionData
    folds: Folds
    seconds: float | None = None

    @cached_property
    def oof(self) -> OutOfFold | None:
        """Out-of-fold predictions: logistic regression for classes, ridge regression for values.

        For more than 10,000 rows, text features are whole words only, without character n-grams. None if the first fold shows that all
        folds would take longer than `seconds`. Raises `MissingExtraError` without scikit-learn. Errors while fitting are raised unchanged,
        for example because of unusable rows.
        """
        folds, targets, began = list(self.folds), self.data.targets, monotonic()
        predictions = list[FoldPredictions]()
        with warnings.catch_warnings(), Progress("linear model to compare with", unit="fold", total=lambda: len(folds)) as progress:
            warnings.simplefilter("ignore")  # ignores convergence warnings: an unconverged model is good enough as a baseline
            for fold in progress.over(folds):
                predictions.append(fold_predictions(fold, _predicted(self, fold, targets[fold.train])))
                if self.seconds is not None and len(predictions) == 1 < len(folds) and len(folds) * (monotonic() - began) > self.seconds:
                    return None
        return out_of_fold(self.folds, targets, predictions)


def _predicted(linear_model: LinearModel, fold: Fold, truth: Numbers) -> Numbers:
    spec, rows = linear_model.data.spec, linear_model.data.rows
    chosen = np.unique(np.linspace(0, len(fold.train) - 1, min(len(fold.train), _MOST_ROWS)).astype(np.int64))
    linear = optional("sklearn.linear_model", extra="kaggle", needed_by="The linear baseline of a report")
    model: Any = linear.LogisticRegression(max_iter=200) if spec.task.has_classes else linear.Ridge(1.0)
    fit = evolve(estimator(model, spec), parts_of_words=linear_model.folds.size <= _PARTS_ROWS)
    predictions: Numbers = fit(Splits(select(fold.train[chosen])(rows)))(unseen(fold, rows, spec.target))
    # Clip the predictions: a linear model can predict far outside the range of the training targets.
    return predictions if spec.task.has_classes else np.clip(predictions, truth[chosen].min(axis=0), truth[chosen].max(axis=0))
