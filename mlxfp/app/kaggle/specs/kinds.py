"""Kinds of targets. `TASK_KINDS` holds all kind-specific behaviour, with one entry per kind.

To add a kind, extend `Kind` and `TASK_KINDS`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

Kind = Literal["binary", "multiclass", "multilabel", "regression", "ordinal", "ranking", "time_series"]
Answer = Literal["class", "labels", "value"]  # answer of a model per row: a single class, any number of labels, or numbers

_FEW = 20  # the targets 0, 1, 2, ... or 1, 2, 3, ... are class numbers if there are at most 20 distinct targets
_MOST_CLASS_NUMBERS = 10  # more than 10 distinct integers may be counts instead of class numbers, such as numbers of visits
_STEPS = 1.5  # tolerance for noise
_RARE = 0.3  # in a target of counts, the rarest integer has at most 0.3 times as many rows as the most frequent integer
_STRATA = 10
# The names of metrics are strings, because an import of `METRICS` would import MLX. This module must stay free of MLX.
_OF_CLASSES = ("accuracy", "f1_macro", "f1_micro", "log_loss", "mcc", "qwk", "roc_auc")
_OF_RANKS = ("map_at_3", "map_at_5")
_OF_VALUES = ("rmse", "mae", "r2", "rmsle", "spearman")


class TargetCells(NamedTuple):
    """Distinct values of the targets in a train file, one array per target. The kind of the targets is inferred from these values."""

    distinct: Sequence[pa.Array]
    counts: Sequence[pa.Array]  # number of rows of each distinct value
    numbers: bool  # True if all cells are numbers
    dated: bool  # True if the test rows are later than the train rows
    fractions: bool  # True if targets in the sample submission have fractions, such as 2.5

    @property
    def one(self) -> pa.Array | None:
        """Distinct values of the target column, or None if there are several targets."""
        return self.distinct[0] if len(self.distinct) == 1 else None


@frozen
class TaskKind:
    """Behaviour of targets of one kind, such as binary or regression.

    - `answer`: what a model predicts for a row: a single class, any number of labels, or a number. Loss, output layer and probabilities
      follow from this choice (`tasks.objective`).
    - `metrics`: names of the suitable metrics, the usual metric first.
    - `question`: question that introduces a row written as text, such as "Which species?". `{0}` stands for the target names.
    - `two_classes`: True if each target has exactly two classes.
    - `column`: role of a column that the spec must name, "time" or "group", or None.
    - `recognizes(cells)`: return True if the targets of a train file have this kind. Inference takes the first kind that returns
      True.

    >>> TASK_KINDS["ordinal"].one_class, TASK_KINDS["multilabel"].one_class, TASK_KINDS["regression"].metrics[0]
    (True, False, 'rmse')
    """

    name: Kind
    answer: Answer = field(kw_only=True)
    metrics: tuple[str, ...] = field(kw_only=True)
    question: str = field(kw_only=True)
    two_classes: bool = field(kw_only=True, default=False)
    column: Literal["time", "group"] | None = field(kw_only=True, default=None)
    recognizes: Callable[[TargetCells], bool] = field(kw_only=True, default=lambda cells: False)

    @property
    def has_classes(self) -> bool:
        """True if targets are classes, False if targets are numbers."""
        return self.answer != "value"

    @property
    def one_class(self) -> bool:
        """True if each row has exactly one class."""
        return self.answer == "class"

    @property
    def is_decision(self) -> bool:
        """True for binary targets: a threshold decides between two classes."""
        return self.one_class and self.two_classes

    @property
    def class_counts(self) -> tuple[int, int | None]:
        """Smallest and largest number of classes that the kind of task allows. None means that the number is unlimited."""
        return (2, 2 if self.two_classes else None) if self.has_classes else (0, 0)

    @property
    def arrow_type(self) -> pa.DataType:
        """Arrow type of the targets after reading."""
        return pa.string() if self.has_classes else pa.float64()

    @property
    def grouped_folds(self) -> str:
        """Name of the fold method for rows with groups."""
        return "stratified_grouped" if self.has_classes else "grouped"

    def strata(self, targets: NDArray[np.float64]) -> NDArray[Any]:
        """Return the stratum of each row for stratified folds: the class, the number of labels, or the decile of the value."""
        if self.has_classes:
            return targets if targets.ndim == 1 else targets.sum(axis=1)
        values = targets if targets.ndim == 1 else targets[:, 0]
        known = np.sort(values)
        return np.searchsorted(known[[tenth * len(known) // _STRATA for tenth in range(1, _STRATA)]], values, side="right")

    def unfit_metric(self, metric: str) -> str | None:
        """Return None if the metric can score targets of this kind. Otherwise return an error sentence with the suitable metrics.

        >>> TASK_KINDS["regression"].unfit_metric("accuracy")
        'accuracy is a metric for binary, multiclass, multilabel or ordinal targets, got regression. Choose mae, ...'
        """
        kinds = [kind.name for kind in TASK_KINDS.values() if metric in kind.metrics]
        fitting = _either(sorted(self.metrics))
        return None if self.name in kinds else f"{metric} is a metric for {_either(kinds)} targets, got {self.name}. Choose {fitting}"


def _either(names: Sequence[str]) -> str:
    return " or ".join([*([", ".join(names[:-1])] if names[:-1] else []), names[-1]])


def _count_up(texts: pa.Array) -> bool:
    """Return True for at most 20 consecutive integers starting at 0 or 1."""
    return any(set(texts.to_pylist()) == {str(first + index) for index in range(min(len(texts), _FEW))} for first in (0, 1))


def _is_quantity(texts: pa.Array, counts: pa.Array) -> bool:
    """Return True if integers look like counts, and False if they look like class numbers.

    Counts have more than 10 distinct values, and some values are rare. From the smallest to the largest value, the number of rows rises to
    one peak and then falls. For class numbers in arbitrary order, the number of rows rises and falls several times.
    """
    if len(texts) <= _MOST_CLASS_NUMBERS:
        return False
    order = np.argsort(np.array(texts.to_pylist(), np.float64))
    frequencies = np.concatenate([[0], np.asarray(counts, np.int64)[order], [0]])
    peak = frequencies.max()
    return bool(np.abs(np.diff(frequencies)).sum() <= _STEPS * 2 * peak and frequencies[1:-1].min() <= _RARE * peak)


def _are_class_numbers(cells: TargetCells) -> bool:
    distinct, counts = cells.distinct[0], cells.counts[0]
    return not cells.fractions and _count_up(distinct) and not _is_quantity(distinct, counts)


_KINDS = (
    TaskKind(
        "binary",
        answer="class",
        metrics=(*_OF_CLASSES, "f1"),
        question="{0} or not?",
        two_classes=True,
        recognizes=lambda cells: cells.one is not None and len(cells.one) == 2,
    ),
    TaskKind(
        "multiclass",
        answer="class",
        metrics=(*_OF_CLASSES, *_OF_RANKS),
        question="Which {0}?",
        recognizes=lambda cells: cells.one is not None and (not cells.numbers or _are_class_numbers(cells)),
    ),
    TaskKind(
        "multilabel",
        answer="labels",
        metrics=("roc_auc", *_OF_CLASSES[:-1], "f1", *_OF_VALUES),
        question="Which of {0}?",
        two_classes=True,
        recognizes=lambda cells: cells.one is None and all(set(texts.to_pylist()) <= {"0", "1"} for texts in cells.distinct),
    ),
    TaskKind(
        "regression",
        answer="value",
        metrics=_OF_VALUES,
        question="What {0}?",
        recognizes=lambda cells: cells.numbers and not cells.dated,
    ),
    TaskKind("ordinal", answer="class", metrics=(*_OF_CLASSES, *_OF_RANKS), question="How much {0}?"),
    TaskKind("ranking", answer="value", metrics=(*_OF_RANKS, *_OF_VALUES), question="How much {0}?", column="group"),
    TaskKind(
        "time_series",
        answer="value",
        metrics=_OF_VALUES,
        question="What {0} at that time?",
        column="time",
        recognizes=lambda cells: cells.numbers and cells.dated,
    ),
)
TASK_KINDS: Mapping[Kind, TaskKind] = {kind.name: kind for kind in _KINDS}
METRIC_NAMES = tuple(sorted({metric for kind in _KINDS for metric in kind.metrics}))
