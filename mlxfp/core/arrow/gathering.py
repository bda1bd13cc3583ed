"""Random access to rows of many chunks. The cost grows with the number of selected rows, not with the table size.

`Table.take` of Arrow first joins all chunks, which reads a whole memory-mapped file even for a few rows. Arrow is also slow at
selecting lists, texts and bytes in random order. Time for 4,096 random rows of 200,000, with about 45 int32 tokens per row, on 2 cores:

- one chunk: `_gather_ragged` 0.35 ms, `take` of Arrow about 2 ms
- 50 chunks: `_gather_ragged` 3.4 ms, `take` of Arrow about 14 ms
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.chunks import LARGE, Indices, RecordBatch, concat_chunks, no_rows
from mlxfp.support.arrow_types import is_large, is_list, is_number, is_tensor
from mlxfp.support.errors import DataError

Positions = NDArray[np.integer[Any]]
At = Indices | slice  # positions in the result
Parts = list[tuple[pa.Array, At, Indices]]  # for each chunk of a column: array, positions in the result, row indices in the array

LAST_BYTE = 2**31 - 1  # largest int32, the limit of offsets in Arrow lists, texts and binary views
_INLINE = 12  # maximum number of bytes of a value that Arrow stores in the view itself, without a separate buffer
_SLICES_PER_TAKE = 16  # One call of `take` costs as much as this number of slices of consecutive rows (measured with 3 columns).


@frozen(eq=False)
class Rows:
    """Table chunks with random access to rows."""

    schema: pa.Schema
    starts: Indices  # index of the first row of each chunk, followed by the number of rows
    chunks: tuple[Callable[[], RecordBatch], ...]
    in_memory: bool = True  # True if the chunks are in memory, so that a chunk can be read again at no cost
    _views: dict[tuple[int, int], NDArray[Any] | None] = field(factory=dict, init=False, repr=False)  # results of `_fixed`, for reuse

    def take(self, rows: Indices) -> RecordBatch:
        """Return the rows at these indices, int64[N], in this order. Reads only the chunks with these rows."""
        if not len(rows):
            return no_rows(self.schema)
        if len(self.chunks) == 1:
            if rows[-1] - rows[0] == len(rows) - 1 and (rows[1:] - rows[:-1] == 1).all():
                return self.chunks[0]().slice(rows[0], len(rows))
            return self._gathered([(0, slice(None), rows)], len(rows))
        chunk_of = np.searchsorted(self.starts, rows, side="right") - 1
        positions = rows - self.starts[chunk_of]
        # Positions in `rows` at which a new sequence of consecutive row indices, or another chunk, starts.
        firsts = np.flatnonzero((np.diff(rows, prepend=-2) != 1) | (np.diff(chunk_of, prepend=-1) != 0))
        order = np.argsort(chunk_of, kind="stable")
        cuts = np.flatnonzero(np.diff(chunk_of[order], prepend=-1))  # positions in `order` at which the rows of the next chunk begin
        if len(firsts) <= len(cuts) * (_SLICES_PER_TAKE if self.in_memory else 1):
            runs = zip(chunk_of[firsts].tolist(), positions[firsts].tolist(), np.diff(firsts, append=len(rows)).tolist(), strict=True)
            return concat_chunks([self.chunks[chunk]().slice(first, size) for chunk, first, size in runs])
        into = np.split(order, cuts[1:])
        return self._gathered(
            [(chunk, at, positions[at]) for chunk, at in zip(chunk_of[order[cuts]].tolist(), into, strict=True)], len(rows)
        )

    def reader(self, name: str, most: int) -> Callable[[Indices], NDArray[Any]] | None:
        """Return a function from row indices to the column values of the rows, as an array. A call takes at most `most` indices.

        Each call overwrites the result of the previous call. Return None if the table has several chunks, or if the values differ in size.
        """
        values = self._fixed(0, self.chunks[0](), self.schema.get_field_index(name)) if len(self.chunks) == 1 else None
        if values is None:
            return None
        memory, take = np.empty((most, *values.shape[1:]), values.dtype), values.take
        # Without mode "clip", `np.take` first gathers into a temporary buffer.
        return lambda rows: take(rows, 0, memory if len(rows) == most else memory[: len(rows)], "clip")

    def _gathered(self, parts: Sequence[tuple[int, At, Indices]], count: int) -> RecordBatch:
        chunks = {chunk: self.chunks[chunk]() for chunk, _, _ in parts}
        columns = [self._column(column, parts, chunks, count) for column in range(len(self.schema))]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, column: int, parts: Sequence[tuple[int, At, Indices]], chunks: Mapping[int, RecordBatch], count: int) -> pa.Array:
        kind = self.schema.field(column).type  # `schema.types` is slower, because it lists the types of all columns
        has_views = _is_fixed(kind) or (self.in_memory and is_list(kind))
        views = [self._fixed(chunk, chunks[chunk], column) if has_views else None for chunk, _, _ in parts]
        if all(values is not None and values.shape[1:] == views[0].shape[1:] for values in views):  # type: ignore[union-attr]  # no view is None
            gathered = _gather_plain([(values, at, rows) for values, (_, at, rows) in zip(views, parts, strict=True)], count)  # type: ignore[misc]  # no view is None
            if is_large(kind) or gathered.size <= LAST_BYTE:
                return to_fixed(gathered, kind)
        return _gather([(chunks[chunk].column(column), at, rows) for chunk, at, rows in parts], count)

    def _fixed(self, number: int, chunk: RecordBatch, column: int) -> NDArray[Any] | None:
        if not self.in_memory:
            return fixed_values(chunk.column(column))
        if (number, column) not in self._views:
            array = chunk.column(column)
            self._views[number, column] = _even_values(array) if is_list(array.type) else fixed_values(array)
        return self._views[number, column]


def rows_of(table: pa.Table) -> Rows:
    """Return a table as `Rows`, for random access."""
    return rows_in(table.schema, table.to_batches())


def rows_in(schema: pa.Schema, chunks: Iterable[RecordBatch]) -> Rows:
    """Return the rows of chunks as `Rows`, for random access. All chunks have the schema `schema`."""
    nonempty = [chunk for chunk in chunks if chunk.num_rows]
    starts = np.cumsum([0, *(chunk.num_rows for chunk in nonempty)])
    return Rows(schema, starts, tuple(partial(identity, chunk) for chunk in nonempty))


def large_chunks(chunks: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Join chunks into a few large chunks of about `LARGE` bytes, because random access has a small cost per chunk."""
    pending: list[RecordBatch] = []
    size = 0
    for chunk in chunks:
        if pending and size + chunk.nbytes > 2 * LARGE:
            yield concat_chunks(pending)
            pending, size = [], 0
        pending.append(chunk)
        size += chunk.nbytes
        if size >= LARGE:
            yield concat_chunks(pending)
            pending, size = [], 0
    if pending:
        yield concat_chunks(pending)


