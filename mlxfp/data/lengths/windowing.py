"""Windows: the tokens of all rows as one stream, cut into rows of one length."""

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
from mlxfp.support.checks import check_not_negative, check_positive, check_text, explain_call
from mlxfp.support.errors import ArgumentError
from mlxfp.support.randomness import fold_in_rows, fold_into_rows


@explain_call
def windows(
    length: int, *, stride: int | None = None, separator: int | None = None, drop_last: bool = False, column: str = "input_ids"
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Join the tokens of all rows to one stream and cut it into rows of `length` tokens, for language models.

    A window starts every `stride` tokens (by default every `length`: no overlap). `separator` is an id that is put after each row of the
    input, so that a model sees where documents end. The last window holds the rest of the stream and may be short; `drop_last=True` leaves
    it out. No window holds only tokens that are in earlier windows. The rows that come out have only the column of ids, list<int32>.

    `collators.causal` predicts each token from those before it, so a window of length L + 1 gives L predictions; `stride=L` then makes
    every prediction once. Raises `SchemaError` unless the column holds lists of integers, `DataError` naming a row whose list is missing.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"input_ids": [1, 2, 3]}, {"input_ids": [4, 5]}])
    >>> [row["input_ids"] for row in fp.pipe(rows, fp.windows(4, separator=0))]
    [[1, 2, 3, 0], [4, 5, 0]]
    >>> [row["input_ids"] for row in fp.pipe(rows, fp.windows(3, stride=2))]
    [[1, 2, 3], [3, 4, 5]]

    See also: `pack`, which does not cut documents.
    """
    check_positive(length=length)
    check_text(column=column)
    if stride is not None:
        check_positive(stride=stride)
        if stride > length:
            raise ArgumentError(f"stride={stride} would leave out tokens between windows of length={length}. Make it at most the length.")
    if separator is not None:
        check_not_negative(separator=separator)
        if separator >= 2**31:
            raise ArgumentError(f"separator must fit 32 bits as token ids do, got separator={separator}.")
    return _Windows(length, None if stride == length else stride, separator, drop_last, column)


_STREAM = pa.schema({"tokens": TOKENS, "offset": pa.int64(), ROW: pa.int64(), KEY: pa.uint64()})
_TOKENS_AT_ONCE = 1 << 20  # tokens of a chunk that comes out: strongly overlapping windows have many more tokens than the input


@frozen(repr=False)
class _Windows(Stage):
    """The state is (stream, covered): the rest of the stream, and how many tokens at its start are in an earlier window too.

    A stream has a row for each document in it: the tokens of the document that are left, and the number of those that came before.
    """

    _length: int
    stride: int | None = None  # None: the length
    separator: int | None = None
    drop_last: bool = False
    column: str = "input_ids"

    def start(self, epoch: int) -> tuple[RecordBatch, int]:
        return no_rows(_STREAM), 0

    def step(self, state: tuple[RecordBatch, int], chunk: RecordBatch) -> tuple[tuple[RecordBatch, int], Iterable[RecordBatch]]:
        held, covered = state
        stream = concat_chunks([held, self._stream(chunk)])
        stride = self.stride or self._length
        count = max(0, (_size(stream) - self._length) // stride + 1)
        if not count:
            return (stream, covered), ()
        return (_after(stream, count * stride), self._length - stride), self._cut(stream, np.arange(count) * stride, self._length)

    def finish(self, state: tuple[RecordBatch, int]) -> Iterable[RecordBatch]:
        stream, covered = state
        left = _size(stream)
        return () if self.drop_last or left <= covered else self._cut(stream, np.array([0]), left)

    def schema(self, schema: Schema) -> Schema:
        check_tokens(schema, self.column, "windows")
        return pa.schema({self.column: TOKENS})

    @property
    def traits(self) -> Traits:
        longest = self._length if self.column == "input_ids" else None
        return Traits(longest_row=lambda tokens: longest, notes=lambda: (f"holds fewer than {self._length:,} tokens",))

    def _stream(self, chunk: RecordBatch) -> RecordBatch:
        """Insert the separators, and leave out documents without tokens, as no window can start in them."""
        tokens, ends = read_tokens(chunk, self.column, "windows")
        if self.separator is not None:
            tokens, ends = np.insert(tokens, ends[1:], self.separator), ends + np.arange(len(ends))
        offsets, lengths = np.zeros(chunk.num_rows, np.int64), ends[1:] - ends[:-1]
        columns = [to_lists(tokens, ends), *map(pa.array, (offsets, source_rows(chunk), row_keys(chunk)))]
        stream = pa.record_batch(columns, schema=_STREAM)
        return stream if lengths.all() else stream.filter(pa.array(lengths > 0))

    def _cut(self, stream: RecordBatch, places: Indices, length: int) -> Iterator[RecordBatch]:
        """Yield the windows of `length` tokens that start at these evenly spaced places, a bounded number of tokens at a time."""
        tokens, ends = read_tokens(stream, "tokens", "windows")
        starts = ends[:-1]
        documents = np.searchsorted(starts, places, side="right") - 1
        offsets = places - starts[documents] + stream.column("offset").to_numpy()[documents]
        rows, keys = source_rows(stream)[documents], fold_in_rows(fold_into_rows(row_keys(stream), "windows")[documents], offsets)
        views = sliding_window_view(tokens, length)[:: self.stride or self._length]
        at_once = max(1, _TOKENS_AT_ONCE // length)
        for first in range(0, len(places), at_once):
            some = slice(first, min(first + at_once, len(places)))
            lists = to_lists(views[some].reshape(-1), np.arange(some.stop - first + 1) * length)
            yield pa.record_batch([lists, pa.array(rows[some]), pa.array(keys[some])], [self.column, ROW, KEY])


def _size(stream: RecordBatch) -> int:
    return int(lengths_of(stream, "tokens", "windows").sum())


def _after(stream: RecordBatch, place: int) -> RecordBatch:
    """Remove the tokens of a stream before `place`."""
    tokens, ends = read_tokens(stream, "tokens", "windows")
    first = int(np.searchsorted(ends[1:], place, side="right"))  # documents that end before it
    rest = stream.slice(first)
    offsets = rest.column("offset").to_numpy().copy()
    offsets[:1] += place - ends[first]
    lists = to_lists(tokens[place:].copy(), np.maximum(ends[first:] - place, 0))  # a copy: a view would keep the whole stream in memory
    return pa.record_batch([lists, pa.array(offsets), rest.column(ROW), rest.column(KEY)], schema=_STREAM)
