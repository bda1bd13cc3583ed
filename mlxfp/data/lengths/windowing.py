"""Stage that cuts the concatenated tokens of all rows into rows of equal length."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.lib.stride_tricks import sliding_window_view

from mlxfp.core.arrow.ragged import to_lists
from mlxfp.core.chunks import KEY, ROW, Example, Indices, RecordBatch, Schema, concat_chunks, no_rows, row_keys, source_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.stages import Stage, Traits
from mlxfp.data.lengths.tokens import TOKENS, check_tokens, lengths_of, read_tokens
from mlxfp.support.checks import check_not_negative, check_positive, check_text, explain_call, not_none
from mlxfp.support.errors import ArgumentError
from mlxfp.support.randomness import fold_in_rows, fold_into_rows


@explain_call
def windows(
    length: int, *, stride: int | None = None, separator: int | None = None, drop_last: bool = False, column: str = "input_ids"
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Concatenate the tokens of all rows to a stream, and cut the stream into rows of `length` tokens, for language models.

    Each output row is a window of the stream. A window starts every `stride` tokens, by default every `length` tokens without
    overlap. The id `separator` is inserted after each input row and marks the ends of documents. The last window may be short.
    `drop_last=True` drops a short last window. Every window has at least one new token. Output rows have only the column of ids,
    list<int32>.

    `collators.causal` predicts each token of a window except the first. To predict each token exactly once, let windows overlap by one
    token: `windows(length + 1, stride=length)`. Raises `SchemaError` unless the column contains lists of integers, and `DataError` for a
    missing list.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}])
    >>> [row["input_ids"] for row in fp.pipe(rows, fp.windows(4, separator=0))]
    [[1, 2, 3, 0], [4, 5, 0]]
    >>> [row["input_ids"] for row in fp.pipe(rows, fp.windows(3, stride=2))]
    [[1, 2, 3], [3, 4, 5]]

    See also: `pack`, which does not cut documents.
    """
    check_positive(length=length, **not_none(stride=stride))
    check_text(column=column)
    check_not_negative(**not_none(separator=separator))
    if stride is not None and stride > length:
        raise ArgumentError(f"stride={stride} would skip tokens between windows of length={length}. Use a stride of at most length.")
    if separator is not None and separator >= 2**31:
        raise ArgumentError(f"separator is a token id (int32) and must be below {2**31}, got separator={separator}.")
    return _Windows(length, None if stride == length else stride, separator, drop_last, column)


_STREAM = pa.schema({"tokens": TOKENS, "offset": pa.int64(), ROW: pa.int64(), KEY: pa.uint64()})
# Maximum number of tokens in an output chunk. A limit is needed, because overlapping windows have many more tokens than the input.
_TOKENS_AT_ONCE = 1 << 20


@frozen(repr=False)
class _Windows(Stage):
    """Stage that cuts a stream of tokens into windows.

    The state has two parts:

    - table of the tokens kept for later windows, with one row per document. The column `offset` counts the removed tokens of each document.
    - number of tokens at the start of this table that are also in earlier windows, because windows can overlap
    """

    _length: int
    stride: int | None = None  # None means `length`
    separator: int | None = None
    drop_last: bool = False
    column: str = "input_ids"

    def start(self, epoch: int) -> tuple[RecordBatch, int]:
        return no_rows(_STREAM), 0

    def step(self, state: tuple[RecordBatch, int], chunk: RecordBatch) -> tuple[tuple[RecordBatch, int], Iterable[RecordBatch]]:
        rest, covered = state
        stream = concat_chunks([rest, self._stream(chunk)])
        stride = self.stride or self._length
        count = max(0, (_size(stream) - self._length) // stride + 1)
        if not count:
            return (stream, covered), ()
        return (_after(stream, count * stride), self._length - stride), self._cut(stream, np.arange(count) * stride, self._length)

    def finish(self, state: tuple[RecordBatch, int]) -> Iterable[RecordBatch]:
        stream, covered = state
        remaining = _size(stream)
        return () if self.drop_last or remaining <= covered else self._cut(stream, np.array([0]), remaining)

    def schema(self, schema: Schema) -> Schema:
        check_tokens(schema, self.column, "windows")
        return pa.schema({self.column: TOKENS})

    @property
    def traits(self) -> Traits:
        longest = self._length if self.column == "input_ids" else None
        return Traits(longest_row=lambda tokens: longest, notes=lambda: (f"holds fewer than {self._length:,} tokens",))

    def _stream(self, chunk: RecordBatch) -> RecordBatch:
        """Return the tokens of a chunk with separators, as a table with one row per document. Documents without tokens are dropped."""
        tokens, ends = read_tokens(chunk, self.column, "windows")
        if self.separator is not None:
            tokens, ends = np.insert(tokens, ends[1:], self.separator), ends + np.arange(len(ends))
        offsets, lengths = np.zeros(chunk.num_rows, np.int64), ends[1:] - ends[:-1]
        columns = [to_lists(tokens, ends), *map(pa.array, (offsets, source_rows(chunk), row_keys(chunk)))]
        stream = pa.record_batch(columns, schema=_STREAM)
        return stream if lengths.all() else stream.filter(pa.array(lengths > 0))

    def _cut(self, stream: RecordBatch, offsets_in_stream: Indices, length: int) -> Iterator[RecordBatch]:
        """Yield windows of `length` tokens at evenly spaced start positions, in chunks of bounded size."""
        tokens, ends = read_tokens(stream, "tokens", "windows")
        starts = ends[:-1]
        documents = np.searchsorted(starts, offsets_in_stream, side="right") - 1
        offsets = offsets_in_stream - starts[documents] + stream.column("offset").to_numpy()[documents]
        rows, keys = source_rows(stream)[documents], fold_in_rows(fold_into_rows(row_keys(stream), "windows")[documents], offsets)
        views = sliding_window_view(tokens, length)[:: self.stride or self._length]
        at_once = max(1, _TOKENS_AT_ONCE // length)
        for first in range(0, len(offsets_in_stream), at_once):
            some = slice(first, min(first + at_once, len(offsets_in_stream)))
            lists = to_lists(views[some].reshape(-1), np.arange(some.stop - first + 1) * length)
            yield pa.record_batch([lists, pa.array(rows[some]), pa.array(keys[some])], [self.column, ROW, KEY])


def _size(stream: RecordBatch) -> int:
    return int(lengths_of(stream, "tokens", "windows").sum())


def _after(stream: RecordBatch, position: int) -> RecordBatch:
    """Return a stream without its tokens before `position`."""
    tokens, ends = read_tokens(stream, "tokens", "windows")
    first = int(np.searchsorted(ends[1:], position, side="right"))  # number of documents that end at `position` or earlier
    rest = stream.slice(first)
    offsets = rest.column("offset").to_numpy().copy()
    offsets[:1] += position - ends[first]
    # Copy the tokens, because a view would keep the whole stream in memory.
    lists = to_lists(tokens[position:].copy(), np.maximum(ends[first:] - position, 0))
    return pa.record_batch([lists, pa.array(offsets), rest.column(ROW), rest.column(KEY)], schema=_STREAM)
