"""Statistics of the columns of a dataset."""

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
from mlxfp.support.errors import SchemaError

Kind = Literal["values", "lengths"]
Number = int | float
Sums = tuple[int, int, Number, Number | None, Number | None]  # number of counted values, number of missing values, sum, minimum, maximum


@frozen
class ColumnStats:
    """Count, minimum, maximum and mean of a column."""

    column: str
    of: Kind
    count: int  # number of values that are not missing
    missing: int
    least: Number | None  # None if all values are missing
    greatest: Number | None
    mean: float | None


@explain_call
def column_stats(dataset: Dataset[Any], columns: Sequence[str], *, epoch: int = 0) -> tuple[ColumnStats, ...]:
    """Return count, minimum, maximum and mean of columns. Texts and lists are measured by their lengths.

    Reads the epoch once. Nulls and NaN count as missing. The length of a text is its number of characters. The length of a binary value is
    its number of bytes. Raises `SchemaError` for an unknown column, and for a column without numbers, texts or lists. To read fewer
    rows, put `take(count)` before `column_stats`.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"input_ids": [1, 2, 3]}, {"input_ids": [4]}])
    >>> fp.inspect.column_stats(rows, ["input_ids"])
    (ColumnStats(column='input_ids', of='lengths', count=2, missing=0, least=1, greatest=3, mean=2.0),)
    """
    check_level(dataset, column_stats, frozenset({"examples", "groups"}))
    names, known = as_strings("columns", columns, empty=False), schema(dataset)
    check_columns(names, known.names, "column_stats")
    kinds = [_kind(known.field(name)) for name in names]
    sums: list[Sums] = [(0, 0, 0, None, None)] * len(names)
    with closing(read_all(dataset, epoch=epoch, reader="column_stats")) as chunks:
        for chunk in chunks:
            numbers = [_numbers(chunk.column(name), kind) for name, kind in zip(names, kinds, strict=True)]
            sums = [_added(before, added, chunk.num_rows) for before, added in zip(sums, numbers, strict=True)]
    return tuple(
        ColumnStats(name, kind, count, missing, least, greatest, total / count if count else None)
        for name, kind, (count, missing, total, least, greatest) in zip(names, kinds, sums, strict=True)
    )


def _kind(column: pa.Field) -> Kind:
    kind = value_type(column.type)
    if is_number(kind) or pa.types.is_boolean(kind):
        return "values"
    if is_text(kind) or is_binary(kind) or is_list(kind):
        return "lengths"
    raise SchemaError(f"column_stats takes numbers, text and lists, got {column.type} in column {column.name!r}. Name other columns.")


def _numbers(column: pa.Array, kind: Kind) -> NDArray[Any]:
    """Return the values or lengths of a column, without missing values: int64, uint64 or float64[N]."""
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
    """Add numbers to the sum `before`, one after the other.

    The result does not depend on chunk boundaries, and 64-bit integers do not overflow.
    """
    if numbers.dtype.kind == "f":
        with np.errstate(all="ignore"):  # no warnings: inf - inf and overflow are valid results of a sum
            return float(np.cumsum(np.concatenate([[before], numbers]))[-1])
    upper, lower = numbers >> numbers.dtype.type(32), numbers & numbers.dtype.type(2**32 - 1)
    return before + (int(upper.sum()) << 32) + int(lower.sum())
