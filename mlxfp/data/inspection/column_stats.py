"""Statistics of rows on their way through a pipeline, for those who want to see what a run is fed with."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.arrow.types import decoded, is_binary, is_list, is_number, is_text, value_type
from mlxfp.core.checks import as_strings, check_columns
from mlxfp.core.chunks import Example, RecordBatch, Schema
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import PipelineError, SchemaError
from mlxfp.core.nodes import check_dataset
from mlxfp.core.stages import Stage, Traits
from mlxfp.data.running.replaying import reached

Row = TypeVar("Row", bound="Example | Sequence[Example]")

Kind = Literal["values", "lengths"]
Number = int | float
Sums = tuple[int, int, Number, Number | None, Number | None]  # (count, missing, total, least, greatest)


def column_stats(columns: Sequence[str]) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Let rows pass, and keep count, least, greatest and mean of these columns: of numbers their values, of text and lists their lengths.

    What was measured is in every cursor, and `column_stats_at` reads it. Nulls and NaN are missing; the length of a text counts
    characters, that of a binary value bytes. Put it after `shuffle`: it takes away random access, because it has to see every row once.
    Raises `SchemaError` when the pipeline is built, for a column that is not there, and for one of another type.

    >>> from mlxfp.core.execution import iterate
    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rows = pipe(from_examples([{"input_ids": [1, 2, 3]}, {"input_ids": [4]}]), column_stats(["input_ids"]))
    >>> *_, (row, cursor) = iterate(rows)
    >>> column_stats_at(rows, cursor)
    (ColumnStats(column='input_ids', of='lengths', count=2, missing=0, least=1, greatest=3, mean=2.0),)
    """
    return _ColumnStats(as_strings("columns", columns, empty=False))


@frozen
class ColumnStats:
    """What `column_stats` found in a column."""

    column: str
    of: Kind
    count: int  # without those that are missing
    missing: int
    least: Number | None  # None: all are missing
    greatest: Number | None
    mean: float | None


def column_stats_at(dataset: Dataset[Any], cursor: Cursor) -> tuple[ColumnStats, ...]:
    """Return what `column_stats` had found when the run came to the cursor, for each of its columns.

    Rows pass it a chunk at a time, so those count that have passed and not come out yet. Where `repeat` follows, it is of the current
    pass. Raises `PipelineError` if the dataset has no `column_stats`, or if a stage after it reads everything at once and so keeps no
    state of it (`load`, `cache`, a `shuffle` in memory): put `column_stats` behind that.

    >>> from mlxfp.core.execution import iterate
    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rows = pipe(from_examples([{"x": 1.0}, {"x": 4.0}]), column_stats(["x"]))
    >>> *_, (row, cursor) = iterate(rows)
    >>> column_stats_at(rows, cursor)[0].mean
    2.5
    """
    check_dataset(dataset, column_stats_at)
    runs = list(reached(dataset, cursor))[::-1]
    found = [(stage, state) for run in runs for stage, state in run.states if isinstance(stage, _ColumnStats)]
    if not found:
        raise PipelineError(
            "There are no measurements: the pipeline has no column_stats(columns), or a stage after it reads everything at once. "
            f"Put it behind load, cache and shuffle, in {dataset!r}."
        )
    return tuple(
        ColumnStats(column, kind, count, missing, least, greatest, total / count if count else None)
        for stage, state in found
        for column, kind, (count, missing, total, least, greatest) in zip(stage.columns, stage.kinds, state, strict=True)
    )


@frozen(repr=False)
class _ColumnStats(Stage):
    """The state has for each column (count, missing, total, least, greatest)."""

    columns: tuple[str, ...]
    kinds: tuple[Kind, ...] = field(default=(), eq=False, repr=False)  # known once schemas are
    accepts = frozenset({"examples", "groups"})

    def start(self, epoch: int) -> tuple[Sums, ...]:
        return ((0, 0, 0, None, None),) * len(self.columns)

    def step(self, state: tuple[Sums, ...], chunk: RecordBatch) -> tuple[tuple[Sums, ...], Iterable[RecordBatch]]:
        columns = zip(state, self.columns, self.kinds, strict=True)
        return tuple(_added(sums, _numbers(chunk.column(name), kind), chunk.num_rows) for sums, name, kind in columns), (chunk,)

    def schema(self, schema: Schema) -> Schema:
        check_columns(self.columns, schema.names, "column_stats")
        return schema

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> Stage:
        return attrs.evolve(self, kinds=tuple(_kind(self.schema(schema).field(name)) for name in self.columns))

    @property
    def traits(self) -> Traits:
        return Traits(length=identity, longest_row=identity)


def _kind(column: pa.Field) -> Kind:
    kind = value_type(column.type)
    if is_number(kind) or pa.types.is_boolean(kind):
        return "values"
    if is_text(kind) or is_binary(kind) or is_list(kind):
        return "lengths"
    raise SchemaError(f"column_stats takes numbers, text and lists, got {column.type} in column {column.name!r}. Name other columns.")


def _numbers(column: pa.Array, kind: Kind) -> NDArray[Any]:
    """Return the numbers to measure, those that are missing left out: int64, uint64 or float64[N]."""
    plain = decoded(column).drop_null()
    if kind == "lengths":
        count = pc.utf8_length if is_text(plain.type) else pc.list_value_length if is_list(plain.type) else pc.binary_length
        plain = count(plain)
    numbers: NDArray[Any] = plain.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        numbers = numbers[~np.isnan(numbers)]
    wide: NDArray[Any] = numbers.astype({"f": np.float64, "u": np.uint64}.get(numbers.dtype.kind, np.int64))
    return wide


def _added(sums: Sums, numbers: NDArray[Any], rows: int) -> Sums:
    count, missing, total, least, greatest = sums
    missing += rows - len(numbers)
    if not len(numbers):
        return count, missing, total, least, greatest
    low, high = numbers.min().item(), numbers.max().item()
    return (
        count + len(numbers),
        missing,
        _total(total, numbers),
        low if least is None else min(least, low),
        high if greatest is None else max(greatest, high),
    )


def _total(before: Number, numbers: NDArray[Any]) -> Number:
    """Add up one number after another: the same however rows are cut into chunks. Whole numbers of 64 bits do not overflow."""
    if numbers.dtype.kind == "f":
        with np.errstate(all="ignore"):  # infinities may meet, and sums overflow to one
            return float(np.cumsum(np.concatenate([[before], numbers]))[-1])
    upper, lower = numbers >> numbers.dtype.type(32), numbers & numbers.dtype.type(2**32 - 1)
    return before + (int(upper.sum()) << 32) + int(lower.sum())
