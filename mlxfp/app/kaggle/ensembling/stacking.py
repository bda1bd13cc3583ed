"""Second-stage models: ensembles, thresholds and calibration, learned from out-of-fold predictions and scored on other folds."""

from collections.abc import Callable, Sequence

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike

from mlxfp.app.kaggle.validation.folds import Folds
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold, check_same, fold_predictions, out_of_fold
from mlxfp.app.kaggle.validation.scoring import Numbers, finite_numbers
from mlxfp.support.checks import check_callable
from mlxfp.support.errors import ArgumentError

Combine = Callable[[tuple[Numbers, ...]], Numbers]
Learn = Callable[[Numbers, tuple[Numbers, ...]], Combine]


@frozen
class SecondStage:
    """Function that combines the predictions of several models. Returned by `second_stage`.

    The function `combine` was learned on all rows. `oof` holds combined predictions for scoring, from functions learned on other folds.

    >>> from mlxfp.app.kaggle.ensembling.ensembles import fixed, mean
    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> folds = custom([0, 1])
    >>> oof = out_of_fold(folds, [0, 1], [fold_predictions(fold, [0.5]) for fold in folds])
    >>> second_stage(fixed(mean), oof, oof).predict([0.25], [0.75]).tolist()
    [0.5]
    """

    combine: Combine
    oof: OutOfFold

    def predict(self, *predictions: ArrayLike) -> Numbers:
        """Combine the predictions of several models for new rows. Pass one array per model, in the order of the models in `second_stage`.

        If a model was trained once per fold, pass the mean of its predictions over the folds (`ensembles.mean`).
        """
        return combined(self.combine, predictions)


def second_stage(learn: Learn, *oofs: OutOfFold) -> SecondStage:
    """Learn a function that combines the out-of-fold predictions of one or more models.

    `learn(targets, predictions)` receives targets [n], and a tuple with one array [n] or [n, C] per model. `learn` returns a
    function from such a tuple to combined predictions.

    To score a fold, `learn` is called with the rows of the other folds, and the returned function predicts the rows of the fold. No
    row is scored by a function that was learned from the same row. For folds in time, `learn` receives only earlier folds, and the
    first fold has no predictions. A final call with all rows gives the function for new rows.

    Raises `ArgumentError` if models have different folds or targets, because a model may then have trained on rows that score
    another model.

    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> import mlxfp as fp
    >>> folds = custom([0, 1] * 4)
    >>> oof = out_of_fold(folds, [0, 0, 0, 0, 1, 1, 1, 1], [fold_predictions(fold, [0.1, 0.2, 0.3, 0.4]) for fold in folds])
    >>> tuned = second_stage(fp.kaggle.threshold(fp.kaggle.METRICS["accuracy"]), oof)
    >>> fp.kaggle.score(tuned.oof, fp.kaggle.METRICS["accuracy"]).overall, tuned.predict([0.24, 0.26]).tolist()
    (1.0, [0.0, 1.0])

    See also: `ensembles.greedy`, `ensembles.stacking`, `threshold`, `platt`.
    """
    check_callable(learn=learn)
    if not oofs:
        raise ArgumentError("second_stage needs the out-of-fold predictions of at least one model, got none.")
    check_same(oofs)
    folds, targets = oofs[0].folds, oofs[0].targets
    if folds.count < 2:
        raise ArgumentError(f"second_stage needs at least two folds, got {folds!r}. Use more folds.")
    scored = (
        folds if not folds.forward else Folds("time", np.maximum(folds.assignments - 1, -1), folds.units, forward=True, groups=folds.groups)
    )
    parts, validated = [], folds.assignments >= 0
    for fold in scored:
        rows = fold.train[validated[fold.repeat, fold.train]]
        combine = learn(targets[rows], tuple(oof.predictions[fold.repeat, rows] for oof in oofs))
        parts.append(fold_predictions(fold, combined(combine, [oof.predictions[fold.repeat, fold.valid] for oof in oofs])))
    repeated = np.broadcast_to(targets, (len(validated), *targets.shape))
    return SecondStage(learn(repeated[validated], tuple(oof.predictions[validated] for oof in oofs)), out_of_fold(scored, targets, parts))


def combined(combine: Combine, predictions: Sequence[ArrayLike]) -> Numbers:
    """Check that all predictions have the same length, combine the predictions, and check the length of the result."""
    arrays = tuple(finite_numbers(f"The predictions of model {index}", values) for index, values in enumerate(predictions))
    if not arrays or len({len(array) for array in arrays}) > 1:
        raise ArgumentError(f"All predictions must have the same number of rows, got the shapes {[list(array.shape) for array in arrays]}.")
    result = combine(arrays)
    if len(result) != len(arrays[0]):
        raise ArgumentError(f"Combining predictions of {len(arrays[0])} rows gave {len(result)} rows. Return one prediction per row.")
    return result
