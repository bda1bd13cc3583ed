"""Parsing blocks of records: what cannot be parsed is an error that names file and line, or a marked row."""

import re
from typing import ClassVar, Protocol

import attrs
import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import RecordBatch, Schema, concat_chunks
from mlxfp.core.sources import Task
from mlxfp.data.sources.columns import shown
from mlxfp.data.sources.partitions import Partition, fit
from mlxfp.data.sources.records.line_blocks import Block, Fault, Opening, count_lines
from mlxfp.data.sources.row_chunks import ERROR, REASON
from mlxfp.support.errors import DataError, SchemaError

_FAULTS = 16  # records that cannot be parsed in a block, until each is parsed alone: finding one costs some ten times parsing the block
_ESCAPED = re.compile("[\udc80-\udcff]")  # how Python decodes bytes that are not UTF-8


class Format(Protocol):
    """A source of records that end at newlines: see `LineSource`."""

    transcoding: ClassVar[str]

    @property
    def encoding(self) -> str:
        """The encoding of the files."""
        ...

    @property
    def marks(self) -> bool:
        """Whether records that cannot be parsed become rows marked as failed."""
        ...

    @property
    def scan(self) -> bool:
        """Whether all files are read for the types."""
        ...

    def parse(self, data: bytes, opening: Opening, schema: Schema | None) -> RecordBatch | Fault:
        """Parse whole records."""
        ...

    def record_ends(self, data: bytes) -> NDArray[np.int64]:
        """Return the offsets at which the records in a block end."""
        ...

    def unended(self, data: bytes) -> Fault | None:
        """Find a record that the end of the file cuts off."""
        ...


@frozen(eq=False)
class Lines(Task):
    """Records of a file that are to be parsed, all of a block or some."""

    source: Format
    block: Block
    own: Schema  # of the columns in the file
    wanted: Schema  # of the rows
    partition: Partition
    rows: int = -1  # where they were counted
    ends: NDArray[np.int64] | None = None  # of the records that become rows, to cut there: int64[rows]

    def read(self) -> RecordBatch:
        """Parse them."""
        chunk = (_parse_marked if self.source.marks else parse)(self.source, self.block, self.own)
        if self.rows not in (-1, chunk.num_rows):
            raise DataError(
                f"Records were counted in two ways: got {chunk.num_rows} rows where there were {self.rows} records, from line "
                f"{self.block.line} of {self.block.path} on. Read the file without workers, and report this."
            )
        if self.partition:
            marks = [each for each in chunk.schema if each.name == ERROR]
            chunk = fit(chunk, pa.schema([*shown(self.wanted), *marks]), self.partition, self.block.path)
        return chunk

    def part(self, first: int, stop: int) -> Task | None:
        """Parse fewer."""
        if self.ends is None:
            return None
        start, end = int(self.ends[first - 1]) if first else 0, int(self.ends[stop - 1])
        block = _part(self.block, start, end)
        return attrs.evolve(self, block=block, rows=stop - first, ends=self.ends[first:stop] - start)

    def sent_to(self, workers: str) -> Task:
        """Leave the ends here."""
        return attrs.evolve(self, ends=None)


def check_block(source: Format, block: Block) -> None:
    """Raise `DataError` unless the block is UTF-8 and, at the end of a file, its last record is whole."""
    fault = _find_fault(source, block)
    if fault is not None:
        raise data_error(fault, block)


def _find_fault(source: Format, block: Block) -> Fault | None:
    """Find bytes that are not UTF-8, or a record that the end of the file cuts off."""
    try:
        pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(block.data)], np.int32)), pa.py_buffer(block.data)).validate(full=True)
    except pa.ArrowInvalid:
        at = len(_ESCAPED.split(block.data.decode(errors="surrogateescape"), maxsplit=1)[0].encode())
        encoding = "UTF-8" if source.encoding == "utf-8" else source.encoding
        return Fault(at, f"Text is not {encoding}: got the byte 0x{block.data[at]:02x}", source.transcoding)
    return None if block.end else source.unended(block.data)


