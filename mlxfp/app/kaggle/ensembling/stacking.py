"""Learning from out-of-fold predictions: ensembles, thresholds and calibration, scored on folds that they did not learn from."""

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
    """A function learned from predictions, and its own out-of-fold predictions, to score it; made by `second_stage`.

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
        """Apply the function that was learned on all rows to predictions of new rows: one array a model, in the order of the models.

        For a model that was trained once in each fold, pass the mean over its folds (`ensembles.mean`).
        """
        return combined(self.combine, predictions)


def second_stage(learn: Learn, *oofs: OutOfFold) -> SecondStage:
    """Learn from out-of-fold predictions of one or more models.

    `learn(targets, predictions)` takes targets [n] and a tuple of one array [n] or [n, C] a model, and returns a function from such a
    tuple to predictions. It is called once for each fold, with the rows of the other folds, to predict the rows of that fold (folds in time
    learn from earlier folds only, so the first has no predictions), and once with all rows, for new rows. So no row is scored by a function
    that was learned from it.

    Raises `ArgumentError` for models of different folds or targets: one would have trained on the validation rows of another.

    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> from mlxfp.app.kaggle.validation.out_of_fold import score
    >>> from mlxfp.app.kaggle.validation.scoring import METRICS
    >>> from mlxfp.app.kaggle.ensembling.calibration import threshold
    >>> folds = custom([0, 1] * 4)
    >>> oof = out_of_fold(folds, [0, 0, 0, 0, 1, 1, 1, 1], [fold_predictions(fold, [0.1, 0.2, 0.3, 0.4]) for fold in folds])
    >>> tuned = second_stage(threshold(METRICS["accuracy"]), oof)
    >>> score(tuned.oof, METRICS["accuracy"]).overall, tuned.predict([0.24, 0.26]).tolist()
    (1.0, [0.0, 1.0])

    See also: `ensembles.greedy`, `ensembles.stacking`, `threshold`, `platt`, `isotonic`.
    """
    check_callable(learn=learn)
    if not oofs:
        raise ArgumentError("second_stage needs the out-of-fold predictions of at least one model, got none.")
    check_same(oofs)
    folds, targets = oofs[0].folds, oofs[0].targets
    if folds.count < 2:
        raise ArgumentError(f"second_stage learns from the other folds, and there is only one in {folds!r}. Use at least two.")
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
    """Check predictions of one shape, combine them, and check that there is one for each row."""
    arrays = tuple(finite_numbers(f"The predictions of model {place}", each) for place, each in enumerate(predictions))
    if not arrays or len({len(array) for array in arrays}) > 1:
        raise ArgumentError(f"Predictions of one set of rows are needed, got arrays of {[list(array.shape) for array in arrays]}.")
    made = combine(arrays)
    if len(made) != len(arrays[0]):
        raise ArgumentError(f"Combining predictions of {len(arrays[0])} rows gave {len(made)}. Return one for each row.")
    return made
