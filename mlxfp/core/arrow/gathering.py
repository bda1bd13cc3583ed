"""Rows by number, from many chunks at once: the cost grows with the number of rows that are taken, not with the size of the table.

Arrow's own `Table.take` joins all chunks of a table first, which reads the whole of a memory-mapped file even for a few rows. And taking
lists, texts and bytes in random order is slow in Arrow: 4,096 random rows of about 45 int32 tokens, out of 200,000, take `_gather_ragged`
0.35 ms from one chunk and 3.4 ms from 50 chunks; Arrow's `take`, the last lines of `_gather`, needs 6 and 4 times as long (2 cores).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.chunks import Indices, RecordBatch, concat_chunks, no_rows
from mlxfp.support.arrow_types import is_large, is_list, is_number, is_tensor
from mlxfp.support.errors import DataError

Places = NDArray[np.integer[Any]]
At = Indices | slice  # places in the result
Parts = list[tuple[pa.Array, At, Indices]]  # of a column: a chunk's array, where in the result its rows go, and which rows these are

LARGE = 64 << 20  # bytes of a chunk: in chunks of this size, 4,096 random rows of 20 million take 1.5 times as long as from one chunk
LAST_BYTE = 2**31 - 1  # the largest offset in a buffer that a view can hold
_INLINE = 12  # a view holds so few bytes in itself
_SLICES_PER_TAKE = 16  # slices of neighbouring rows that cost as much as one `take` from a chunk: measured on 3 columns


@frozen(eq=False)
class Rows:
    """The chunks of a table, from which rows are taken by number."""

    schema: pa.Schema
    starts: Indices  # the number of the first row of each chunk, and then the number of rows
    chunks: tuple[Callable[[], RecordBatch], ...]
    held: bool = True  # chunks are in memory, so that getting one costs nothing
    _views: dict[tuple[int, int], NDArray[Any] | None] = field(factory=dict, init=False, repr=False)  # what `_fixed` found, of held chunks

    def take(self, rows: Indices) -> RecordBatch:
        """Return the rows with these numbers, int64[N], in this order. Only the chunks that hold them are read."""
        if not len(rows):
            return no_rows(self.schema)
        if len(self.chunks) == 1:
            if rows[-1] - rows[0] == len(rows) - 1 and (rows[1:] - rows[:-1] == 1).all():
                return self.chunks[0]().slice(rows[0], len(rows))
            return self._gathered([(0, slice(None), rows)], len(rows))
        which = np.searchsorted(self.starts, rows, side="right") - 1
        places = rows - self.starts[which]
        firsts = np.flatnonzero((np.diff(rows, prepend=-2) != 1) | (np.diff(which, prepend=-1) != 0))  # where a run of neighbours begins
        order = np.argsort(which, kind="stable")
        cuts = np.flatnonzero(np.diff(which[order], prepend=-1))  # where in `order` the rows of a chunk begin
        if len(firsts) <= len(cuts) * (_SLICES_PER_TAKE if self.held else 1):
            runs = zip(which[firsts].tolist(), places[firsts].tolist(), np.diff(firsts, append=len(rows)).tolist(), strict=True)
            return concat_chunks([self.chunks[chunk]().slice(place, size) for chunk, place, size in runs])
        into = np.split(order, cuts[1:])
        return self._gathered([(chunk, at, places[at]) for chunk, at in zip(which[order[cuts]].tolist(), into, strict=True)], len(rows))

    def reader(self, name: str, most: int) -> Callable[[Indices], NDArray[Any]] | None:
        """Return what reads one column of at most `most` rows, int64[N], as `fixed_values` does, into memory that is used again.

        It is None for a column without `fixed_values`, and unless there is one chunk.
        """
        values = self._fixed(0, self.chunks[0](), self.schema.get_field_index(name)) if len(self.chunks) == 1 else None
        if values is None:
            return None
        memory, take = np.empty((most, *values.shape[1:]), values.dtype), values.take
        # with "clip", as numpy gathers into memory of its own first without
        return lambda rows: take(rows, 0, memory if len(rows) == most else memory[: len(rows)], "clip")

    def _gathered(self, parts: Sequence[tuple[int, At, Indices]], count: int) -> RecordBatch:
        chunks = {chunk: self.chunks[chunk]() for chunk, _, _ in parts}
        columns = [self._column(column, parts, chunks, count) for column in range(len(self.schema))]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _column(self, column: int, parts: Sequence[tuple[int, At, Indices]], chunks: Mapping[int, RecordBatch], count: int) -> pa.Array:
        kind = self.schema.field(column).type  # not `types`, which lists all
        looked_at = _is_fixed(kind) or (self.held and is_list(kind))
        views = [self._fixed(chunk, chunks[chunk], column) if looked_at else None for chunk, _, _ in parts]
        if all(values is not None and values.shape[1:] == views[0].shape[1:] for values in views):  # type: ignore[union-attr]  # none is None
            found = _gather_plain([(values, at, rows) for values, (_, at, rows) in zip(views, parts, strict=True)], count)  # type: ignore[misc]  # not None
            if is_large(kind) or found.size <= LAST_BYTE:
                return to_fixed(found, kind)
        return _gather([(chunks[chunk].column(column), at, rows) for chunk, at, rows in parts], count)

    def _fixed(self, number: int, chunk: RecordBatch, column: int) -> NDArray[Any] | None:
        if not self.held:
            return fixed_values(chunk.column(column))
        if (number, column) not in self._views:
            array = chunk.column(column)
            self._views[number, column] = _even_values(array) if is_list(array.type) else fixed_values(array)
        return self._views[number, column]


def rows_of(table: pa.Table) -> Rows:
    """Make the rows of a table ready to be taken by number."""
    return rows_in(table.schema, table.to_batches())


def rows_in(schema: pa.Schema, chunks: Iterable[RecordBatch]) -> Rows:
    """Make the rows of chunks with this schema ready to be taken by number."""
    some = [chunk for chunk in chunks if chunk.num_rows]
    starts = np.cumsum([0, *(chunk.num_rows for chunk in some)])
    return Rows(schema, starts, tuple(partial(identity, chunk) for chunk in some))


def large_chunks(chunks: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Join chunks to few large ones, as taking rows costs a little for each chunk."""
    held: list[RecordBatch] = []
    size = 0
    for chunk in chunks:
        held.append(chunk)
        size += chunk.nbytes
        if size >= LARGE:
            yield concat_chunks(held)
            held, size = [], 0
    if held:
        yield concat_chunks(held)


