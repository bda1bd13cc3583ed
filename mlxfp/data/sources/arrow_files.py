"""Reader of Arrow IPC files and streams. Files are memory-mapped, so uncompressed data are used without a copy."""

from collections.abc import Iterable, Iterator
from functools import cache, cached_property, lru_cache, partial
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.gathering import Rows
from mlxfp.core.chunks import HIDDEN, KEY, ROW, Example, RecordBatch, Schema
from mlxfp.core.datasets import Dataset
from mlxfp.core.sources import SourceTraits
from mlxfp.data.manifests import has_hash
from mlxfp.data.sources.column_source import ColumnSource, reading
from mlxfp.data.sources.files import Paths, check_unchanged
from mlxfp.data.sources.partitions import fit
from mlxfp.data.sources.remote_files import FileStamp, is_remote, open_remote
from mlxfp.data.sources.row_chunks import ERROR
from mlxfp.support.arrow_types import with_text_names
from mlxfp.support.checks import explain_call
from mlxfp.support.errors import DataError, SchemaError

_KEPT = pa.schema({ROW: pa.int64(), KEY: pa.uint64()})  # columns that `cache` adds to its files: row numbers and random keys


@explain_call
def read_arrow(path: Paths) -> Dataset[Example]:
    """Read Arrow IPC files or streams (Feather, caches of Hugging Face datasets) lazily. Files are memory-mapped and not copied.

    `path` is a path, several paths, a pattern such as `"data/*.arrow"`, or a folder. A remote file, such as `s3://bucket/a.arrow` or
    `https://...`, needs the extra `remote` (fsspec) and is downloaded completely. Several files need the same columns. Their types must
    convert to the types of the first file without loss. Folder names such as `year=2024` become columns, as in `read_parquet`.

    Rows have random access, so `shuffle` permutes all rows without holding them in memory. Compressed files are decompressed during
    reading, one record batch at a time. Random access to a compressed stream needs all its batches in memory, so put `load` or `cache`
    before `shuffle` for a large compressed stream. String view columns, as written by polars, are converted to large strings. Do not
    overwrite or truncate a file while a dataset reads it.

    In a folder written by `write`, the file list comes from the manifest, and the files are checked against its hashes. Files of `cache`
    can be read too, also in another program or without the original pipeline.

    Reading raises `DataError` for a file that is not Arrow IPC, `SchemaError` with both files for different columns or types,
    `MissingFileError` if no file matches a path, and `ArgumentError` for a folder with several caches.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with pa.ipc.new_stream(Path(folder, "a.arrow"), pa.schema({"x": pa.int64()})) as writer:
    ...         writer.write(pa.record_batch({"x": [1, 2]}))
    ...     list(read_arrow(Path(folder, "a.arrow")))
    [{'x': 1}, {'x': 2}]

    See also: `read_parquet`.
    """
    return Dataset(_ReadArrow(path))


@lru_cache(maxsize=4096)
def _read_header(file: FileStamp) -> tuple[Schema, int | None]:
    opened = _open(file.path)
    with reading("Arrow IPC", file.path):
        return with_text_names(opened.reader.schema), None if opened.is_stream else opened.reader.num_record_batches


def _is_cache(file: FileStamp) -> bool:
    """Return True for a file written by `cache`. Such a file has the columns of `cache` for row numbers and random keys."""
    schema, _ = _read_header(file)
    return bool(pa.schema([column for column in schema if column.name in HIDDEN]).equals(_KEPT))


def _without_hidden(file: FileStamp) -> Schema:
    """Return the schema of a file without the columns that `cache` adds."""
    schema, _ = _read_header(file)
    if not _is_cache(file):
        return schema
    if ERROR in schema.names:
        raise SchemaError(
            f"read_arrow cannot read a cache that contains failed rows: got the column {ERROR!r}, in {file.path}. "
            "Put on_error before cache and write the cache again, or read the cache with the pipeline that wrote the cache."
        )
    return pa.schema([column for column in schema if column.name not in HIDDEN], schema.metadata)


@lru_cache(maxsize=4096)
def _count_rows(file: FileStamp) -> int:
    opened = _open(file.path)
    with reading("Arrow IPC", file.path):
        if opened.is_stream:
            return sum(batch.num_rows for batch in opened.reader)
        # One column is decompressed, which is enough to count rows.
        first = pa.ipc.open_file(opened.data, options=pa.ipc.IpcReadOptions(included_fields=[0]))
        return sum(first.get_batch(number).num_rows for number in range(first.num_record_batches))


