"""Writers of Arrow, Parquet and JSON lines files. The bytes of a file depend only on its rows, not on chunk boundaries."""

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, time
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mlxfp.core.arrow.content import content_bits
from mlxfp.core.arrow.light_arrays import number_array
from mlxfp.core.chunks import LARGE, RecordBatch, Schema, concat_chunks, to_rows
from mlxfp.support.arrow_types import is_large, is_list_like, parts_of, type_code
from mlxfp.support.errors import ArgumentError

# Target size of a record batch or row group, in bytes. Smaller batches slow random access down. Larger batches need more memory.
_BYTES = 1 << 25
_FIRST, _MOST = 64, 65_536  # Number of rows on which the row size is measured, and maximum number of rows in a batch.


class Format(NamedTuple):
    """File format: name, suffix, and a function that writes a file and returns the number of rows."""

    name: str
    suffix: str
    write: Callable[[Path, Schema, Iterable[RecordBatch]], int]


def write_arrow(path: Path, schema: Schema, chunks: Iterable[RecordBatch]) -> int:
    """Write an Arrow IPC file. Return the number of rows."""
    return write_items(path, schema, _even(chunks))


def write_items(path: Path, schema: Schema, chunks: Iterable[RecordBatch]) -> int:
    """Write an Arrow IPC file with one record batch per chunk. A chunk holds a group of rows or a batch. Return the number of rows."""
    rows = 0
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, schema) as writer:
        for chunk in chunks:
            writer.write_batch(chunk)
            rows += chunk.num_rows
    return rows


def write_parquet(path: Path, schema: Schema, chunks: Iterable[RecordBatch]) -> int:
    """Write a Parquet file. Return the number of rows.

    Raises `ArgumentError` for a column type that Parquet lacks, and for a value that Parquet cannot hold or Arrow cannot read back.
    """
    rows = 0
    with _parquet_writer(path, schema) as writer:
        for chunk in _even(chunks):
            _check_fixed_lists(chunk, rows)
            try:
                writer.write_batch(chunk)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise ArgumentError(
                    f"Parquet cannot hold a value: {error}, from row {rows} of the file on. Write the data with format='arrow'."
                ) from error
            rows += chunk.num_rows
    return rows


def _check_fixed_lists(chunk: RecordBatch, first: int) -> None:
    """Raise `ArgumentError` if a column of fixed-size lists has missing values or the size 0. Arrow cannot read such lists from Parquet."""
    for field, column in zip(chunk.schema, chunk.columns, strict=True):
        if _is_unreadable(column):
            row = next(row for row in range(len(column)) if _is_unreadable(column.slice(row, 1)))
            index, kind = chunk.schema.get_field_index(field.name), type_code(_without_fixed_lists(field.type))
            raise ArgumentError(
                f"Arrow cannot read missing or empty lists of a fixed length from Parquet: got {column[row].as_py()!r:.80} in the column "
                f"{field.name!r} of {field.type}, in row {first + row} of the file. Write the data with format='arrow', or convert the "
                f"column: fp.map_chunks(lambda chunk: chunk.set_column({index}, {field.name!r}, chunk[{field.name!r}].cast({kind})))."
            )


def _is_unreadable(column: pa.Array) -> bool:
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    if pa.types.is_fixed_size_list(column.type) and (column.null_count or not column.type.list_size):
        return len(column) > 0
    return any(map(_is_unreadable, parts_of(column)))


def _without_fixed_lists(kind: pa.DataType) -> pa.DataType:
    """Return a type with lists of any length in place of lists of fixed length, at any depth."""
    if pa.types.is_struct(kind):
        return pa.struct([member.with_type(_without_fixed_lists(member.type)) for member in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _without_fixed_lists(kind.item_type))
    if is_list_like(kind):
        return (pa.large_list if is_large(kind) else pa.list_)(_without_fixed_lists(kind.value_type))
    return kind


def _parquet_writer(path: Path | BytesIO, schema: Schema) -> pq.ParquetWriter:
    try:
        return pq.ParquetWriter(path, schema, write_page_checksum=True)
    except pa.ArrowNotImplementedError as error:
        for column in schema if len(schema) > 1 else ():
            _parquet_writer(BytesIO(), pa.schema([column])).close()
        raise ArgumentError(
            f"Parquet has no type for {schema[0].type}, in column {schema[0].name!r}. Write the data with format='arrow', or change the "
            "column with map."
        ) from error


def write_jsonl(path: Path, schema: Schema, chunks: Iterable[RecordBatch]) -> int:
    """Write a JSON lines file.

    Return the number of rows. Raises `ArgumentError` for values that JSON lacks: bytes, NaN, infinite numbers.
    """
    rows = 0
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for chunk in chunks:
            for row in to_rows(chunk):
                out.write(_as_json(row, rows) + "\n")
                rows += 1
    return rows


FORMATS = {
    "arrow": Format("arrow", ".arrow", write_arrow),
    "parquet": Format("parquet", ".parquet", write_parquet),
    "jsonl": Format("jsonl", ".jsonl", write_jsonl),
}
ITEMS = Format("items", ".arrow", write_items)  # `cache` writes each group, or each batch, as one record batch of Arrow.


def _even(chunks: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the rows in chunks of equal length, and a shorter last chunk. The number of bytes in the first rows determines the length."""
    buffered: list[RecordBatch] = []
    count, size = 0, None
    for chunk in chunks:
        buffered.append(chunk)
        count += chunk.num_rows
        if size is None and (count >= _FIRST or sum(part.nbytes for part in buffered) >= LARGE):
            buffered = [concat_chunks(buffered)]
            size = _rows_per_chunk(buffered[0])
        if size is not None and count >= size:
            joined = concat_chunks(buffered)
            whole = count - count % size
            for first in range(0, whole, size):
                yield _copied(joined.slice(first, size))
            buffered, count = [joined.slice(whole)], count - whole
    if count:
        yield _copied(concat_chunks(buffered))


def _rows_per_chunk(rows: RecordBatch) -> int | None:
    """Return the number of rows in about 32 MiB, estimated from the first rows. Returns None if `rows` is too short for an estimate."""
    bits = 0
    for count in range(1, min(_FIRST, rows.num_rows) + 1):
        bits += content_bits(_copied(rows.slice(count - 1, 1)))
        if count == _FIRST or bits >= 8 * LARGE:
            return min(_MOST, max(1, 8 * _BYTES * count // max(1, bits)))
    return None


def _copied(chunk: RecordBatch) -> RecordBatch:
    """Return a copy of the rows. If a slice is not copied, Arrow can write the bytes of rows outside the slice, too."""
    return chunk.take(number_array(np.arange(chunk.num_rows)))


def _as_json(row: dict[str, Any], row_number: int) -> str:
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False, default=_plain)
    except (TypeError, ValueError) as error:
        name = next((name for name, value in row.items() if not _fits(value)), "a column")
        raise ArgumentError(
            f"JSON has no value for {row[name]!r:.60} in {name!r}: {error}, in row {row_number} of the file. Write the data with "
            "format='arrow' or 'parquet', or change the column with map."
        ) from error


def _fits(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False, default=_plain)
    except (TypeError, ValueError):
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not a value of JSON")
