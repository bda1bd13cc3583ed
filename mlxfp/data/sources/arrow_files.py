"""Arrow IPC files and streams, mapped into memory and read without a copy."""

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.arrow.gathering import Rows
from mlxfp.core.chunks import CHUNK_ROWS, Example, RecordBatch, Schema, no_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import ArgumentError
from mlxfp.core.sources import Position, Source
from mlxfp.data.sources.column_source import ColumnSource, check_fit, fit, reading
from mlxfp.data.sources.files import FileStamp, Paths, find_place, place
from mlxfp.data.sources.remote_files import is_remote, open_remote


def read_arrow(path: Paths) -> Dataset[Example]:
    """Read Arrow IPC files or streams (Feather, the caches of Hugging Face datasets), lazily, mapped into memory and without a copy.

    One path, several, a pattern such as `"data/*.arrow"`, or a folder. Rows can be taken in any order, so `shuffle` permutes all of them
    without holding them. Compressed buffers are decompressed when they are needed: a batch at a time in files, and in streams, for random
    access, all of them in memory; to shuffle a large compressed file, put `load` or `cache` before `shuffle`. Views of text, which polars
    writes, come as large strings. A file elsewhere, as in `s3://bucket/a.arrow` or `https://...` with the extra `remote` (fsspec), is
    fetched whole. Several files need the same columns and types. A file must not be cut or overwritten while it is mapped. Reading raises
    `DataError` for a file that is not Arrow IPC, `SchemaError` naming both files where they differ, `MissingFileError` if there is no such
    file.

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
def _schema(file: FileStamp) -> Schema:
    return _open(file.path).reader.schema


@lru_cache(maxsize=4096)
def _rows(file: FileStamp) -> int:
    opened = _open(file.path)
    with reading("Arrow IPC", file.path):
        if opened.is_stream:
            return sum(batch.num_rows for batch in opened.reader)
        first = pa.ipc.open_file(opened.data, options=pa.ipc.IpcReadOptions(included_fields=[0]))  # of compressed columns, decompress one
        return sum(first.get_batch(number).num_rows for number in range(first.num_record_batches))


@frozen(repr=False)
class _ReadArrow(ColumnSource):
    suffixes = (".arrow", ".feather", ".ipc")

    @property
    def indexable(self) -> bool:
        return True

    def schema_of(self, file: FileStamp) -> Schema:
        return _schema(file)

    def rows_of(self, file: FileStamp) -> int:
        return _rows(file)

    @cached_property
    def index(self) -> Rows:
        """Where every row is. Looked up once: `take` is called too often to look at the files each time."""
        return _index(self.files(), self.whole_schema(), self.schema())

    def file_of(self, position: Position) -> str | None:
        files = self.files()
        number, batch, _ = find_place(files, position)
        opened = _open(files[number].path) if batch and number < len(files) else None
        if opened is not None and opened.is_stream:  # which does not say how many batches it has: the chunk may be of the next one
            return None
        ended = opened is not None and batch >= opened.reader.num_record_batches
        return super().file_of(place(files, number + 1, 0, 0) if ended else position)

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        return attrs.evolve(self, kept=tuple(columns))

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        files = self.files()
        first, start, row = find_place(files, position)
        whole, schema = self.whole_schema(), self.schema()
        for number in range(first, len(files)):
            skipped = start if number == first else 0
            opened = _looking_at(_open(files[number].path), whole, schema, files[0].path)
            for which, batch in enumerate(_batches(opened, schema, skipped), skipped):
                for at in range(row, batch.num_rows, CHUNK_ROWS):
                    end = at + CHUNK_ROWS
                    yield batch.slice(at, CHUNK_ROWS), place(files, number, *((which, end) if end < batch.num_rows else (which + 1, 0)))
                row = 0

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        if not len(indices):
            return no_rows(self.schema())
        rows = int(self.index.starts[-1])
        if indices.min() < 0 or indices.max() >= rows:
            raise ArgumentError(
                f"A row is out of range: got {indices.min()} to {indices.max()}, where there are {rows:,} rows, in {self!r}."
            )
        return self.index.take(indices)


@frozen(eq=False)
class _Mapped:
    """An Arrow IPC file in memory. What is read from it keeps it there."""

    path: str
    data: pa.Buffer
    reader: Any
    is_stream: bool  # which can only be read in order


def _open(path: str) -> _Mapped:
    with reading("Arrow IPC", path):
        data = (open_remote(path) if is_remote(path) else pa.memory_map(path)).read_buffer()
        is_stream = data[:6].to_pybytes() != b"ARROW1"
        return _Mapped(path, data, pa.ipc.open_stream(data) if is_stream else pa.ipc.open_file(data), is_stream)


def _looking_at(opened: _Mapped, whole: Schema, schema: Schema, first: str) -> _Mapped:
    """Return a file that has the columns of `whole` with a reader of those of `schema`: others are not decompressed."""
    found = opened.reader.schema
    check_fit(found, opened.path, whole, first)
    if opened.is_stream or len(schema) == len(found):
        return opened
    fields = [found.get_field_index(name) for name in schema.names]
    return attrs.evolve(opened, reader=pa.ipc.open_file(opened.data, options=pa.ipc.IpcReadOptions(included_fields=fields)))


def _batches(opened: _Mapped, schema: Schema, start: int = 0) -> Iterator[RecordBatch]:
    """Yield the batches of a file from number `start` on."""
    reader = opened.reader
    with reading("Arrow IPC", opened.path):
        found = islice(reader, start, None) if opened.is_stream else map(reader.get_batch, range(start, reader.num_record_batches))
        for batch in found:
            batch.validate()  # of its buffers, not of all that is in them: that would read the file
            yield fit(batch, schema)


@lru_cache(maxsize=16)
def _index(files: tuple[FileStamp, ...], whole: Schema, schema: Schema) -> Rows:
    rows, batches, mapped = [0], [], True
    for file in files:
        opened = _looking_at(_open(file.path), whole, schema, files[0].path)
        for number, batch in enumerate(_batches(opened, schema)):
            here = _is_mapped(batch, opened.data)
            mapped = mapped and here
            rows.append(batch.num_rows)
            batches.append(partial(identity, batch) if here or opened.is_stream else partial(_decompressed, opened, number, schema))
    return Rows(schema, np.cumsum(rows), tuple(batches), mapped)


def _is_mapped(batch: RecordBatch, data: pa.Buffer) -> bool:
    """Say whether a batch is a view of the mapped file: it is, unless its buffers are compressed."""
    buffers = [buffer for column in batch.columns for buffer in column.buffers() if buffer is not None and buffer.size]
    return all(data.address <= buffer.address < data.address + data.size for buffer in buffers)


def _decompressed(opened: _Mapped, number: int, schema: Schema) -> RecordBatch:
    return fit(opened.reader.get_batch(number), schema)
