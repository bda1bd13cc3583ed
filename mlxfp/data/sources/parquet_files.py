"""Parquet files."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import field, frozen

from mlxfp.core.checks import as_strings
from mlxfp.core.chunks import CHUNK_ROWS, Example, RecordBatch, Schema
from mlxfp.core.conditions import Condition
from mlxfp.core.datasets import Dataset, Position, Source
from mlxfp.core.errors import unknown_name
from mlxfp.data.sources.column_source import ColumnSource, check_fit, fit, reading
from mlxfp.data.sources.files import FileStamp, Paths, find_place, place
from mlxfp.data.sources.remote_files import is_remote, open_remote

_BUFFER = 1 << 20  # bytes read at a time for each column; without it Arrow reads whole columns of a row group at once
_BUFFER_ELSEWHERE = 1 << 22  # the same, where an answer takes its time


def read_parquet(path: Paths, *, columns: Sequence[str] | None = None) -> Dataset[Example]:
    """Read Parquet files, lazily: one path, several, a pattern such as `"data/*.parquet"`, or a folder.

    `columns` reads only these columns, in this order. Several files need the same columns and types; what the names of folders say, as in
    `year=2024/a.parquet`, becomes no column. Memory holds about 1 MB of the file for each column (4 MB of one elsewhere) and a chunk of
    rows; resuming starts at a row group. Of files elsewhere, as in `s3://bucket/a.parquet` or `https://...` with the extra `remote`
    (fsspec), the parts that are needed are fetched. Reading raises `DataError` for a file that is not Parquet, `SchemaError` naming both
    files where they differ, `MissingFileError` if there is no such file.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"x": [1, 2], "y": [3, 4]}), Path(folder, "a.parquet"))
    ...     list(read_parquet(Path(folder, "a.parquet"), columns=["y"]))
    [{'y': 3}, {'y': 4}]

    See also: `read_arrow` for random access.
    """
    names = None if columns is None else as_strings("columns", columns, empty=False)
    return Dataset(_ReadParquet(path, names))


@lru_cache(maxsize=4096)
def _footer(file: FileStamp) -> tuple[Schema, int]:
    with reading("Parquet", file.path), _open_parquet(file.path) as opened:
        return opened.schema_arrow, opened.metadata.num_rows


@frozen(repr=False)
class _ReadParquet(ColumnSource):
    columns: tuple[str, ...] | None = None
    conditions: tuple[Condition, ...] = field(default=(), kw_only=True, repr=False)  # rows that do not meet them may be nulls
    suffixes = (".parquet",)

    def schema_of(self, file: FileStamp) -> Schema:
        return _footer(file)[0]

    def rows_of(self, file: FileStamp) -> int:
        return _footer(file)[1]

    def whole_schema(self) -> Schema:
        schema = super().whole_schema()
        for name in self.columns or ():
            if name not in schema.names:
                raise unknown_name(f"column of {self.files()[0].path}", name, schema.names)
        return schema if self.columns is None else pa.schema([schema.field(name) for name in self.columns])

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        return attrs.evolve(self, kept=tuple(columns), conditions=conditions)

    def notes(self) -> tuple[str, ...]:
        conditions = " and ".join(f"{each.column} {each.operator} {each.value!r}" for each in self.conditions)
        return (f"passes over row groups where nothing meets {conditions}",) if conditions else ()

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        files = self.files()
        first, *start = find_place(files, position)
        whole, schema = self.whole_schema(), self.schema()
        for number in range(first, len(files)):
            path = files[number].path
            with reading("Parquet", path), _open_parquet(path) as opened:
                check_fit(opened.schema_arrow, path, whole, files[0].path, some=self.columns is not None)
                for chunk, group, row in _row_groups(opened, schema, self.conditions, *(start if number == first else (0, 0))):
                    after = (number, group, row) if group < opened.num_row_groups else (number + 1, 0, 0)
                    yield fit(chunk, schema), place(files, *after)


def _row_groups(
    opened: pq.ParquetFile, schema: Schema, conditions: tuple[Condition, ...], first: int, row: int
) -> Iterator[tuple[RecordBatch, int, int]]:
    """Yield chunks from a row of a row group on, each with the (row group, row) after it."""
    for group in range(first, opened.num_row_groups):
        about, done = opened.metadata.row_group(group), 0
        if _may_meet(about, schema, conditions):
            chunks = opened.iter_batches(CHUNK_ROWS, row_groups=[group], columns=schema.names)
        else:
            chunks = _nulls(schema, about.num_rows)
        for chunk in chunks:
            done += chunk.num_rows
            if done > row:  # rows before it are decoded again when resuming, and dropped
                fresh = min(chunk.num_rows, done - row)
                yield chunk.slice(chunk.num_rows - fresh), *((group, done) if done < about.num_rows else (group + 1, 0))
        row = 0


def _may_meet(group: pq.RowGroupMetaData, schema: Schema, conditions: tuple[Condition, ...]) -> bool:
    """Say whether, by its statistics, a row group may have a row that meets the conditions."""
    named = {condition.column for condition in conditions}
    columns = [group.column(place) for place in range(group.num_columns)] if named else []
    said = {column.path_in_schema: column.statistics for column in columns if column.path_in_schema in named and column.is_stats_set}
    return all(
        condition.possible(
            *(pa.array([end], schema.field(condition.column).type) for end in (said[condition.column].min, said[condition.column].max))
        )
        for condition in conditions
        if condition.column in said and said[condition.column].has_min_max and _is_ordered(schema.field(condition.column).type)
    )


def _is_ordered(kind: pa.DataType) -> bool:
    """Say whether a column's statistics are of the values that Arrow compares, in the order in which it does."""
    kinds = (
        pa.types.is_integer,
        pa.types.is_float32,
        pa.types.is_float64,
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_date32,
    )
    return any(is_kind(kind) for is_kind in kinds)


def _nulls(schema: Schema, count: int) -> Iterator[RecordBatch]:
    """Yield rows of nulls, in chunks as they are read."""
    columns = [_null_column(kind, min(count, CHUNK_ROWS)) for kind in schema.types]
    chunk = pa.RecordBatch.from_arrays(columns, schema=schema)
    return (chunk.slice(0, min(CHUNK_ROWS, count - first)) for first in range(0, count, CHUNK_ROWS))


def _null_column(kind: pa.DataType, count: int) -> pa.Array:
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, pa.nulls(count, kind.storage_type))
    return pa.nulls(count, kind)


def _open_parquet(path: str) -> pq.ParquetFile:
    if is_remote(path):
        return pq.ParquetFile(open_remote(path, exactly=True), pre_buffer=False, buffer_size=_BUFFER_ELSEWHERE)
    return pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)
