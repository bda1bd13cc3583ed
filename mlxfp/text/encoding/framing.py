"""What a tokenizer puts around texts, and how texts are truncated so that both fit.

A frame is found once for each tokenizer, by encoding two ids that no vocabulary has. From then on, rows of ids are truncated and framed as
whole columns. Truncation follows the `tokenizers` package: of a pair, the longer text first ("longest_first").
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
_FIRST, _SECOND = 2**32 - 2, 2**32 - 1  # ids are 32 bit unsigned: no vocabulary reaches these


@frozen
class Frame:
    """The order of special ids and texts, and the token type (0 or 1) of each part."""

    ids: tuple[int, ...]
    types: tuple[int, ...]

    @property
    def added(self) -> int:
        """How many ids stand around the texts."""
        return sum(number not in (_FIRST, _SECOND) for number in self.ids)

    def write(self, texts: Sequence[list[int]]) -> list[int]:
        """Return the ids of one row: the plain definition of what `put_around` does to many."""
        return [each for number in self.ids for each in (texts[number - _FIRST] if number >= _FIRST else (number,))]

    @property
    def silent(self) -> "Frame":
        """The same frame with 0 for each special id: for numbers about the tokens of texts."""
        return Frame(tuple(number if number >= _FIRST else 0 for number in self.ids), self.types)

    @property
    def bare(self) -> bool:
        """Whether it is one text and nothing around it."""
        return self.ids == (_FIRST,)


@lru_cache(maxsize=64)
def find_frame(json: str, *, pair: bool, special: bool) -> Frame:
    """Return what the tokenizer of this JSON puts around one text or two."""
    probe = hf.Tokenizer(hf.models.WordLevel({"a": _FIRST, "b": _SECOND}, "a"))
    probe.post_processor = engine(json).post_processor
    encoding = probe.encode("a", "b" if pair else None, add_special_tokens=special)
    return Frame(tuple(encoding.ids), tuple(encoding.type_ids))


def fit(lengths: Sequence[NDArray[np.int64]], room: int) -> tuple[NDArray[np.int64], ...]:
    """Return how many tokens of each text stay, int64[N] each, so that no row has more than `room`.

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
    """Keep the first tokens of each row, or the last ones with `side="left"`."""
    return Ragged(rows.values, rows.starts + (rows.lengths - kept if side == "left" else 0), kept)


def put_around(frame: Frame, texts: Sequence[Ragged]) -> tuple[pa.ListArray, pa.ListArray | None]:
    """Return the ids of each row with special ids in their places, and for two texts the token types: list<int32> both.

    All parts of all rows are gathered in one go: special ids stand in front of the texts' values, so each part is a start and a length.
    Whole texts that stand end to end are only moved apart, in a third of the time.
    """
    once = len(texts) == 1 and frame.ids.count(_FIRST) == 1
    if once and np.array_equal(texts[0].starts[1:], texts[0].starts[:-1] + texts[0].lengths[:-1]):
        return _move_apart(frame, texts[0]), None
    special = np.array([number if number < _FIRST else 0 for number in frame.ids], np.int32)
    source = np.concatenate([special, *(text.values for text in texts)])
    firsts = np.cumsum([len(special), *(len(text.values) for text in texts)])
    count = len(texts[0].starts)
    starts, lengths = np.empty((2, count, len(frame.ids)), np.int64)
    for place, number in enumerate(frame.ids):
        text = texts[number - _FIRST] if number >= _FIRST else None
        starts[:, place] = place if text is None else firsts[number - _FIRST] + text.starts
        lengths[:, place] = 1 if text is None else text.lengths
    ends = ends_of(lengths.sum(axis=1))
    ids = to_lists(gather(source, starts.ravel(), lengths.ravel()), ends)
    if len(texts) == 1:
        return ids, None
    return ids, to_lists(np.repeat(np.tile(np.array(frame.types, np.int32), count), lengths.ravel()), ends)


def _move_apart(frame: Frame, text: Ragged) -> pa.ListArray:
    """Put special ids around rows that stand end to end."""
    ends = ends_of(text.lengths + frame.added)
    ids, free = np.empty(ends[-1], np.int32), np.ones(ends[-1], bool)
    before = frame.ids.index(_FIRST)
    for place, number in enumerate(frame.ids):
        if place != before:
            at = ends[:-1] + place if place < before else ends[1:] + (place - len(frame.ids))
            ids[at], free[at] = number, False
    first = text.starts[0] if len(text.starts) else 0
    ids[free] = text.values[first : first + text.lengths.sum()]
    return to_lists(ids, ends)


def few_to_lists(rows: Sequence[list[int]]) -> pa.ListArray:
    """Turn a few lists of ids into a column of list<int32>: `pa.array` takes twice as long, which shows for one row."""
    values, ends = array("i", chain.from_iterable(rows)), array("i", accumulate(map(len, rows), initial=0))
    inner = pa.Array.from_buffers(_IDS.value_type, len(values), [None, pa.py_buffer(values)])
    return pa.Array.from_buffers(_IDS, len(rows), [None, pa.py_buffer(ends)], children=[inner])


def gather(values: NDArray[np.int32], starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Join the slices `values[starts[i] : starts[i] + lengths[i]]` end to end."""
    if not lengths.all():
        some = lengths > 0
        starts, lengths = starts[some], lengths[some]
    if not len(lengths):
        return values[:0]
    total = int(lengths.sum())
    kind = np.int32 if max(total, len(values)) < 2**31 else np.int64  # half the bytes to move, where they suffice
    steps: NDArray[np.integer[Any]] = np.ones(total, kind)  # from one place to the next: 1, except where a slice begins
    steps[0] = starts[0]
    steps[np.cumsum(lengths[:-1], dtype=kind)] = starts[1:] - starts[:-1] - lengths[:-1] + 1
    np.cumsum(steps, dtype=kind, out=steps)
    return values.take(steps)
