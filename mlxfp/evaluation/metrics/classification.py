"""Classification metrics: accuracy, F1, log loss, perplexity and ROC AUC."""

from math import exp, inf, log
from sys import float_info
from typing import Any, Literal

import mlx.core as mx
import numpy as np
from attrs import frozen

from mlxfp.evaluation.metrics.totals import Measured, added, joined, mean
from mlxfp.evaluation.rows import (
    add,
    at_labels,
    broadcast_weights,
    check_arrays,
    check_same_shape,
    class_labels,
    negative_log_likelihood,
    sums_by_class,
)
from mlxfp.support.checks import check_choice, explain_call
from mlxfp.support.errors import ArgumentError, DataError

Average = Literal["macro", "micro", "binary"]

_LARGEST = log(float_info.max)


@explain_call
def accuracy(
    logits: mx.array, labels: mx.array, *, ignore_index: int = -100, example_weights: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Count the rows whose largest logit is the logit of the label: (hits, rows), two scalars.

    `logits` are float[..., C], `labels` int[...]. Rows with the label `ignore_index` are not counted. All other rows are weighted by
    `example_weights`, [B]. A counted row with a NaN among its logits makes the result NaN. Raises `ArgumentError` if the shapes do not
    fit, `ArgumentTypeError` if the labels are not integers, and `DataError` if a counted label is not a class. If a compiled function
    computes the labels, no error can be raised, and an invalid label makes the result NaN.

    >>> hits, rows = accuracy(mx.array([[2.0, 1.0], [2.0, 1.0], [0.0, 1.0]]), mx.array([0, 1, -100]))
    >>> hits.item(), rows.item()
    (1.0, 2.0)
    """
    logits, labels, weights = class_labels("accuracy", logits, labels, ignore_index, example_weights)
    return add((logits.argmax(axis=-1) == labels) * _nan_if_invalid(logits, labels), weights)


@explain_call
def log_loss(
    logits: mx.array, labels: mx.array, *, ignore_index: int = -100, example_weights: mx.array | None = None
) -> tuple[mx.array, mx.array]:
    """Return two scalars: the sum of the negative log-likelihoods of the labels, and the weighted number of rows.

    The arguments are the same as for `accuracy`. If the model returns probabilities, pass the logarithms of the probabilities.

    >>> total, rows = log_loss(mx.log(mx.array([[0.5, 0.5], [0.2, 0.8]])), mx.array([0, 0]))
    >>> round(total.item(), 4), rows.item()
    (2.3026, 2.0)
    """
    logits, labels, weights = class_labels("log_loss", logits, labels, ignore_index, example_weights)
    return add(negative_log_likelihood(logits, labels), weights)


@explain_call
def perplexity(logits: mx.array, labels: mx.array, *, ignore_index: int = -100, example_weights: mx.array | None = None) -> "PowerOfMean":
    """Sum the `log_loss` of a batch for the perplexity. `compute` returns the perplexity, e to the power of the mean `log_loss`.

    A model with perplexity n is as uncertain as a uniform choice among n tokens.

    >>> import mlxfp as fp
    >>> round(fp.metrics.compute({"perplexity": fp.metrics.perplexity(mx.zeros((1, 3, 50)), mx.array([[7, 8, -100]]))})["perplexity"], 3)
    50.0
    """
    return PowerOfMean(*log_loss(logits, labels, ignore_index=ignore_index, example_weights=example_weights))


@explain_call
def f1(
    logits: mx.array, labels: mx.array, *, average: Average, ignore_index: int = -100, example_weights: mx.array | None = None
) -> "HitCounts":
    """Count correct, predicted and labelled rows of a batch for F1. `compute` returns F1, the harmonic mean of precision and recall.

    The prediction of a row is the class with the largest logit. `logits`, `labels`, `ignore_index` and `example_weights` are the same as
    for `accuracy`. Three values of `average` are possible:

    - "macro": the mean of the F1 values of all classes that occur among labels or predictions.
    - "micro": F1 from the counts of all classes together, which equals the accuracy.
    - "binary": F1 of class 1, for two classes.

    >>> import mlxfp as fp
    >>> fp.metrics.compute({"f1": fp.metrics.f1(mx.eye(2)[mx.array([0, 0, 1, 1])], mx.array([0, 0, 0, 1]), average="binary")})
    {'f1': 0.6666666666666666}
    """
    check_choice(("macro", "micro", "binary"), average=average)
    logits, labels, weights = class_labels("f1", logits, labels, ignore_index, example_weights)
    classes = logits.shape[-1]
    if average == "binary" and classes != 2:
        raise ArgumentError(f'f1 with average="binary" needs logits of two classes, got {classes}. Use "macro" or "micro".')
    chosen = logits.argmax(axis=-1)
    invalid = 0 * add(_nan_if_invalid(logits, labels), weights)[0]  # NaN if a row with nonzero weight is invalid, else 0
    labels = mx.where((labels >= 0) & (labels < classes), labels, 0)
    parts = ((labels, weights * (chosen == labels)), (chosen, weights), (labels, weights))
    counts = [sums_by_class(classes_of_rows, kept, classes) + invalid for classes_of_rows, kept in parts]
    if average == "micro":
        return HitCounts(*(count.sum(keepdims=True) for count in counts))
    return HitCounts(*(count[1:] for count in counts) if average == "binary" else counts)


@explain_call
def roc_auc(scores: mx.array, labels: mx.array, *, example_weights: mx.array | None = None) -> "Ranking":
    """Collect scores and labels of a batch for the area under the ROC curve. `compute` returns the area.

    The area is the probability that a positive example scores higher than a negative example. Ties count half. `scores` are numbers [...],
    for example `logits[:, 1] - logits[:, 0]`. `labels` have the same shape and are 0 or 1.

    The result is exact: the scores of all examples are kept in memory, 24 bytes each, and sorted by `compute`. `compute` raises `DataError`
    without positive or without negative examples, and for other labels than 0 and 1.

    >>> import mlxfp as fp
    >>> fp.metrics.compute({"auc": fp.metrics.roc_auc(mx.array([0.9, 0.4, 0.4, 0.1]), mx.array([1, 1, 0, 0]))})
    {'auc': 0.875}
    """
    check_arrays("roc_auc", scores=scores, labels=labels)
    check_same_shape("roc_auc", scores, labels)  # do not use the returned float32 arrays: large integer scores would become equal
    return Ranking(scores.reshape(-1), labels.reshape(-1), broadcast_weights("roc_auc", example_weights, scores.shape).reshape(-1))


@frozen
class PowerOfMean(Measured):
    """Totals for `perplexity`: the weighted sum of the log losses, and the sum of the weights."""

    total: Any
    weight: Any

    join = staticmethod(added)

    def value(self, name: str) -> float:
        """Return the perplexity: e to the power of the mean log loss."""
        average = mean(name, self.total, self.weight)
        return inf if average > _LARGEST else exp(average)  # `math.exp` raises OverflowError for large numbers


@frozen
class HitCounts(Measured):
    """Counts of correct, predicted and labelled rows of each class for `f1`, float[C] each."""

    correct: Any
    predicted: Any
    labelled: Any

    join = staticmethod(added)

    def value(self, name: str) -> float:
        """Return the mean of F1 over all classes with at least one label or prediction."""
        rows = self.predicted + self.labelled
        if not (rows != 0).any():
            raise DataError(
                f"The metric {name!r} got no rows to measure. Rows with weight 0 and rows with the label ignore_index are not measured. "
                'With average="binary", only rows with label 1 or prediction 1 are measured. Check the labels, or evaluate on more rows.'
            )
        return float(np.mean(2 * self.correct[rows != 0] / rows[rows != 0]))


@frozen
class Ranking(Measured):
    """Arrays collected for `roc_auc`: scores, labels and weights of all examples, float[N] each.

    >>> Ranking(np.array([0.1, 0.4, 0.8]), np.array([0, 1, 1]), np.ones(3)).value("roc_auc")
    1.0
    """

    scores: Any
    labels: Any
    weights: Any

    join = staticmethod(joined)

    def value(self, name: str) -> float:
        """Return the area under the ROC curve, computed by sorting the scores of all examples."""
        kept = self.weights != 0
        labels, weights = self.labels[kept], self.weights[kept]
        others = np.unique(labels[(labels != 0) & (labels != 1)])
        if len(others):
            raise DataError(
                f"The metric {name!r} needs labels of 0 and 1, got {others[0]:g}. Convert the labels: 1 for the positive class, else 0."
            )
        if len(np.unique(labels)) < 2:
            raise DataError(
                f"The metric {name!r} needs positive and negative examples, got {len(labels)} of a single class. Evaluate on more examples."
            )
        if np.isnan(self.scores[kept]).any():
            return float("nan")
        levels, indices = np.unique(self.scores[kept], return_inverse=True)
        positive, negative = (np.bincount(indices, weights * (labels == kind), len(levels)) for kind in (1, 0))
        below = np.cumsum(negative) - negative
        return float(np.sum(positive * (below + negative / 2)) / (positive.sum() * negative.sum()))


def _nan_if_invalid(logits: mx.array, labels: mx.array) -> mx.array:
    """Return NaN for each row with NaN among its logits or with a label that is not a class, and 1 for each other row."""
    return mx.where(mx.isnan(logits.max(axis=-1)), mx.nan, at_labels(mx.ones(logits.shape[-1]), labels))
