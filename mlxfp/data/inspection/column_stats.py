"""Statistics of the columns of a dataset."""

import datetime as dt
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import schema
from mlxfp.core.execution import read_all
from mlxfp.core.stages import check_level
from mlxfp.support.arrow_types import decoded, is_binary, is_list, is_number, is_text, value_type
from mlxfp.support.checks import as_strings, check_columns, explain_call

Kind = Literal["values", "lengths", "times", "counts"]
Number = int | float
Time = dt.date | dt.time | dt.timedelta  # `dt.date` includes its subclass `dt.datetime`
# number of counted values, number of missing values, sum, minimum, maximum
Sums = tuple[int, int, Number, Any, Any]


@frozen
class ColumnStats:
    """Count, minimum, maximum and mean of a column.

    The attribute `ColumnStats.of` names the measured quantity: "values" of numbers, "lengths" of texts and lists, or "times". Times have no
    mean. Columns of other types have "counts": only `count` and `missing` are set.
    """

    column: str
    of: Kind
    count: int  # number of values that are not missing
    missing: int
    least: Number | Time | None  # None if all values are missing
    greatest: Number | Time | None
    mean: float | None


@explain_call
def column_stats(dataset: Dataset[Any], columns: Sequence[str] | None = None, *, epoch: int = 0) -> tuple[ColumnStats, ...]:
    """Return count, minimum, maximum and mean of columns, by default of all columns. Texts and lists are measured by their lengths.

    Reads the epoch once. Nulls and NaN count as missing. The length of a text is its number of characters. The length of a binary value is
    its number of bytes. Dates and times have no mean. Columns of other types, such as structs, have only counts. Raises `SchemaError` for
    an unknown column. To read fewer rows, put `take(count)` before `column_stats`.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"input_ids": [1, 2, 3]}, {"input_ids": [4]}])
    >>> fp.inspect.column_stats(rows, ["input_ids"])
    (ColumnStats(column='input_ids', of='lengths', count=2, missing=0, least=1, greatest=3, mean=2.0),)
    """
    check_level(dataset, column_stats, frozenset({"examples", "groups"}))
    known = schema(dataset)
    names = tuple(known.names) if columns is None else as_strings("columns", columns, empty=False)
    check_columns(names, known.names, "column_stats")
    kinds = [_kind(known.field(name)) for name in names]
    sums: list[Sums] = [(0, 0, 0, None, None)] * len(names)
    with closing(read_all(dataset, epoch=epoch, reader="column_stats")) as chunks:
        for chunk in chunks:
            parts = zip(sums, (chunk.column(name) for name in names), kinds, strict=True)
            sums = [_with_column(before, column, kind) for before, column, kind in parts]
    return tuple(
        ColumnStats(name, kind, count, missing, least, greatest, total / count if count and kind in ("values", "lengths") else None)
        for name, kind, (count, missing, total, least, greatest) in zip(names, kinds, sums, strict=True)
    )


def _kind(column: pa.Field) -> Kind:
    kind = value_type(column.type)
    if is_number(kind) or pa.types.is_boolean(kind):
        return "values"
    if is_text(kind) or is_binary(kind) or is_list(kind):
        return "lengths"
    return "times" if pa.types.is_temporal(kind) and not pa.types.is_interval(kind) else "counts"


def _with_column(before: Sums, column: pa.Array, kind: Kind) -> Sums:
    count, missing, total, least, greatest = before
    known: Any = decoded(column).drop_null()
    if kind in ("values", "lengths"):
        known = _numbers(known, kind)
    count, missing = count + len(known), missing + len(column) - len(known)
    if kind == "counts" or not len(known):
        return count, missing, total, least, greatest
    if kind == "times":
        low, high = (_python_time(value) for value in _ends(known))
    else:
        low, high, total = known.min().item(), known.max().item(), _total(total, known)
    return count, missing, total, low if least is None else min(least, low), high if greatest is None else max(greatest, high)


def _ends(times: pa.Array) -> list[pa.Scalar]:
    """Return minimum and maximum. Arrow has no minimum of durations, so durations are compared as integers."""
    if not pa.types.is_duration(times.type):
        return list(pc.min_max(times).values())
    return [pa.scalar(value.as_py(), times.type) for value in pc.min_max(times.view(pa.int64())).values()]


def _python_time(value: pa.Scalar) -> Time:
    """Return a time as a Python value. Times are truncated to microseconds, because Python has no nanoseconds."""
    kind = value.type
    if getattr(kind, "unit", None) == "ns":
        plain = pa.duration("us") if pa.types.is_duration(kind) else pa.time64("us")
        value = pc.cast(value, pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else plain, safe=False)
    result: Time = value.as_py()
    return result


def _numbers(plain: pa.Array, kind: Kind) -> NDArray[Any]:
    """Return the values or lengths of a column without nulls, except NaN: int64, uint64 or float64[N]."""
    if kind == "lengths":
        count = pc.utf8_length if is_text(plain.type) else pc.list_value_length if is_list(plain.type) else pc.binary_length
        plain = count(plain)
    numbers: NDArray[Any] = plain.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        numbers = numbers[~np.isnan(numbers)]
    wide: NDArray[Any] = numbers.astype({"f": np.float64, "u": np.uint64}.get(numbers.dtype.kind, np.int64))
    return wide


def _total(before: Number, numbers: NDArray[Any]) -> Number:
    """Add numbers to the sum `before`, one after the other.

    The result does not depend on chunk boundaries, and 64-bit integers do not overflow.
    """
    if numbers.dtype.kind == "f":
        with np.errstate(all="ignore"):  # no warnings: inf - inf and overflow are valid results of a sum
            return float(np.cumsum(np.concatenate([[before], numbers]))[-1])
    upper, lower = numbers >> numbers.dtype.type(32), numbers & numbers.dtype.type(2**32 - 1)
    return before + (int(upper.sum()) << 32) + int(lower.sum())
