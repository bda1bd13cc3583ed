"""Where a tokenizer lets text be cut, so that the ids of a text are the ids of its words, end to end.

A *word* is what lies between two cuts. A cut is seen by two neighbouring bytes, and always lies in front of an ASCII character.
`find_rule` reads from a tokenizer's JSON which pairs of bytes are safe; a tokenizer with a part that it does not know is never cut.
That encoding `left + right` is encoding `left`, then `right`, is proved in three steps:

1. Added tokens are searched first. Of one that a cut may divide, or that looks at what stands around it, some part is always found
   inside a word: the rows of such words are encoded whole.
2. The normalizers here map characters one by one, or compose them, and nothing composes with an ASCII character that comes second
   (Unicode Standard Annex 15). So `normal(left + right) == normal(left) + normal(right)`.
3. The pre-tokenizer splits in front of `right`, whatever stands around it, and splits `left` as if the text ended there. Some do so only
   where `left` does not end in white space; they are `strict`, and rows with words that do, once normalized, are encoded whole.

Models see the splits one by one, so they need no proof, but for those that have no pre-tokenizer (`_merged`).
"""

import json as jsons
import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import dropwhile, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen
from numpy.typing import NDArray

from mlxfp.text.tokenizers import engine

Part = Mapping[str, Any]  # of a tokenizer's JSON

HINTED, HELD = 1, 2  # a word whose row may have to be encoded whole; a word whose row must be

_SOLID = bytes(range(33, 256))  # neither white space nor control characters of ASCII; all bytes of other characters
_WHITE = b" \t\n\r"
_ALNUM = (string.ascii_letters + string.digits).encode()
_PUNCT = string.punctuation.encode()
_MARK = "\u2581"  # a space, to SentencePiece
# What may be white space to a pre-tokenizer: all that is not visible, as versions of Unicode differ. Written for RE2.
_BLANK = r"[\x{0}-\x{20}\x{7f}-\x{a0}\x{1680}\x{180e}\x{2000}-\x{200f}\x{2028}-\x{202f}\x{205f}-\x{206f}\x{3000}\x{feff}\x{2581}]"


def _without(some: bytes, characters: bytes) -> bytes:
    return bytes(byte for byte in characters if byte not in some)


@frozen
class _Cuts:
    """Between which bytes a pre-tokenizer always splits: at most four pairs of (one of these, one of those)."""

    pairs: tuple[tuple[bytes, bytes], ...]
    strict: bool = True

    @property
    def table(self) -> bytes:
        """Give each byte four bits for the pairs that it may begin, and above them four for those that it may end."""
        bits = np.zeros(256, np.uint8)
        for number, (before, after) in enumerate(self.pairs):
            bits[list(before)] |= 1 << number
            bits[list(after)] |= 16 << number
        return bits.tobytes()


_BLANKS = _Cuts(((_SOLID, _WHITE),), strict=False)  # white space is dropped
_SPACES = _Cuts(((_SOLID, b" "),))  # a space begins a split, and no other character does without a mark in front of it

# White space is dropped, and each character of ASCII punctuation stands apart.
_BERT = _Cuts(((_SOLID, _WHITE + _PUNCT), (_PUNCT, _ALNUM)), strict=False)

# \w+|[^\w\s]+ where the underscore belongs to \w.
_WORDS = _Cuts(((_SOLID, _WHITE), (_ALNUM, _without(b"_", _PUNCT)), (_without(b"_", _PUNCT), _ALNUM)), strict=False)

# Behind what is not white space, no match goes on with white space. Letters and digits end in front of punctuation, and punctuation in
# front of them, but for the apostrophe in 's. The match that ends at a cut looks at one character more: whether it is white space,
# which is as good as the end of the text.
_GPT2 = _Cuts(((_SOLID, _WHITE), (_ALNUM, _PUNCT), (_without(b"'", _PUNCT), _ALNUM)))

# Here punctuation may go on with letters and with line ends; and in some, letters with an apostrophe.
_GPT4 = _Cuts(((_SOLID, b" \t"), (_ALNUM, _without(b"'", _PUNCT))))

