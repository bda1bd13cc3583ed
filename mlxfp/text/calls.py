"""Calls of the `tokenizers` package for many texts at once, with numpy arrays as results."""

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

Ids = NDArray[np.int32]
Lengths = NDArray[np.int64]
Encoded = tuple[Ids, Lengths]  # of several texts: their ids end to end, and how many each has

_LIST = 8 << 10  # characters of a list of texts: enough that lists cost nothing, and so few that all cores have some
_TEXTS = 256  # and at most so many texts


@frozen
class Caller:
    """A tokenizer of the package, called with many texts in one list and a separator behind each: faster where texts are short.

    The separator is a token that is encoded as its id alone. Lists are of no use for texts in which it is found, too.
    """

    own: Any
    separator: str | None

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Return the ids of all texts, without special tokens."""
        separator = self.separator
        if separator is None or any(separator in text for text in texts):
            return self._one_by_one(texts)
        marked = [separator] * (2 * len(texts))
        marked[::2] = texts
        step = 2 * max(1, min(_TEXTS, _LIST * len(texts) // max(1, sum(map(len, texts)))))
        lists = [marked[first : first + step] for first in range(0, len(marked), step)]
        ids = _read_ids(self.own.encode_batch_fast(lists, is_pretokenized=True, add_special_tokens=False))
        ends = ids == self.own.token_to_id(separator)
        if np.count_nonzero(ends) != len(texts):  # spelled otherwise: fullwidth, say
            return self._one_by_one(texts)
        return ids[~ends], np.diff(np.flatnonzero(ends), prepend=-1) - 1

    def _one_by_one(self, texts: Sequence[str]) -> Encoded:
        encodings = self.own.encode_batch_fast(texts, add_special_tokens=False)
        return _read_ids(encodings), np.fromiter(map(len, encodings), np.int64, len(encodings))


def find_caller(own: Any) -> Caller:
    """Return a caller of a tokenizer, with a separator if there is one.

    >>> from tokenizers import Tokenizer, models
    >>> own = Tokenizer(models.WordLevel({"[UNK]": 0}, "[UNK]"))
    >>> _ = own.add_special_tokens(["<end>"])
    >>> [part.tolist() for part in find_caller(own).encode(["one", "<pad>", "<end>"])]
    [[0, 0, 1], [1, 1, 1]]
    """
    tokens = sorted(own.get_added_tokens_decoder().items())
    alone = (token.content for number, token in tokens if own.encode(token.content, add_special_tokens=False).ids == [number])
    return Caller(own, next(alone, None))


def _read_ids(encodings: Sequence[Any]) -> Ids:
    return np.fromiter(
        chain.from_iterable(map(attrgetter("ids"), encodings)), np.int32, sum(map(len, encodings))
    )  # frees each list at once
