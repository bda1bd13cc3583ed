"""What a tokenizer puts around texts, and how texts are cut so that both fit.

A frame is found once for a tokenizer, by encoding two words that no vocabulary has; from then on, rows of ids are cut and framed as whole
columns. Cutting follows the `tokenizers` package: of a pair, the longer text is cut first ("longest_first").
"""

from array import array
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import tokenizers as hf
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import Ragged, ends_of, to_lists
from mlxfp.text.encoding.batch_calls import ID_BYTES
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine

Side = Literal["right", "left"]

_IDS, _from_buffers = pa.list_(pa.int32()), pa.Array.from_buffers

_FIRST, _SECOND = 2**32 - 2, 2**32 - 1  # ids are 32 bit unsigned: no vocabulary reaches these


@frozen
class Frame:
    """The order of special ids and texts, and which text (0 or 1) each part counts to as token type."""

    ids: tuple[int, ...]
    types: tuple[int, ...]

    @property
    def added(self) -> int:
        """How many ids stand around the texts."""
        return sum(number not in (_FIRST, _SECOND) for number in self.ids)

    @cached_property
    def around(self) -> tuple[bytes, bytes] | None:
        """What stands in front of one text and behind it, as bytes of int32, or None where texts are more."""
        if sum(number >= _FIRST for number in self.ids) != 1:
            return None
        place = self.ids.index(_FIRST)
        return array("i", self.ids[:place]).tobytes(), array("i", self.ids[place + 1 :]).tobytes()

    @property
    def bare(self) -> bool:
        """Whether it is one text and nothing around it."""
        return self.ids == (_FIRST,)


def find_frame(tokenizer: Tokenizer, *, pair: bool, special: bool) -> Frame:
    """Return what the tokenizer puts around one text or two."""
    return frame_of(tokenizer.json, pair=pair, special=special)


@lru_cache(maxsize=64)
def frame_of(json: str, *, pair: bool, special: bool) -> Frame:
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
    """Keep the first tokens of each row, or the last ones where cutting is on the left."""
    return Ragged(rows.values, rows.starts + (rows.lengths - kept if side == "left" else 0), kept)


def put_around(frame: Frame, texts: Sequence[Ragged]) -> tuple[pa.ListArray, pa.ListArray | None]:
    """Return the ids of each row with special ids in their places, and for two texts the token types: list<int32> both.

    All parts of all rows are gathered in one go: special ids stand in front of the texts' values, so each part is a start and a length.
    """
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


def put_around_few(around: tuple[bytes, bytes], rows: Sequence[bytes], room: int | None, side: Side) -> pa.ListArray:
    """Do what `cut` and `put_around` do for one text of which a few rows are given as bytes of int32: in a fifth of the time."""
    if room is not None:
        most = ID_BYTES * room
        rows = [row[:most] for row in rows] if side == "right" else [row[max(0, len(row) - most) :] for row in rows]
    front, back = around
    framed = [front + row + back for row in rows]
    ends = [end // ID_BYTES for end in accumulate(map(len, framed), initial=0)]
    values = b"".join(framed)
    inner = _from_buffers(_IDS.value_type, len(values) // ID_BYTES, [None, pa.py_buffer(values)])
    return _from_buffers(_IDS, len(framed), [None, pa.py_buffer(array("i", ends))], children=[inner])


def gather(values: NDArray[np.int32], starts: NDArray[np.integer[Any]], lengths: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Join the slices `values[starts[i] : starts[i] + lengths[i]]` end to end.

    >>> gather(np.arange(10, 20, dtype=np.int32), np.array([7, 0]), np.array([2, 3])).tolist()
    [17, 18, 10, 11, 12]
    """
    if not lengths.all():
        some = lengths > 0
        starts, lengths = starts[some], lengths[some]
    if not len(lengths):
        return values[:0]
    total = int(lengths.sum())
    kind = np.int32 if max(total, len(values)) < 2**31 else np.int64  # half the bytes to move, where they suffice
    steps: NDArray[np.integer[Any]] = np.ones(total, kind)  # from a place to the next: 1 but where a slice begins
    steps[0] = starts[0]
    steps[np.cumsum(lengths[:-1], dtype=kind)] = starts[1:] - starts[:-1] - lengths[:-1] + 1
    np.cumsum(steps, dtype=kind, out=steps)
    return values.take(steps)
