"""The source behind every format whose records end at newlines: CSV, JSON lines, text.

Files are read in blocks of whole records, and each block becomes a chunk. A position is (file, byte offset, line). Types are inferred once,
from the first block that has a record. Every block, including that one, is then parsed with these types, so a value that does not fit is
always an error and never changes a type.
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
from mlxfp.data.sources.columns import LONGEST_EXACT, Types, check_names, check_same_names, joined_type, schema_argument, settled, shown
from mlxfp.data.sources.files import BLOCK, FileSource, blocks, find_place, open_bytes, packing, place, read_bytes
from mlxfp.data.sources.partitions import check_partition, partition_types
from mlxfp.data.sources.records.line_blocks import MARK, Block, Fault, Opening, count_lines, newlines
from mlxfp.data.sources.records.parsing import Lines, data_error, parse, said, without_faults
from mlxfp.data.sources.remote_files import FileStamp
from mlxfp.support.arrow_types import TEXT_OF_JSON, schema_code
from mlxfp.support.errors import MlxfpError, SchemaError
from mlxfp.support.progress import Progress

_WIDE = 500  # columns that a block of the usual size holds at least 1 KB of
_SAMPLE = 1 << 20  # bytes that types are inferred from
_CONVERT = "Convert the file to UTF-8, as with iconv; if it is compressed, unpack it, or use gzip or zstd with the suffix .gz or .zst."
_LONG = pa.decimal128(19, 0)  # how a scan marks a column of integers that float64 does not hold: it joins with integers only
A = TypeVar("A")
B = TypeVar("B")


@frozen(repr=False)
class LineSource(FileSource):
    """Files of records that end at newlines. A format has `suffixes`, and says how to parse a block or why a block cannot be parsed."""

    types: Types = field(default=(), kw_only=True, repr=False)
    scan: bool = field(default=False, kw_only=True, repr=False)  # whether all files are read for the columns and types
    transcoding: ClassVar[str] = _CONVERT  # what to do where text is in another encoding
    marks: bool = field(default=False, kw_only=True, repr=False)  # whether records that cannot be parsed become rows marked as failed
    encoding: str = field(default="utf-8", kw_only=True)
    _block_size: int = field(default=BLOCK, kw_only=True, repr=False)  # changes the cursors, not the rows

    @property
    def traits(self) -> SourceTraits:
        """Parsing is worth a worker, and records that cannot be parsed may become marked rows."""
        return attrs.evolve(super().traits, costly=lambda: True, marking=lambda: attrs.evolve(self, marks=True))

    @abstractmethod
    def parse(self, data: bytes, opening: Opening, schema: Schema | None) -> RecordBatch | Fault:
        """Parse whole records, with the types of `schema` or else inferred ones; return a `Fault` for a record that cannot be parsed."""

    def opening(self, path: str) -> Opening:
        """Read what comes before the first record."""
        if self.encoding != "utf-8":
            return Opening(0)
        with open_bytes(path) as stream:
            return Opening(len(MARK) if read_bytes(stream, len(MARK), path) == MARK else 0)

    def as_utf8(self, data: bytes) -> bytes:
        """Turn bytes of a file into UTF-8; those that mean nothing in the encoding stay, and are found later as they are not UTF-8."""
        return data if self.encoding == "utf-8" else data.decode(self.encoding, "surrogateescape").encode(errors="surrogateescape")

    def cut(self, data: bytes) -> int:
        """Return how many of the bytes are whole records, whatever bytes follow."""
        return data.rfind(b"\n") + 1

    def record_ends(self, data: bytes) -> NDArray[np.int64]:
        """Return the offsets at which the records in a block end, int64[N]."""
        return newlines(np.frombuffer(data, np.uint8)) + 1

    def unended(self, data: bytes) -> Fault | None:
        """Find a record that the end of the file cuts off."""
        return None

    def finished(self, schema: Schema, path: str) -> Schema:
        """Complete an inferred schema: with the declared types, and without types that later values seldom fit, such as null."""
        kinds = dict(self.types)
        return pa.schema([(f.name, kinds.get(f.name, settled(f.type))) for f in schema])

    def joined(self, first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
        """Return the type that holds the values of both, in a scan; None where there is none."""
        return joined_type(first, second)

    def conflicts_at(self, data: bytes, name: str, kind: pa.DataType) -> int:
        """Find the first record whose value in a column has no type in common with `kind`; the first one where that is not known."""
        return 0

    def schema(self) -> Schema:
        """Return the types that were inferred from the first block with a record in it, or from all blocks by a scan."""
        files = self.files()
        return shown(self.select(self.whole_schema(self.inferred(files)[0], files)))

    def declared(self) -> Types:
        """Return the types of all columns as they would be declared: JSON that is kept as text has a type of its own."""
        return tuple((each.name, each.type) for each in self.inferred(self.files())[0])

    def inferred(self, files: tuple[FileStamp, ...]) -> tuple[Schema, str]:
        """Return the schema of all columns, and the path of the file that it was inferred from."""
        stated = {name for name, _ in self.stated(files)}
        types = tuple((name, kind) for name, kind in self.types if name not in stated)
        return (_scan if self.scan else _infer)(attrs.evolve(self, kept=None, types=types), files)

    def stated(self, files: tuple[FileStamp, ...]) -> Types:
        """Return the columns in the names of the folders of the first file, with their types."""
        declared, first = dict(self.types), dict(files[0].partition)
        found = partition_types(tuple(file.partition for file in files))
        return tuple((name, declared.get(name, kind)) for name, kind in found if name in first)

    def whole_schema(self, schema: Schema, files: tuple[FileStamp, ...]) -> Schema:
        """Append the columns in the names of folders to those of the files."""
        present = set(schema.names)
        return pa.schema([*schema, *(pair for pair in self.stated(files) if pair[0] not in present)])

    def filled_ends(self, data: bytes) -> NDArray[np.int64] | None:
        """Return where the records end that become rows, int64[N], before they are parsed; None where that is not known for sure."""
        return None

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Yield a chunk for every block, with the position after it."""
        for lines, after in self._lines(position):
            chunk = lines.read()
            if chunk.num_rows:
                yield chunk, after

    def tasks(self, epoch: int, position: Position) -> Tasks:
        """Yield a task for every block. It is parsed where it runs, if its records can be counted before."""
        for lines, after in self._lines(position):
            ends = None if self.marks else self.filled_ends(lines.block.data)
            task = ChunkTask(lines.read()) if ends is None else attrs.evolve(lines, rows=len(ends), ends=ends)
            if task.rows:
                yield task, after

    def _lines(self, position: Position) -> Iterator[tuple[Lines, Position]]:
        """Yield the blocks from a position on, with what is known of their columns, and the position after each."""
        files = self.files()
        first, offset, line = find_place(files, position)
        schema, inferred_from = self.inferred(files)
        whole = self.whole_schema(schema, files)
        wanted = self.select(whole)
        present = set(schema.names)
        own = pa.schema([each for each in wanted if each.name in present] or [schema.field(0)])
        for number in range(first, len(files)):
            path, partition = files[number].path, files[number].partition
            opening = self.opening(path)
            check_partition(partition, path)
            names = opening.names or schema.names
            check_same_names([*names, *(name for name, _ in partition if name not in names)], path, whole.names, inferred_from)
            start = (offset, line) if number == first and offset else (opening.offset, opening.line)
            for block in _blocks(self, path, opening, start, _size(self._block_size, schema.names)):
                after = place(files, number, block.end, block.next_line) if block.end else place(files, number + 1, 0, 0)
                yield Lines(self, block, own, wanted, partition), after

    def notes(self) -> tuple[str, ...]:
        """Say what resuming in a compressed file costs, and what a scan has found."""
        said = [*super().notes()]
        with suppress(MlxfpError):
            files = self.files()
            if any(packing(file.path) for file in files):
                said.append("resuming inside a compressed file decompresses everything before the cursor")
            if self.scan:
                said.append(f"reads all files for the types; to do without, give {schema_code(self.declared())}")
        return tuple(said)

    def __repr__(self) -> str:
        return f"{super().__repr__().removesuffix(')')}{schema_argument(self.types, scan=self.scan)})"


