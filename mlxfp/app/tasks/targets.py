"""Conversion of targets to training labels: class indices, or standardized values."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from numpy.typing import NDArray
from pyarrow import RecordBatch, Schema
from toolz import identity

from mlxfp import Dataset, RowWise, schema, select_columns
from mlxfp.app.kaggle.specs.cells import as_floats, spell
from mlxfp.app.kaggle.specs.kinds import Answer
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.app.kaggle.validation.scoring import METRICS, Numbers
from mlxfp.app.tasks.scaling import check_number, nonzero_sd
from mlxfp.parts import Traits, read_all, set_column, set_field, source_rows
from mlxfp.support.arrow_types import is_binary
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import FEW, DataError, SchemaError, listed

LABELS = "labels"


@frozen(repr=False)
class NumberClasses(RowWise):
    """Stage that replaces classes by their indices in the spec, counted from 0."""

    columns: tuple[str, ...]
    classes: tuple[str, ...]

    def schema(self, schema: Schema) -> Schema:
        check_columns(self.columns, schema.names, "the target")
        for name in self.columns:
            kind = schema.field(name).type
            if pa.types.is_nested(kind) or is_binary(kind):
                raise SchemaError(
                    f"The target {name!r} must hold one class per row, as text or as a number, got the column type {kind}. "
                    "Read the target as text or numbers."
                )
            schema = set_field(schema, name, pa.int64())
        return schema

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Replace the classes of a chunk by indices. Raise `DataError` with the source row for an unknown class."""
        for name in self.columns:
            texts = spell(chunk, name)
            numbers = pc.index_in(texts, pa.array(self.classes)).cast(pa.int64())
            if numbers.null_count:
                index = numbers.is_null().to_pylist().index(True)
                raise DataError(
                    f"The target {name!r} must be one of the classes {listed(map(repr, self.classes), most=FEW)}, got "
                    f"{texts[index].as_py()!r} in source row {int(source_rows(chunk)[index])}. Correct the row, "
                    "remove the row, or add the class to the spec."
                )
            chunk = set_column(chunk, name, numbers)
        return chunk


def numbered(spec: DatasetSpec, rows: Dataset[Any]) -> Dataset[Any]:
    """Return training rows with numeric targets. Classes become indices."""
    return NumberClasses(spec.target, spec.classes)(rows) if spec.task.has_classes else rows


@frozen
class Target:
    """Conversion of targets to labels for training, and of model outputs to predictions. Returned by `fit_target`.

    `outputs` is the number of model outputs: one per class, label or value. Values are trained as (value - mean) / scale. With
    `log`, the logarithm log(1 + value) is scaled instead. `mean` and `scale` hold one number per target column.

    >>> price = Target(("price",), "value", 1, mean=(100.0,), scale=(50.0,))
    >>> price.labels({"price": np.array([100.0, 200.0])}).to_pylist(), price.read(np.array([0.0, 2.0])).tolist()
    ([0.0, 2.0], [100.0, 200.0])
    >>> Target(("Survived",), "class", 2).read(np.array([[0.75, 0.25]])).tolist()
    [0.25]

    See also: `Labelled`, the stage that adds the labels to rows.
    """

    columns: tuple[str, ...]
    answer: Answer
    outputs: int
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    log: bool = False

    def labels(self, numbers: Mapping[str, Numbers]) -> pa.Array:
        """Return training labels for numeric targets. Labels are int64[N], float32[N], or one list of float32 numbers per row."""
        if self.answer == "class":
            return pa.array(numbers[self.columns[0]].astype(np.int64))
        values = np.stack([numbers[name] for name in self.columns], axis=1)
        if self.answer == "value":
            values = ((np.log1p(values) if self.log else values) - self.mean) / self.scale
        if len(self.columns) == 1 and self.answer == "value":
            return pa.array(values[:, 0].astype(np.float32))
        return pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).ravel()), len(self.columns))

    def read(self, answers: Numbers) -> Numbers:
        """Convert model answers to predictions, float64[N] or [N, C].

        The argument `answers` holds probabilities or scaled values, float[N] or [N, outputs]. The conversion depends on the target:

        - With two classes, a prediction is the probability of the second class.
        - With more classes or several labels, predictions are the given probabilities.
        - For values, predictions have the unit of the target. If targets were scaled as log(1 + value), predictions are at least 0.
        """
        if self.answer == "class":
            return answers[:, 1] if self.outputs == 2 else answers
        if self.answer == "labels":
            return answers[:, 0] if len(self.columns) == 1 else answers
        values: Numbers = answers.reshape(len(answers), len(self.columns)) * np.asarray(self.scale) + np.asarray(self.mean)
        values = np.maximum(np.expm1(values), 0) if self.log else values
        return values[:, 0] if len(self.columns) == 1 else values


