"""Functions that parse blocks of records. An invalid record raises an error with file and line, or becomes a row marked as failed."""

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

# Number of invalid records in a block before the parser changes to one record at a time.
# The search for one invalid record takes as long as parsing the whole block ten times.
_FAULTS = 16
_ESCAPED = re.compile("[\udc80-\udcff]")  # surrogates, to which Python decodes invalid UTF-8 bytes


class Format(Protocol):
    """Protocol of a source of line-based records. `LineSource` implements this protocol."""

    transcoding: ClassVar[str]

    @property
    def encoding(self) -> str:
        """Encoding of the files."""
        ...

    @property
    def marks(self) -> bool:
        """True if invalid records become rows marked as failed."""
        ...

    @property
    def scan(self) -> bool:
        """True if all files are read for type inference."""
        ...

    def parse(self, data: bytes, opening: Opening, schema: Schema | None) -> RecordBatch | Fault:
        """Parse whole records."""
        ...

    def record_ends(self, data: bytes) -> NDArray[np.int64]:
        """Return the end offsets of the records in a block."""
        ...

    def unended(self, data: bytes) -> Fault | None:
        """Return a `Fault` if the end of the file cuts off the last record."""
        ...


@frozen(eq=False)
class Lines(Task):
    """Task that parses some or all records of a block."""

    source: Format
    block: Block
    file_schema: Schema  # schema of the columns stored in the file
    wanted: Schema  # schema of the rows to return
    partition: Partition
    rows: int = -1  # number of rows; -1 if unknown before parsing
    ends: NDArray[np.int64] | None = None  # end offsets of the records that become rows, int64[rows]

    def read(self) -> RecordBatch:
        chunk = (_parse_marked if self.source.marks else parse)(self.source, self.block, self.file_schema)
        if self.rows not in (-1, chunk.num_rows):
            raise DataError(
                f"The parser made {chunk.num_rows} rows, but the record counter found {self.rows} records, from line {self.block.line} of "
                f"{self.block.path} on. Read the file without workers, and report this bug."
            )
        if self.partition:
            marks = [column for column in chunk.schema if column.name == ERROR]
            chunk = fit(chunk, pa.schema([*shown(self.wanted), *marks]), self.partition, self.block.path)
        return chunk

    def part(self, first: int, stop: int) -> Task | None:
        if self.ends is None:
            return None
        start, end = int(self.ends[first - 1]) if first else 0, int(self.ends[stop - 1])
        block = _part(self.block, start, end)
        return attrs.evolve(self, block=block, rows=stop - first, ends=self.ends[first:stop] - start)

    def sent_to(self, workers: str) -> Task:
        return attrs.evolve(self, ends=None)


def find_fault(source: Format, block: Block) -> Fault | None:
    """Return a fault for the first byte that is not UTF-8, or for a record cut off by the end of the file.

    Returns None for a valid block.
    """
    try:
        pa.StringArray.from_buffers(1, pa.py_buffer(np.array([0, len(block.data)], np.int32)), pa.py_buffer(block.data)).validate(full=True)
    except pa.ArrowInvalid:
        offset = len(_ESCAPED.split(block.data.decode(errors="surrogateescape"), maxsplit=1)[0].encode())
        encoding = "UTF-8" if source.encoding == "utf-8" else source.encoding
        remedy = source.transcoding.replace(f"'{source.encoding}'", "'latin-1'")  # Python decodes every byte as latin-1
        return Fault(offset, f"Text is not {encoding}: got the byte 0x{block.data[offset]:02x}", remedy)
    return None if block.end else source.unended(block.data)


def parse(source: Format, block: Block, schema: Schema | None) -> RecordBatch:
    """Parse a block with the types of `schema`, or infer the types if `schema` is None. Raise `DataError` for an invalid record."""
    parsed = without_faults(source, block) if schema is None else _attempt(source, block, schema)
    if isinstance(parsed, Fault):
        raise data_error(parsed, block)
    return parsed


def _parse_marked(source: Format, block: Block, schema: Schema) -> RecordBatch:
    """Parse a block. Each invalid record becomes a row of nulls, with the reason in the hidden error column."""
    parsed = _attempt(source, block, schema)
    if not isinstance(parsed, Fault):
        return parsed
    ends, data = np.append(source.record_ends(block.data), len(block.data)), block.data
    columns = pa.schema([*shown(schema), (ERROR, REASON)])
    parts: list[RecordBatch] = []
    start, stop, failures = 0, len(data), 0
    after: tuple[int, str] | None = None  # Invalid record at offset `stop`: end offset and error text. None if no invalid record is known.
    while start < len(data):
        following = int(ends[np.searchsorted(ends, start, "right")])
        records = _part(block, start, stop if failures < _FAULTS else min(stop, following))
        parsed = _attempt(source, records, schema)
        if not isinstance(parsed, Fault):
            parts.append(pa.RecordBatch.from_arrays([*parsed.columns, pa.nulls(parsed.num_rows, REASON)], schema=columns))
            start += len(records.data)
        else:
            index = int(np.searchsorted(ends, start + parsed.offset, "right"))
            stop, after = max(start, int(ends[index - 1]) if index else 0), (int(ends[index]), fault_text(parsed, records))
        if after is not None and start == stop:
            error = pa.array([{"stage": repr(source), "reason": f"DataError: {after[1]}"}], REASON)
            parts.append(pa.RecordBatch.from_arrays([*(pa.nulls(1, column.type) for column in list(columns)[:-1]), error], schema=columns))
            start, stop, failures, after = after[0], len(data), failures + 1, None
    return concat_chunks(parts)


def _part(block: Block, start: int, stop: int) -> Block:
    """Return the part of a block between two byte offsets."""
    line = block.line + count_lines(block.data[:start])
    return attrs.evolve(block, data=block.data[start:stop], line=line, end=block.end if stop == len(block.data) else stop)


def without_faults(source: Format, block: Block) -> RecordBatch | Fault:
    """Parse a block with inferred types. Return the parsed chunk, or a `Fault` that describes an invalid record.

    If the source marks invalid records as failed rows, invalid records are removed. The types are inferred from the valid records
    before the 16th invalid record.
    """
    first = parsed = _attempt(source, block, None)
    for number in range(_FAULTS if source.marks else 0):
        if not isinstance(parsed, Fault) or (parsed.column is not None and source.scan):
            return parsed
        ends = np.append(source.record_ends(block.data), len(block.data))
        index = int(np.searchsorted(ends, parsed.offset, "right"))
        rest = b"" if number == _FAULTS - 1 else block.data[ends[index] :]
        block = attrs.evolve(block, data=block.data[: ends[index - 1] if index else 0] + rest)
        parsed = _attempt(source, block, None)
    return first if isinstance(parsed, Fault) or (source.marks and not parsed.num_rows) else parsed


def _attempt(source: Format, block: Block, schema: Schema | None) -> RecordBatch | Fault:
    fault = find_fault(source, block)
    if fault is not None:
        return fault
    try:
        return source.parse(block.data, block.opening, schema)
    except pa.ArrowNotImplementedError as error:
        raise SchemaError(
            f"The reader does not support a declared type: {error}, in {source!r}. Declare text or numbers, and convert with fp.map."
        ) from error


def data_error(fault: Fault, block: Block) -> DataError:
    """Return the error to raise for an invalid record, with location and remedy."""
    return DataError(f"{fault_text(fault, block)}. {fault.remedy}")


def fault_text(fault: Fault, block: Block) -> str:
    """Return the text of an error message about an invalid record: problem, line number and file."""
    return f"{fault.problem}, in line {block.line + count_lines(block.data[: fault.offset])} of {block.path}"
