"""Calls of the `tokenizers` package for many texts at once, with NumPy arrays as results."""

import json as jsons
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.text.tokenizers.tokenizer import cannot_encode

Ids = NDArray[np.int32]
Lengths = NDArray[np.int64]
Encoded = tuple[Ids, Lengths]  # of several texts: their ids end to end, and how many ids each text has

_JOINED = 1024  # characters of a joined text: the best of 256, 1024, 4096 and 16384 for words, with BERT and GPT-2
_CALLS = 8  # calls, or joined texts in one call, that many texts are divided into, so that all cores have work
_READ = 128 << 10  # characters of text from which ids are read while other texts are encoded: reading takes a tenth of the time


@frozen
class Caller:
    """A tokenizer of the package, called with many short texts joined to one: a call costs more than a short text.

    A separator, one of the tokenizer's added tokens that is always encoded as its own id, stands behind each text. Added tokens are
    searched before anything else happens, and what lies between them is encoded by itself, so each text has its own ids, up to the
    separator's. A tokenizer that treats the beginning of a text specially (`apart`) gets the texts as a list of words instead, of which
    the package encodes each by itself.
    """

    own: Any
    separator: str | None
    apart: bool

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts, without special tokens."""
        separator, together = self.separator, _count_together(texts)
        if separator is None or together < 2 or any(separator in text for text in texts):
            return self._encode_one_by_one(texts)
        marked = [separator] * (2 * len(texts))
        marked[::2] = texts
        step = 2 * together
        parts: list[Any] = [marked[first : first + step] for first in range(0, len(marked), step)]
        ids = _read_ids(self.call(parts if self.apart else ["".join(part) for part in parts], apart=self.apart))
        ends = ids == self.own.token_to_id(separator)
        if np.count_nonzero(ends) != len(texts):  # another added token overlapped a separator, or a text normalizes to the separator
            return self._encode_one_by_one(texts)
        return ids[~ends], np.diff(np.flatnonzero(ends), prepend=-1) - 1

    def _encode_one_by_one(self, texts: Sequence[str]) -> Encoded:
        if sum(map(len, texts)) < _READ:
            return read(self.call(texts))
        step = -(-len(texts) // _CALLS)
        with ThreadPoolExecutor(1) as pool:
            done = list(map(read, pool.map(self.call, [texts[first : first + step] for first in range(0, len(texts), step)])))
        return np.concatenate([ids for ids, _ in done]), np.concatenate([lengths for _, lengths in done])

    def call(self, texts: Sequence[Any], *, apart: bool = False, offsets: bool = False) -> list[Any]:
        """Return the encodings of texts, or of lists of words, as the package makes them; it knows the offsets only if asked for them."""
        encode = self.own.encode_batch if offsets else self.own.encode_batch_fast
        try:
            encodings: list[Any] = encode(texts, is_pretokenized=apart, add_special_tokens=False)
        except BaseException as error:
            raise cannot_encode(error) from error
        return encodings


def _count_together(texts: Sequence[str]) -> int:
    """Return how many texts to join to one."""
    size = sum(map(len, texts))
    return min(_JOINED * len(texts) // max(1, size), len(texts) if size < _JOINED else len(texts) // _CALLS)


def find_caller(own: Any) -> Caller:
    """Return a caller of a tokenizer, with a separator if one of its added tokens can be used as one."""
    fit = [token.content for number, token in sorted(own.get_added_tokens_decoder().items()) if _separates(own, number, token)]
    # The pre-tokenizer's own JSON: that of the whole tokenizer takes 40 ms, for its vocabulary.
    splitter = jsons.loads(own.pre_tokenizer.__getstate__()) if own.pre_tokenizer else None
    apart = '"prepend_scheme": "first"' in jsons.dumps(splitter)
    return Caller(own, fit[0] if fit and not _ids(own, "") else None, apart)


def _separates(own: Any, number: int, token: Any) -> bool:
    """Whether a token is found behind any text and changes nothing in it: it is not part of a word and does not overlap with itself."""
    text = token.content
    plain = not (token.lstrip or token.rstrip or token.single_word or (token.normalized and own.normalizer))
    overlaps = any(text.startswith(text[place:]) for place in range(1, len(text)))
    return plain and not overlaps and re.fullmatch(r"[^\w\s].*[^\w\s]", text) is not None and _ids(own, text) == [number]


def _ids(own: Any, text: str) -> list[int]:
    ids: list[int] = own.encode(text, add_special_tokens=False).ids
    return ids


def _read_ids(encodings: Sequence[Any]) -> Ids:
    lists = map(attrgetter("ids"), encodings)  # each list is freed as soon as it is read
    return np.fromiter(chain.from_iterable(lists), np.int32, sum(map(len, encodings)))


def read(encodings: Sequence[Any]) -> Encoded:
    """Return the ids of encodings, end to end, and how many each has."""
    return _read_ids(encodings), np.fromiter(map(len, encodings), np.int64, len(encodings))
