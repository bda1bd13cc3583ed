"""Reader of Parquet files."""

from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from attrs import field, frozen

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.arrow.int96_times import exact_times, has_int96
from mlxfp.core.chunks import Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.sources import Source
from mlxfp.data.sources.column_source import ColumnSource, reading
from mlxfp.data.sources.columns import SCAN, Declared, as_columns, as_types
from mlxfp.data.sources.files import Paths
from mlxfp.data.sources.partitions import stated
from mlxfp.data.sources.remote_files import FileStamp, is_remote, open_remote
from mlxfp.support.arrow_types import with_text_names
from mlxfp.support.checks import explain_call

_BUFFER = 1 << 20  # Number of bytes read at a time for each column. Without a buffer, Arrow would read whole columns of a row group.
_REMOTE_BUFFER = 1 << 22  # Buffer size for remote files, in bytes. The buffer is large, because each request takes about 50 ms.
_OPTIONS = {"pre_buffer": False, "page_checksum_verification": True}  # Page checksums are verified if the file contains checksums.
# Types besides integers with the same order in Arrow as in the statistics of Parquet files (minimum and maximum).
_ORDERED = (pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.date32())


@explain_call
def read_parquet(path: Paths, *, columns: Sequence[str] | None = None, schema: Declared = None) -> Dataset[Example]:
    """Read Parquet files lazily.

    `path` is a path, several paths, a pattern such as `"data/*.parquet"`, or a folder. `columns` selects and orders the columns to
    read. A remote file, such as `s3://bucket/a.parquet` or `https://...`, needs the extra `remote` (fsspec). Only the needed parts of a
    remote file are downloaded.

    Several files need the same columns. Their types must convert to the types of the first file without loss, such as int32 to int64.
    `schema` declares other types for some columns, for example `{"n": pa.float64()}`. A declared column may be missing in a file and is
    null there. A value that its declared type would change, such as a time in a date column, raises an error.

    Timestamps of the type INT96, as written by Spark, are read in microseconds. Declare `pa.timestamp("ns")` to keep nanoseconds.

    `schema="scan"` reads the headers of all files before the first row and takes the columns of all files. Each column gets a type that
    fits all files, and is null in a file without the column. A value that cannot be converted exactly raises an error.

    Folder names such as `year=2024` below the given folder or pattern become columns. The column type is int32 if all values are such
    numbers, otherwise string.

    Memory holds one chunk of rows and about 1 MB of the file for each column (4 MB of a remote file). A resumed run starts reading at the
    beginning of a row group. Raises `ArgumentError` for empty `columns` and for repeated names. Reading raises

    - `DataError` for a file that is not Parquet, a value that does not fit its column, or a value that contradicts the folder name,
    - `SchemaError` with both files for different columns or types,
    - `UnknownNameError` for a name in `columns` or `schema` that is missing in all files,
    - `MissingFileError` if no file matches a path.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"x": [1, 2], "y": [3, 4]}), Path(folder, "a.parquet"))
    ...     list(read_parquet(Path(folder, "a.parquet"), columns=["y"]))
    [{'y': 3}, {'y': 4}]

    See also: `read_arrow` for random access.
    """
    return Dataset(_ReadParquet(path, as_columns(columns), types=as_types(schema), scan=schema == SCAN))


@lru_cache(maxsize=4096)
def _read_footer(file: FileStamp) -> tuple[Schema, int, int]:
    """Return the schema, the number of row groups and the number of rows of a file, as stored in its footer."""
    with reading("Parquet", file.path), _open_parquet(file.path) as opened:
        groups = [opened.metadata.row_group(number).num_rows for number in range(opened.num_row_groups)]
        if min(groups, default=0) < 0 or sum(groups) != opened.metadata.num_rows:
            raise pa.ArrowInvalid(f"the footer declares {opened.metadata.num_rows:,} rows, but its row groups have {sum(groups):,}")
        return with_text_names(opened.schema_arrow), opened.num_row_groups, opened.metadata.num_rows