def equal_chunks(chunks: Iterable[RecordBatch], size: int) -> Iterator[RecordBatch]:
    """Yield the rows in chunks of `size` rows. The last chunk may be shorter.

    An earlier chunk is also shorter if joining its rows with the next input chunk would give more than `LARGE` bytes.
    """
    remaining: list[RecordBatch] = []
    for chunk in chunks:
        if remaining and remaining[0].nbytes + chunk.nbytes > LARGE:
            yield from remaining
            remaining = []
        rows = concat_chunks([*remaining, chunk])
        whole = rows.num_rows // size * size
        yield from (rows.slice(first, size) for first in range(0, whole, size))
        remaining = [rows.slice(whole)] if whole < rows.num_rows else []
    yield from remaining


def takeable(kind: pa.DataType) -> pa.DataType:
    """Replace view types of text and bytes by types with offsets, because Arrow cannot take rows of views. Polars writes views."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(takeable(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(takeable(kind.value_type)), kind.list_size)
    if is_list(kind):
        return (pa.large_list if is_large(kind) else pa.list_)(kind.value_field.with_type(takeable(kind.value_type)))
    return kind


class Pieces:
    """Byte ranges (pieces) of many buffers. The method `joined` copies all pieces end to end.

    Arrow copies the pieces in one pass, by casting a column of views to a column of bytes. The cast is faster than a Python loop.
    """

    def __init__(self, count: int) -> None:
        """Allocate positions for `count` pieces."""
        # Format: https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-view-layout
        # Each Arrow binary view consists of four int32 numbers: length, first four bytes (unused here), buffer index, offset in the buffer.
        self._views = np.empty((count, 4), np.int32)
        self._buffers: list[pa.Buffer] = []

    def put(self, at: Positions | slice, buffer: pa.Buffer, begins: Positions, lengths: Positions) -> None:
        """Add byte ranges (pieces) of `buffer`. The argument `at`, int[N], holds the position of each piece in the result of `joined`.

        Piece `i` has `lengths[i]` bytes from byte `begins[i]` of the buffer. Buffers must be smaller than 2 GB (int32 offsets).
        """
        scattered = not isinstance(at, slice)
        views = np.empty((len(lengths), 4), np.int32) if scattered else self._views[at]
        views[:, 0], views[:, 2], views[:, 3] = lengths, len(self._buffers), begins
        short = np.flatnonzero(views[:, 0] <= _INLINE)
        if len(short):
            offsets = np.arange(_INLINE)
            raw = np.frombuffer(buffer, np.uint8) if buffer.size else np.zeros(1, np.uint8)
            content = raw[np.minimum(begins[short, None] + offsets, len(raw) - 1)]
            views.view(np.uint8)[short, 4:] = np.where(offsets < lengths[short, None], content, 0)
        if scattered:
            self._views[at] = views
        self._buffers.append(buffer)

    def joined(self) -> tuple[NDArray[np.int64], pa.Buffer]:
        """Copy all pieces end to end. Return the offsets, int64[N + 1], and the bytes."""
        views = pa.py_buffer(self._views)
        copied = pa.Array.from_buffers(pa.binary_view(), len(self._views), [None, views, *self._buffers]).cast(pa.large_binary())
        _, offsets, data = copied.buffers()
        ends = np.frombuffer(offsets, np.int64, len(self._views) + 1)
        return ends, data.slice(0, int(ends[-1])) if data else pa.py_buffer(b"")


def fixed_values(column: pa.Array) -> NDArray[Any] | None:
    """Return a column as a numpy view: numbers as [N], lists of equal length and tensors as [N, size].

    Return None for other types and for columns with nulls.
    """
    if not _is_fixed(column.type) or column.null_count:
        return None
    if is_number(column.type):
        numbers: NDArray[Any] = column.to_numpy()
        return numbers
    storage = column.storage if is_tensor(column.type) else column
    values = storage.flatten()
    return None if values.null_count else values.to_numpy().reshape(len(column), storage.type.list_size)


def _even_values(column: pa.Array) -> NDArray[Any] | None:
    """Return lists of equal length as a numpy view [N, length]. Return None for other types, unequal lengths and nulls."""
    ends = column.offsets.to_numpy()
    length = int(ends[1] - ends[0]) if len(column) else 0
    if length < 1 or column.null_count or not is_number(column.type.value_type) or (np.diff(ends) != length).any():
        return None
    values = column.values.slice(ends[0], ends[-1] - ends[0])
    return None if values.null_count or len(values) < len(column) * length else values.to_numpy().reshape(-1, length)


def to_fixed(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Convert an array with the same number of values per row to a column of type `kind`."""
    if is_number(kind):
        return pa.array(values, kind)
    if is_list(kind):
        ends = np.arange(0, values.size + 1, values.shape[1]).astype(np.int64 if is_large(kind) else np.int32)
        return pa.Array.from_buffers(
            kind, len(values), [None, pa.py_buffer(ends)], children=[pa.array(values.reshape(-1), kind.value_type)]
        )
    storage = kind.storage_type if is_tensor(kind) else kind
    array = pa.Array.from_buffers(storage, len(values), [None], children=[pa.array(values.reshape(-1), storage.value_type)])
    return pa.ExtensionArray.from_storage(kind, array) if is_tensor(kind) else array


