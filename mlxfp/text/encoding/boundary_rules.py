"""Functions that split text columns into words, and find rows in which separate words may give other token ids than the whole text."""

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
from mlxfp.text.engines.columns import matches, text_offsets
from mlxfp.text.tokenizers.configuration import MARK, Part
from mlxfp.text.tokenizers.tokenizer import configuration_of, engine

# HINTED marks words that may belong to an added token, such as "CLS" in "[CLS]". A row that contains an added token is not split.
# WHOLE marks words whose ids may change if the row is split into words. A row with such a word is never split.
HINTED, WHOLE = 1, 2

# Content of an RE2 character set: white space (in any Unicode version or for any tokenizer) and invisible characters.
_BLANK = r"\x{0}-\x{20}\x{7f}-\x{a0}\x{1680}\x{180e}\x{2000}-\x{200f}\x{2028}-\x{202f}\x{205f}-\x{206f}\x{3000}\x{feff}\x{2581}"
_ENDS_BLANK = rf"(?:\A|[{_BLANK}])\z"

# characters that form one grapheme with a following space (Unicode 16: Grapheme_Cluster_Break=Prepend)
_JOINING = (
    r"[\x{600}-\x{605}\x{6dd}\x{70f}\x{890}-\x{891}\x{8e2}\x{d4e}\x{110bd}\x{110cd}\x{111c2}-\x{111c3}\x{113d1}\x{1193f}\x{11941}"
    r"\x{11a3a}\x{11a84}-\x{11a89}\x{11d46}\x{11f02}]"
)


@frozen
class Rule:
    """Rule that decides which rows are split into words before encoding. All other rows are encoded as a whole.

    - `cuts`: positions at which rows are split into words.
    - `whole`: regular expression (RE2). A row is not split if a word of the row matches `whole` after normalization.
    - `hinted`: regular expression (RE2) for a word of each added token, such as "CLS". Rows with such a word are searched with `spelled`.
    - `spelled`: regular expression (RE2) for whole added tokens, such as "[CLS]". A row in which `spelled` finds a token is not split.
    """

    cuts: Cuts
    normal: Callable[[str], str] | None  # function that normalizes a word without stripping white space
    whole: str = ""
    hinted: str = ""
    spelled: str = ""

    def bare(self, words: Sequence[str]) -> Sequence[str]:
        """Remove the space at the start of each word if the tokenizer adds a space before each text."""
        return [word.removeprefix(" ") for word in words] if self.cuts.lead else words

    def flags(self, words: pa.StringArray) -> NDArray[np.uint8]:
        """Return a flag for each word, uint8[N]: 0 if the word can be encoded separately, otherwise `WHOLE` or `HINTED`."""
        seen = words
        if self.normal is not None and (self.cuts.strict or self.whole):
            seen = pa.array(list(map(self.normal, self.bare(words.to_pylist()))), pa.string())
        whole, hinted = matches(seen, self.whole), matches(words, self.hinted)
        if self.cuts.strict:  # Only the last word of a row can consist of white space. No cut follows this word, so no check is needed.
            whole |= self._breaks(words, seen) & ~matches(words, "" if self.cuts.lead else r"\A[ \t\n\r]+\z")
        return np.where(whole, np.uint8(WHOLE), np.where(hinted, np.uint8(HINTED), np.uint8(0)))

    def _breaks(self, words: pa.StringArray, seen: pa.StringArray) -> NDArray[np.bool_]:
        """Return True for each word that starts or ends with unsafe white space, bool[N]. `seen` holds the words after normalization."""
        breaks = matches(seen, _ENDS_BLANK)
        if self.cuts.single:
            spaced = matches(words, rf"\A(?:[^ ]| +[^{_BLANK}])") & (
                matches(words, r"\A[^ ]") | matches(seen, rf"\A[ \x{{2581}}][^{_BLANK}]")
            )
            breaks |= matches(words, _ENDS_BLANK) | matches(words, _JOINING) | ~spaced
        return breaks

    def find(self, text: bytes) -> NDArray[np.bool_]:
        """Return True for each byte at which a word begins, bool[N]. The first byte of the text is not marked."""
        kinds = np.frombuffer(text.translate(self.cuts.table), np.uint8)
        cuts = np.zeros(len(kinds), bool)
        np.not_equal((kinds[1:] >> 4) & kinds[:-1], 0, out=cuts[1:])
        return cuts


