"""Timestamps of the Parquet type INT96, as written by Spark, Hive and Impala: a day and the nanoseconds of the day.

Arrow converts all times of a file to one unit, and reports no loss. In nanoseconds, years outside 1677 to 2262 become other years. In
microseconds, the last three digits are lost, and years after 294247 become other years. Seconds hold all times of the type. A file is
therefore read in the three units, and times that differ raise an error.
"""

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mlxfp.support.arrow_types import in_unit, parts_of, type_code
from mlxfp.support.errors import DataError

_THOUSAND = pa.scalar(1000, pa.int64())
_WIDE = "a year before 1677 or after 2262"


def has_int96(schema: pq.ParquetSchema, names: Collection[str]) -> bool:
    """Return True if a column of a Parquet file has timestamps of the type INT96, at any depth."""
    columns = (schema.column(index) for index in range(len(schema)))
    return any(column.physical_type == "INT96" and column.path.partition(".")[0] in names for column in columns)


def exact_times(chunk: pa.RecordBatch, finer: pa.RecordBatch, coarser: pa.RecordBatch, schema: pa.Schema, path: str) -> pa.RecordBatch:
    """Return the rows of `chunk`, with times in the units of `schema`.

    `chunk` holds times in microseconds, `finer` the same times in nanoseconds, and `coarser` in seconds. Raises `DataError` for a time that
    the unit cannot hold.
    """
    columns = []
    for field, coarse, fine, seconds in zip(chunk.schema, chunk.columns, finer.columns, coarser.columns, strict=True):
        if _is_outside(seconds, coarse.type):
            raise DataError(
                f"A timestamp of the type INT96 does not fit {coarse.type}: got a year after 294247 in the column {field.name!r} of "
                f"{path}. Read the other columns with columns=, or write the file again."
            )
        in_ns = schema.field(field.name).type == fine.type != coarse.type
        lost = (_WIDE if _is_outside(coarse, fine.type) else None) if in_ns else _shortened(coarse, fine)
        if lost is not None:
            wanted, other = (fine.type, coarse.type) if in_ns else (coarse.type, fine.type)
            raise DataError(
                f"A timestamp of the type INT96 does not fit {wanted}: got {lost} in the column {field.name!r} of {path}. Declare the type "
                f"with schema={{{field.name!r}: {type_code(other)}}}."
            )
        columns.append(fine if in_ns else coarse)
    return pa.RecordBatch.from_arrays(columns, names=chunk.schema.names)


def check_years(part: Any, names: Sequence[str]) -> None:
    """Raise `DataError` if a file of a pyarrow dataset has an INT96 timestamp before 1677 or after 2262 in a column of nanoseconds."""
    timed = [name for name in names if name in part.physical_schema.names and has_int96(part.metadata.schema, [name])]
    wide = [name for name in timed if in_unit(part.physical_schema.field(name).type, "us") != part.physical_schema.field(name).type]
    if not wide:
        return
    groups = [group.id for group in part.row_groups]
    for unit, finer in (("s", "us"), ("us", "ns")):
        options = type(part.format.read_options)(coerce_int96_timestamp_unit=unit)
        coarse = type(part.format)(options).make_fragment(part.path, part.filesystem, row_groups=groups)
        for chunk in coarse.to_batches(columns=wide):
            for name, column in zip(wide, chunk.columns, strict=True):
                if _is_outside(column, in_unit(part.physical_schema.field(name).type, finer)):
                    raise DataError(
                        f"A timestamp of the type INT96 does not fit nanoseconds: got {_WIDE} in the column {name!r} of {part.path}. Read "
                        f"the file with fp.read_parquet({part.path!r})."
                    )


def _is_outside(coarse: pa.Array, kind: pa.DataType) -> bool:
    """Return True if a timestamp lies outside the range of the finer type `kind`."""
    try:
        coarse.cast(kind)
    except pa.ArrowInvalid:
        return True
    return False


def _shortened(coarse: pa.Array, fine: pa.Array) -> str | None:
    """Return the first time that differs between columns in microseconds and nanoseconds, as text. Return None if no time differs."""
    if coarse.type == fine.type:
        return None
    if not pa.types.is_timestamp(coarse.type):
        parts = (_shortened(*pair) for pair in zip(parts_of(coarse), parts_of(fine), strict=True))
        return next((text for text in parts if text is not None), None)
    differs = pc.not_equal(pc.multiply(coarse.cast(pa.int64()), _THOUSAND), fine.cast(pa.int64()))
    lost = fine.filter(differs)
    return lost[:1].cast(pa.string())[0].as_py() if len(lost) else None