def _is_fixed(kind: pa.DataType) -> bool:
    storage = kind.storage_type if is_tensor(kind) else kind
    return is_number(kind) or bool(pa.types.is_fixed_size_list(storage) and storage.list_size and is_number(storage.value_type))


def _gather(parts: Parts, count: int) -> pa.Array:
    """Gather rows by index from a column that has nulls, or values of variable size."""
    ragged = None if any(array.null_count for array, _, _ in parts) or not _width(parts[0][0].type) else _gather_ragged(parts, count)
    if ragged is not None:
        return ragged
    arrays = [array.take(pa.array(rows)) for array, _, rows in parts]
    order = np.empty(count, np.int64)
    order[np.concatenate([np.arange(count)[at] for _, at, _ in parts])] = np.arange(count)
    return concat_chunks([pa.RecordBatch.from_arrays([array], ["x"]) for array in arrays]).column(0).take(pa.array(order))


def _gather_plain(parts: Iterable[tuple[NDArray[Any], At, Indices]], count: int) -> NDArray[Any]:
    out: NDArray[Any] = np.empty(0)
    for values, at, rows in parts:
        selected = values.take(rows, axis=0)
        if len(selected) == count and isinstance(at, slice):
            return selected
        if not len(out):
            out = np.empty((count, *values.shape[1:]), values.dtype)
        out[at] = selected
    return out