def fit_target(spec: DatasetSpec, rows: Dataset[Any]) -> Target:
    """Fit the conversion of targets to labels on training rows.

    For numerical targets, the result has the mean and standard deviation of the values, or of logarithms for the metric rmsle. For
    classes, no row is read. Raises `DataError` for missing or infinite values, for negative values if logarithms are needed, or if there
    are no rows. Raises `SchemaError` for non-numerical columns.

    >>> import mlxfp as fp
    >>> train = fp.kaggle.FileSpec(name="a.csv")
    >>> spec = fp.kaggle.DatasetSpec(name="x", kind="regression", train=train, target=["y"], columns=[], metric="rmse")
    >>> target = fit_target(spec, fp.from_table({"y": [1.0, 3.0]}))
    >>> target.mean, target.scale, target.read(np.array([0.0, 1.0])).tolist()
    ((2.0,), (1.0,), [2.0, 3.0])
    """
    if spec.task.has_classes:
        return Target(spec.target, spec.task.answer, len(spec.outputs))
    log = METRICS[spec.metric].errors == "logarithmic"
    read = Labelled(Target(spec.target, "value", len(spec.target), (0.0,) * len(spec.target), (1.0,) * len(spec.target), log))
    read.schema(schema(rows))  # raise errors for non-numerical columns before reading rows
    chunks = [read.numbers(chunk) for chunk in read_all(select_columns(list(spec.target))(rows))]
    columns = [np.concatenate([chunk[name] for chunk in chunks] or [np.empty(0)]) for name in spec.target]
    if not len(columns[0]):
        raise DataError(
            f"Scaling of the target {listed(map(repr, spec.target))} needs training rows, but {rows!r} is empty. Give at least one row."
        )
    columns = [np.log1p(values) for values in columns] if log else columns
    mean = tuple(float(values.mean()) for values in columns)
    return Target(spec.target, "value", len(columns), mean, tuple(map(nonzero_sd, columns)), log)


@frozen(repr=False)
class Labelled(RowWise):
    """Stage that adds the column `labels` for training. Targets must be numbers, for example the output of `NumberClasses`."""

    target: Target

    def schema(self, schema: Schema) -> Schema:
        check_columns(self.target.columns, schema.names, "the target")
        for name in self.target.columns:
            check_number(schema, name, f"The target {name!r}")
        single = pa.int64() if self.target.answer == "class" else pa.float32()
        several = len(self.target.columns) > 1 or self.target.answer == "labels"
        kind = pa.list_(pa.float32(), len(self.target.columns)) if several else single
        return set_field(schema, LABELS, kind)

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, columns_read=self.target.columns, longest_row=identity)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Add the column `labels`. Raise `DataError` for missing or infinite targets, and for negative targets with `log`."""
        return set_column(chunk, LABELS, self.target.labels(self.numbers(chunk)))

    def numbers(self, chunk: RecordBatch) -> Mapping[str, Numbers]:
        """Return the targets of a chunk by column, float64[N] each."""
        columns = {name: as_floats(chunk.column(name)) for name in self.target.columns}
        for name, values in columns.items():
            if not np.isfinite(values).all():
                value = _first(chunk, values, ~np.isfinite(values))
                raise DataError(f"The target {name!r} must be finite, got {value}. Remove the row.")
            if self.target.log and (values < 0).any():
                negative = _first(chunk, values, values < 0)
                raise DataError(
                    f"rmsle needs targets of at least 0, but {name!r} contains {negative}. Correct the value, or choose another metric."
                )
        return columns


def _first(chunk: RecordBatch, values: Numbers, wrong: NDArray[np.bool_]) -> str:
    index = int(np.argmax(wrong))
    return f"{values[index]:g} in source row {int(source_rows(chunk)[index])}"
