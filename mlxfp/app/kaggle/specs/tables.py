"""Dataset columns as NumPy arrays, for folds, labels and submissions."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp import Dataset, schema, select_columns, to_table
from mlxfp.support.arrow_types import decoded
from mlxfp.support.checks import check_columns


def column_values(rows: Dataset[Any], column: str) -> NDArray[Any]:
    """Read one column into a NumPy array [N]. Missing numbers become NaN, missing strings and categories become None.

    Raises `SchemaError` for a missing column.

    >>> import mlxfp as fp
    >>> fp.kaggle.column_values(fp.from_examples([{"x": 1, "y": "a"}, {"x": 2, "y": None}]), "y").tolist()
    ['a', None]
    """
    check_columns([column], schema(rows).names, "column_values")
    return plain_array(to_table(select_columns([column])(rows)).column(column))


def plain_array(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column as a NumPy array [N].

    Dictionaries are decoded first. Otherwise NumPy would read the code of a missing value as a category.
    """
    return np.asarray(decoded(column.combine_chunks()).to_numpy(zero_copy_only=False))