_ENDINGS, _TAIL = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_FIRST = r"[^\r\n\p{L}\p{N}]?"
_PATTERNS = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": _GPT2,
    _ENDINGS + rf"|{_FIRST}\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*" + _TAIL: _GPT4,  # GPT-4, Llama 3
    _ENDINGS + rf"|{_FIRST}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*" + _TAIL: _GPT4,  # Qwen 2
    rf"{_FIRST}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_FIRST}{_UPPER}+{_LOWER}*{_ENDINGS}?|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*"
    + _TAIL: _GPT4,  # GPT-4o
}

_LOCAL = ("Digits", "Punctuation")  # whether they split between two characters is said by these two, so a cut more changes nothing
_APART = (*_LOCAL, "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "ByteLevel", "Metaspace", "Split")  # see each split by itself
_BY_CHARACTER = ("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "BertNormalizer")

_RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}  # not divided, where what is left of a cut is strict
_PREPEND = {"type": "Prepend", "prepend": _MARK}
_MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": _MARK}
_NO_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}  # of spaces that are gone


@frozen
class Rule:
    """How a tokenizer's texts are cut into words, and in which words a cut may have done harm.

    `held` and `hinted` are regular expressions (RE2) for words: those of `held`, seen once normalized, have their rows encoded whole;
    those of `hinted` if the row matches `spelled`. A word in front of which the tokenizer puts a space by itself loses its own (`lead`).
    """

    table: bytes
    normal: Callable[[str], str] | None
    strict: bool
    held: str = ""
    hinted: str = ""
    spelled: str = ""
    lead: str = ""

    def bare(self, words: Sequence[str]) -> Sequence[str]:
        """Take from words the space that the tokenizer adds."""
        return [word.removeprefix(self.lead) for word in words] if self.lead else words

    def flags(self, words: pa.StringArray) -> NDArray[np.uint8]:
        """Return 0, `HINTED` or `HELD` for each word, uint8[N]."""
        seen = words
        if self.normal is not None and (self.strict or self.held):
            seen = pa.array(map(self.normal, self.bare(words.to_pylist())), pa.string())
        held, hinted = found(seen, self.held), found(words, self.hinted)
        if self.strict:  # white space alone ends its row: there is no cut behind it
            held |= found(seen, rf"(?:\A|{_BLANK})\z") & ~found(words, "" if self.lead else r"\A[ \t\n\r]+\z")
        return np.where(held, np.uint8(HELD), np.where(hinted, np.uint8(HINTED), np.uint8(0)))

    def cuts(self, text: bytes) -> NDArray[np.bool_]:
        """Say for each byte whether there is a cut in front of it, bool[N]."""
        kinds = np.frombuffer(text.translate(self.table), np.uint8)
        cuts = np.zeros(len(kinds), bool)
        np.not_equal((kinds[1:] >> 4) & kinds[:-1], 0, out=cuts[1:])
        return cuts


