"""Parquet files."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.parquet as pq
from attrs import frozen

from mlxfp.core.checks import check_unique
from mlxfp.core.chunks import CHUNK_ROWS, Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset, Position
from mlxfp.core.errors import ArgumentError, unknown_name
from mlxfp.data.columnar import ColumnSource, check_fit, fit, reading
from mlxfp.data.files import FileStamp, Paths, as_strings, find_place, place
from mlxfp.data.remote_files import is_remote, open_remote

_BUFFER = 1 << 20  # bytes read at a time for each column; without it Arrow reads whole columns of a row group at once


def read_parquet(path: Paths, *, columns: Sequence[str] | None = None) -> Dataset[Example]:
    """Read Parquet files, lazily: one path, several, a pattern such as `"data/*.parquet"`, or a folder.

    `columns` reads only these columns, in this order. Several files need the same columns and types. Memory holds about 1 MB of the file
    for each column and a chunk of rows; resuming starts at a row group. Reading raises `DataError` for a file that is not Parquet,
    `SchemaError` naming both files where they differ, `MissingFileError` if there is no such file.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"x": [1, 2], "y": [3, 4]}), Path(folder, "a.parquet"))
    ...     list(read_parquet(Path(folder, "a.parquet"), columns=["y"]))
    [{'y': 3}, {'y': 4}]

    See also: `read_arrow` for random access.
    """
    names = None if columns is None else as_strings("columns", columns)
    check_unique({"columns": names or ()})
    if names == ():
        raise ArgumentError("columns must name at least one column, got none.")
    return Dataset(_ReadParquet(path, names))


@lru_cache(maxsize=4096)
def _footer(file: FileStamp) -> tuple[Schema, int]:
    with reading("Parquet", file.path), _open_parquet(file.path) as opened:
        return opened.schema_arrow, opened.metadata.num_rows


@frozen(repr=False)
class _ReadParquet(ColumnSource):
    columns: tuple[str, ...] | None = None
    suffixes = (".parquet",)

    def schema_of(self, file: FileStamp) -> Schema:
        return _footer(file)[0]

    def rows_of(self, file: FileStamp) -> int:
        return _footer(file)[1]

    def schema(self) -> Schema:
        schema = super().schema()
        for name in self.columns or ():
            if name not in schema.names:
                raise unknown_name(f"column of {self.files()[0].path}", name, schema.names)
        return schema if self.columns is None else pa.schema([schema.field(name) for name in self.columns])

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        files = self.files()
        first, *start = find_place(files, position)
        schema = self.schema()
        for number in range(first, len(files)):
            path = files[number].path
            with reading("Parquet", path), _open_parquet(path) as opened:
                check_fit(opened.schema_arrow, path, schema, files[0].path, some=self.columns is not None)
                for chunk, group, row in _row_groups(opened, schema.names, *(start if number == first else (0, 0))):
                    after = (number, group, row) if group < opened.num_row_groups else (number + 1, 0, 0)
                    yield fit(chunk, schema), place(files, *after)


def _row_groups(opened: pq.ParquetFile, columns: list[str], first: int, row: int) -> Iterator[tuple[RecordBatch, int, int]]:
    """Yield chunks from a row of a row group on, each with the (row group, row) after it."""
    for group in range(first, opened.num_row_groups):
        rows, done = opened.metadata.row_group(group).num_rows, 0
        for chunk in opened.iter_batches(CHUNK_ROWS, row_groups=[group], columns=columns):
            done += chunk.num_rows
            if done > row:  # rows before it are decoded again when resuming, and dropped
                fresh = min(chunk.num_rows, done - row)
                yield chunk.slice(chunk.num_rows - fresh), *((group, done) if done < rows else (group + 1, 0))
        row = 0


def _open_parquet(path: str) -> pq.ParquetFile:
    return pq.ParquetFile(open_remote(path) if is_remote(path) else path, pre_buffer=False, buffer_size=_BUFFER)
