"""A few short texts to ids, by words met before: in plain Python, as for so little, calls of numpy and Arrow take longer than the work.

There is a cut in front of a space, unless white space stands before it (`cuts`). So a text is first divided at its spaces, in a tenth of
the time that it takes to find its words, and only what was not met before is cut further.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from time import perf_counter

from attrs import Factory, define, evolve

from mlxfp.text.encoding.batch_calls import Caller, complete
from mlxfp.text.encoding.boundary_rules import Rule
from mlxfp.text.encoding.credit import CALL_BYTES, Credit
from mlxfp.text.encoding.splits import NOTHING, Splits

# What learning costs, in bytes of text that the tokenizer itself encodes in that time, tuned with BERT and GPT-2 over wikitext: a new word
# that is one split; others, together and for each byte; to look closer at those not plain.
_SPLIT, _LEARN, _NEW, _CLOSER = 14, 40, 2.4, 40
_FIRST = 1e-3  # seconds that may be lost before anything was saved
_OFTEN = 0.85  # of the time of its second call in a row, what the tokenizer takes for one of many
_LOOK = 0.1  # of the tokenizer's time, what looking texts up takes

_LIMIT = 8 << 20  # bytes that a lexicon may hold: 40,000 words
_WORD = 160  # bytes that a word takes beside its letters and ids: two objects, and a place in a dict
_SPACE = 32  # no byte of white space or control is above it
_BEGINS, _WHITE = b"\xff", b"\xfe"  # in no text: in front of a word without a space, and of one that ends in white space


@define
class Lexicon:
    """The ids of words that a tokenizer met in a few texts at a time. Safe to use from several threads, and emptied when it is full.

    Texts with a word in which a cut may have done harm are left to the tokenizer. What stands behind a space, up to the next, is kept by
    its letters alone, with the ids that it has behind the space, so that what a text is divided into can be looked up as it is.
    """

    caller: Caller
    rule: Rule
    limit: int = _LIMIT
    credit: Credit = Factory(lambda: Credit(_FIRST))
    _ids: dict[bytes, bytes] = Factory(lambda: {_BEGINS: b""})  # int32 end to end
    _harmed: set[bytes] = Factory(set)
    _size: int = 0  # bytes
    _warm: bool = False  # whether the next call is the second of two

    def __len__(self) -> int:
        return len(self._ids) - 1

    def encode(self, texts: Sequence[str], size: int) -> list[bytes]:
        """Return the ids of each text as bytes of int32. All texts have `size` characters."""
        began = perf_counter()
        credit, size = self.credit, size + CALL_BYTES * len(texts)
        credit.earn(size)
        if credit.due(size):
            return self._timed(texts, size)
        if credit.left < _LOOK * credit.pace * size:
            return self.caller.pieces(texts)
        found = self.find(texts, credit.left / credit.pace)
        seconds = perf_counter() - began
        if None in found:
            size = sum(CALL_BYTES + len(text) for text, ids in zip(texts, found, strict=True) if ids is not None)
        credit.settle(size, seconds)
        return complete(found, texts, self.caller.pieces)

    def _timed(self, texts: Sequence[str], size: int) -> list[bytes]:
        """Time the tokenizer itself, the second time of two, as its first call after other work takes up to three times as long."""
        began = perf_counter()
        pieces = self.caller.pieces(texts)
        if self._warm:
            self.credit.timed(size, _OFTEN * (perf_counter() - began))
        self._warm = not self._warm
        return pieces

    def find(self, texts: Sequence[str], credit: float) -> list[bytes | None]:
        """Return the ids of each text as bytes of int32, None for those that are left. The credit for new words is in bytes of text."""
        found = []
        for text in texts:
            ids, cost = self._find(text.encode(), credit)
            found.append(ids)
            credit -= cost
        return found

    def _find(self, text: bytes, credit: float) -> tuple[bytes | None, float]:
        """Return the ids of a text, unless it is left, and what new words cost, less what the text saves."""
        if self.rule.cuts.lead and text[:1] == b" ":
            return None, 0.0
        known, keys, gain, cost = self._ids, _divide(text), CALL_BYTES + len(text), 0.0
        ids = list(map(known.get, keys))
        if None in ids:
            new = [place for place, found in enumerate(ids) if found is None]
            cost = _SPLIT * len(new)
            if cost > credit + gain:
                return None, 0.0
            encode = self._splits.encode
            for place in new:
                ids[place] = self._keep(known, keys[place], encode(_text(keys[place]).decode()))
            if None in ids:
                keys, more = self._learn(known, keys, credit - cost, gain)
                ids, cost = list(map(known.get, keys)), cost + more
            if self._size > self.limit:
                self._ids, self._harmed, self._size = {_BEGINS: b""}, set(), 0
            if None in ids:
                return None, cost
        return b"".join(ids), cost - gain  # type: ignore[arg-type]  # none is None

    def _learn(self, known: dict[bytes, bytes], keys: list[bytes], credit: float, gain: float) -> tuple[list[bytes], float]:
        """Keep the ids of new words, whatever they are, unless that costs more than the credit and what the text saves.

        Return what to look up for the text, and what it cost.
        """
        new = [key for key in keys if key not in known]
        if any(key[-1:] <= b" " for key in new):
            keys = self._merge(keys)
            new = [key for key in keys if key not in known]
        cuts = {key: self.rule.split(_text(key)) for key in new}
        match = self._splits.whole.fullmatch
        splits: dict[bytes, str] = {}
        others: dict[bytes, str] = {}
        for part in chain.from_iterable(cuts.values()):
            if _key(part) not in known:
                (splits if match(part.decode()) else others)[_key(part)] = part.decode()
        cost: float = _SPLIT * len(splits)
        plain = True
        if others:
            plain = self.rule.plain(others.values())
            cost += _LEARN + _NEW * sum(map(len, others)) + (0 if plain else _CLOSER)
        if cost > credit + (gain if plain else 0) or not self._harmed.isdisjoint(others):  # a word with a flag gains nothing
            return keys, 0.0
        for key, spelled in splits.items():
            self._keep(known, key, self._splits.ids_of(spelled))
        if others:
            self._encode_others(known, others, plain=plain)
        for key, parts in cuts.items():
            ids = [known.get(_key(part)) for part in parts] if len(parts) > 1 else [None]
            self._keep(known, key, None if None in ids else b"".join(ids))  # type: ignore[arg-type]  # none is None
        return keys, cost

    def _encode_others(self, known: dict[bytes, bytes], words: dict[bytes, str], *, plain: bool) -> None:
        spelled = list(words.values())
        flags = [0] * len(words) if plain else self.rule.flags(spelled).tolist()
        self._harmed |= {key for key, flag in zip(words, flags, strict=True) if flag}
        for key, ids, flag in zip(words, self.caller.pieces(self.rule.bare(spelled)), flags, strict=True):
            self._keep(known, key, None if flag else ids)

    def _keep(self, known: dict[bytes, bytes], key: bytes, ids: bytes | None) -> bytes | None:
        if ids is not None:
            known[key] = ids
            self._size += _WORD + len(key) + len(ids)
        return ids

    def _merge(self, keys: Sequence[bytes]) -> list[bytes]:
        """Put together again what was divided behind white space, where there is no cut."""
        groups: list[list[bytes]] = []
        joined = False
        for key in keys:
            if joined:
                groups[-1].append(key)
            else:
                groups.append([key])
            joined = key[-1:] <= b" "
        merged = list(map(b" ".join, groups))
        return [*merged[:-1], *map(_key, self.rule.split(_text(merged[-1])))] if joined else merged

    @cached_property
    def _splits(self) -> Splits:
        """Say which words are known to be one split without flags: no cut can do them harm."""
        splits = self.caller.splits
        hinted = f"(?!.*(?:{self.rule.hinted}))" if self.rule.hinted else ""
        whole = NOTHING if self.rule.held else re.compile(f"{hinted}(?:{splits.whole.pattern})")
        return evolve(splits, whole=whole, spaced=splits.bare if self.rule.cuts.lead else splits.spaced)


def _divide(text: bytes) -> list[bytes]:
    """Divide a text at its spaces, whether there are cuts or not, and return by what the parts are kept."""
    keys = text.split(b" ")
    if text[-1:] <= b" ":  # or it is empty
        body = text.rstrip()
        if body[-1:] > b" " and text[len(body) : len(body) + 1] == b" ":
            keys = [*body.split(b" "), _WHITE + text[len(body) :]]
    keys[0] = _BEGINS + keys[0]
    return keys


def _key(word: bytes) -> bytes:
    """Return by what a word is kept."""
    if word[-1] <= _SPACE:
        return _WHITE + word  # no cut follows: it may end a text, and is no whole part between two spaces
    return word[1:] if word[0] == _SPACE else _BEGINS + word


def _text(key: bytes) -> bytes:
    return key[1:] if key[:1] >= _WHITE else b" " + key