def takeable(kind: pa.DataType) -> pa.DataType:
    """Replace views of text and bytes, which polars writes and from which Arrow cannot take rows yet, by the types with offsets."""
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
    """Pieces of many buffers, each with its place in the result; when all places are filled, they are copied end to end in one pass.

    That needs no loop in Python: Arrow copies a column of views of bytes.
    """

    def __init__(self, count: int) -> None:
        """Make room for `count` pieces."""
        # https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-view-layout: a view is four int32: its length, a copy of
        # its first four bytes, which are not read here, the number of its buffer, and its offset in that buffer
        self._views = np.empty((count, 4), np.int32)
        self._buffers: list[pa.Buffer] = []

    def put(self, at: Places | slice, buffer: pa.Buffer, begins: Places, lengths: Places) -> None:
        """Define the pieces at the places `at`: `lengths` bytes of a buffer of less than 2 GB, from `begins` on. All are int[N]."""
        apart = not isinstance(at, slice)
        own = np.empty((len(lengths), 4), np.int32) if apart else self._views[at]
        own[:, 0], own[:, 2], own[:, 3] = lengths, len(self._buffers), begins
        short = np.flatnonzero(own[:, 0] <= _INLINE)
        if len(short):
            inside = np.arange(_INLINE)
            raw = np.frombuffer(buffer, np.uint8) if buffer.size else np.zeros(1, np.uint8)
            held = raw[np.minimum(begins[short, None] + inside, len(raw) - 1)]
            own.view(np.uint8)[short, 4:] = np.where(inside < lengths[short, None], held, 0)
        if apart:
            self._views[at] = own
        self._buffers.append(buffer)

    def joined(self) -> tuple[NDArray[np.int64], pa.Buffer]:
        """Copy all pieces end to end: return their offsets, int64[N + 1], and the bytes."""
        views = pa.py_buffer(self._views)
        made = pa.Array.from_buffers(pa.binary_view(), len(self._views), [None, views, *self._buffers]).cast(pa.large_binary())
        _, offsets, data = made.buffers()
        ends = np.frombuffer(offsets, np.int64, len(self._views) + 1)
        return ends, data.slice(0, int(ends[-1])) if data else pa.py_buffer(b"")


def fixed_values(column: pa.Array) -> NDArray[Any] | None:
    """Return the numbers of a column [N], or of lists of one length and tensors [N, size], without copying; None for others and nulls."""
    if not _is_fixed(column.type) or column.null_count:
        return None
    if is_number(column.type):
        numbers: NDArray[Any] = column.to_numpy()
        return numbers
    storage = column.storage if is_tensor(column.type) else column
    values = storage.flatten()
    return None if values.null_count else values.to_numpy().reshape(len(column), storage.type.list_size)


