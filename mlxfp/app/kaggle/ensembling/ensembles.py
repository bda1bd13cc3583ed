"""Ensembles: means, votes, greedy selection and stacking.

`mean`, `rank`, `vote` and the results of `weighted` combine predictions: one array [N] or [N, C] per model. `greedy` and `stacking`
return learners for `second_stage`. Each fold is scored by a learner that was trained on the predictions of all other folds.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike

from mlxfp.app.kaggle.ensembling.stacking import Combine, Learn
from mlxfp.app.kaggle.validation.scoring import Metric, Numbers, finite_numbers, labels_of
from mlxfp.support.checks import check_callable, check_positive, check_types
from mlxfp.support.errors import ArgumentError
from mlxfp.support.optional import optional


def mean(predictions: Sequence[ArrayLike]) -> Numbers:
    """Average predictions with equal shapes.

    >>> mean([[0.25, 0.5], [0.75, 0.5]]).tolist()
    [0.5, 0.5]
    """
    return np.asarray(_stack(predictions).mean(axis=0))


def rank(predictions: Sequence[ArrayLike]) -> Numbers:
    """Rank the rows of each model, and average the ranks over the models. The result is scaled to the range from 0 to 1.

    Equal predictions get their mean rank. Use `rank` for metrics of the row order, and for models with different scales.

    >>> rank([[0.1, 0.2, 0.3], [10, 30, 20]]).round(3).tolist()
    [0.333, 0.833, 0.833]
    """
    ranks = optional("scipy.stats", extra="kaggle", needed_by="ensembles.rank").rankdata
    stacked = _stack(predictions)
    return np.asarray(ranks(stacked, axis=1).mean(axis=0) / stacked.shape[1])


def vote(predictions: Sequence[ArrayLike]) -> Numbers:
    """Return the most frequent label per row, [N]. Ties go to the lowest label. Predictions are labels or probabilities.

    >>> vote([[0.9, 0.2], [0.6, 0.3], [0.1, 0.8]]).tolist()
    [1.0, 0.0]
    """
    labels = np.stack([labels_of(values) for values in _stack(predictions)])
    kinds = np.unique(labels)
    return np.asarray(kinds[(labels[:, :, None] == kinds).sum(axis=0).argmax(axis=1)])


def weighted(weights: Sequence[float]) -> "Weighted":
    """Return a function that averages predictions with one weight per model. Weights are scaled to sum to 1.

    >>> weighted([3, 1])([[1.0, 0.0], [0.0, 0.0]]).tolist()
    [0.75, 0.0]
    """
    array = finite_numbers("The weights", weights)
    if array.ndim != 1 or not array.size or array.min() < 0 or array.sum() <= 0:
        raise ArgumentError(f"weights must be numbers of at least 0 with a sum above 0, got {weights!r:.60}.")
    return Weighted(tuple((array / array.sum()).tolist()))


@frozen
class Weighted:
    """Weighted average of predictions, created by `weighted` or learned by `greedy`. The weights sum to 1."""

    weights: tuple[float, ...]

    def __call__(self, predictions: Sequence[ArrayLike]) -> Numbers:
        """Average predictions, one array per model."""
        if len(predictions) != len(self.weights):
            raise ArgumentError(f"There are {len(self.weights)} weights for {len(predictions)} models. Give one weight per model.")
        return np.asarray(np.tensordot(np.array(self.weights), _stack(predictions), axes=1))


def fixed(combine: Combine) -> Learn:
    """Return a learner for `second_stage` that learns nothing from the data and always returns `combine`.

    Use the learner to compute the score of a fixed combination: `mean`, `rank`, `vote` or a `weighted` average.

    >>> fixed(mean)(np.array([0.0, 1.0]), ()) is mean
    True
    """
    check_callable(combine=combine)
    return partial(_fixed, combine)


def greedy(metric: Metric, *, rounds: int = 50) -> Learn:
    """Return a learner for `second_stage` that selects models greedily and averages the selected models.

    Every round adds the model with the best resulting `metric`. A model can be added several times. The best average of all rounds
    is returned. Caruana et al., "Ensemble Selection from Libraries of Models", 2004.

    >>> import mlxfp as fp
    >>> targets = np.array([0.0, 1.0, 2.0])
    >>> greedy(fp.kaggle.METRICS["rmse"])(targets, (targets + 1, targets - 1, targets * 9))
    Weighted(weights=(0.5, 0.5, 0.0))
    """
    check_types(Metric, metric=metric)
    check_positive(rounds=rounds)
    return partial(_greedy, metric, rounds)


def stacking(estimator: Any) -> Learn:
    """Return a learner for `second_stage` that fits a scikit-learn estimator with the predictions of all models as columns.

    The estimator is cloned for every fit. Classifiers (estimators with `predict_proba`) return probabilities: [n] for class 1 of
    two classes, otherwise [n, C]. Other estimators return values [n]. Wolpert, "Stacked Generalization", 1992.

    >>> from sklearn.linear_model import Ridge
    >>> targets = np.array([0.0, 1.0, 2.0])
    >>> stacking(Ridge(1e-9))(targets, (targets * 2, targets - 1))((np.array([8.0]), np.array([3.0]))).round(3).tolist()
    [4.0]
    """
    if isinstance(estimator, type) or not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
        raise ArgumentError(f"stacking takes a scikit-learn estimator, got {estimator!r:.60}. Create one, such as LogisticRegression().")
    return partial(_stacking, estimator)


def _fixed(combine: Combine, targets: Numbers, predictions: tuple[Numbers, ...]) -> Combine:
    return combine


def _greedy(metric: Metric, rounds: int, targets: Numbers, predictions: tuple[Numbers, ...]) -> Combine:
    stacked = _stack(predictions)
    total, chosen = np.zeros(stacked.shape[1:]), np.zeros(len(stacked))
    best, best_score = chosen, None
    for size in range(1, rounds + 1):
        scores = [metric(targets, (total + values) / size) for values in stacked]
        index = int(np.argmax(scores) if metric.greater_is_better else np.argmin(scores))
        total, chosen = total + stacked[index], chosen + np.eye(len(stacked))[index]
        if best_score is None or metric.better(scores[index], best_score):
            best, best_score = chosen, scores[index]
    return weighted(best.tolist())


def _stacking(estimator: Any, targets: Numbers, predictions: tuple[Numbers, ...]) -> Combine:
    clone = optional("sklearn.base", extra="kaggle", needed_by="stacking").clone
    classes = int(targets.max()) + 1 if hasattr(estimator, "predict_proba") else 0  # 0 for regressors
    return partial(_predict, clone(estimator).fit(np.column_stack(predictions), targets), classes)


def _predict(model: Any, classes: int, predictions: tuple[Numbers, ...]) -> Numbers:
    columns = np.column_stack(predictions)
    if not classes:
        return np.asarray(model.predict(columns), np.float64)
    chances = np.zeros((len(columns), classes))  # `predict_proba` has no column for a class without training rows: its probability stays 0
    chances[:, model.classes_.astype(np.int64)] = model.predict_proba(columns)
    return chances[:, 1] if classes == 2 else chances


def _stack(predictions: Sequence[ArrayLike]) -> Numbers:
    arrays = [finite_numbers(f"The predictions of model {index}", values) for index, values in enumerate(predictions)]
    if not arrays or len({array.shape for array in arrays}) > 1 or arrays[0].ndim not in (1, 2):
        raise ArgumentError(f"All predictions must have the same shape, [N] or [N, C], got {[list(array.shape) for array in arrays]}.")
    return np.stack(arrays)