def found(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    """Say which texts a regular expression (RE2) matches anywhere, bool[N]; an empty one matches nothing."""
    if not pattern:
        return np.zeros(len(texts), bool)
    matches: NDArray[np.bool_] = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return matches


@lru_cache(maxsize=32)
def find_rule(json: str) -> Rule | None:
    """Return how the texts of a tokenizer may be cut, or None where nothing is known.

    >>> model = {"type": "WordLevel", "vocab": {"one": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    >>> rule = find_rule(jsons.dumps({"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    >>> np.flatnonzero(rule.cuts(b"one  two,three four")).tolist()
    [3, 14]
    """
    own = engine(json)
    data = jsons.loads(own.to_str())  # older files leave out what is the default
    normalizers = _flat(data["normalizer"], "normalizers")
    splitters = _flat(data["pre_tokenizer"], "pretokenizers")
    cuts = _divided(normalizers, splitters) or _merged(normalizers, splitters, data["model"])
    if cuts is None or own.encode("", add_special_tokens=False).ids:
        return None
    normal = own.normalizer.normalize_str if normalizers else None
    rule = Rule(cuts.table, normal, strict=cuts.strict, lead=" " if _PREPEND in normalizers else "")
    return _guarded(rule, data["added_tokens"])


def _flat(part: Part | None, parts: str) -> list[Part]:
    """Write sequences of sequences out."""
    if part is None:
        return []
    return [inner for one in part[parts] for inner in _flat(one, parts)] if part["type"] == "Sequence" else [part]


def _divided(normalizers: Sequence[Part], splitters: Sequence[Part]) -> _Cuts | None:
    """Return the cuts of the first pre-tokenizer that has any; those after it see its splits one by one."""
    if not all(part["type"] in _BY_CHARACTER or part == _RUNS for part in normalizers):
        return None
    rest = list(dropwhile(lambda part: part["type"] in _LOCAL, splitters))
    if not rest or not all(part["type"] in _APART and part.get("prepend_scheme") != "first" for part in rest[1:]):
        return None  # a mark in front of the first split of a text, not in front of each word's
    cuts = _cuts_of(rest[0])
    return evolve(cuts, strict=True) if cuts is not None and _RUNS in normalizers else cuts


def _cuts_of(splitter: Part) -> _Cuts | None:
    kind = splitter["type"]
    if kind == "ByteLevel":
        return None if not splitter["use_regex"] else _SPACES if splitter["add_prefix_space"] else _GPT2
    if kind == "Metaspace":
        return _SPACES if splitter["split"] else None
    if kind == "Split":
        whole = (splitter["behavior"], splitter["invert"]) in (("Isolated", False), ("Removed", True))
        return _PATTERNS.get(splitter["pattern"].get("Regex")) if whole else None
    return {"BertPreTokenizer": _BERT, "Whitespace": _WORDS, "WhitespaceSplit": _BLANKS}.get(kind)


def _merged(normalizers: Sequence[Part], splitters: Sequence[Part], model: Part) -> _Cuts | None:
    """Return the cuts of BPE that sees whole texts, their spaces written as marks (Llama 2, Gemma).

    Where no token has a mark behind another character, no merge leads over a cut, so those on its two sides do not know of each other.
    Unknown characters are not joined over it either, as the mark is known.
    """
    plain = model["type"] == "BPE" and not model["continuing_subword_prefix"] and not model["end_of_word_suffix"]
    if not plain or _MARK not in model["vocab"] or any(re.search(f"[^{_MARK}]{_MARK}", token) for token in model["vocab"]):
        return None
    marked = normalizers in ([_MARKS], [_PREPEND, _MARKS]) and splitters in ([], [_NO_SPLIT])
    split = [(part["type"], part.get("replacement"), part.get("split")) for part in splitters]
    return _SPACES if marked or (not normalizers and split == [("Metaspace", _MARK, False)]) else None


def _guarded(rule: Rule, tokens: Sequence[Part]) -> Rule | None:
    """Add to a rule how words are told in which an added token may be divided, or may not see what stands around it.

    A token that is searched before normalization is cut, wherever it stands, as it is cut alone, so its longest part is in one word. Of
    a token that is searched after it, the part up to a cut ends a word.
    """
    held, hinted, spelled = set(), set(), set()
    for token in tokens:
        text, around = token["content"], bool(token["rstrip"] or token["single_word"] or rule.lead)
        if rule.normal is None or not token["normalized"]:
            parts = _parts(text, rule.cuts(text.encode()))
            if around or len(parts) > 1:
                hinted.add(max(parts, key=len))
                spelled.add(text)
            continue
        text = rule.normal(text)
        if not text or unicodedata.category(text[0])[0] == "M" or "\u1160" <= text[0] <= "\u11ff":
            return None  # found everywhere, or made one with the character in front of it
        data = text.replace(_MARK, " ").encode()
        begins = np.frombuffer(data.translate(rule.table), np.uint8) & 16 > 0  # the first pair: what may stand in front can have changed
        ends = np.cumsum([len(part) for part in _parts(text.replace(_MARK, " "), rule.cuts(data) | begins)])
        held |= {re.escape(text[:end]) + r"\z" for end in ends[:-1].tolist() if end} | ({re.escape(text)} if around else set())
    return evolve(rule, held="|".join(sorted(held)), hinted=_any_of(hinted), spelled=_any_of(spelled))


def _parts(text: str, cuts: NDArray[np.bool_]) -> list[str]:
    data, places = text.encode(), [0, *np.flatnonzero(cuts).tolist(), len(text.encode())]
    return [data[first:end].decode() for first, end in pairwise(places)]


def _any_of(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts)))
