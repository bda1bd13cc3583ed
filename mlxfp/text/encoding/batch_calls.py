"""Calls of the `tokenizers` package for many texts at once. The results are NumPy arrays."""

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
Encoded = tuple[Ids, Lengths]  # concatenated ids of several texts, and the number of ids of each text

_JOINED = 1024  # Number of characters in a joined text. Of 256, 1024, 4096 and 16384, 1024 was fastest for short words (BERT, GPT-2).
_CALLS = 8  # Number of parts into which many texts are divided, so that all cores are busy.
# Minimum number of characters for two threads: the second thread encodes texts while the first thread reads ids.
# Encoding takes a tenth less time with two threads than with one thread.
_READ = 128 << 10


@frozen
class Caller:
    """Tokenizer of the `tokenizers` package that encodes many short texts in one call.

    A call costs more than encoding a short text. Several texts are therefore joined to one text, with a separator after each text. The
    separator is an added token of the tokenizer: the package splits a text at added tokens and encodes the pieces separately. The ids
    of the separator then show where each text ends.

    `apart=True` is for tokenizers that treat the start of a text differently. Such tokenizers get lists of words in place of joined texts,
    because the package encodes the words of a list separately.
    """

    tokenizer: Any
    separator: str | None
    apart: bool

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts without special tokens."""
        separator, together = self.separator, _count_together(texts)
        if separator is None or together < 2 or any(separator in text for text in texts):
            return self._encode_one_by_one(texts)
        marked = [separator] * (2 * len(texts))
        marked[::2] = texts
        step = 2 * together
        parts: list[Any] = [marked[first : first + step] for first in range(0, len(marked), step)]
        ids = _read_ids(self.call(parts if self.apart else ["".join(part) for part in parts], apart=self.apart))
        ends = ids == self.tokenizer.token_to_id(separator)
        # Encode each text alone if the number of separators in the ids differs from the number of texts.
        # The number of separators changes, for example, if normalization turns a text into a separator.
        if np.count_nonzero(ends) != len(texts):
            return self._encode_one_by_one(texts)
        return ids[~ends], np.diff(np.flatnonzero(ends), prepend=-1) - 1

    def _encode_one_by_one(self, texts: Sequence[str]) -> Encoded:
        if sum(map(len, texts)) < _READ:
            return read(self.call(texts))
        step = -(-len(texts) // _CALLS)
        with ThreadPoolExecutor(1) as pool:
            encoded = list(map(read, pool.map(self.call, [texts[first : first + step] for first in range(0, len(texts), step)])))
        return np.concatenate([ids for ids, _ in encoded]), np.concatenate([lengths for _, lengths in encoded])

    def call(self, texts: Sequence[Any], *, apart: bool = False, offsets: bool = False) -> list[Any]:
        """Return the encodings of texts, or of lists of words. `offsets=True` also computes the character offsets of tokens."""
        encode = self.tokenizer.encode_batch if offsets else self.tokenizer.encode_batch_fast
        try:
            encodings: list[Any] = encode(texts, is_pretokenized=apart, add_special_tokens=False)
        except BaseException as error:
            raise cannot_encode(error) from error
        return encodings


def _count_together(texts: Sequence[str]) -> int:
    """Return the number of texts to join and encode as one text. A call for many short texts is faster than many calls."""
    size = sum(map(len, texts))
    return min(_JOINED * len(texts) // max(1, size), len(texts) if size < _JOINED else len(texts) // _CALLS)


def find_caller(tokenizer: Any) -> Caller:
    """Return a `Caller`, which encodes many short texts in one call.

    The caller joins texts with a separator, an added token of the tokenizer. If no added token is suitable, the caller encodes texts one by
    one.
    """
    separators = [
        token.content for number, token in sorted(tokenizer.get_added_tokens_decoder().items()) if _is_separator(tokenizer, number, token)
    ]
    # Read only the JSON of the pre-tokenizer. The JSON of the whole tokenizer contains the vocabulary, and reading takes 40 ms.
    splitter = jsons.loads(tokenizer.pre_tokenizer.__getstate__()) if tokenizer.pre_tokenizer else None
    apart = '"prepend_scheme": "first"' in jsons.dumps(splitter)
    return Caller(tokenizer, separators[0] if separators and not _ids(tokenizer, "") else None, apart)


def _is_separator(tokenizer: Any, number: int, token: Any) -> bool:
    """Return True if an added token can separate texts that are joined for one call of the tokenizer.

    - The tokenizer must recognize the token after any text.
    - The token must not change the ids of the text before it.
    - The token must not be part of a word.
    - Two copies of the token must not overlap. For example, copies of "<a<" overlap in "<a<a<".
    """
    text = token.content
    plain = not (token.lstrip or token.rstrip or token.single_word or (token.normalized and tokenizer.normalizer))
    overlaps = any(text.startswith(text[start:]) for start in range(1, len(text)))
    return plain and not overlaps and re.fullmatch(r"[^\w\s].*[^\w\s]", text) is not None and _ids(tokenizer, text) == [number]


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _read_ids(encodings: Sequence[Any]) -> Ids:
    lists = map(attrgetter("ids"), encodings)  # The `map` is lazy, so that each list of ids is freed right after reading.
    return np.fromiter(chain.from_iterable(lists), np.int32, sum(map(len, encodings)))


def read(encodings: Sequence[Any]) -> Encoded:
    """Return the concatenated ids of the encodings, and the number of ids of each encoding."""
    return _read_ids(encodings), np.fromiter(map(len, encodings), np.int64, len(encodings))