def _gather_ragged(parts: Parts, count: int) -> pa.Array | None:
    """Select rows of a column of lists, texts or bytes in one copy. Return None for lists with nulls, and for more than 2 GB of data."""
    kind = parts[0][0].type
    width, pieces = _width(kind), Pieces(count)
    for array, at, rows in parts:
        ends, buffer, first = _bytes_of(array)
        if buffer is None or (len(array) and (int(ends[-1]) + first) * width > LAST_BYTE):
            return None
        begins = ends[rows]
        lengths = (ends[rows + 1] - begins) * width
        begins = (begins + first) * width
        if len(rows) and (lengths.min() < 0 or begins.min() < 0 or (begins + lengths).max() > buffer.size):
            raise DataError(f"A column of {kind} is damaged: a row lies outside the data of the column. Write the file again.")
        pieces.put(at, buffer, begins, lengths)
    ends, data = pieces.joined()
    ends = ends // width
    if ends[-1] > LAST_BYTE and not is_large(kind):
        return None
    offsets = pa.py_buffer(ends if is_large(kind) else ends.astype(np.int32))
    if not is_list(kind):
        return pa.Array.from_buffers(kind, count, [None, offsets, data])
    values = pa.Array.from_buffers(kind.value_type, int(ends[-1]), [None, data])
    return pa.Array.from_buffers(kind, count, [None, offsets], children=[values])


def _bytes_of(array: pa.Array) -> tuple[NDArray[Any], pa.Buffer | None, int]:
    """Return the row offsets, int32 or int64[N + 1], the bytes of all values, and the offset of the first value in these bytes."""
    if is_list(array.type):
        values = array.values
        buffer = None if values.null_count else values.buffers()[1] or pa.py_buffer(b"")
        return array.offsets.to_numpy(), buffer, values.offset
    _, offsets, data = array.buffers()
    kind = np.int64 if is_large(array.type) else np.int32
    return np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1], data or pa.py_buffer(b""), 0


def _width(kind: pa.DataType) -> int:
    """Return the number of bytes per value of a ragged type, or 0 for other types."""
    if is_list(kind):
        return kind.value_type.bit_width // 8 if is_number(kind.value_type) else 0
    return int(kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()))
