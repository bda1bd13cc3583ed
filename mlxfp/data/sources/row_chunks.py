"""Chunks of rows that Python code gives: an iterable of examples, or a table with random access."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

import numpy as np
import pyarrow as pa

from mlxfp.core.chunks import CHUNK_ROWS, Example, RecordBatch, Schema, chunked, from_rows
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.sources import Position, Source, Tasks, take_task
from mlxfp.support.errors import ArgumentTypeError

ERROR = "__error__"  # the hidden column that says why a row failed, where it is not null
REASON = pa.struct([("stage", pa.string()), ("reason", pa.string())])
_FIRST_CHUNKS = 64, 256, 1024, CHUNK_ROWS
_MANY_ROWS, _SMALL = 4 * CHUNK_ROWS, 512  # rows of a chunk where a row has at most so many bytes: engines need some MB for all threads
ROWS_PULLED = 256  # rows of a chunk: user code and remote streams may be slow, so the first batch should not wait for thousands


def check_example(row: object, place: int) -> Example:
    """Return the row; raise `ArgumentTypeError` unless it is a mapping."""
    if not isinstance(row, Mapping):
        raise ArgumentTypeError(
            f"Every example must be a mapping of column names to values, got {type(row).__name__} at {place}: {row!r:.60}."
        )
    return row


def infer_schema(rows: Iterable[Example]) -> Schema:
    """Infer a schema from the first 128 rows."""
    first = list(islice(rows, SAMPLE_ROWS))
    return from_rows(first, None, range(len(first))).schema


def rows_to_chunks(rows: Iterable[Example], schema: Schema, first: int) -> Iterator[RecordBatch]:
    """Yield chunks of rows; `first` is the number of the first row, for messages."""
    for some in chunked(rows, ROWS_PULLED):
        yield from_rows(some, schema, range(first, first + len(some)))
        first += len(some)


def read_table(table: pa.Table, first: int) -> Iterator[tuple[RecordBatch, Position]]:
    """Yield the chunks of a table from a row on, as `Source.read` does."""
    most = most_rows(table)
    while first < table.num_rows:
        upto = min(chunk_end(first, most), table.num_rows)
        yield from count_rows(table.slice(first, upto - first).to_batches(), first)
        first = upto


def most_rows(table: pa.Table) -> int:
    """Return how many rows of a table a chunk holds at most."""
    return _MANY_ROWS if table.nbytes <= _SMALL * table.num_rows else CHUNK_ROWS


def chunk_end(first: int, most: int = CHUNK_ROWS) -> int:
    """Return before which row a chunk that begins at a row ends: the first chunks are short, so that the first rows come soon."""
    size = next((size for size in _FIRST_CHUNKS if first < size <= most), most)
    return (first // size + 1) * size


def count_rows(chunks: Iterable[RecordBatch], first: int) -> Iterator[tuple[RecordBatch, int]]:
    """Yield each chunk with the number of the row after it."""
    for chunk in chunks:
        first += chunk.num_rows
        yield chunk, first


def tasks_in_order(source: Source, epoch: int, first: int, size: int) -> Tasks:
    """Yield the rows of a source with random access from `first` on, `size` at a time, each with the number of the row after it."""
    count = source.length() or 0
    for at in range(first, count, size):
        stop = min(at + size, count)
        yield take_task(source, epoch, np.arange(at, stop)), stop
