"""Base class of sources for columnar formats such as Parquet and Arrow. A file of such a format stores a schema and row groups.

A subclass reads the schema, the number of rows and the row groups of one file. The base class combines several files, selects
columns, and resumes reading at a position (file, row group, row).
"""

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import attrs
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.arrow.gathering import takeable
from mlxfp.core.chunks import CHUNK_ROWS, RecordBatch, Schema, check_fields
from mlxfp.core.sources import Position, Source, SourceTraits
from mlxfp.data.file_contents import other_format
from mlxfp.data.file_search import unreadable
from mlxfp.data.sources.columns import Types, check_names, check_same_names, check_unique_names, joined_type, schema_argument
from mlxfp.data.sources.files import FileSource, check_unchanged, parse_position, position_in
from mlxfp.data.sources.partitions import check_partition, fit, partition_types
from mlxfp.data.sources.remote_files import FileStamp, is_remote
from mlxfp.support.arrow_types import schema_code
from mlxfp.support.errors import DataError, MlxfpError, SchemaError, unknown_name
from mlxfp.support.progress import Progress

_INDEX = re.compile(r"__index_level_\d+__")  # column names that pandas gives to an index without a name
_THREADS = 16  # number of threads that read file headers; reading headers mostly waits for the disk or server


@frozen(repr=False)
class ColumnSource(FileSource):
    """Base class of readers for columnar file formats, such as Parquet. A subclass defines `suffixes`, `kind` and the abstract methods."""

    columns: tuple[str, ...] | None = None  # columns selected by the user, in this order; None selects all columns
    types: Types = field(default=(), kw_only=True, repr=False)  # column types declared by the user
    scan: bool = field(default=False, kw_only=True, repr=False)  # True: all files determine the schema. False: only the first file.
    chunk_rows: int = field(default=CHUNK_ROWS, kw_only=True, repr=False)  # maximum number of rows in a chunk
    kind: ClassVar[str]  # name of the file format in error messages
    declares: ClassVar[bool] = False  # True if the reader has the argument `schema`

    @abstractmethod
    def header_of(self, file: FileStamp) -> tuple[Schema, int | None]:
        """Return the schema and the row group count of a file. The count is None if the file format does not store the row group count."""

    @abstractmethod
    def rows_of(self, file: FileStamp) -> int:
        """Return the number of rows of a file."""

    @abstractmethod
    def row_groups(self, file: FileStamp, schema: Schema, first: int) -> Iterator[tuple[int, Iterable[RecordBatch]]]:
        """Yield the row groups of a file, starting with row group `first`. Each item is (number of rows, chunks).

        The chunks must have the columns of `schema`, in any order.
        """

    def file_of(self, position: Position) -> str | None:
        """Return the path of the file with the row at a position. Return None if the file is uncertain, and for a single file."""
        files = self.files()
        number, group, _ = parse_position(files, position)
        may_be_the_end = group > 0 and self.header_of(files[number])[1] is None
        return None if may_be_the_end else super().file_of(position)

    def schema(self) -> Schema:
        return self.select(self.whole_schema())

    def whole_schema(self) -> Schema:
        """Return the schema of the first file, or of all files if `scan` is set.

        Declared types and the user's column selection are applied.
        """
        return _whole(attrs.evolve(self, kept=None), self.files())

    def types_of(self, file: FileStamp) -> Mapping[str, pa.DataType]:
        """Return the column types of a file, without metadata and nullability, because both may differ between files."""
        return _types(attrs.evolve(self, kept=None), file)

    def length(self) -> int:
        """Return the total number of rows in all files."""
        files = self.files()
        with Progress("count rows", unit="files", total=lambda: len(files)) as progress:
            return sum(map(self.rows_of, progress.over(files)))

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(super().traits, restricted=self.restricted)

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        """Return a source that reads only the given columns."""
        return attrs.evolve(self, kept=tuple(columns))

    def check_fit(self, file: FileStamp, whole: Schema, first: FileStamp) -> None:
        """Raise `SchemaError` unless the columns of `file` fit `whole`, the schema for all files.

        The file needs all columns of `whole`, with types that convert without loss. A column may be missing if the user declared its type.
        With `schema="scan"`, any column may be missing. If the user selected columns, other columns are ignored.
        """
        check_partition(file.partition, file.path)
        if file == first:  # `whole` is computed from the file `first`, so `first` needs no check.
            return
        file_types, declared, known = dict(self.types_of(file)), dict(self.types), frozenset(whole.names)
        file_types = {name: whole.field(name).type if name in known else pa.string() for name, _ in file.partition} | file_types
        needed = [name for name in whole.names if name in file_types or not (self.scan or name in declared)]
        check_same_names([name for name in file_types if self.columns is None or name in known], file.path, needed, first.path)
        for column in whole:
            kind = file_types.get(column.name, column.type)
            if column.name not in declared and joined_type(kind, column.type) != column.type:
                raise _different_types(column.name, (kind, file.path), (column.type, first.path), declares=self.declares)

    def declared(self) -> Types:
        """Return the name and type of every column, as a value for the argument `schema` of the reader."""
        return tuple((column.name, column.type) for column in self.whole_schema())

    def notes(self) -> tuple[str, ...]:
        """Return notes for `explain` about types inferred with `schema="scan"` and about columns that hold the index of a pandas table."""
        texts = [*super().notes()]
        with suppress(MlxfpError):
            if self.scan:
                texts.append(f"reads all headers for the types; to avoid this, give {schema_code(self.declared())}")
            if indices := [name for name in self.schema().names if _INDEX.fullmatch(name)]:
                texts.append(f"pandas wrote its index into the file; to drop the index, add fp.drop_columns({indices})")
        return tuple(texts)

    def __repr__(self) -> str:
        return f"{super().__repr__().removesuffix(')')}{schema_argument(self.types, scan=self.scan)})"

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        files = self.files()
        first, start, row = parse_position(files, position)
        whole = self.whole_schema()
        schema = self.select(whole)
        for number in range(first, len(files)):
            file = files[number]
            with reading(self.kind, file.path):
                self.check_fit(file, whole, files[0])
                _, count = self.header_of(file)
                for group, (rows, chunks) in enumerate(self.row_groups(file, schema, start), start):
                    after = (number, group + 1, 0) if group + 1 != count else (number + 1, 0, 0)
                    fitting = (fit(chunk, schema, file.partition, file.path) for chunk in chunks)
                    for chunk, end in _cut_rows(_counted(fitting, rows), row, self.chunk_rows):
                        yield chunk, position_in(files, *((number, group, end) if end < rows else after))
                    row = 0
                check_unchanged(file)
            start = 0