def _even_values(column: pa.Array) -> NDArray[Any] | None:
    """Return the numbers of a column of lists that all have one length, [N, length], as `fixed_values` does; None for others and nulls."""
    ends = column.offsets.to_numpy()
    length = int(ends[1] - ends[0]) if len(column) else 0
    if length < 1 or column.null_count or not is_number(column.type.value_type) or (np.diff(ends) != length).any():
        return None
    values = column.values.slice(ends[0], ends[-1] - ends[0])
    return None if values.null_count or len(values) < len(column) * length else values.to_numpy().reshape(-1, length)


def to_fixed(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Make the column of this type of which `fixed_values` are these; or a column of lists, which have one length."""
    if is_number(kind):
        return pa.array(values, kind)
    if is_list(kind):
        ends = np.arange(0, values.size + 1, values.shape[1]).astype(np.int64 if is_large(kind) else np.int32)
        return pa.Array.from_buffers(
            kind, len(values), [None, pa.py_buffer(ends)], children=[pa.array(values.reshape(-1), kind.value_type)]
        )
    storage = kind.storage_type if is_tensor(kind) else kind
    made = pa.Array.from_buffers(storage, len(values), [None], children=[pa.array(values.reshape(-1), storage.value_type)])
    return pa.ExtensionArray.from_storage(kind, made) if is_tensor(kind) else made


def _is_fixed(kind: pa.DataType) -> bool:
    storage = kind.storage_type if is_tensor(kind) else kind
    return is_number(kind) or bool(pa.types.is_fixed_size_list(storage) and storage.list_size and is_number(storage.value_type))


def _gather(parts: Parts, count: int) -> pa.Array:
    """Put the rows of a column together that is not of one size, or has nulls."""
    found = None if any(array.null_count for array, _, _ in parts) or not _width(parts[0][0].type) else _gather_ragged(parts, count)
    if found is not None:
        return found
    taken = [array.take(pa.array(rows)) for array, _, rows in parts]
    back = np.empty(count, np.int64)
    back[np.concatenate([np.arange(count)[at] for _, at, _ in parts])] = np.arange(count)
    return concat_chunks([pa.RecordBatch.from_arrays([array], ["x"]) for array in taken]).column(0).take(pa.array(back))


def _gather_plain(parts: Iterable[tuple[NDArray[Any], At, Indices]], count: int) -> NDArray[Any]:
    out: NDArray[Any] = np.empty(0)
    for values, at, rows in parts:
        taken = values.take(rows, axis=0)
        if len(taken) == count and isinstance(at, slice):
            return taken
        if not len(out):
            out = np.empty((count, *values.shape[1:]), values.dtype)
        out[at] = taken
    return out


def _gather_ragged(parts: Parts, count: int) -> pa.Array | None:
    """Put lists of numbers, texts or bytes together, through views into the bytes of the chunks, which Arrow copies all at once.

    The rows come out in order, with no second step. Return None where it is impossible: for lists that hold nulls, and for rows beyond the
    first 2 GB of a chunk.
    """
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
            raise DataError(f"A column of {kind} is damaged: it has rows outside its bytes. Write the file again.")
        pieces.put(at, buffer, begins, lengths)
    ends, data = pieces.joined()
    ends = ends // width
    if ends[-1] > LAST_BYTE and not is_large(kind):
        return None
    own = pa.py_buffer(ends if is_large(kind) else ends.astype(np.int32))
    if not is_list(kind):
        return pa.Array.from_buffers(kind, count, [None, own, data])
    values = pa.Array.from_buffers(kind.value_type, int(ends[-1]), [None, data])
    return pa.Array.from_buffers(kind, count, [None, own], children=[values])


def _bytes_of(array: pa.Array) -> tuple[NDArray[Any], pa.Buffer | None, int]:
    """Return the offsets of the rows in values, int32 or int64[N + 1]; the bytes of all values; and the offset of the values in these."""
    if is_list(array.type):
        values = array.values
        buffer = None if values.null_count else values.buffers()[1] or pa.py_buffer(b"")
        return array.offsets.to_numpy(), buffer, values.offset
    _, offsets, data = array.buffers()
    kind = np.int64 if is_large(array.type) else np.int32
    return np.frombuffer(offsets, kind)[array.offset : array.offset + len(array) + 1], data or pa.py_buffer(b""), 0


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value of a ragged type; 0 for other types."""
    if is_list(kind):
        return kind.value_type.bit_width // 8 if is_number(kind.value_type) else 0
    return int(kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()))
