"""Test-time augmentation: the mean of predictions for several views of the same rows."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attrs import frozen

from mlxfp.core.checks import check_callable
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import ArgumentError
from mlxfp.kaggle.validation.cross_validation import Predict
from mlxfp.kaggle.validation.scoring import Numbers, finite_numbers

View = Callable[[Dataset[Any]], Dataset[Any]]


def test_time_augmentation(model: Predict, views: Sequence[View]) -> Predict:
    """Predict every view of the rows and average: probabilities or values, [N] or [N, C].

    A view is a stage that keeps the rows and their order: `template(form, seed=0)`, `template(form, seed=1)`, ... write the columns in
    different orders; `map` does anything else. To score it, let `fit` return the augmented model. Raises `ArgumentError` if views differ in
    their number of rows.

    >>> from mlxfp.data.rows.map_filter import map
    >>> from mlxfp.data.sources.in_memory import from_table
    >>> from mlxfp.kaggle.specs.tables import column_values
    >>> model = lambda rows: column_values(rows, "x")
    >>> augmented = test_time_augmentation(model, [map(lambda row: {"x": row["x"] + 1}), map(lambda row: {"x": row["x"] - 1})])
    >>> augmented(from_table({"x": [0.25, 0.5]})).tolist()
    [0.25, 0.5]
    """
    check_callable(model=model)
    if not views:
        raise ArgumentError("test_time_augmentation needs at least one view, got none.")
    for place, view in enumerate(views):
        check_callable(**{f"views[{place}]": view})
    return _Augmented(model, tuple(views))


test_time_augmentation.__test__ = False  # type: ignore[attr-defined]  # else pytest collects it as a test where it is imported


@frozen
class _Augmented:
    model: Predict
    views: tuple[View, ...]

    def __call__(self, rows: Dataset[Any]) -> Numbers:
        each = [finite_numbers(f"Predictions of view {place}", self.model(view(rows))) for place, view in enumerate(self.views)]
        if len({array.shape for array in each}) > 1:
            raise ArgumentError(f"Views must keep the rows, got predictions of {[list(array.shape) for array in each]}.")
        made: Numbers = np.mean(each, axis=0)
        return made
