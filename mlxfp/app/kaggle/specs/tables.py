"""A column of a dataset, read whole: what folds, labels and submissions need of it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp import Dataset, select_columns, to_table


def column_values(rows: Dataset[Any], column: str) -> NDArray[Any]:
    """Read one column as a numpy array [N]; a missing number is NaN, a missing string None.

    Raises `SchemaError` if it is not there.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> column_values(from_examples([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]), "x").tolist()
    [1, 2]
    """
    return np.asarray(to_table(select_columns([column])(rows)).column(column).to_numpy())
