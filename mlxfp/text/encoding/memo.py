"""Cache of words and their ids. The cache speeds up encoding and never changes the result."""

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

# Maximum size of a cache in bytes, enough for 150,000 words: the distinct words of about 30 MB of English text.
_LIMIT = 32 << 20
_WORD = 144  # Bytes of memory per cached word, besides text and ids: a string object, an index, a dict entry and three array elements.

Flags = NDArray[np.uint8]


@frozen
class Entries:
    """Cached ids of several words: word `i` has the ids `ids[starts[i] : starts[i] + lengths[i]]`."""

    ids: Ids
    starts: NDArray[np.integer[Any]]
    lengths: NDArray[np.integer[Any]]
    flags: Flags

    def take(self, words: NDArray[np.int64]) -> "Entries":
        """Return the cached ids of some of the words, selected by the indices `words`."""
        # int32 needs half the memory of int64, but can index only 2^31 ids
        kind = np.int32 if len(self.ids) < 2**31 else np.int64
        return Entries(self.ids, self.starts[words].astype(kind), self.lengths[words].astype(kind), self.flags[words])


_NONE = Entries(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))


@define
class Memo:
    """Thread-safe cache of words and their ids for one tokenizer.

    A full cache is cleared completely. Frequent words are soon cached again, so no finer eviction policy is needed.
    """

    caller: Caller
    rule: Rule
    limit: int = _LIMIT
    _lock: Any = Factory(Lock)
    _indices: dict[str, int] = Factory(dict)
    _entries: Entries = _NONE
    _used: int = 0  # number of cached ids
    _size: int = 0  # estimated size of the cache in bytes

    def __len__(self) -> int:
        return len(self._indices)

    def find(
        self, words: pa.StringArray, most: float, *, lost: Callable[[Flags], float] = lambda flags: 0.0, learned: float = 0.0
    ) -> Entries | None:
        """Return the cached ids of distinct words. Encode and cache new words.

        Return None if new words and unsplit rows have more than `most` bytes. Unsplit rows must be encoded as a whole. From the flags of
        all words, `lost(flags)` computes the number of bytes in unsplit rows. If the result is None, only the first `learned` bytes of new
        words are cached. Arrays returned by earlier calls are never changed.
        """
        spelled = words.to_pylist()
        sizes = np.diff(text_offsets(words))
        with self._lock:
            indices = np.fromiter(map(self._indices.get, spelled, repeat(-1)), np.int64, len(spelled))
            new = np.flatnonzero(indices < 0)
            count = int(sizes[new].sum())
            flags = self._flags(words, indices) if count <= most else None
            refused = flags is None or count > most - lost(flags)
            if refused:
                new = new[np.cumsum(sizes[new]) <= learned]
            if self._size + _WORD * len(new) + 3 * int(sizes[new].sum()) > self.limit:
                self._indices, self._entries, self._used, self._size = {}, _NONE, 0, 0
                new = new if refused else np.arange(len(spelled))
            if len(new):
                new_words = words.take(number_array(new))
                indices[new] = self._learn(
                    new_words, [spelled[index] for index in new], self.rule.flags(new_words) if flags is None else flags[new]
                )
            return None if refused else self._entries.take(indices)

    def _flags(self, words: pa.StringArray, indices: NDArray[np.int64]) -> Flags:
        flags, known = np.empty(len(indices), np.uint8), indices >= 0
        flags[known] = self._entries.flags[indices[known]]
        flags[~known] = self.rule.flags(words.take(number_array(np.flatnonzero(~known))))
        return flags

    def _learn(self, words: pa.StringArray, spelled: list[str], flags: Flags) -> NDArray[np.int64]:
        """Encode and cache new words. Return the indices of the words in the cache."""
        ids, lengths = self.caller.encode(self.rule.bare(spelled))
        known, first = self._entries, len(self._indices)
        # New values are written after the entries in use, and `_entries` is replaced last. An interrupted call adds no incomplete entry.
        self._entries = Entries(
            _write(known.ids, self._used, ids),
            _write(known.starts, first, self._used + np.cumsum(lengths) - lengths),
            _write(known.lengths, first, lengths),
            _write(known.flags, first, flags),
        )
        self._used += len(ids)
        self._size += _WORD * len(spelled) + words.nbytes + ids.nbytes
        indices = np.arange(first, first + len(spelled))
        self._indices.update(zip(spelled, indices.tolist(), strict=True))
        return indices


def _write(array: NDArray[Any], start: int, values: NDArray[Any]) -> NDArray[Any]:
    """Return the array with `values` written from index `start` on. The result is a longer copy if the array is too short."""
    end = start + len(values)
    if end > len(array):
        longer = np.empty(max(end, 2 * len(array)), array.dtype)
        longer[:start] = array[:start]
        array = longer
    array[start:end] = values
    return array