@frozen(repr=False)
class _ReadParquet(ColumnSource):
    # Filter conditions of later stages. A row group without a match is not read, and nulls take the place of its rows.
    conditions: tuple[Condition, ...] = field(default=(), kw_only=True, repr=False)
    suffixes = (".parquet",)
    kind = "Parquet"
    declares = True

    def header_of(self, file: FileStamp) -> tuple[Schema, int]:
        return _read_footer(file)[:2]

    def rows_of(self, file: FileStamp) -> int:
        return _read_footer(file)[2]

    def row_groups(self, file: FileStamp, schema: Schema, first: int) -> Iterator[tuple[int, Iterable[RecordBatch]]]:
        kinds = self.types_of(file)  # Statistics are only comparable if a column has the same type in the file and in the schema.
        with _open_parquet(file.path) as opened:
            file_columns = [name for name in schema.names if name in kinds]
            wanted = bool(file_columns) and self._may_state(file, schema, kinds)
            for number in range(first, opened.num_row_groups):
                group = opened.metadata.row_group(number)
                conditions = [
                    condition for condition in self.conditions if kinds.get(condition.column) == schema.field(condition.column).type
                ]
                if wanted and _may_meet(group, schema, conditions):
                    chunks = opened.iter_batches(self.chunk_rows, row_groups=[number], columns=file_columns)
                    if has_int96(opened.schema, file_columns):
                        in_ns, in_seconds = (
                            _open_parquet(file.path, unit).iter_batches(self.chunk_rows, row_groups=[number], columns=file_columns)
                            for unit in ("ns", "s")
                        )
                        units = zip(chunks, in_ns, in_seconds, strict=True)
                        chunks = (exact_times(chunk, finer, coarser, schema, file.path) for chunk, finer, coarser in units)
                    yield group.num_rows, map(_checked, chunks)
                else:
                    yield group.num_rows, _null_chunks(group.num_rows, self.chunk_rows)

    def _may_state(self, file: FileStamp, schema: Schema, kinds: Container[str]) -> bool:
        """Return True if the partition values in the folder names of a file can meet the filter conditions."""
        texts = {name: text for name, text in file.partition if name not in kinds}
        for condition in self.conditions:
            if condition.column in texts:
                value = stated(texts[condition.column], schema.field(condition.column).type, condition.column, file.path)
                if not condition.possible(value, value):
                    return False
        return True

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        return attrs.evolve(self, kept=tuple(columns), conditions=conditions)

    def notes(self) -> tuple[str, ...]:
        conditions = " and ".join(f"{condition.column} {condition.operator} {condition.value!r}" for condition in self.conditions)
        return (*super().notes(), f"skips row groups where no row meets {conditions}") if conditions else super().notes()


def _may_meet(group: pq.RowGroupMetaData, schema: Schema, conditions: Sequence[Condition]) -> bool:
    """Return True if some rows of a row group may meet the filter conditions, according to the statistics of the row group."""
    columns = [group.column(index) for index in range(group.num_columns)] if conditions else []
    statistics = {column.path_in_schema: column.statistics for column in columns if column.is_stats_set}

    def may_meet(condition: Condition) -> bool:
        ends, kind = statistics.get(condition.column), schema.field(condition.column).type
        if ends is None or not ends.has_min_max or not (pa.types.is_integer(kind) or kind in _ORDERED):
            return True
        return condition.possible(pa.array([ends.min], kind), pa.array([ends.max], kind))

    return all(map(may_meet, conditions))


def _checked(chunk: RecordBatch) -> RecordBatch:
    """Raise an error for text that is not UTF-8, because Arrow does not check text while reading."""
    chunk.validate(full=True)
    return chunk


def _null_chunks(count: int, size: int) -> Iterator[RecordBatch]:
    """Yield `count` rows without columns, in chunks of `size` rows. The missing columns are later filled with nulls."""
    chunk = pa.record_batch({"": pa.nulls(min(count, size))})
    return (chunk.slice(0, count - first) for first in range(0, count, size))


def _open_parquet(path: str, unit: str = "us") -> pq.ParquetFile:
    """Open a Parquet file. Timestamps of the type INT96 are read in `unit`. Only seconds hold all times of the type."""
    options = {**_OPTIONS, "coerce_int96_timestamp_unit": unit}
    if is_remote(path):
        return pq.ParquetFile(open_remote(path, exactly=True, jumps=True), buffer_size=_REMOTE_BUFFER, **options)
    return pq.ParquetFile(path, buffer_size=_BUFFER, **options)