def _blocks(source: LineSource, path: str, opening: Opening, start: tuple[int, int], size: int) -> Iterator[Block]:
    """Yield the blocks of a file from (offset, line) on."""
    offset, line = start
    for data, end in blocks(path, offset, source.cut, size):
        next_line = line + count_lines(data)
        yield Block(source.as_utf8(data), opening, path, line, next_line, end)
        line = next_line


def _size(least: int, columns: Sequence[str]) -> int:
    """Return the size of a block, larger for wide rows: Arrow takes as long for a column of a block as for some 500 bytes of numbers."""
    return least * max(1, len(columns) // _WIDE)


@lru_cache(maxsize=256)
def _infer(source: LineSource, files: tuple[FileStamp, ...]) -> tuple[Schema, str]:
    """Infer the schema from the first file with a record, or else from the first file; return it with the path of that file."""
    samples = _samples(source, files)
    first = next(samples)
    sample, path = next((pair for pair in chain([first], samples) if pair[0].num_rows), first)
    schema = source.finished(sample.schema, path)
    check_names(schema.names, path)
    if not sample.num_rows and not set(schema.names) <= {name for name, _ in source.types}:
        many = f"{len(files)} files without records" if len(files) > 1 else "a file without records"
        warnings.warn(
            f"There is no row to read: got {many}, {files[0].path} first, so the types of the columns are not known. Check the path, or "
            "declare them with schema=.",
            RuntimeWarning,
            stacklevel=2,
        )
    return schema, path


def _samples(source: LineSource, files: tuple[FileStamp, ...]) -> Iterator[tuple[RecordBatch, str]]:
    """Yield every block, parsed with inferred types, and the path of its file; at least one block."""
    return ((parse(source, block, None), block.path) for block in _every_block(source, files))


@lru_cache(maxsize=64)
def _scan(source: LineSource, files: tuple[FileStamp, ...]) -> tuple[Schema, str]:
    """Infer the schema that fits every record: each block is parsed with inferred types, in threads, and these are joined by column."""
    found: dict[str, dict[pa.DataType, Block]] = {}  # the block that each type of a column was first found in
    faults: dict[str, tuple[Fault, Block]] = {}  # by columns that have several types in one value
    first: Opening | None = None
    with Progress("find the types of columns", unit="blocks") as progress:
        for block, types, faulty in progress.over(_in_threads(partial(_types_in, source), _every_block(source, files))):
            first = first or block.opening
            check_same_names(block.opening.names, block.path, first.names, files[0].path)
            for name, kind in types:
                found.setdefault(name, {}).setdefault(kind, block)
            for fault in faulty:
                faults.setdefault(str(fault.column), (fault, block))
    kinds = {name: None if name in faults else _join_all(source, list(seen)) for name, seen in found.items()}
    schema = source.finished(pa.schema({name: TEXT_OF_JSON if kind is None else kind for name, kind in kinds.items()}), files[0].path)
    check_names(schema.names, files[0].path)
    wrong = next((name for name, kind in kinds.items() if kind is None), None)
    if wrong is not None:
        what = said(*faults[wrong]) if wrong in faults else _conflict(source, wrong, found[wrong])
        fitting = schema_code((each.name, each.type) for each in schema)
        raise SchemaError(f"{what}. Make the values of a column one type, or keep them as JSON text: {fitting}")
    return schema, files[0].path


def _types_in(source: LineSource, block: Block) -> tuple[Block, list[tuple[str, pa.DataType]], list[Fault]]:
    """Infer the types of a block: of a column whose values have several types, all of them, or else a fault."""
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
        types += [(parsed.column, settled(pa.null() if kind is None else kind, pa.null())) for kind in parsed.kinds]
        source = attrs.evolve(source, types=(*source.types, (parsed.column, TEXT_OF_JSON)))
    for each, column in zip(parsed.schema, parsed.columns, strict=True):
        if each.name not in mixed:
            types.append((each.name, _LONG if _is_long(column) else settled(each.type, pa.null())))
    return block, types, faults


def _is_long(column: pa.Array) -> bool:
    """Say whether a column has integers that float64 does not hold."""
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
    """Say where two rows have values of types that cannot be joined."""
    pairs = ((one, other) for one in seen for other in seen if joined_type(one, other) is None)
    one, other = next(pairs)
    places = []
    for kind, against in ((one, other), (other, one)):
        block = seen[kind]
        at = source.conflicts_at(block.data, name, against)
        places.append(f"{pa.int64() if kind == _LONG else kind} in line {block.line + count_lines(block.data[:at])} of {block.path}")
    return f"Two rows have values that no type holds: column {name!r} is {' and '.join(places)}"


def _every_block(source: LineSource, files: tuple[FileStamp, ...]) -> Iterator[Block]:
    for file in files:
        opening = source.opening(file.path)
        yield from _blocks(source, file.path, opening, (opening.offset, opening.line), _size(_SAMPLE, opening.names))


def _in_threads(call: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """Yield what a call returns for each item, in order; as many threads as there are cores work ahead."""
    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[B]] = deque()
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        yield from (each.result() for each in waiting)