@frozen(repr=False)
class _ReadArrow(ColumnSource):
    """Source of Arrow files. Each record batch of a file counts as a row group."""

    suffixes = (".arrow", ".feather", ".ipc")
    kind = "Arrow IPC"
    indexable = True

    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, take_workers=frozenset({"threads", "processes"}))

    def header_of(self, file: FileStamp) -> tuple[Schema, int | None]:
        return _without_hidden(file), _read_header(file)[1]

    def rows_of(self, file: FileStamp) -> int:
        return _count_rows(file)

    def row_groups(self, file: FileStamp, schema: Schema, first: int) -> Iterator[tuple[int, Iterable[RecordBatch]]]:
        return ((batch.num_rows, [_checked(file, batch)]) for batch in _open(file.path, schema).batches(first))

    @cached_property
    def index(self) -> Rows:
        """Index for random access to all rows. The index is cached, because `take` is called often."""
        files, whole = self.files(), self.whole_schema()
        for file in files:
            self.check_fit(file, whole, files[0])
        return _index(files, self.schema())

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return self.index.take(indices)


@frozen(eq=False)
class _Mapped:
    """Memory-mapped Arrow IPC file. The file stays mapped while a record batch refers to its data."""

    data: pa.Buffer
    reader: Any
    is_stream: bool  # True for the stream format, in which record batches are read in order

    def batches(self, first: int = 0) -> Iterator[RecordBatch]:
        numbers = range(first, 0 if self.is_stream else self.reader.num_record_batches)
        for batch in islice(self.reader, first, None) if self.is_stream else map(self.reader.get_batch, numbers):
            # `validate` checks only buffer sizes. `_checked` checks all values when rows of the batch are needed.
            batch.validate()
            yield batch


def _open(path: str, schema: Schema | None = None) -> _Mapped:
    """Map an Arrow IPC file into memory. If `schema` is given, only the columns of `schema` are decompressed."""
    with reading("Arrow IPC", path):
        data = (open_remote(path, jumps=True) if is_remote(path) else pa.memory_map(path)).read_buffer()
        if data[:6].to_pybytes() != b"ARROW1":
            return _Mapped(data, pa.ipc.open_stream(data), is_stream=True)
        reader = pa.ipc.open_file(data)
        if schema is not None and len(schema) < len(reader.schema):
            present = dict.fromkeys(reader.schema.names)
            file_columns = [name for name in schema.names if name in present] or [next(iter(present))]
            fields = [reader.schema.get_field_index(name) for name in file_columns]
            reader = pa.ipc.open_file(data, options=pa.ipc.IpcReadOptions(included_fields=fields))
        return _Mapped(data, reader, is_stream=False)


@lru_cache(maxsize=16)
def _index(files: tuple[FileStamp, ...], schema: Schema) -> Rows:
    rows, batches, all_mapped = [0], [], True
    for file in files:
        opened = _open(file.path, schema)
        with reading("Arrow IPC", file.path):
            present = set(opened.reader.schema.names)
            file_columns = [name for name in schema.names if name in present]
            same_types = all(opened.reader.schema.field(name).type == schema.field(name).type for name in file_columns)
            for number, batch in enumerate(opened.batches()):
                mapped = same_types and _is_mapped(batch.select(file_columns), opened.data)
                all_mapped = all_mapped and mapped
                rows.append(batch.num_rows)
                keep = mapped or opened.is_stream
                batches.append(
                    cache(partial(_fitted, batch, schema, file)) if keep else partial(_decompressed, opened, number, schema, file)
                )
    return Rows(schema, np.cumsum(rows), tuple(batches), all_mapped)


def _is_mapped(batch: RecordBatch, data: pa.Buffer) -> bool:
    """Return True if all buffers of a batch lie in the mapped file.

    Returns False if a buffer was decompressed or converted to another type.
    """
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    return all(data.address <= buffer.address < data.address + data.size for buffer in buffers)


def _decompressed(opened: _Mapped, number: int, schema: Schema, file: FileStamp) -> RecordBatch:
    with reading("Arrow IPC", file.path):
        return _fitted(opened.reader.get_batch(number), schema, file)


def _fitted(batch: RecordBatch, schema: Schema, file: FileStamp) -> RecordBatch:
    with reading("Arrow IPC", file.path):
        return fit(_checked(file, batch), schema, file.partition, file.path)


def _checked(file: FileStamp, batch: RecordBatch) -> RecordBatch:
    """Check a batch and return it. Raises `DataError` if the file has changed or is damaged.

    A file with a hash in a manifest must have this hash. For any other file, all values of the batch are validated, because a damaged
    offset could make Arrow read outside the file.
    """
    check_unchanged(file)
    if file.hash is None:
        batch.validate(full=True)
    elif not has_hash(file.path, file.size, file.modified, file.hash):
        raise DataError(
            f"Written data are damaged: the SHA-256 hash differs from the manifest, in {file.path}. Call write again with the same "
            "arguments to repair the files, or delete the folder of a cache."
        )
    return batch
