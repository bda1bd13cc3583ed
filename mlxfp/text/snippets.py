"""A few short texts to ids, by words met before: in plain Python, as for so little, calls of numpy and Arrow take longer than the work."""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import accumulate, chain, pairwise

import numpy as np
import pyarrow as pa
from attrs import Factory, define

from mlxfp.text.calls import Caller
from mlxfp.text.rules import Rule

# What it costs, in bytes of text that the tokenizer itself encodes in that time: to look words up, for each byte of them; to encode new
# words, for each of their bytes; and to look closer at new words that are not plain. Tuned with BERT and GPT-2 over wikitext.
_LOOK, _BYTE, _LEARN, _NEW, _CLOSER = 40, 0.15, 80, 2.4, 300
_SMALL, _PEEK = 64, 12  # bytes at most that are cut without arrays, and what that costs
_LIMIT = 8 << 20  # bytes that a lexicon may hold: 40,000 words
_WORD = 160  # bytes that a word takes beside its letters and ids: two objects, and a place in a dict


@define
class Lexicon:
    """The ids of words that a tokenizer met in a few texts at a time. Safe to use from several threads, and emptied when it is full.

    Texts with a word in which a cut may have done harm are left to the tokenizer.
    """

    caller: Caller
    rule: Rule
    limit: int = _LIMIT
    _ids: dict[bytes, bytes] = Factory(dict)  # word to ids, int32 end to end
    _harmed: set[bytes] = Factory(set)
    _size: int = 0  # bytes

    def __len__(self) -> int:
        return len(self._ids)

    def encode(self, texts: Sequence[str], credit: float) -> tuple[list[bytes] | None, float]:
        """Return the ids of each text as bytes of int32, unless too much is new, and how many bytes that saved: below 0, of credit."""
        if self.rule.cuts.lead and any(text.startswith(" ") for text in texts):
            return None, 0.0
        data = "".join(texts).encode()
        small = len(data) <= _SMALL
        saved = -(_PEEK if small else _LOOK) - _BYTE * len(data)
        if -saved > credit:
            return None, 0.0
        words, firsts = self._split(texts) if small else self._cut(texts, data)
        known = self._ids
        ids = list(map(known.get, words))
        if None in ids:
            new = {word for word, found in zip(words, ids, strict=True) if found is None}
            spelled = [word.decode() for word in new]
            plain = self.rule.plain(spelled)
            cost = _LEARN + _NEW * sum(map(len, new)) + (0 if plain else _CLOSER)
            if cost > credit + saved + len(data) or not new.isdisjoint(self._harmed):
                return None, saved
            saved -= cost
            if not self._learn(known, new, spelled, plain=plain):
                return None, saved
            ids = [known[word] for word in words]
        return [b"".join(ids[first:end]) for first, end in pairwise(firsts)], saved + len(data)  # type: ignore[arg-type]  # none is None

    def _split(self, texts: Sequence[str]) -> tuple[list[bytes], Sequence[int]]:
        """Return the words of all texts, and where those of each begin, and the last ones end."""
        parts = [self.rule.split(text.encode()) for text in texts]
        return list(chain.from_iterable(parts)), list(accumulate(map(len, parts), initial=0))

    def _cut(self, texts: Sequence[str], data: bytes) -> tuple[list[bytes], Sequence[int]]:
        """Do what `_split` does: for more text, arrays are faster."""
        bounds = [0, *accumulate(map(len, texts if data.isascii() else map(str.encode, texts)))]
        cuts = self.rule.find(data)
        cuts[[bound for bound in bounds if bound < len(data)]] = True
        starts: list[int] = np.flatnonzero(cuts).tolist()
        words = [data[first:end] for first, end in pairwise([*starts, len(data)])]
        return words, [bisect_left(starts, bound) for bound in bounds]

    def _learn(self, known: dict[bytes, bytes], words: Collection[bytes], spelled: Sequence[str], *, plain: bool) -> bool:
        """Encode words that are not among those known, which another thread may have given up, and say whether all of them may be used."""
        harmed: set[bytes] = set()
        if not plain:
            flags = self.rule.flags(pa.array(spelled, pa.string())).tolist()
            harmed = {word for word, flag in zip(words, flags, strict=True) if flag}
        pieces = self.caller.pieces(self.rule.bare(spelled))
        known.update((word, piece) for word, piece in zip(words, pieces, strict=True) if word not in harmed)
        self._harmed |= harmed
        self._size += sum(map(len, words)) + _WORD * len(words) + sum(map(len, pieces))
        if self._size > self.limit:
            self._ids, self._harmed, self._size = {}, set(), 0
        return not harmed