@contextmanager
def reading(kind: str, path: str) -> Iterator[None]:
    """Convert errors of Arrow and of the operating system inside the `with` block to errors with path and remedy."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            if is_remote(path):
                raise
            raise unreadable(error, path) from error
        other = None if is_remote(path) or not Path(path).is_file() else other_format(path, kind)
        if other is not None:
            raise other from error
        reason = " ".join(str(error).split())
        raise DataError(f"A file is not {kind}, or it is damaged: {reason}, in {path}. Write or download the file again.") from error


def _different_types(name: str, one: tuple[pa.DataType, str], other: tuple[pa.DataType, str], *, declares: bool) -> SchemaError:
    common = joined_type(one[0], other[0])
    if not declares:
        remedy = "Read the files separately."
    elif common is None:
        remedy = f"Declare a type that fits both files with {schema_code([(name, pa.string())])}, or read the files separately."
    else:
        remedy = f'Give {schema_code([(name, common)])}, or schema="scan" for the types that fit all files.'
    return SchemaError(f"Two files have different types: column {name!r} is {one[0]} in {one[1]} and {other[0]} in {other[1]}. {remedy}")


# The functions below are cached: column types are needed several times, and a file may have thousands of columns.


@lru_cache(maxsize=64)
def _types(source: ColumnSource, file: FileStamp) -> Mapping[str, pa.DataType]:
    """Return the column types of a file, cached for each file."""
    schema, _ = source.header_of(file)
    check_unique_names(schema.names, file.path)
    check_fields(schema, file.path)
    return {column.name: takeable(column.type) for column in schema}


@lru_cache(maxsize=64)
def _whole(source: ColumnSource, files: tuple[FileStamp, ...]) -> Schema:
    """Return the common schema of all files, cached."""
    kinds = dict(_scanned(source, files) if source.scan else source.types_of(files[0]))
    stated, first = dict(partition_types(tuple(file.partition for file in files))), dict(files[0].partition)
    kinds |= {name: kind for name, kind in stated.items() if name not in kinds and (source.scan or name in first)}
    check_names([*kinds], files[0].path)
    for name, _ in source.types:
        if name not in kinds and name not in stated and not any(name in source.types_of(file) for file in files):
            raise unknown_name(f"column of {files[0].path}", name, kinds)
    kinds |= dict(source.types)
    for name in source.columns or ():
        if name not in kinds:
            raise unknown_name(f"column of {files[0].path}", name, kinds)
    return pa.schema([(name, kinds[name]) for name in source.columns or kinds])


@lru_cache(maxsize=64)
def _scanned(source: ColumnSource, files: tuple[FileStamp, ...]) -> tuple[tuple[str, pa.DataType], ...]:
    """Return the columns of all files. The type of each column can hold the values of all files."""
    with ThreadPoolExecutor(_THREADS) as pool:
        list(pool.map(source.header_of, files))  # Threads read all headers. Then the loop below uses the cached headers.
    declared = dict(source.types)
    kinds: dict[str, pa.DataType] = {}
    paths: dict[str, str] = {}  # maps each column to the file that determined its current type
    for file in files:
        for name, kind in source.types_of(file).items():
            common = declared[name] if name in declared else joined_type(kinds.get(name, kind), kind)
            if common is None:
                raise _different_types(name, (kind, file.path), (kinds[name], paths[name]), declares=source.declares)
            if common != kinds.get(name):
                kinds[name], paths[name] = common, file.path
    return tuple(kinds.items())


def _counted(chunks: Iterable[RecordBatch], rows: int) -> Iterator[RecordBatch]:
    """Yield the chunks of a row group. Raise `ArrowInvalid` unless the chunks have `rows` rows, as the file header says."""
    count = 0
    for chunk in chunks:
        count += chunk.num_rows
        if count <= rows:
            yield chunk
    if count != rows:
        raise pa.ArrowInvalid(f"the file header declares {rows:,} rows in a row group, but the row group has {count:,} rows")


def _cut_rows(chunks: Iterable[RecordBatch], first: int, size: int) -> Iterator[tuple[RecordBatch, int]]:
    """Yield chunks of `size` rows from row `first` of a row group on. Each chunk comes with the index of the row after the chunk."""
    end = 0
    for chunk in chunks:
        start, end = end, end + chunk.num_rows
        for row in range(max(first, start), end, size):
            yield chunk.slice(row - start, size), min(row + size, end)
