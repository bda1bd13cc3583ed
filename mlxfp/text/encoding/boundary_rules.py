"""Texts cut into words, whole columns at a time, and which words show that a cut may have changed the ids of their row."""

import json as jsons
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import tokenizers as hf
from attrs import evolve, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.light_arrays import numbers_of
from mlxfp.text.encoding.boundaries import Cuts, find_cuts
from mlxfp.text.engines.columns import found, text_offsets
from mlxfp.text.tokenizers.configuration import MARK, Part
from mlxfp.text.tokenizers.tokenizer import configuration_of, engine

HINTED, HELD = 1, 2  # flags of a word whose row may have to be encoded whole, and of one whose row must be

# What a tokenizer may treat as white space: all invisible characters, as versions of Unicode differ. The members of a set, for RE2.
_BLANK = r"\x{0}-\x{20}\x{7f}-\x{a0}\x{1680}\x{180e}\x{2000}-\x{200f}\x{2028}-\x{202f}\x{205f}-\x{206f}\x{3000}\x{feff}\x{2581}"
_ENDS_BLANK = rf"(?:\A|[{_BLANK}])\z"

# The characters that make one grapheme with a space behind them (Unicode 16: Grapheme_Cluster_Break=Prepend).
_JOINING = (
    r"[\x{600}-\x{605}\x{6dd}\x{70f}\x{890}-\x{891}\x{8e2}\x{d4e}\x{110bd}\x{110cd}\x{111c2}-\x{111c3}\x{113d1}\x{1193f}\x{11941}"
    r"\x{11a3a}\x{11a84}-\x{11a89}\x{11d46}\x{11f02}]"
)


@frozen
class Rule:
    """Where words end, and which words show that a cut may have changed the ids of their row.

    `held` and `hinted` are regular expressions (RE2). A row is encoded whole if one of its words, once normalized, matches `held`, or if
    one of its words matches `hinted` and the row matches `spelled`.
    """

    cuts: Cuts
    normal: Callable[[str], str] | None  # without stripping
    held: str = ""
    hinted: str = ""
    spelled: str = ""

    def bare(self, words: Sequence[str]) -> Sequence[str]:
        """Remove from words the space that the tokenizer adds."""
        return [word.removeprefix(" ") for word in words] if self.cuts.lead else words

    def flags(self, words: pa.StringArray) -> NDArray[np.uint8]:
        """Return 0, `HINTED` or `HELD` for each word, uint8[N]."""
        seen = words
        if self.normal is not None and (self.cuts.strict or self.held):
            seen = pa.array(list(map(self.normal, self.bare(words.to_pylist()))), pa.string())
        held, hinted = found(seen, self.held), found(words, self.hinted)
        if self.cuts.strict:  # a word of white space alone is the end of its row: there is no cut behind it
            held |= self._breaks(words, seen) & ~found(words, "" if self.cuts.lead else r"\A[ \t\n\r]+\z")
        return np.where(held, np.uint8(HELD), np.where(hinted, np.uint8(HINTED), np.uint8(0)))

    def _breaks(self, words: pa.StringArray, seen: pa.StringArray) -> NDArray[np.bool_]:
        """Say which words are not as strict cuts need them, given the words once normalized: bool[N]."""
        breaks = found(seen, _ENDS_BLANK)
        if self.cuts.single:
            spaced = found(words, rf"\A(?:[^ ]| +[^{_BLANK}])") & (found(words, r"\A[^ ]") | found(seen, rf"\A[ \x{{2581}}][^{_BLANK}]"))
            breaks |= found(words, _ENDS_BLANK) | found(words, _JOINING) | ~spaced
        return breaks

    def find(self, text: bytes) -> NDArray[np.bool_]:
        """Say for each byte whether there is a cut in front of it, bool[N]."""
        kinds = np.frombuffer(text.translate(self.cuts.table), np.uint8)
        cuts = np.zeros(len(kinds), bool)
        np.not_equal((kinds[1:] >> 4) & kinds[:-1], 0, out=cuts[1:])
        return cuts