def parse(source: Format, block: Block, schema: Schema | None) -> RecordBatch:
    """Parse a block, with inferred types if there is no schema; raise `DataError` for a record that cannot be parsed."""
    parsed = without_faults(source, block) if schema is None else _attempt(source, block, schema)
    if isinstance(parsed, Fault):
        raise data_error(parsed, block)
    return parsed


def _parse_marked(source: Format, block: Block, schema: Schema) -> RecordBatch:
    """Parse a block; each record that cannot be parsed becomes a row of nulls, marked with the reason."""
    parsed = _attempt(source, block, schema)
    if not isinstance(parsed, Fault):
        return parsed
    ends, data = np.append(source.record_ends(block.data), len(block.data)), block.data
    columns = pa.schema([*shown(schema), (ERROR, REASON)])
    parts: list[RecordBatch] = []
    start, stop, failures = 0, len(data), 0
    after: tuple[int, str] | None = None  # of the record that begins at `stop`: where it ends, and what is wrong with it
    while start < len(data):
        following = int(ends[np.searchsorted(ends, start, "right")])
        some = _part(block, start, stop if failures < _FAULTS else min(stop, following))
        parsed = _attempt(source, some, schema)
        if not isinstance(parsed, Fault):
            parts.append(pa.RecordBatch.from_arrays([*parsed.columns, pa.nulls(parsed.num_rows, REASON)], schema=columns))
            start += len(some.data)
        else:
            which = int(np.searchsorted(ends, start + parsed.at, "right"))
            stop, after = max(start, int(ends[which - 1]) if which else 0), (int(ends[which]), said(parsed, some))
        if after is not None and start == stop:
            error = pa.array([{"stage": repr(source), "reason": f"DataError: {after[1]}"}], REASON)
            parts.append(pa.RecordBatch.from_arrays([*(pa.nulls(1, each.type) for each in list(columns)[:-1]), error], schema=columns))
            start, stop, failures, after = after[0], len(data), failures + 1, None
    return concat_chunks(parts)


def _part(block: Block, start: int, stop: int) -> Block:
    """Return some records of a block."""
    line = block.line + count_lines(block.data[:start])
    return attrs.evolve(block, data=block.data[start:stop], line=line, end=block.end if stop == len(block.data) else stop)


def without_faults(source: Format, block: Block) -> RecordBatch | Fault:
    """Infer the types of a block; where records that cannot be parsed are marked, without these, or if they are many from those before."""
    first = parsed = _attempt(source, block, None)
    for number in range(_FAULTS if source.marks else 0):
        if not isinstance(parsed, Fault) or (parsed.column is not None and source.scan):
            return parsed
        ends = np.append(source.record_ends(block.data), len(block.data))
        which = int(np.searchsorted(ends, parsed.at, "right"))
        rest = b"" if number == _FAULTS - 1 else block.data[ends[which] :]
        block = attrs.evolve(block, data=block.data[: ends[which - 1] if which else 0] + rest)
        parsed = _attempt(source, block, None)
    return first if isinstance(parsed, Fault) or (source.marks and not parsed.num_rows) else parsed


def _attempt(source: Format, block: Block, schema: Schema | None) -> RecordBatch | Fault:
    fault = _find_fault(source, block)
    if fault is not None:
        return fault
    try:
        return source.parse(block.data, block.opening, schema)
    except pa.ArrowNotImplementedError as error:  # Arrow's error for a type that its reader does not support
        raise SchemaError(
            f"A declared type cannot be read: {error}, in {source!r}. Read the column as text or numbers, and convert it."
        ) from error


def data_error(fault: Fault, block: Block) -> DataError:
    """Make the error for a fault."""
    return DataError(f"{said(fault, block)}. {fault.cure}")


def said(fault: Fault, block: Block) -> str:
    """Say what is wrong, and where."""
    return f"{fault.what}, in line {block.line + count_lines(block.data[: fault.at])} of {block.path}"
