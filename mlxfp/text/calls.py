"""Calls of the `tokenizers` package for many texts at once, with numpy arrays as results."""

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Lengths = NDArray[np.int64]
Encoded = tuple[Ids, Lengths]  # of several texts: their ids end to end, and how many each has

_PART = 256  # words in one list of a call: few make the lists cost more than the words, many leave the cores nothing to share


def encode_texts(own: Any, texts: Sequence[str]) -> Encoded:
    """Return the ids of all texts, end to end, and how many each has."""
    encodings = own.encode_batch_fast(texts, add_special_tokens=False)
    lengths = np.fromiter(map(len, encodings), np.int64, len(encodings))
    return _read_ids(encodings, int(lengths.sum())), lengths


def encode_words(own: Any, words: Sequence[str], separator: str | None) -> Encoded:
    """Return what `encode_texts` does, faster for short texts: one list has many of them, with a separator behind each.

    The separator is a token that is encoded as one id; where a text has this token too, the lists are of no use.
    """
    if separator is None:
        return encode_texts(own, words)
    marked = [separator] * (2 * len(words))
    marked[::2] = words
    parts = [marked[first : first + 2 * _PART] for first in range(0, len(marked), 2 * _PART)]
    encodings = own.encode_batch_fast(parts, is_pretokenized=True, add_special_tokens=False)
    ids = _read_ids(encodings, sum(map(len, encodings)))
    ends = ids == own.token_to_id(separator)
    if np.count_nonzero(ends) != len(words):
        return encode_texts(own, words)
    return ids[~ends], np.diff(np.flatnonzero(ends), prepend=-1) - 1


def find_separator(own: Any) -> str | None:
    """Return an added token that is encoded as its id alone, if there is one.

    >>> from tokenizers import Tokenizer, models
    >>> own = Tokenizer(models.BPE())
    >>> _ = own.add_tokens(["end"])
    >>> find_separator(own)
    'end'
    """
    tokens = sorted(own.get_added_tokens_decoder().items())
    return next((token.content for number, token in tokens if own.encode(token.content, add_special_tokens=False).ids == [number]), None)


def _read_ids(encodings: Sequence[Any], count: int) -> Ids:
    return np.fromiter(chain.from_iterable(map(attrgetter("ids"), encodings)), np.int32, count)  # no list of ids outlives its reading