@frozen
class Words:
    """The distinct words of a column, and where they occur.

    Word `i` of the column is `distinct[places[i]]`, and row `i` has the words from `firsts[i]` up to `firsts[i + 1]`.
    """

    distinct: pa.StringArray
    places: NDArray[np.int32]
    firsts: NDArray[np.int64]
    size: int  # bytes of all words

    def rows(self, words: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the rows that have one of these words of the column, in order."""
        return np.unique(np.searchsorted(self.firsts, words, side="right") - 1)


def cut_words(rule: Rule, texts: pa.StringArray) -> Words:
    """Cut each text into its words."""
    ends = text_offsets(texts)
    data = texts.buffers()[2][int(ends[0]) : int(ends[-1])]
    ends = ends - ends[0]
    cuts = rule.find(data.to_pybytes())
    cuts[ends[:-1][ends[:-1] < ends[1:]]] = True  # a row begins a word, unless it is empty
    starts = np.flatnonzero(cuts)
    offsets = np.append(starts, len(data)).astype(np.int32)
    encoded = pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), data).dictionary_encode()
    return Words(encoded.dictionary, numbers_of(encoded.indices), np.searchsorted(starts, ends), len(data))


@lru_cache(maxsize=32)
def find_rule(json: str) -> Rule | None:
    """Return how the texts of a tokenizer may be cut, or None where nothing is known."""
    own = engine(json)
    configuration = configuration_of(json)
    cuts = find_cuts(configuration)
    if cuts is None or own.encode("", add_special_tokens=False).ids:
        return None
    return _guard_tokens(Rule(cuts, _normalize(configuration.normalizers)), configuration.added_tokens, own.normalizer)


def _normalize(normalizers: Sequence[Part]) -> Callable[[str], str] | None:
    """Return what the normalizers do to a part of a text: all but stripping its ends."""
    parts = [part for part in normalizers if part["type"] != "Strip"]
    if not parts:
        return None
    probe = jsons.loads(hf.Tokenizer(hf.models.BPE()).to_str()) | {"normalizer": {"type": "Sequence", "normalizers": parts}}
    normal: Callable[[str], str] = hf.Tokenizer.from_str(jsons.dumps(probe)).normalizer.normalize_str
    return normal


def _guard_tokens(rule: Rule, tokens: Sequence[Part], normalizer: Any) -> Rule | None:
    """Add to a rule which words show that an added token may be divided, or may not see the text around it.

    A token that is searched before normalization is cut in a text as it is cut alone, so its longest part is inside one word. Of a token
    that is searched in normalized text, the part up to a cut ends a word.
    """
    held, hinted, spelled = set(), set(), set()
    for token in tokens:
        text = token["content"]
        around = token["rstrip"] or token["single_word"] or rule.cuts.lead or rule.cuts.single
        if normalizer is None or not token["normalized"]:
            parts = _cut_token(text, rule.find(text.encode()))
            if around or len(parts) > 1:
                hinted.add(max(parts, key=len))
                spelled.add(text)
            continue
        text = normalizer.normalize_str(text)
        if not text or unicodedata.category(text[0])[0] == "M" or "\u1160" <= text[0] <= "\u11ff":
            return None  # found everywhere, or composed with the character in front of it
        data = text.replace(MARK, " ").encode()
        # By the first pair: normalization may change what stands before.
        begins = np.frombuffer(data.translate(rule.cuts.table), np.uint8) & 16 > 0
        ends = np.cumsum([len(part) for part in _cut_token(text.replace(MARK, " "), rule.find(data) | begins)])
        held |= {re.escape(text[:end]) + r"\z" for end in ends[:-1].tolist() if end} | ({re.escape(text)} if around else set())
    # A token with `lstrip` takes the white space at the end of the word before it.
    strict = rule.cuts.strict or any(token["lstrip"] for token in tokens)
    return evolve(
        rule, cuts=evolve(rule.cuts, strict=strict), held="|".join(sorted(held)), hinted=_match_any(hinted), spelled=_match_any(spelled)
    )


def _match_any(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts)))


def _cut_token(text: str, cuts: NDArray[np.bool_]) -> list[str]:
    data, places = text.encode(), [0, *np.flatnonzero(cuts).tolist(), len(text.encode())]
    return [data[first:end].decode() for first, end in pairwise(places)]
