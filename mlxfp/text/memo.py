"""Words that were met before, with their ids: what makes encoding fast, and never shows in its result."""

from collections.abc import Sequence
from itertools import repeat
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import Factory, define, frozen
from numpy.typing import NDArray

from mlxfp.text.calls import Ids, encode_words, find_separator
from mlxfp.text.rules import Rule

_LIMIT = 32 << 20  # bytes that a memo may hold: 150,000 words and more, those of 50 MB of English
_WORD = 160  # bytes of a word in it beside text and ids: a Python string, its number, its place in a dict, and three numbers in arrays


@frozen
class Entries:
    """What a memo knows of some words: word `i` has the ids `ids[starts[i] : starts[i] + lengths[i]]`."""

    ids: Ids
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]
    flags: NDArray[np.uint8]


@define
class Memo:
    """A tokenizer's words with their ids, met in texts that are cut by a rule. Safe to use from several threads.

    It is emptied when it is full: what is met often is soon back, and a bound needs nothing more clever.
    """

    own: Any
    rule: Rule
    separator: str | None
    limit: int = _LIMIT
    _places: dict[str, int] = Factory(dict)
    _entries: Entries = Factory(lambda: _no_entries())
    _size: int = 0
    _ids: int = 0
    _lock: Any = Factory(Lock)

    def find(self, words: pa.StringArray, most: float) -> tuple[Entries | None, int]:
        """Return what is known of distinct words, encoding new ones if they have at most so many bytes; and how many they have."""
        spelled = words.to_pylist()
        with self._lock:
            places = np.fromiter(map(self._places.get, spelled, repeat(-1)), np.int64, len(spelled))
            fresh = np.flatnonzero(places < 0)
            size = ...
