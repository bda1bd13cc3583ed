"""Base class of the sources for line-based formats: CSV, JSON lines and text.

Files are read in blocks of whole records. Each block becomes a chunk of rows. A resume position is (file, byte offset, line). Column
types are inferred once, from the first block with a record, and used for all blocks. A value that does not fit its column type raises
an error and never changes the type.
"""

import os
import warnings
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain
from typing import ClassVar, TypeVar

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.sources import ChunkTask, Position, SourceTraits, Tasks
from mlxfp.data.file_contents import HEAD, check_text
from mlxfp.data.sources.columns import LONGEST_EXACT, Types, check_names, check_same_names, joined_type, schema_argument, settled, shown
from mlxfp.data.sources.files import (
    BLOCK,
    FileSource,
    blocks,
    check_unchanged,
    open_bytes,
    packing,
    parse_position,
    position_in,
    read_bytes,
)
from mlxfp.data.sources.partitions import check_partition, partition_types
from mlxfp.data.sources.records.line_blocks import MARK, Block, Fault, Opening, count_lines, newlines
from mlxfp.data.sources.records.parsing import Lines, data_error, fault_text, parse, without_faults
from mlxfp.data.sources.remote_files import FileStamp
from mlxfp.support.arrow_types import TEXT_OF_JSON, schema_code
from mlxfp.support.errors import MlxfpError, SchemaError, without_secrets
from mlxfp.support.progress import Progress

_WIDE = 500  # Files with 1,000 columns or more are read in larger blocks, so that each block has about 1 KB per column.
_SAMPLE = 1 << 20  # number of bytes read for type inference
_CONVERT = "Convert the file to UTF-8, for example with iconv."
_LONG = pa.decimal128(19, 0)  # Type that a scan gives to integers too long for float64. Floats and decimals have no common type.
A = TypeVar("A")
B = TypeVar("B")


