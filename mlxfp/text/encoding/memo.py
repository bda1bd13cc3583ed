"""Words that were met before, with their ids: what makes encoding fast, and never shows in its result."""

from collections.abc import Callable
from itertools import repeat
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import Factory, define, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.light_arrays import number_array
from mlxfp.text.encoding.batch_calls import Caller, Ids
from mlxfp.text.encoding.boundary_rules import Rule
from mlxfp.text.engines.columns import text_offsets

_LIMIT = 32 << 20  # bytes that a memo may hold: 150,000 words, as many as 30 MB of English have
_WORD = 144  # bytes that a word takes in addition to its text and ids: a string, its number, a place in a dict, three numbers in arrays

Flags = NDArray[np.uint8]


@frozen
class Entries:
    """What is known of some words: word `i` has the ids `ids[starts[i] : starts[i] + lengths[i]]`."""

    ids: Ids
    starts: NDArray[np.integer[Any]]
    lengths: NDArray[np.integer[Any]]
    flags: Flags

    def take(self, words: NDArray[np.int64]) -> "Entries":
        """Return the entries of some words."""
        kind = np.int32 if len(self.ids) < 2**31 else np.int64  # half the bytes to move, for each word of a column
        return Entries(self.ids, self.starts[words].astype(kind), self.lengths[words].astype(kind), self.flags[words])


_NONE = Entries(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))


@define
class Memo:
    """The ids of words that a tokenizer met, where its texts are cut by a rule. Safe to use from several threads.

    When it is full, it forgets everything: frequent words are soon learned again, so a bound needs no cleverer method.
    """

    caller: Caller
    rule: Rule
    limit: int = _LIMIT
    _lock: Any = Factory(Lock)
    _places: dict[str, int] = Factory(dict)
    _entries: Entries = _NONE
    _used: int = 0  # ids
    _size: int = 0  # bytes

    def __len__(self) -> int:
        return len(self._places)

    def find(
        self, words: pa.StringArray, most: float, *, lost: Callable[[Flags], float] = lambda flags: 0.0, learned: float = 0.0
    ) -> Entries | None:
        """Return what is known of distinct words; those that are new are encoded and kept.

        None if the new words hold more than `most` bytes, less what the flags of all words tell is `lost`. Then only the first ones
        are kept, of at most `learned` bytes. Arrays that were returned do not change later.
        """
        spelled = words.to_pylist()
        sizes = np.diff(text_offsets(words))
        with self._lock:
            places = np.fromiter(map(self._places.get, spelled, repeat(-1)), np.int64, len(spelled))
            new = np.flatnonzero(places < 0)
            count = int(sizes[new].sum())
            flags = self._flags(words, places) if count <= most else None
            refused = flags is None or count > most - lost(flags)
            if refused:
                new = new[np.cumsum(sizes[new]) <= learned]
            if self._size + _WORD * len(new) + 3 * int(sizes[new].sum()) > self.limit:
                self._places, self._entries, self._used, self._size = {}, _NONE, 0, 0
                new = new if refused else np.arange(len(spelled))
            if len(new):
                some = words.take(number_array(new))
                places[new] = self._learn(some, [spelled[place] for place in new], self.rule.flags(some) if flags is None else flags[new])
            return None if refused else self._entries.take(places)

    def _flags(self, words: pa.StringArray, places: NDArray[np.int64]) -> Flags:
        flags, known = np.empty(len(places), np.uint8), places >= 0
        flags[known] = self._entries.flags[places[known]]
        flags[~known] = self.rule.flags(words.take(number_array(np.flatnonzero(~known))))
        return flags

    def _learn(self, words: pa.StringArray, spelled: list[str], flags: Flags) -> NDArray[np.int64]:
        """Encode new words, and return their places."""
        ids, lengths = self.caller.encode(self.rule.bare(spelled))
        known, first = self._entries, len(self._places)
        # Written behind the entries in use, and only then made known: a signal that interrupts this leaves no word half known.
        self._entries = Entries(
            _write(known.ids, self._used, ids),
            _write(known.starts, first, self._used + np.cumsum(lengths) - lengths),
            _write(known.lengths, first, lengths),
            _write(known.flags, first, flags),
        )
        self._used += len(ids)
        self._size += _WORD * len(spelled) + words.nbytes + ids.nbytes
        places = np.arange(first, first + len(spelled))
        self._places.update(zip(spelled, places.tolist(), strict=True))
        return places


def _write(array: NDArray[Any], place: int, values: NDArray[Any]) -> NDArray[Any]:
    """Write values at a place behind all that is in use, into a longer copy where the array is too short."""
    end = place + len(values)
    if end > len(array):
        longer = np.empty(max(end, 2 * len(array)), array.dtype)
        longer[:place] = array[:place]
        array = longer
    array[place:end] = values
    return array
