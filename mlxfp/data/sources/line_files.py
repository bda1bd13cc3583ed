"""The source behind every format whose records end at newlines: CSV, JSON lines, text.

Files are read in blocks of whole records, and each block becomes a chunk. A position is (file, byte offset, line). Types are inferred once,
from the first block that has a record. Every block, including that one, is then parsed with these types, so a value that does not fit is
always an error and never changes a type.
"""

import re
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.errors import DataError, MissingFileError, SchemaError
from mlxfp.core.sources import Position
from mlxfp.data.sources.column_names import check_names, check_same_names
from mlxfp.data.sources.column_types import Types, schema_argument, settled
from mlxfp.data.sources.files import BLOCK, FileSource, blocks, find_place, open_bytes, packing, place, read_bytes
from mlxfp.data.sources.remote_files import FileStamp

_SAMPLE = 1 << 20  # bytes that types are inferred from
_ESCAPED = re.compile("[\udc80-\udcff]")  # how Python decodes bytes that are not UTF-8
_MARK = b"\xef\xbb\xbf"  # the byte order mark that some programs put in front of UTF-8
LF, CR = 10, 13
PIECE = 1 << 16  # bytes looked at together: so few that numpy's results stay in the CPU's cache


@frozen
class Opening:
    """What comes before the first record of a file: a byte order mark, a header."""

    offset: int
    line: int = 1
    names: tuple[str, ...] = ()  # the columns in the order of the file, where it has a header


@frozen
class Block:
    """Whole records of a file, and where they are."""

    data: bytes
    opening: Opening
    path: str
    line: int  # of the first record
    next_line: int
    end: int | None  # the offset after them; None: the file ends here


@frozen
class Fault:
    """Why a block cannot be parsed: the offset of the record in the block, what is wrong with what we got, and what to do."""

    at: int
    what: str
    cure: str


