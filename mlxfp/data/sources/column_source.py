"""What Parquet and Arrow files share: a schema and a number of rows that the file itself says, and a check that files fit together."""

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

import attrs
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.arrow.gathering import takeable
from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.errors import DataError, SchemaError
from mlxfp.core.sources import Position, Source
from mlxfp.data.sources.files import FileStamp, as_paths, check_names, check_same_names, file_at, find_files, show_call


@frozen(repr=False)
class ColumnSource(Source):
    """Files that know their columns."""

    paths: tuple[str, ...] = field(converter=as_paths, repr=False)
    kept: tuple[str, ...] | None = field(default=None, kw_only=True, repr=False)  # the columns that are looked at; None: all
    suffixes: ClassVar[tuple[str, ...]]

    @abstractmethod
    def schema_of(self, file: FileStamp) -> Schema:
        """Read the schema of a file."""

    @abstractmethod
    def rows_of(self, file: FileStamp) -> int:
        """Read how many rows a file has."""

    def files(self) -> tuple[FileStamp, ...]:
        """Find the files."""
        return find_files(self.paths, self.suffixes)

    def file_of(self, position: Position) -> str | None:
        """Name the file that a position is in."""
        return file_at(self.files(), position)

    def schema(self) -> Schema:
        """Read the schema of the first file, and leave out what is not looked at."""
        whole = self.whole_schema()
        return whole if self.kept is None else pa.schema([whole.field(name) for name in self.kept])

    def whole_schema(self) -> Schema:
        """Read the schema of the first file."""
        first = self.files()[0]
        schema = self.schema_of(first)
        check_names(schema.names, first.path)
        return pa.schema([(f.name, takeable(f.type)) for f in schema])  # metadata and nullability may differ between files

    def length(self) -> int:
        """Add up the rows of all files."""
        return sum(self.rows_of(file) for file in self.files())

    def version(self) -> tuple[tuple[str, int, int], ...]:
        """Return path, size and time of every file."""
        return tuple(attrs.astuple(file) for file in self.files())

    def __repr__(self) -> str:
        return show_call(super().__repr__(), self.paths)


@contextmanager
def reading(kind: str, path: str) -> Iterator[None]:
    """Turn Arrow's errors into ours; those of the operating system, such as a missing permission, stay."""
    try:
        yield
    except (pa.ArrowInvalid, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = " ".join(str(error).split())
        raise DataError(f"A file is not {kind}, or it is damaged: {reason}, in {path}. Write or download it again.") from error


def check_fit(found: Schema, path: str, schema: Schema, first: str, *, some: bool = False) -> None:
    """Raise `SchemaError` unless a file has the columns (with `some`, at least these) and types of the first one."""
    check_same_names([name for name in found.names if not some or name in schema.names], path, schema.names, first)
    for column in schema:
        kind = takeable(found.field(column.name).type)
        if kind != column.type:
            raise SchemaError(
                f"Two files have different types: column {column.name!r} is {kind} in {path} and {column.type} in {first}. Read them apart."
            )


def fit(chunk: RecordBatch, schema: Schema) -> RecordBatch:
    """Put the columns in the order of the schema and give them its types, and leave out what else a file says about them."""
    return pa.RecordBatch.from_arrays([_as(chunk.column(column.name), column.type) for column in schema], schema=schema)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)
