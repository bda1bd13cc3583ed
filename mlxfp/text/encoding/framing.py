"""Functions that add special tokens around texts, and truncate texts to make room for special tokens.

A frame is the order of special tokens and texts. To find the frame of a tokenizer, its post-processor runs once on two placeholder ids that
no vocabulary contains. Frames and truncation are then applied to whole columns. Truncation follows the "longest_first" strategy of the
`tokenizers` package: the longer text of a pair is truncated first.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import tokenizers as hf
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import Ragged, ends_of, to_lists
from mlxfp.text.tokenizers.tokenizer import engine

Side = Literal["right", "left"]

_IDS = pa.list_(pa.int32())
# Placeholder ids for the first and the second text: the two largest unsigned 32-bit numbers, too large for any vocabulary.
_FIRST, _SECOND = 2**32 - 2, 2**32 - 1


@frozen
class Frame:
    """Order of special ids and texts in a row, with the token type (0 or 1) of each part."""

    ids: tuple[int, ...]
    types: tuple[int, ...]

    @property
    def added(self) -> int:
        """Number of special ids around the texts."""
        return sum(number not in (_FIRST, _SECOND) for number in self.ids)

    def write(self, texts: Sequence[list[int]]) -> list[int]:
        """Return the ids of one row with special ids. Slow reference implementation of `frame_rows`, for tests."""
        return [token for number in self.ids for token in (texts[number - _FIRST] if number >= _FIRST else (number,))]

    @property
    def silent(self) -> "Frame":
        """Copy of this frame with all special ids set to 0. In columns of token offsets, special tokens have the offset 0."""
        return Frame(tuple(number if number >= _FIRST else 0 for number in self.ids), self.types)

    @property
    def bare(self) -> bool:
        """True if a row consists of a single text without special ids."""
        return self.ids == (_FIRST,)


@lru_cache(maxsize=64)
def find_frame(json: str, *, pair: bool, special: bool) -> Frame:
    """Return the special ids that a tokenizer, given as JSON, adds around one text or a pair."""
    probe = hf.Tokenizer(hf.models.WordLevel({"a": _FIRST, "b": _SECOND}, "a"))
    probe.post_processor = engine(json).post_processor
    encoding = probe.encode("a", "b" if pair else None, add_special_tokens=special)
    return Frame(tuple(encoding.ids), tuple(encoding.type_ids))


def fit(lengths: Sequence[NDArray[np.int64]], room: int) -> tuple[NDArray[np.int64], ...]:
    """Return the number of tokens to keep in each text. Each row (one text or a pair) then has at most `room` tokens.

    The result contains an array int64[N] for the first texts of the rows, and another array for the second texts of pairs.

    >>> [kept.tolist() for kept in fit([np.array([2, 9, 9]), np.array([9, 2, 9])], 7)]
    [[2, 5, 3], [5, 2, 4]]
    """
    if len(lengths) == 1:
        return (np.minimum(lengths[0], room),)
    first, second = lengths
    shorter = np.minimum(np.minimum(first, second), room // 2)
    cut = np.where(first <= second, shorter, room - shorter)
    fits = first + second <= room
    return np.where(fits, first, cut), np.where(fits, second, room - cut)


def cut(rows: Ragged, kept: NDArray[np.int64], side: Side) -> Ragged:
    """Keep the first tokens of each row, or the last tokens with `side="left"`."""
    return Ragged(rows.values, rows.starts + (rows.lengths - kept if side == "left" else 0), kept)


def frame_rows(frame: Frame, texts: Sequence[Ragged]) -> tuple[pa.ListArray, pa.ListArray | None]:
    """Add special ids to texts. Return the ids and token types of each row, as list<int32>. Without pairs, the token types are None."""
    once = len(texts) == 1 and frame.ids.count(_FIRST) == 1
    if once and np.array_equal(texts[0].starts[1:], texts[0].starts[:-1] + texts[0].lengths[:-1]):
        return _frame_contiguous_rows(frame, texts[0]), None
    special = np.array([number if number < _FIRST else 0 for number in frame.ids], np.int32)
    source = np.concatenate([special, *(text.values for text in texts)])
    firsts = np.cumsum([len(special), *(len(text.values) for text in texts)])
    count = len(texts[0].starts)
    starts, lengths = np.empty((2, count, len(frame.ids)), np.int64)
    for index, number in enumerate(frame.ids):
        text = texts[number - _FIRST] if number >= _FIRST else None
        starts[:, index] = index if text is None else firsts[number - _FIRST] + text.starts
        lengths[:, index] = 1 if text is None else text.lengths
    ends = ends_of(lengths.sum(axis=1))
    ids = to_lists(gather(source, starts.ravel(), lengths.ravel()), ends)
    if len(texts) == 1:
        return ids, None
    return ids, to_lists(np.repeat(np.tile(np.array(frame.types, np.int32), count), lengths.ravel()), ends)


def _frame_contiguous_rows(frame: Frame, text: Ragged) -> pa.ListArray:
    """Add special ids to texts. The ids of the texts must be contiguous in memory."""
    ends = ends_of(text.lengths + frame.added)
    ids, free = np.empty(ends[-1], np.int32), np.ones(ends[-1], bool)
    before = frame.ids.index(_FIRST)
    for index, number in enumerate(frame.ids):
        if index != before:
            at = ends[:-1] + index if index < before else ends[1:] + (index - len(frame.ids))
            ids[at], free[at] = number, False
    first = text.starts[0] if len(text.starts) else 0
    ids[free] = text.values[first : first + text.lengths.sum()]
    return to_lists(ids, ends)


def few_to_lists(rows: Sequence[list[int]]) -> pa.ListArray:
    """Convert a few lists of ids to a column of list<int32>. The function is twice as fast as `pa.array`, which matters for single rows."""
    values, ends = array("i", chain.from_iterable(rows)), array("i", accumulate(map(len, rows), initial=0))
    inner = pa.Array.from_buffers(_IDS.value_type, len(values), [None, pa.py_buffer(values)])
    return pa.Array.from_buffers(_IDS, len(rows), [None, pa.py_buffer(ends)], children=[inner])


def gather(values: NDArray[np.int32], starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Concatenate the slices `values[starts[i] : starts[i] + lengths[i]]`."""
    if not lengths.all():
        some = lengths > 0
        starts, lengths = starts[some], lengths[some]
    if not len(lengths):
        return values[:0]
    total = int(lengths.sum())
    kind = np.int32 if max(total, len(values)) < 2**31 else np.int64  # positions are int32 if possible, which halves the memory traffic
    steps: NDArray[np.integer[Any]] = np.ones(total, kind)  # the cumulative sum of `steps` gives the positions to copy
    steps[0] = starts[0]
    steps[np.cumsum(lengths[:-1], dtype=kind)] = starts[1:] - starts[:-1] - lengths[:-1] + 1
    np.cumsum(steps, dtype=kind, out=steps)
    return values.take(steps)
