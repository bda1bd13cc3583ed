"""Targets as numbers: classes by their index, values scaled by the training rows."""

from collections.abc import Iterable, Mapping
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
from mlxfp.support.errors import DataError, SchemaError

LABELS = "labels"


@frozen(repr=False)
class NumberClasses(RowWise):
    """Replace the classes in some columns by their indices in a spec, from 0."""

    columns: tuple[str, ...]
    classes: tuple[str, ...]

    def schema(self, schema: Schema) -> Schema:
        """Make the columns int64; raise `SchemaError` for columns that are missing or have no text."""
        check_columns(self.columns, schema.names, "the target")
        for name in self.columns:
            kind = schema.field(name).type
            if pa.types.is_nested(kind) or is_binary(kind):
                raise SchemaError(f"The target {name!r} must hold classes, got {kind}. Read it as text or numbers.")
            schema = set_field(schema, name, pa.int64())
        return schema

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Find the index of each class; raises `DataError` for a target that is not a class, naming its row."""
        for name in self.columns:
            texts = spell(chunk, name)
            numbers = pc.index_in(texts, pa.array(self.classes)).cast(pa.int64())
            if numbers.null_count:
                place = numbers.is_null().to_pylist().index(True)
                raise DataError(
                    f"The target {name!r} must be one of the classes {_listed(self.classes)}, got {texts[place].as_py()!r} in source row "
                    f"{int(source_rows(chunk)[place])}. Correct the row or leave it out, or name the class in the spec."
                )
            chunk = set_column(chunk, name, numbers)
        return chunk


def numbered(spec: DatasetSpec, rows: Dataset[Any]) -> Dataset[Any]:
    """Return training rows whose targets are numbers: indices of classes, or their values."""
    return NumberClasses(spec.target, spec.classes)(rows) if spec.task.has_classes else rows


@frozen
class Target:
    """How the answers of a model are read: as a class, as several labels, or as values; made by `fit_target`.

    `outputs` is the number of outputs of a model: one for each class, each label or each value. Values are learned as
    (value - mean) / scale, of their logarithms log(1 + value) with `log`; `mean` and `scale` have one number for each column.

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
        """Return the labels of rows from their targets as numbers: int64[N], float32[N], or float32[N, columns] as lists."""
        if self.answer == "class":
            return pa.array(numbers[self.columns[0]].astype(np.int64))
        values = np.stack([numbers[name] for name in self.columns], axis=1)
        if self.answer == "value":
            values = ((np.log1p(values) if self.log else values) - self.mean) / self.scale
        if len(self.columns) == 1 and self.answer == "value":
            return pa.array(values[:, 0].astype(np.float32))
        return pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float32).ravel()), len(self.columns))

    def read(self, answers: Numbers) -> Numbers:
        """Turn answers, probabilities or scaled values float[N] or [N, outputs], into predictions: float64[N], or [N, C].

        These are the probability of the second of two classes, or values in the units of the target, at least 0 with `log`.
        """
        if self.answer == "class":
            return answers[:, 1] if self.outputs == 2 else answers
        if self.answer == "labels":
            return answers[:, 0] if len(self.columns) == 1 else answers
        values: Numbers = answers.reshape(len(answers), len(self.columns)) * np.asarray(self.scale) + np.asarray(self.mean)
        values = np.maximum(np.expm1(values), 0) if self.log else values
        return values[:, 0] if len(self.columns) == 1 else values


def fit_target(spec: DatasetSpec, rows: Dataset[Any]) -> Target:
    """Fit the target on training rows: the mean and standard deviation of values, or of their logarithms if the metric is rmsle.

    For classes and labels nothing is fitted, and no row is read. Raises `DataError` for values that are missing or infinite, for values
    below 0 if their logarithms are needed, and without rows; `SchemaError` for columns that are not numerical.

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
    read.schema(schema(rows))  # raises for columns that are not numerical
    chunks = [read.numbers(chunk) for chunk in read_all(select_columns(list(spec.target))(rows))]
    columns = [np.concatenate([chunk[name] for chunk in chunks] or [np.empty(0)]) for name in spec.target]
    if not len(columns[0]):
        raise DataError(f"The scale of {_listed(spec.target)} is fitted on training rows, and {rows!r} has none. Give at least one.")
    columns = [np.log1p(values) for values in columns] if log else columns
    mean = tuple(float(values.mean()) for values in columns)
    return Target(spec.target, "value", len(columns), mean, tuple(map(nonzero_sd, columns)), log)


@frozen(repr=False)
class Labelled(RowWise):
    """Add the column `labels`, which a model learns; the targets must be numbers, such as those of `NumberClasses`."""

    target: Target

    def schema(self, schema: Schema) -> Schema:
        """Add the column; raise `SchemaError` for targets that are missing or not numerical."""
        check_columns(self.target.columns, schema.names, "the target")
        for name in self.target.columns:
            check_number(schema, name, f"The target {name!r}")
        single = pa.int64() if self.target.answer == "class" else pa.float32()
        several = len(self.target.columns) > 1 or self.target.answer == "labels"
        kind = pa.list_(pa.float32(), len(self.target.columns)) if several else single
        return set_field(schema, LABELS, kind)

    @property
    def traits(self) -> Traits:
        """The columns that are read."""
        return Traits(row_wise=True, columns_read=self.target.columns, longest_row=identity)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Add the column; raises `DataError` for a target that is missing or infinite, or below 0 with `log`."""
        return set_column(chunk, LABELS, self.target.labels(self.numbers(chunk)))

    def numbers(self, chunk: RecordBatch) -> Mapping[str, Numbers]:
        """Read the targets of a chunk, float64[N] of each column."""
        found = {name: as_floats(chunk.column(name)) for name in self.target.columns}
        for name, values in found.items():
            if not np.isfinite(values).all():
                raise DataError(f"The target {name!r} must be finite, got {_first(chunk, values, ~np.isfinite(values))}. Leave it out.")
            if self.target.log and (values < 0).any():
                negative = _first(chunk, values, values < 0)
                raise DataError(f"rmsle needs targets of 0 and more, got {negative} of {name!r}. Correct it, or choose another metric.")
        return found


def _first(chunk: RecordBatch, values: Numbers, wrong: NDArray[np.bool_]) -> str:
    place = int(np.argmax(wrong))
    return f"{values[place]:g} in source row {int(source_rows(chunk)[place])}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
