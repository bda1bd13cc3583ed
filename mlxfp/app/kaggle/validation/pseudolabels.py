"""Pseudo-labels: in each fold, a teacher fitted on the training rows labels additional rows for a student."""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from mlxfp import Dataset, Splits, drop_columns, from_table, schema, to_table
from mlxfp.app.kaggle.specs.tables import plain_array
from mlxfp.app.kaggle.validation.cross_validation import Fit, Predict
from mlxfp.app.kaggle.validation.scoring import finite_numbers
from mlxfp.support.checks import check_callable, check_columns, check_text, check_types
from mlxfp.support.errors import ArgumentError


@frozen
class Confidence:
    """Rule for selecting rows with pseudo-labels by the probability of the likeliest class.

    The rule selects the rows with a probability of at least `threshold`, but at least the fraction `least` and at most the fraction `most`
    of all rows. If too few rows reach the threshold, the rows with the highest probabilities are selected. The fraction of a class
    among the labelled rows limits the number of selected rows of the class. Otherwise, a frequent class could displace the other
    classes. Threshold and limits follow AutoGluon.

    >>> Confidence().choose([[0.99, 0.01], [0.4, 0.6], [0.97, 0.03], [0.02, 0.98], [0.01, 0.99]], [0, 1, 1])
    (array([0, 3, 4]), array([0, 1, 1]))
    """

    threshold: float = 0.95
    least: float = 0.05
    most: float = 0.6

    def __attrs_post_init__(self) -> None:
        if not 0 < self.threshold <= 1 or not 0 <= self.least <= self.most <= 1 or self.most == 0:
            raise ArgumentError(
                f"Confidence needs 0 < threshold <= 1 and 0 <= least <= most <= 1, got threshold={self.threshold}, least={self.least}, "
                f"most={self.most}."
            )

    def choose(self, probabilities: ArrayLike, labels: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Select unlabelled rows. Return the ascending indices of the selected rows and the likeliest classes, both int64[n].

        `probabilities` is an array [N] for the second of two classes, or [N, C]. `labels` holds the classes of all labelled rows. The
        fraction of a class in `labels` limits the number of selected rows of this class.
        """
        chances = finite_numbers("The teacher's predictions", probabilities)
        if chances.ndim == 1:
            chances = np.stack([1 - chances, chances], axis=1)
        if chances.min(initial=0) < 0 or chances.max(initial=1) > 1:
            raise ArgumentError(
                f"Pseudo-labels need probabilities, got predictions from {chances.min():g} to {chances.max():g}. Use a classifier."
            )
        sure, classes = chances.max(axis=1), chances.argmax(axis=1)
        size = int(np.clip((sure >= self.threshold).sum(), np.ceil(self.least * len(sure)), np.floor(self.most * len(sure))))
        known = np.asarray(labels).astype(np.int64)
        quotas = np.round(size * np.bincount(known, minlength=chances.shape[1]) / len(known)).astype(np.int64)
        order = np.argsort(-sure, kind="stable")
        within = np.concatenate([order[classes[order] == kind][:quota] for kind, quota in enumerate(quotas)])
        surest = within[np.argsort(-sure[within], kind="stable")][:size]  # at most `size` rows: the sum of the rounded quotas can be larger
        chosen = np.sort(surest)
        return chosen, classes[chosen]


def pseudo_label(  # noqa: PLR0913  # one argument per option
    teacher: Fit, student: Fit, unlabelled: Dataset[Any], *, target: str, confidence: Confidence | None = None, weight: float = 1.0
) -> Fit:
    """Return a `fit` that trains a student on labelled rows and on confident pseudo-labels of a teacher.

    In each fold, the teacher is fitted on the training rows and labels the rows of `unlabelled`. The student of the fold trains on both
    kinds of rows, so no validation label is used. Pseudo-labelled rows are not used for early stopping. The student's rows have
    an additional column named "weight". Labelled rows have the weight 1, pseudo-labelled rows the weight from the argument `weight`.
    `unlabelled` needs the columns of the training rows, except the target. All rows are kept in memory. Source: Lee, "Pseudo-Label", 2013.

    >>> import mlxfp as fp
    >>> from mlxfp.app.kaggle.validation.folds import custom
    >>> def teacher(parts):
    ...     return lambda rows: np.where(fp.kaggle.column_values(rows, "x") > 5, 0.99, 0.01)
    >>> def student(parts):
    ...     trained = to_table(parts.train).to_pydict()
    ...     return lambda rows: np.full(len(to_table(rows)), sum(trained["weight"]) + sum(trained["y"]))
    >>> rows, more = from_table({"x": [1, 9, 2, 8], "y": [0, 1, 0, 1]}), from_table({"x": [0, 7, 3, 10]})
    >>> fit = pseudo_label(teacher, student, more, target="y", weight=0.25)
    >>> fp.kaggle.cross_validate(custom([0, 0, 1, 1]), rows, fit, target="y").oof.predictions.tolist()
    [[4.5, 4.5, 4.5, 4.5]]

    See also: `cross_validate`, for running the returned `fit`.
    """
    check_callable(teacher=teacher, student=student)
    check_types(Dataset, unlabelled=unlabelled)
    check_text(target=target)
    if not weight > 0:
        raise ArgumentError(f"weight must be above 0, got weight={weight!r}.")
    without_target = drop_columns([target])(unlabelled) if target in schema(unlabelled).names else unlabelled
    return partial(_fit_both, teacher, student, without_target, target, confidence or Confidence(), float(weight))


def _fit_both(  # noqa: PLR0913, PLR0917  # arguments of `pseudo_label`
    teacher: Fit, student: Fit, unlabelled: Dataset[Any], target: str, confidence: Confidence, weight: float, parts: Splits
) -> Predict:
    train = to_table(parts.train)
    check_columns([name for name in train.column_names if name != target], schema(unlabelled).names, "pseudo_label")
    taught = teacher(parts)
    check_callable(**{"what teacher returns": taught})  # a fitted model passed by mistake returns predictions, not a function
    rows, labels = confidence.choose(taught(unlabelled), plain_array(train.column(target)))
    added = to_table(unlabelled).take(pa.array(rows)).append_column(target, pa.array(labels))
    weights = pa.array(np.repeat([1.0, weight], [len(train), len(added)]))
    combined = pa.concat_tables([train, added.select(train.column_names)], promote_options="permissive").append_column("weight", weights)
    return student(Splits(from_table(combined), valid=parts.valid))
