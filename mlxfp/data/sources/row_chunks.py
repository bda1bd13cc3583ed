"""Functions that divide an iterable of examples, or the rows of a table, into chunks."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np
import pyarrow as pa

from mlxfp.core.chunks import CHUNK_ROWS, LARGE, Example, RecordBatch, Schema, from_rows
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.sources import Position, Source, Tasks, take_task
from mlxfp.support.errors import ArgumentTypeError

ERROR = "__error__"  # hidden column: reason why a row failed, null for valid rows
REASON = pa.struct([("stage", pa.string()), ("reason", pa.string())])
_FIRST_CHUNKS = 64, 256, 1024, CHUNK_ROWS
# Number of rows in a chunk of small rows, and maximum size of a small row in bytes.
# Tokenizers need some MB of text per chunk to keep all threads busy.
_MANY_ROWS, _SMALL = 4 * CHUNK_ROWS, 512
ROWS_PULLED = 256  # Number of rows per chunk of an iterable. The number is small, because user code and remote streams may be slow.


def check_example(row: object, index: int) -> Example:
    """Return `row` unchanged. Raise `ArgumentTypeError` unless the row is a mapping."""
    if not isinstance(row, Mapping):
        raise ArgumentTypeError(
            f"Every example must be a mapping of column names to values, got {type(row).__name__} at index {index}: {row!r:.60}."
        )
    return row


def infer_schema(rows: Iterable[Example]) -> Schema:
    """Infer a schema from the first rows: 128 rows, or fewer if they reach `LARGE` bytes of text."""
    first = next(_pulled(islice(rows, SAMPLE_ROWS)), [])
    return from_rows(first, None, range(len(first))).schema


def rows_to_chunks(rows: Iterable[Example], schema: Schema, first: int) -> Iterator[RecordBatch]:
    """Yield chunks of at most 256 rows. Rows with long texts make smaller chunks. `first` is the number of the first row, for messages."""
    for batch in _pulled(rows):
        yield from_rows(batch, schema, range(first, first + len(batch)))
        first += len(batch)


def _pulled(rows: Iterable[Example]) -> Iterator[list[Example]]:
    """Yield lists of rows. A list ends after 256 rows, or as soon as its texts reach `LARGE` bytes. Rows are read only when needed."""
    part, size = list[Example](), 0
    for row in rows:
        part.append(row)
        size += sum(len(value) for value in row.values() if isinstance(value, str | bytes))
        if len(part) == ROWS_PULLED or size >= LARGE:
            yield part
            part, size = [], 0
    if part:
        yield part


def read_table(table: pa.Table, first: int) -> Iterator[tuple[RecordBatch, Position]]:
    """Yield the chunks of a table from row `first` on. Each chunk comes with the resume position after the chunk."""
    most = most_rows(table)
    while first < table.num_rows:
        stop = min(chunk_end(first, most), table.num_rows)
        yield from count_rows(table.slice(first, stop - first).to_batches(), first)
        first = stop


def most_rows(table: pa.Table) -> int:
    """Return the maximum number of rows for a chunk of a table. Chunks of small rows have more rows."""
    return _MANY_ROWS if table.nbytes <= _SMALL * table.num_rows else CHUNK_ROWS


def chunk_end(first: int, most: int = CHUNK_ROWS) -> int:
    """Return the end row of the chunk that begins at row `first`. Chunks at the start are short, so that the first rows arrive soon."""
    size = next((size for size in _FIRST_CHUNKS if first < size <= most), most)
    return (first // size + 1) * size


def count_rows(chunks: Iterable[RecordBatch], first: int) -> Iterator[tuple[RecordBatch, int]]:
    """Yield each chunk with the number of the next row. The first chunk begins at row `first`."""
    for chunk in chunks:
        first += chunk.num_rows
        yield chunk, first


def tasks_in_order(source: Source, epoch: int, first: int, size: int) -> Tasks:
    """Yield tasks that each read `size` rows of an indexable source, from row `first` on.

    Each task comes with the number of the next row.
    """
    count = source.length() or 0
    for start in range(first, count, size):
        stop = min(start + size, count)
        yield take_task(source, epoch, np.arange(start, stop)), stop