@frozen(repr=False)
class LineSource(FileSource):
    """Files of records that end at newlines. A format has `suffixes`, and says how to parse a block or why a block cannot be parsed."""

    types: Types = field(default=(), kw_only=True, repr=False)
    _block_size: int = field(default=BLOCK, kw_only=True, repr=False)  # changes the cursors, not the rows

    @abstractmethod
    def parse(self, data: bytes, opening: Opening, schema: Schema | None) -> RecordBatch | Fault:
        """Parse whole records, with the types of `schema` or else inferred ones; return a `Fault` for a record that cannot be parsed."""

    def opening(self, path: str) -> Opening:
        """Read what comes before the first record."""
        with open_bytes(path) as stream:
            return Opening(len(_MARK) if read_bytes(stream, len(_MARK), path) == _MARK else 0)

    def cut(self, data: bytes) -> int:
        """Return how many of the bytes are whole records, whatever bytes follow."""
        return data.rfind(b"\n") + 1

    def unended(self, data: bytes) -> Fault | None:
        """Find a record that the end of the file cuts off."""
        return None

    def finished(self, schema: Schema, path: str) -> Schema:
        """Complete an inferred schema: with the declared types, and without types that later values seldom fit, such as null."""
        kinds = dict(self.types)
        return pa.schema([(f.name, kinds.get(f.name) or settled(f.type)) for f in schema])

    def schema(self) -> Schema:
        """Infer the types from the first block with a record in it."""
        return self.select(self.inferred(self.files())[0])

    def inferred(self, files: tuple[FileStamp, ...]) -> tuple[Schema, str]:
        """Return the schema of all columns, and the path of the file that it was inferred from."""
        return _infer(attrs.evolve(self, kept=None), files)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Yield a chunk for every block, with the position after it."""
        files = self.files()
        first, offset, line = find_place(files, position)
        schema, inferred_from = self.inferred(files)
        for number in range(first, len(files)):
            path = files[number].path
            opening = self.opening(path)
            check_same_names(opening.names or schema.names, path, schema.names, inferred_from)
            start = (offset, line) if number == first and offset else (opening.offset, opening.line)
            for block in _blocks(self, path, opening, start, self._block_size):
                chunk = _parse(self, block, self.select(schema))
                if chunk.num_rows:
                    yield chunk, place(files, number, block.end, block.next_line) if block.end else place(files, number + 1, 0, 0)

    def notes(self) -> tuple[str, ...]:
        """Say what resuming in a compressed file costs."""
        with suppress(MissingFileError):
            if any(packing(file.path) for file in self.files()):
                return (*super().notes(), "resuming inside a compressed file decompresses everything before the cursor")
        return super().notes()

    def __repr__(self) -> str:
        return f"{super().__repr__().removesuffix(')')}{schema_argument(self.types, scan=False)})"


def check_block(source: LineSource, block: Block) -> None:
    """Raise `DataError` unless the block is UTF-8 and, at the end of a file, its last record is whole."""
    try:
        pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(block.data)], np.int32)), pa.py_buffer(block.data)).validate(full=True)
    except pa.ArrowInvalid:
        at = len(_ESCAPED.split(block.data.decode(errors="surrogateescape"), maxsplit=1)[0].encode())
        cure = "Convert the file to UTF-8, as with iconv; if it is compressed, unpack it, or use gzip or zstd with the suffix .gz or .zst."
        raise _data_error(Fault(at, f"Text is not UTF-8: got the byte 0x{block.data[at]:02x}", cure), block) from None
    unended = None if block.end else source.unended(block.data)
    if unended is not None:
        raise _data_error(unended, block)


def _blocks(source: LineSource, path: str, opening: Opening, start: tuple[int, int], size: int) -> Iterator[Block]:
    """Yield the blocks of a file from (offset, line) on."""
    offset, line = start
    for data, end in blocks(path, offset, source.cut, size):
        next_line = line + count_lines(data)
        yield Block(data, opening, path, line, next_line, end)
        line = next_line


def _parse(source: LineSource, block: Block, schema: Schema | None) -> RecordBatch:
    check_block(source, block)
    try:
        parsed = source.parse(block.data, block.opening, schema)
    except pa.ArrowNotImplementedError as error:  # Arrow's error for a type that its reader does not support
        raise SchemaError(
            f"A declared type cannot be read: {error}, in {source!r}. Read the column as text or numbers, and convert it."
        ) from error
    if isinstance(parsed, Fault):
        raise _data_error(parsed, block)
    return parsed


def line_ends(codes: NDArray[np.uint8], *, returns: bool = True) -> NDArray[np.bool_]:
    r"""Mark the bytes that end a line: \n, the \n of \r\n, and a lone \r; `returns=False` where there is no \r, to be faster."""
    ends: NDArray[np.bool_] = codes == LF
    if returns:
        lone = codes == CR
        lone[:-1] &= ~ends[1:]
        ends |= lone
    return ends


def count_lines(data: bytes) -> int:
    r"""Return the number of lines that end in the data: at \n, \r\n or a lone \r."""
    codes, returns = np.frombuffer(data, np.uint8), b"\r" in data
    pieces = (codes[first : first + PIECE + 1] for first in range(0, len(codes), PIECE))  # with the byte after, which tells a lone \r
    return sum(int(np.count_nonzero(line_ends(piece, returns=returns)[:PIECE])) for piece in pieces)


def _data_error(fault: Fault, block: Block) -> DataError:
    return DataError(f"{fault.what}, in line {block.line + count_lines(block.data[: fault.at])} of {block.path}. {fault.cure}")


def guard(data: bytes) -> bytes:
    """Put a blank line in front where Arrow needs it: Arrow drops a byte order mark at the start, and fails on empty data."""
    return data if data and not data.startswith(_MARK) else b"\n" + data


def fails(parse: Callable[[], object]) -> bool:
    """Say whether Arrow rejects the data."""
    try:
        parse()
    except pa.ArrowInvalid:
        return True
    return False


def first_failure(ends: Sequence[int], parse: Callable[[int], object]) -> tuple[int, int]:
    """Return (start, end) of the first record with which `parse(end)` fails, given that parsing all records fails."""
    which = bisect_left(ends, 1, key=lambda end: int(fails(lambda: parse(end))))
    return (ends[which - 1] if which else 0), ends[which]


def shorten(value: object) -> str:
    """Print a value in at most 80 characters, for messages."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


@lru_cache(maxsize=256)
def _infer(source: LineSource, files: tuple[FileStamp, ...]) -> tuple[Schema, str]:
    """Infer the schema from the first file with a record, or else from the first file; return it with the path of that file."""
    samples = _samples(source, files)
    first = next(samples)
    sample, path = next((pair for pair in chain([first], samples) if pair[0].num_rows), first)
    schema = source.finished(sample.schema, path)
    check_names(schema.names, path)
    return schema, path


def _samples(source: LineSource, files: tuple[FileStamp, ...]) -> Iterator[tuple[RecordBatch, str]]:
    """Yield every block, parsed with inferred types, and the path of its file; at least one block."""
    for path in (file.path for file in files):
        opening = source.opening(path)
        for block in _blocks(source, path, opening, (opening.offset, opening.line), _SAMPLE):
            yield _parse(source, block, None), path
