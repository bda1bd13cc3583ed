"""Standardization of numerical columns, for models that read both text and numbers."""

from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray
from pyarrow import RecordBatch, Schema
from toolz import identity

from mlxfp import Dataset, RowWise, select_columns, to_table
from mlxfp.app.kaggle.specs.cells import as_floats
from mlxfp.app.kaggle.specs.specs import ColumnSpec, DatasetSpec
from mlxfp.parts import Traits, set_column, set_field
from mlxfp.support.arrow_types import is_number_like, value_type
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import DataError, SchemaError

NUMBERS = "numbers"
_LIMIT = 5.0  # maximum distance from the mean in standard deviations; farther values are clipped
_SKEWED = 1.0  # columns with a larger skewness are scaled by logarithms
_LARGEST = 1e60  # numbers are clipped to the range from -1e60 to 1e60, so that sums of squares stay finite
_EQUAL = 1e-9  # a column counts as constant if the standard deviation is at most 1e-9 times the largest absolute value


@frozen
class Scale:
    """Scaling of one column: (value - mean) / sd, after a logarithm if `log` is true. Missing values become the median.

    Values in `absent` count as missing. If `flag` is true, the result has a second number: 1 for a missing value, otherwise 0.
    """

    column: str
    mean: float
    sd: float
    median: float
    log: bool
    flag: bool
    absent: tuple[float, ...] = ()

    def write(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Scale the values of a column, float64[N] with NaN for missing values. Return float32[N, 1].

        If `flag` is true, return float32[N, 2], with a second column: 1 for a missing value, otherwise 0.
        """
        missing = np.isnan(values) | np.isin(values, self.absent)
        known = np.clip(np.where(missing, self.median, values), -_LARGEST, _LARGEST)
        known = _log(known) if self.log else known
        scaled = np.clip((known - self.mean) / self.sd, -_LIMIT, _LIMIT)
        columns = [scaled, missing] if self.flag else [scaled]
        return np.stack(columns, axis=1).astype(np.float32)


@frozen(repr=False)
class Scales(RowWise):
    """Stage that adds the column `numbers`, with the scaled numbers of each row as float32 lists.

    >>> import mlxfp as fp
    >>> ages = Scale("age", mean=40.0, sd=10.0, median=35.0, log=False, flag=True)
    >>> [row["numbers"] for row in fp.kaggle.Scales((ages,))(fp.from_examples([{"age": 45.0}, {"age": None}]))]
    [[0.5, 0.0], [-0.5, 1.0]]

    See also: `fit_scales`, for fitting scales on training rows.
    """

    scales: tuple[Scale, ...]

    @property
    def count(self) -> int:
        """Number of scaled numbers per row."""
        return sum(1 + scale.flag for scale in self.scales)

    def schema(self, schema: Schema) -> Schema:
        check_columns([scale.column for scale in self.scales], schema.names, "fit_scales")
        for scale in self.scales:
            check_number(schema, scale.column, f"Column {scale.column!r}")
        return set_field(schema, NUMBERS, pa.list_(pa.float32(), self.count))

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, columns_read=tuple(scale.column for scale in self.scales), longest_row=identity)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        parts = [scale.write(as_floats(chunk.column(scale.column))) for scale in self.scales]
        flat = pa.array(np.concatenate(parts, axis=1).ravel())
        return set_column(chunk, NUMBERS, pa.FixedSizeListArray.from_arrays(flat, self.count))


def fit_scales(spec: DatasetSpec, rows: Dataset[Any]) -> Scales:
    """Fit the scaling of the numerical columns of a spec on training rows. Return a stage that scales any rows.

    - Non-negative columns with skewed values are scaled as log(1 + x).
    - Missing values become the median, and so do the values that the spec lists as `absent`.
    - A column with missing training values or with `absent` values in the spec has a second output: 1 for such values, otherwise 0.
    - Scaled numbers are clipped to the range from -5 to 5. Constant columns are not divided by their standard deviation.

    The rows are read once. Raises `SchemaError` if there are no numerical columns or a numerical column has values of another type. Raises
    `DataError` if there are no rows.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="a.csv"), "target": ["y"], "metric": "mae"}
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", columns=[fp.kaggle.ColumnSpec(name="size", type="numerical")], **about)
    >>> scales = fit_scales(spec, fp.from_examples([{"size": 1.0}, {"size": 3.0}]))
    >>> [row["numbers"] for row in scales(fp.from_examples([{"size": 3.0}, {"size": None}, {"size": 100.0}]))]
    [[1.0], [0.0], [5.0]]
    """
    columns = [column for column in spec.columns if column.kind.is_number]
    if not columns:
        raise SchemaError(f"The spec of {spec.name!r} has no numerical columns. Remove numeric (model.numeric), or add numerical columns.")
    table = to_table(select_columns([column.name for column in columns])(rows))
    for column in columns:
        check_number(table.schema, column.name, f"Column {column.name!r}")
    if not table.num_rows:
        raise DataError(f"Scaling of numerical columns needs training rows, but {rows!r} is empty. Give at least one row.")
    return Scales(tuple(_scale(column, as_floats(table.column(column.name).combine_chunks())) for column in columns))


def check_number(schema: Schema, name: str, subject: str) -> None:
    """Raise `SchemaError` unless the column holds numbers or only nulls."""
    kind = schema.field(name).type
    if not is_number_like(value_type(kind)):
        raise SchemaError(f"{subject} must hold numbers, got {kind}. Read the values as numbers, or correct the type in the spec.")


def nonzero_sd(values: NDArray[np.float64]) -> float:
    """Return the standard deviation as a safe divisor: 1 if all numbers are equal up to rounding errors."""
    sd = float(values.std())
    return sd if sd > _EQUAL * float(np.abs(values).max()) else 1.0


def _scale(column: ColumnSpec, values: NDArray[np.float64]) -> Scale:
    absent = tuple(float(value) for value in column.absent)
    finite = np.clip(values[np.isfinite(values)], -_LARGEST, _LARGEST)
    present = finite[~np.isin(finite, absent)]
    known = present if len(present) else finite if len(finite) else np.zeros(1)
    skewness = (((known - known.mean()) / nonzero_sd(known)) ** 3).mean()
    log = bool(known.min() >= 0 and skewness > _SKEWED)
    shown = _log(known) if log else known
    flag = bool(np.isnan(values).any() or absent)
    return Scale(column.name, float(shown.mean()), nonzero_sd(shown), float(np.median(known)), log, flag, absent)


def _log(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.sign(values) * np.log1p(np.abs(values)))
