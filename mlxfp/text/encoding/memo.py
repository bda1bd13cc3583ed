"""Words that were met before, with their ids: what makes encoding fast, and never shows in its result."""

from collections.abc import Callable
from itertools import repeat
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import Factory, define, frozen
from numpy.typing import NDArray

from mlxfp.text.encoding.batch_calls import Caller, Encoded, Ids
from mlxfp.text.encoding.boundary_rules import Rule
from mlxfp.text.encoding.words import text_offsets

_LIMIT = 32 << 20  # bytes that a memo may hold: 150,000 words, as many as 30 MB of English have
_JOINED = 256  # words from which on they are encoded as one text; fewer go to the model one by one
_WORD = 144  # bytes that a word takes beside text and ids: a string, its number, a place in a dict, three numbers in arrays

Flags = NDArray[np.uint8]


@frozen
class Entries:
    """What is known of some words: word `i` has the ids `ids[starts[i] : starts[i] + lengths[i]]`."""

    ids: Ids
    starts: NDArray[np.integer[Any]]
    lengths: NDArray[np.integer[Any]]
    flags: Flags

    @classmethod
    def none(cls) -> "Entries":
        """Return no entries."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))

    def take(self, words: NDArray[np.int64]) -> "Entries":
        """Return the entries of some words."""
        kind = np.int32 if len(self.ids) < 2**31 else np.int64  # half the bytes to move, for each word of a column
        return Entries(self.ids, self.starts[words].astype(kind), self.lengths[words].astype(kind), self.flags[words])


@define
class Memo:
    """The ids of words that a tokenizer met, where its texts are cut by a rule. Safe to use from several threads.

    It is emptied when it is full: words that are met often are soon back, so a bound needs nothing more clever.
    """

    caller: Caller
    rule: Rule
    limit: int = _LIMIT
    _lock: Any = Factory(Lock)
    _places: dict[str, int] = Factory(dict)
    _entries: Entries = Factory(Entries.none)
    _joins: bool = True
    _used: int = 0  # ids
    _size: int = 0  # bytes

    def __len__(self) -> int:
        return len(self._places)

    def find(self, words: pa.StringArray, most: float, lost: Callable[[Flags], float] = lambda flags: 0.0) -> Entries | None:
        """Return what is known of distinct words, or None where the new ones have more than `most` bytes, less what is `lost` by flags.

        New words are encoded. Arrays that were returned stay as they are.
        """
        spelled = words.to_pylist()
        with self._lock:
            places = np.fromiter(map(self._places.get, spelled, repeat(-1)), np.int64, len(spelled))
            new = np.flatnonzero(places < 0)
            sizes = np.diff(text_offsets(words))
            count = int(sizes[new].sum())
            if count > most:
                return None
            if len(new):
                flags = np.empty(len(spelled), np.uint8)
                flags[places >= 0] = self._entries.flags[places[places >= 0]]
                flags[new] = self.rule.flags(words.take(pa.array(new)))
                if flags.any() and count > most - lost(flags):
                    return None
                if self._size + _WORD * len(new) + 3 * count > self.limit:
                    self._forget()
                    new = np.arange(len(spelled))
                some = words.take(pa.array(new))
                places[new] = self._learn(some, [spelled[place] for place in new], flags[new], int(sizes[new].sum()))
            return self._entries.take(places)

    def _learn(self, words: pa.StringArray, spelled: list[str], flags: Flags, size: int) -> NDArray[np.int64]:
        """Encode new words, and return their places."""
        order, (ids, lengths) = self._encode(spelled, np.flatnonzero(self.rule.joined(words, flags)))
        spelled, flags = [spelled[place] for place in order], flags[order]
        known, first = self._entries, len(self._places)
        # Written behind what is there, and only then told of: a signal that ends this half way leaves nothing half known.
        self._entries = Entries(
            _written(known.ids, self._used, ids),
            _written(known.starts, first, self._used + np.cumsum(lengths) - lengths),
            _written(known.lengths, first, lengths),
            _written(known.flags, first, flags),
        )
        self._used += len(ids)
        self._size += _WORD * len(spelled) + size + ids.nbytes
        self._places.update(zip(spelled, range(first, first + len(spelled)), strict=True))
        places = np.empty(len(spelled), np.int64)
        places[order] = np.arange(first, first + len(spelled))
        return places

    def _encode(self, words: list[str], joined: NDArray[np.int64]) -> tuple[NDArray[np.int64], Encoded]:
        """Encode words, of which some may be joined; return them in another order: (the places of the words, their ids)."""
        every = np.arange(len(words))
        if self._joins and len(joined) >= _JOINED and self.rule.begins is not None:
            found = self.caller.encode_joined([words[place] for place in joined], self.rule.begins)
            if found is not None:
                apart = np.delete(every, joined)
                ids, lengths = self.caller.encode([words[place] for place in apart])
                return np.append(joined, apart), (np.append(found[0], ids), np.append(found[1], lengths))
            self._joins = False  # an added token inside words: the time was lost, so it is not tried again
        return every, self.caller.encode(self.rule.bare(words))

    def _forget(self) -> None:
        self._places, self._entries, self._used, self._size = {}, Entries.none(), 0, 0


def _written(array: NDArray[Any], place: int, values: NDArray[Any]) -> NDArray[Any]:
    """Write values at a place behind all that is in use, into a longer copy where the array is too short."""
    end = place + len(values)
    if end > len(array):
        longer = np.empty(max(end, 2 * len(array)), array.dtype)
        longer[:place] = array[:place]
        array = longer
    array[place:end] = values
    return array
