"""Datasets read whole: what folds, labels and submissions need of them."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.chunks import visible
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import schema
from mlxfp.core.errors import PipelineError
from mlxfp.core.execution import read_all
from mlxfp.core.nodes import check_dataset
from mlxfp.data.rows.columns import select_columns


def to_table(rows: Dataset[Any]) -> pa.Table:
    """Read all rows of a dataset, as they are in epoch 0, into an Arrow table; raises `PipelineError` after `batch`.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> to_table(from_examples([{"x": 1}, {"x": 2}])).to_pydict()
    {'x': [1, 2]}
    """
    check_dataset(rows, to_table)
    if rows.level != "examples":
        raise PipelineError(f"to_table takes examples, got {rows.level} from {rows.parts[-1]!r}. Use it before batch.")
    chunks = [visible(chunk) for chunk in read_all(rows)]
    return pa.Table.from_batches(chunks, schema=schema(rows))


def column_values(rows: Dataset[Any], column: str) -> NDArray[Any]:
    """Read one column as a numpy array [N]; a missing number is NaN, a missing string None.

    Raises `SchemaError` if it is not there.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> column_values(from_examples([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]), "x").tolist()
    [1, 2]
    """
    return np.asarray(to_table(select_columns([column])(rows)).column(column).to_numpy())