@frozen(repr=False)
class LineSource(FileSource):
    """Base class of line-based file sources. A subclass defines `suffixes` and `parse`."""

    types: Types = field(default=(), kw_only=True, repr=False)
    scan: bool = field(default=False, kw_only=True, repr=False)  # True if all files are read to find columns and types
    transcoding: ClassVar[str] = _CONVERT  # remedy in the error message for a file in an encoding other than UTF-8
    marks: bool = field(default=False, kw_only=True, repr=False)  # True if each invalid record becomes a failed row for `fp.on_error`
    encoding: str = field(default="utf-8", kw_only=True)
    _block_size: int = field(default=BLOCK, kw_only=True, repr=False)  # The block size affects cursors, but not rows.

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(super().traits, costly=lambda: True, marking=lambda: attrs.evolve(self, marks=True))

    @abstractmethod
    def parse(self, data: bytes, opening: Opening, schema: Schema | None) -> RecordBatch | Fault:
        """Parse whole records with the types of `schema`, or infer the types if `schema` is None.

        Return a `Fault` for an invalid record.
        """

    def opening(self, path: str) -> Opening:
        """Read the beginning of a file up to the first record: byte order mark and header."""
        with open_bytes(path) as stream:
            head = read_bytes(stream, HEAD, path)
        check_text(head, path, packing(path))
        return Opening(len(MARK) if self.encoding == "utf-8" and head.startswith(MARK) else 0)

    def as_utf8(self, data: bytes) -> bytes:
        """Convert bytes to UTF-8. Bytes that are invalid in the source encoding stay, so that a later check reports them."""
        return data if self.encoding == "utf-8" else data.decode(self.encoding, "surrogateescape").encode(errors="surrogateescape")

    def cut(self, data: bytes) -> int:
        """Return the number of bytes in the complete records of a block. Bytes after the last complete record are not counted."""
        return data.rfind(b"\n") + 1

    def record_ends(self, data: bytes) -> NDArray[np.int64]:
        """Return the end offsets of the records in a block, int64[N]."""
        return newlines(np.frombuffer(data, np.uint8)) + 1

    def unended(self, data: bytes) -> Fault | None:
        """Return a `Fault` if the end of the file cuts off the last record. Return None for a complete record."""
        return None

    def finished(self, schema: Schema, path: str) -> Schema:
        """Complete an inferred schema. Types declared by the user replace inferred types."""
        kinds = dict(self.types)
        return pa.schema([f.with_type(kinds.get(f.name, self.settled(f.type))) for f in schema])

    def settled(self, kind: pa.DataType, null: pa.DataType | None = None) -> pa.DataType:
        """Return the type of a column for which Arrow inferred the type `kind`.

        A column without values gets the type passed as `null`. The default is text.
        """
        return settled(kind, null)

    def joined(self, first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
        """Return the common type of two types found by a scan. Return None if no common type exists."""
        return joined_type(first, second)

    def conflicts_at(self, data: bytes, name: str, kind: pa.DataType) -> int:
        """Return the byte offset of the first record whose value of `name` does not fit the type `kind`. Return 0 for an unknown record."""
        return 0

    def schema(self) -> Schema:
        files = self.files()
        return shown(self.select(self.whole_schema(self.inferred(files)[0], files)))

    def declared(self) -> Types:
        """Return the name and type of every column, as a value for the argument `schema` of the reader.

        A JSON column has the type `TEXT_OF_JSON`.
        """
        return tuple((column.name, column.type) for column in self.inferred(self.files())[0])

    def inferred(self, files: tuple[FileStamp, ...]) -> tuple[Schema, str]:
        """Return the schema of the columns in the files, and the path of the file from which types were inferred."""
        stated = {name for name, _ in self.stated(files)}
        types = tuple((name, kind) for name, kind in self.types if name not in stated)
        return (_scan if self.scan else _infer)(attrs.evolve(self, kept=None, types=types), files)

    def stated(self, files: tuple[FileStamp, ...]) -> Types:
        """Return the names and types of the partition columns in the path of the first file, such as `year=2024`."""
        declared, first = dict(self.types), dict(files[0].partition)
        partition_columns = partition_types(tuple(file.partition for file in files))
        return tuple((name, declared.get(name, kind)) for name, kind in partition_columns if name in first)

    def whole_schema(self, schema: Schema, files: tuple[FileStamp, ...]) -> Schema:
        """Return the schema of all columns: file columns, then partition columns from folder names."""
        present = set(schema.names)
        return pa.schema([*schema, *(pair for pair in self.stated(files) if pair[0] not in present)])

    def filled_ends(self, data: bytes) -> NDArray[np.int64] | None:
        """Return the end offsets of the records that become rows, int64[N]. Return None if only parsing can find these records."""
        return None

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        for lines, after in self._lines(position):
            chunk = lines.read()
            if chunk.num_rows:
                yield chunk, after

    def tasks(self, epoch: int, position: Position) -> Tasks:
        """Yield one task per block. A task must know its number of rows.

        If rows can be counted without parsing, a worker parses the block. Otherwise this method parses the block.
        """
        for lines, after in self._lines(position):
            ends = None if self.marks else self.filled_ends(lines.block.data)
            task = ChunkTask(lines.read()) if ends is None else attrs.evolve(lines, rows=len(ends), ends=ends)
            if task.rows:
                yield task, after

    def _lines(self, position: Position) -> Iterator[tuple[Lines, Position]]:
        """Yield pairs: a task that parses one block, and the resume position after the block. Start at `position`."""
        files = self.files()
        first, offset, line = parse_position(files, position)
        schema, inferred_from = self.inferred(files)
        whole = self.whole_schema(schema, files)
        wanted = self.select(whole)
        present = set(schema.names)
        file_schema = pa.schema([column for column in wanted if column.name in present] or [schema.field(0)])
        for number in range(first, len(files)):
            path, partition = files[number].path, files[number].partition
            opening = self.opening(path)
            check_partition(partition, path)
            names = opening.names or schema.names
            check_same_names([*names, *(name for name, _ in partition if name not in names)], path, whole.names, inferred_from)
            start = (offset, line) if number == first and offset else (opening.offset, opening.line)
            for block in _blocks(self, path, opening, start, _size(self._block_size, schema.names)):
                if not block.end:
                    check_unchanged(files[number])
                after = position_in(files, number, block.end, block.next_line) if block.end else position_in(files, number + 1, 0, 0)
                yield Lines(self, block, file_schema, wanted, partition), after

    def notes(self) -> tuple[str, ...]:
        """Return notes for `explain`: a warning that compressed files resume slowly, and the schema found by a scan."""
        texts = [*super().notes()]
        with suppress(MlxfpError):
            files = self.files()
            if any(packing(file.path) for file in files):
                texts.append("resuming inside a compressed file decompresses everything before the cursor")
            if self.scan:
                texts.append(f"reads all files for the types; to avoid this, give {schema_code(self.declared())}")
        return tuple(texts)

    def __repr__(self) -> str:
        return f"{super().__repr__().removesuffix(')')}{schema_argument(self.types, scan=self.scan)})"


def _blocks(source: LineSource, path: str, opening: Opening, start: tuple[int, int], size: int) -> Iterator[Block]:
    """Yield the blocks of a file. The argument `start` is a pair: byte offset and line number of the first block."""
    offset, line = start
    for data, end in blocks(path, offset, source.cut, size):
        next_line = line + count_lines(data)
        yield Block(source.as_utf8(data), opening, path, line, next_line, end)
        line = next_line


def _size(least: int, columns: Sequence[str]) -> int:
    """Return the block size in bytes: `least`, or a larger size for a file with many columns.

    For each column of a block, Arrow needs as much extra time as for parsing 500 bytes.
    """
    return least * max(1, len(columns) // _WIDE)


@lru_cache(maxsize=256)
def _infer(source: LineSource, files: tuple[FileStamp, ...]) -> tuple[Schema, str]:
    """Infer the schema from the first file with a record, or from the first file if all are empty. Return the schema and the file path."""
    samples = _samples(source, files)
    first = next(samples)
    sample, path = next((pair for pair in chain([first], samples) if pair[0].num_rows), first)
    schema = source.finished(sample.schema, path)
    check_names(schema.names, path)
    if not sample.num_rows and not set(schema.names) <= {name for name, _ in source.types}:
        many = f"{len(files)} files without records" if len(files) > 1 else "a file without records"
        warnings.warn(
            f"There is no row to read: got {many}, starting with {without_secrets(files[0].path)}. Column types are unknown. Check the "
            "path, or declare the types with schema=.",
            RuntimeWarning,
            stacklevel=2,
        )
    return schema, path


def _samples(source: LineSource, files: tuple[FileStamp, ...]) -> Iterator[tuple[RecordBatch, str]]:
    """Parse all blocks of the files with inferred types. Yield pairs of a parsed block and its file path, at least one pair."""
    return ((parse(source, block, None), block.path) for block in _every_block(source, files))


@lru_cache(maxsize=64)
def _scan(source: LineSource, files: tuple[FileStamp, ...]) -> tuple[Schema, str]:
    """Infer a schema that fits every record of all files. Threads infer the types of each block, and each column takes a common type."""
    blocks_of: dict[str, dict[pa.DataType, Block]] = {}  # For each column name: the types found, and the first block with each type.
    # For each column: the first value that mixes types, such as [1, "a"], and the block that contains the value.
    faults: dict[str, tuple[Fault, Block]] = {}
    first: Opening | None = None
    with Progress("find the types of columns", unit="blocks") as progress:
        for block, types, faulty in progress.over(_in_threads(partial(_types_in, source), _every_block(source, files))):
            first = first or block.opening
            check_same_names(block.opening.names, block.path, first.names, files[0].path)
            for name, kind in types:
                blocks_of.setdefault(name, {}).setdefault(kind, block)
            for fault in faulty:
                faults.setdefault(str(fault.column), (fault, block))
    kinds = {name: None if name in faults else _join_all(source, list(seen)) for name, seen in blocks_of.items()}
    schema = source.finished(pa.schema({name: TEXT_OF_JSON if kind is None else kind for name, kind in kinds.items()}), files[0].path)
    check_names(schema.names, files[0].path)
    wrong = next((name for name, kind in kinds.items() if kind is None), None)
    if wrong is not None:
        problem = fault_text(*faults[wrong]) if wrong in faults else _conflict(source, wrong, blocks_of[wrong])
        fitting = schema_code((column.name, column.type) for column in schema)
        raise SchemaError(f"{problem}. Convert the values to one type, or keep the column as JSON text: {fitting}")
    return schema, files[0].path


def _types_in(source: LineSource, block: Block) -> tuple[Block, list[tuple[str, pa.DataType]], list[Fault]]:
    """Infer the column types of a block. A column with several types has one entry per type.

    A single value of mixed types, such as a list of numbers and texts, is reported as a `Fault`.
    """
    types: list[tuple[str, pa.DataType]] = []
    faults: list[Fault] = []
    declared = {name for name, _ in source.types}
    mixed = set[str]()
    while isinstance(parsed := without_faults(source, block), Fault):
        if parsed.column is None or parsed.column in declared:
            raise data_error(parsed, block)
        mixed.add(parsed.column)
        if None in parsed.kinds:
            faults.append(parsed)
        types += [(parsed.column, source.settled(pa.null() if kind is None else kind, pa.null())) for kind in parsed.kinds]
        source = attrs.evolve(source, types=(*source.types, (parsed.column, TEXT_OF_JSON)))
    for column_field, column in zip(parsed.schema, parsed.columns, strict=True):
        if column_field.name not in mixed:
            types.append((column_field.name, _LONG if _is_long(column) else source.settled(column_field.type, pa.null())))
    return block, types, faults


def _is_long(column: pa.Array) -> bool:
    """Return True for a column with integers beyond the precision of float64."""
    if not pa.types.is_int64(column.type):
        return False
    ends = pc.min_max(column).as_py()
    return ends["min"] is not None and (ends["min"] < -LONGEST_EXACT or ends["max"] > LONGEST_EXACT)


def _join_all(source: LineSource, kinds: Sequence[pa.DataType]) -> pa.DataType | None:
    joined: pa.DataType | None = kinds[0]
    for kind in kinds[1:]:
        joined = None if joined is None else source.joined(joined, kind)
    return pa.int64() if joined == _LONG else joined


def _conflict(source: LineSource, name: str, seen: dict[pa.DataType, Block]) -> str:
    """Return an error message for two values without a common type. The message names the file and the line of each value."""
    pairs = ((one, other) for one in seen for other in seen if joined_type(one, other) is None)
    one, other = next(pairs)
    locations = []
    for kind, against in ((one, other), (other, one)):
        block = seen[kind]
        offset = source.conflicts_at(block.data, name, against)
        locations.append(f"{pa.int64() if kind == _LONG else kind} in line {block.line + count_lines(block.data[:offset])} of {block.path}")
    return f"Two values of a column have no common type: column {name!r} is {' and '.join(locations)}"


def _every_block(source: LineSource, files: tuple[FileStamp, ...]) -> Iterator[Block]:
    for file in files:
        opening = source.opening(file.path)
        yield from _blocks(source, file.path, opening, (opening.offset, opening.line), _size(_SAMPLE, opening.names))


def _in_threads(call: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """Yield `call(item)` for each item, in order. One thread per core computes results ahead."""
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[B]] = deque()
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        yield from (future.result() for future in waiting)