@frozen
class Words:
    """Words of a column, stored as distinct words and indices.

    Word `i` of the column is `distinct[indices[i]]`. Row `i` contains the words from `firsts[i]` up to, not including, `firsts[i + 1]`.
    """

    distinct: pa.StringArray
    indices: NDArray[np.int32]
    firsts: NDArray[np.int64]
    size: int  # number of bytes in all texts of the column

    def rows(self, words: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the sorted indices of the rows that contain at least one of the words with the indices `words`."""
        return np.unique(np.searchsorted(self.firsts, words, side="right") - 1)


def cut_words(rule: Rule, texts: pa.StringArray) -> Words:
    """Split each text of a column into words, at the positions that `rule` allows."""
    ends = text_offsets(texts)
    data = texts.buffers()[2][int(ends[0]) : int(ends[-1])]
    ends = ends - ends[0]
    cuts = rule.find(data.to_pybytes())
    cuts[ends[:-1][ends[:-1] < ends[1:]]] = True  # The first byte of each nonempty row begins a word.
    starts = np.flatnonzero(cuts)
    offsets = np.append(starts, len(data)).astype(np.int32)
    encoded = pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), data).dictionary_encode()
    return Words(encoded.dictionary, numbers_of(encoded.indices), np.searchsorted(starts, ends), len(data))


@lru_cache(maxsize=32)
def find_rule(json: str) -> Rule | None:
    """Return the rule that splits texts without changing the ids of a tokenizer. Return None if no such rule is known."""
    tokenizer = engine(json)
    configuration = configuration_of(json)
    cuts = find_cuts(configuration)
    if cuts is None or tokenizer.encode("", add_special_tokens=False).ids:
        return None
    return _guard_tokens(Rule(cuts, _normalize(configuration.normalizers)), configuration.added_tokens, tokenizer.normalizer)


def _normalize(normalizers: Sequence[Part]) -> Callable[[str], str] | None:
    """Return a function that applies all normalizers except `Strip`."""
    parts = [part for part in normalizers if part["type"] != "Strip"]
    if not parts:
        return None
    probe = jsons.loads(hf.Tokenizer(hf.models.BPE()).to_str()) | {"normalizer": {"type": "Sequence", "normalizers": parts}}
    normal: Callable[[str], str] = hf.Tokenizer.from_str(jsons.dumps(probe)).normalizer.normalize_str
    return normal


def _guard_tokens(rule: Rule, tokens: Sequence[Part], normalizer: Any) -> Rule | None:
    """Return a copy of `rule` with regular expressions for added tokens. Return None if no row may be split.

    A row must not be split if a cut would divide an added token, or if the token is recognized only next to certain characters. The regular
    expressions find such rows:

    - In the original text, `hinted` finds the longest word of an added token, and `spelled` finds the whole token.
    - In the normalized text, `whole` finds words that end with the start of an added token (the text before a cut), such as "[" of "[cls]".
    """
    whole, hinted, spelled = set(), set(), set()
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
            return None  # Texts are never split if an added token is empty or begins with a combining character.
        data = text.replace(MARK, " ").encode()
        # Mark all bytes that can follow a cut. Normalization may change the byte before a cut, but not the ASCII byte after the cut.
        begins = np.frombuffer(data.translate(rule.cuts.table), np.uint8) & 16 > 0
        ends = np.cumsum([len(part) for part in _cut_token(text.replace(MARK, " "), rule.find(data) | begins)])
        whole |= {re.escape(text[:end]) + r"\z" for end in ends[:-1].tolist() if end} | ({re.escape(text)} if around else set())
    # An added token with `lstrip` includes the white space before the token. With `strict`, words must not end in white space.
    strict = rule.cuts.strict or any(token["lstrip"] for token in tokens)
    return evolve(
        rule, cuts=evolve(rule.cuts, strict=strict), whole="|".join(sorted(whole)), hinted=_match_any(hinted), spelled=_match_any(spelled)
    )


def _match_any(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts)))


def _cut_token(text: str, cuts: NDArray[np.bool_]) -> list[str]:
    data, bounds = text.encode(), [0, *np.flatnonzero(cuts).tolist(), len(text.encode())]
    return [data[first:end].decode() for first, end in pairwise(bounds)]
