"""The source behind every columnar format, such as Parquet and Arrow: files that state their schema, and hold rows in groups.

A format says how to read the schema, the number of rows and the row groups of one file. Everything else is here: several files, which must
have the same columns and types; positions, which are (file, row group, row); and reading only the columns that are needed.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import attrs
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.arrow.gathering import takeable
from mlxfp.core.chunks import CHUNK_ROWS, RecordBatch, Schema
from mlxfp.core.errors import DataError, SchemaError, unknown_name
from mlxfp.core.sources import Position, Source
from mlxfp.data.sources.column_names import check_names, check_same_names
from mlxfp.data.sources.files import FileSource, find_place, place
from mlxfp.data.sources.remote_files import FileStamp


@frozen(repr=False)
class ColumnSource(FileSource):
    """Files that state their columns. A format has `suffixes`, `kind` and the three methods that read a file."""

    columns: tuple[str, ...] | None = None  # the columns that the user wants, in this order; None: all
    chunk_rows: int = field(default=CHUNK_ROWS, kw_only=True, repr=False)  # the most rows in a chunk
    kind: ClassVar[str]  # the name of the format, for messages

    @abstractmethod
    def header_of(self, file: FileStamp) -> tuple[Schema, int | None]:
        """Read the schema of a file, and how many row groups it has: None where only reading to the end tells."""

    @abstractmethod
    def rows_of(self, file: FileStamp) -> int:
        """Read how many rows a file has."""

    @abstractmethod
    def row_groups(self, file: FileStamp, schema: Schema, first: int) -> Iterator[tuple[int, Iterable[RecordBatch]]]:
        """Yield the row groups of a file from number `first` on: how many rows each has, and chunks of them.

        Chunks need the columns of `schema`, in any order.
        """

    def file_of(self, position: Position) -> str | None:
        """Return the path of the file, out of several, that a position is in; None where only reading on tells."""
        files = self.files()
        number, group, _ = find_place(files, position)
        may_be_the_end = group > 0 and self.header_of(files[number])[1] is None
        return None if may_be_the_end else super().file_of(position)

    def schema(self) -> Schema:
        """Return the schema of the columns that the pipeline needs."""
        return self.select(self.whole_schema())

    def whole_schema(self) -> Schema:
        """Read the schema of the first file, and choose the columns that the user wants."""
        first = self.files()[0]
        schema, _ = self.header_of(first)
        check_names(schema.names, first.path)
        for name in self.columns or ():
            if schema.get_field_index(name) < 0:
                raise unknown_name(f"column of {first.path}", name, schema.names)
        wanted = [schema.field(name) for name in self.columns or schema.names]
        return pa.schema([(f.name, takeable(f.type)) for f in wanted])  # metadata and nullability may differ between files

    def length(self) -> int:
        """Add up the rows of all files."""
        return sum(self.rows_of(file) for file in self.files())

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        """Return a source that reads only these columns."""
        return attrs.evolve(self, kept=tuple(columns))

    def check_fit(self, file: FileStamp, whole: Schema, first: FileStamp) -> None:
        """Raise `SchemaError` unless a file has the columns and types of the first one; others are ignored where the user chose some."""
        found, _ = self.header_of(file)
        names = [name for name in found.names if self.columns is None or whole.get_field_index(name) >= 0]
        check_same_names(names, file.path, whole.names, first.path)
        for column in whole:
            kind = takeable(found.field(column.name).type)
            if kind != column.type:
                raise SchemaError(
                    f"Two files have different types: column {column.name!r} is {kind} in {file.path} and {column.type} in {first.path}. "
                    "Read them separately."
                )

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Yield the rows of each row group in chunks, with the position after each."""
        files = self.files()
        first, start, row = find_place(files, position)
        whole = self.whole_schema()
        schema = self.select(whole)
        for number in range(first, len(files)):
            file = files[number]
            with reading(self.kind, file.path):
                self.check_fit(file, whole, files[0])
                _, count = self.header_of(file)
                for group, (rows, chunks) in enumerate(self.row_groups(file, schema, start), start):
                    after = (number, group + 1, 0) if group + 1 != count else (number + 1, 0, 0)
                    fitting = (fit(chunk, schema) for chunk in chunks)
                    for chunk, end in _cut_rows(fitting, row, self.chunk_rows):
                        yield chunk, place(files, *((number, group, end) if end < rows else after))
                    row = 0
            start = 0


@contextmanager
def reading(kind: str, path: str) -> Iterator[None]:
    """Turn Arrow's errors into ours; errors of the operating system, such as a missing permission, are not changed."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split())
        raise DataError(f"A file is not {kind}, or it is damaged: {reason}, in {path}. Write or download it again.") from error


def fit(chunk: RecordBatch, schema: Schema) -> RecordBatch:
    """Put the columns into the order of the schema, give them its types, and drop the metadata of the file."""
    columns = [(chunk.column(column.name), column.type) for column in schema]
    return pa.RecordBatch.from_arrays([column if column.type == kind else column.cast(kind) for column, kind in columns], schema=schema)


def _cut_rows(chunks: Iterable[RecordBatch], first: int, size: int) -> Iterator[tuple[RecordBatch, int]]:
    """Yield the rows of a row group from number `first` on, `size` at a time, with the number of the row after them."""
    end = 0
    for chunk in chunks:
        start, end = end, end + chunk.num_rows
        for at in range(max(first, start), end, size):
            yield chunk.slice(at - start, size), min(at + size, end)
