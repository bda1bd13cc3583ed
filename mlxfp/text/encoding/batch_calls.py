"""Calls of the `tokenizers` package for many texts at once, with numpy arrays as results."""

import json as jsons
import re
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.text.encoding.splits import Splits, find_splits
from mlxfp.text.tokenizers.tokenizer import cannot_encode

Ids = NDArray[np.int32]
Lengths = NDArray[np.int64]
Encoded = tuple[Ids, Lengths]  # of several texts: their ids end to end, and how many each has

ID_BYTES = 4

_FEW = 64  # texts from which on they are joined, unless they are long
_ALONE = 128  # characters of all texts up to which each is a call of its own: to wake the package's threads takes longer
_MANY = 1024  # texts from which on those that are one split are encoded as others are, on all cores
_SHARED = 8  # parts of a call at least, so that all cores have some
_READ = 128 << 10  # characters of text from which on ids are read while other texts are encoded: reading them takes a tenth of the time
_JOINED = 1024  # characters of a joined text: the best of 256, 1024, 4096 and 16384 for words, with BERT and GPT-2


@frozen
class Caller:
    """A tokenizer of the package, called with many short texts as one: a call for each costs more than its text.

    The texts are joined with a token behind each that is encoded as its id alone. Tokens are searched before anything else happens, and
    what lies between them is encoded by itself, so each text has its ids, up to the separator's. Where a tokenizer looks at where in a
    text it is (`apart`), texts go as a list of words, of which the package encodes each by itself. Words that are one split go to the
    tokenizer's model alone, but for many, which are faster on all cores.
    """

    own: Any
    separator: str | None
    apart: bool
    splits: Splits

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts, without special tokens."""
        if len(texts) < _MANY:
            pieces = self.pieces(texts)
            return np.frombuffer(b"".join(pieces), np.int32), np.fromiter(map(len, pieces), np.int64, len(pieces)) // ID_BYTES
        return self._encode(texts)

    def _encode(self, texts: Sequence[str]) -> Encoded:
        separator, together = self.separator, _together(texts)
        if separator is None or together < 2 or any(separator in text for text in texts):
            return self._one_by_one(texts)
        marked = [separator] * (2 * len(texts))
        marked[::2] = texts
        step = 2 * together
        parts: list[Any] = [marked[first : first + step] for first in range(0, len(marked), step)]
        calls = parts if self.apart else ["".join(part) for part in parts]
        ids = _read_ids(self._call(calls, apart=self.apart))
        ends = ids == self.own.token_to_id(separator)
        if np.count_nonzero(ends) != len(texts):  # another token took part of a separator, or a text has it spelled otherwise
            return self._one_by_one(texts)
        return ids[~ends], np.diff(np.flatnonzero(ends), prepend=-1) - 1

    def encode_joined(self, texts: Sequence[str], begins: NDArray[np.bool_]) -> Encoded | None:
        """Do what `encode` does for texts of which each has one of the ids `begins` in front, and no other; None where they have not.

        The ids of all texts as one must be those of each, end to end. Without separators it takes two thirds of the time.
        """
        together = max(1, _together(texts))
        ids = _read_ids(self._call(["".join(texts[first : first + together]) for first in range(0, len(texts), together)]))
        firsts = np.flatnonzero(begins[ids])
        return (ids, np.diff(firsts, append=len(ids))) if len(firsts) == len(texts) else None

    def pieces(self, texts: Sequence[str]) -> list[bytes]:
        """Return the ids of each text as bytes of int32: for a few, Python is faster with these than with arrays."""
        return complete(list(map(self.splits.encode, texts)), texts, self._pieces)

    def _pieces(self, texts: Sequence[str]) -> list[bytes]:
        size = sum(map(len, texts))
        if size < _ALONE:
            return [array("i", self._call([text])[0].ids).tobytes() for text in texts]
        if len(texts) < _FEW and size < _READ:
            return [array("i", each.ids).tobytes() for each in self._call(texts)]
        ids, lengths = self._encode(texts)
        data, ends = ids.tobytes(), accumulate((ID_BYTES * lengths).tolist(), initial=0)
        return [data[first:end] for first, end in pairwise(ends)]

    def _one_by_one(self, texts: Sequence[str]) -> Encoded:
        step = len(texts) if sum(map(len, texts)) < _READ else -(-len(texts) // _SHARED)
        if step == len(texts):
            return _read(self._call(texts))
        with ThreadPoolExecutor(1) as pool:
            read = list(map(_read, pool.map(self._call, [texts[first : first + step] for first in range(0, len(texts), step)])))
        return np.concatenate([ids for ids, _ in read]), np.concatenate([lengths for _, lengths in read])

    def _call(self, texts: Sequence[Any], *, apart: bool = False) -> list[Any]:
        try:
            encodings: list[Any] = self.own.encode_batch_fast(texts, is_pretokenized=apart, add_special_tokens=False)
        except Exception as error:
            raise cannot_encode(error) from error
        return encodings


def complete(found: list[bytes | None], texts: Sequence[str], encode: Callable[[Sequence[str]], list[bytes]]) -> list[bytes]:
    """Encode the texts of which nothing was found, and put their ids between the others.

    >>> complete([b"a", None], ["a", "b"], lambda texts: [text.upper().encode() for text in texts])
    [b'a', b'B']
    """
    if None not in found:
        return found  # type: ignore[return-value]  # none is None
    others = iter(encode([text for text, ids in zip(texts, found, strict=True) if ids is None]))
    return [next(others) if ids is None else ids for ids in found]


def _together(texts: Sequence[str]) -> int:
    """Return how many texts are to be joined to one, so that there are parts for all cores."""
    size = sum(map(len, texts))
    return min(_JOINED * len(texts) // max(1, size), len(texts) if size < _JOINED else len(texts) // _SHARED)


def find_caller(own: Any) -> Caller:
    """Return a caller of a tokenizer, with a separator if one of its added tokens is fit to be one.

    >>> from tokenizers import Tokenizer, models
    >>> own = Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]"))
    >>> _ = own.add_special_tokens(["<end>"])
    >>> [part.tolist() for part in find_caller(own).encode(["one", "<pad>", "<end>"])]
    [[0, 0, 1], [1, 1, 1]]
    """
    fit = [token.content for number, token in sorted(own.get_added_tokens_decoder().items()) if _separates(own, number, token)]
    # The pre-tokenizer's own JSON: the whole tokenizer's takes 40 ms to write and read, for its vocabulary.
    splitter = jsons.loads(own.pre_tokenizer.__getstate__()) if own.pre_tokenizer else None
    apart = '"prepend_scheme": "first"' in jsons.dumps(splitter)
    return Caller(own, fit[0] if fit and not _ids(own, "") else None, apart, find_splits(own))


def _separates(own: Any, number: int, token: Any) -> bool:
    """Whether a token is found behind any text, and changes nothing in it: it is no part of a word, and does not overlap with itself."""
    text = token.content
    plain = not (token.lstrip or token.rstrip or token.single_word or (token.normalized and own.normalizer))
    overlaps = any(text.startswith(text[place:]) for place in range(1, len(text)))
    return plain and not overlaps and re.fullmatch(r"[^\w\s].*[^\w\s]", text) is not None and _ids(own, text) == [number]


def _ids(own: Any, text: str) -> list[int]:
    ids: list[int] = own.encode(text, add_special_tokens=False).ids
    return ids


def _read_ids(encodings: Sequence[Any]) -> Ids:
    return np.fromiter(
        chain.from_iterable(map(attrgetter("ids"), encodings)), np.int32, sum(map(len, encodings))
    )  # frees each list at once


def _read(encodings: Sequence[Any]) -> Encoded:
    return _read_ids(encodings), np.fromiter(map(len, encodings), np.int64, len(encodings))
