"""Where a tokenizer lets text be cut, so that the ids of a text are the ids of its words, end to end.

A *word* is what lies between two cuts: with BERT's tokenizer, "It's  a cat." has the words "It", "'", "s", "  a", " cat" and ".". A cut is
recognized by the two bytes around it, and always lies in front of an ASCII character. A tokenizer with a part that is not known here is
never cut. Encoding has three steps before the model. For each, the argument why encoding `left + right` is encoding `left`, then `right`:

1. Added tokens are searched. A cut may divide a token, as it divides "[CLS]" into "[", "CLS" and "]", and some tokens look at the text
   around them. Some part of such a token, here "CLS", is always found inside a word: rows with such words are encoded whole
   (`boundary_rules`).
2. Text is normalized. The normalizers known here map characters one by one, or compose them ("e" and a combining accent become "é"), and
   nothing composes with an ASCII character that comes second (Unicode Standard Annex 15). So `normal(left + right)` is
   `normal(left) + normal(right)`.
3. The pre-tokenizer splits in front of `right`, whatever stands around it, and splits `left` as if the text ended there. BERT splits in
   front of each space and each ASCII punctuation character. GPT-2 does not always split behind white space: with W for a wide space
   (U+3000), it splits "aW  b" into "a", "W " and " b", but "aW" alone into "a" and "W". So its cuts are `strict`: they hold only where
   `left` does not end in white space once normalized, and rows with other words are encoded whole.

The model then encodes each split by itself, so it needs no argument. A model without a pre-tokenizer sees the whole text; `_merged` is
about those.
"""

import re
import string
from collections.abc import Sequence
from functools import cached_property
from itertools import dropwhile, product

import numpy as np
from attrs import evolve, frozen

from mlxfp.text.tokenizers.configuration import MARK, Configuration, Part

_SOLID = bytes(range(33, 256))  # neither white space nor control characters of ASCII; all bytes of other characters
_WHITE = b" \t\n\r"
_ALNUM = (string.ascii_letters + string.digits).encode()
_PUNCT = string.punctuation.encode()


def _without(some: bytes, characters: bytes) -> bytes:
    return bytes(byte for byte in characters if byte not in some)


@frozen
class Cuts:
    """Between which bytes words are cut: at most four pairs of (bytes before the cut, bytes behind it).

    With `strict`, words must not end in white space. With `single`, they must also begin with exactly one space once normalized, and the
    normalizer may strip it. With `lead`, the tokenizer itself puts a space in front of a text.
    """

    pairs: tuple[tuple[bytes, bytes], ...]
    strict: bool = True
    single: bool = False
    lead: bool = False

    @cached_property
    def table(self) -> bytes:
        """Give each byte four bits for the pairs in which it may come first, and four higher bits for those in which it may come second."""
        bits = np.zeros(256, np.uint8)
        for number, (before, after) in enumerate(self.pairs):
            bits[list(before)] |= 1 << number
            bits[list(after)] |= 16 << number
        return bits.tobytes()


# White space is dropped: "a,  b" has the words "a," and "  b".
_BLANKS = Cuts(((_SOLID, _WHITE),), strict=False)

# A space begins a split, and no other character does without a mark in front of it: "a, b" has the words "a," and " b".
_SPACES = Cuts(((_SOLID, b" "),))

# White space is dropped, and each character of ASCII punctuation is a split: "it's a_b" has "it", "'", "s", " a", "_" and "b".
_BERT = Cuts(((_SOLID, _WHITE + _PUNCT), (_PUNCT, _ALNUM)), strict=False)

# \w+|[^\w\s]+ where the underscore belongs to \w: "it's a_b" has "it", "'", "s" and " a_b".
_WORDS = Cuts(((_SOLID, _WHITE), (_ALNUM, _without(b"_", _PUNCT)), (_without(b"_", _PUNCT), _ALNUM)), strict=False)

# No match goes on from a visible character to white space. Letters and digits end in front of punctuation, and punctuation in front of
# them, except for the apostrophe in 's: "it's 5, (a)" has "it", "'s", " 5", ",", " (", "a" and ")". The match that ends at a cut looks at
# one more character: whether it is white space. The end of the text gives the same answer.
_GPT2 = Cuts(((_SOLID, _WHITE), (_ALNUM, _PUNCT), (_without(b"'", _PUNCT), _ALNUM)))
_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Later patterns: punctuation may be followed by letters and line ends in one match, and in some patterns letters by an apostrophe:
# "it's 5, (a)" has "it's", " 5", ",", " (a" and ")".
_GPT4 = Cuts(((_SOLID, b" \t"), (_ALNUM, _without(b"'", _PUNCT))))
_UPPER, _LOWER, _ENDINGS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+",  # GPT-4, Llama 3, Qwen 2
    *(rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{end}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{end}" for end in ("", f"{_ENDINGS}?")),
)
PATTERNS = {_GPT2_PATTERN: _GPT2} | {
    rf"{letters}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{ends}|\s*[\r\n]+|\s+(?!\S)|\s+": _GPT4
    for letters, digits, ends in product(_LETTERS, (r"\p{N}{1,3}", r"\p{N}"), (r"[\r\n]*", r"[\r\n/]*"))
}

_LOCAL = ("Digits", "Punctuation")  # whether they split between two characters depends on these two alone: a cut more changes nothing
_APART = (*_LOCAL, "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "ByteLevel", "Metaspace", "Split")  # see each split by itself
_BY_CHARACTER = ("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "BertNormalizer")

_RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}  # strict cuts do not divide a run of spaces
_PREPEND = {"type": "Prepend", "prepend": MARK}
_MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
# Does nothing: all spaces are marks.
_NO_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def find_cuts(configuration: Configuration) -> Cuts | None:
    """Return where texts of a tokenizer may be cut, or None where nothing is known."""
    normalizers, splitters, kind = configuration.normalizers, configuration.splitters, configuration.kind
    divides = kind is not None and kind.divides(configuration.model)
    return _divided(normalizers, splitters) or (_merged(normalizers, splitters) if divides else None)


def _divided(normalizers: Sequence[Part], splitters: Sequence[Part]) -> Cuts | None:
    """Return the cuts of the first pre-tokenizer that has any; those after it see its splits one by one."""
    rest = list(dropwhile(lambda part: part["type"] in _LOCAL, splitters))
    if not rest or not all(part["type"] in _APART and part.get("prepend_scheme") != "first" for part in rest[1:]):
        return None  # "first" puts a mark in front of the first split of a text, and would put it in front of each word's
    cuts = _cuts_of(rest[0])
    if cuts is None or all(part["type"] in _BY_CHARACTER for part in normalizers):
        return cuts
    if all(part["type"] in _BY_CHARACTER or part == _RUNS for part in normalizers):
        return evolve(cuts, strict=True)
    return _sentencepiece(normalizers, splitters[0])


def _cuts_of(splitter: Part) -> Cuts | None:
    kind = splitter["type"]
    if kind == "ByteLevel":
        return None if not splitter["use_regex"] else _SPACES if splitter["add_prefix_space"] else _GPT2
    if kind == "Metaspace":
        return _SPACES if splitter["split"] else None
    if kind == "Split":
        whole = (splitter["behavior"], splitter["invert"]) in (("Isolated", False), ("Removed", True))
        return PATTERNS.get(splitter["pattern"].get("Regex")) if whole else None
    return {"BertPreTokenizer": _BERT, "Whitespace": _WORDS, "WhitespaceSplit": _BLANKS}.get(kind)


def _sentencepiece(normalizers: Sequence[Part], splitter: Part) -> Cuts | None:
    """Return the cuts where SentencePiece's own normalizer is used, and texts may be stripped (T5, XLM-R, ALBERT, DeBERTa 3).

    It maps graphemes, and a grapheme ends in front of a space except behind a few characters, such as U+0600: words must not have them.
    Stripping takes nothing from a word that the text would keep: only its one space, which comes back as a mark.
    """
    dropped = splitter["type"] == "WhitespaceSplit"
    if not dropped and (splitter["type"] != "Metaspace" or splitter["prepend_scheme"] != "always"):
        return None
    runs = (_RUNS,) if dropped else (_RUNS, {**_RUNS, "content": MARK})
    return evolve(_SPACES, single=True) if all(part in runs or _keeps_spaces(part) for part in normalizers) else None


def _keeps_spaces(normalizer: Part) -> bool:
    """Whether a normalizer maps what stands between two spaces by itself, except at the ends of a text."""
    if normalizer["type"] == "Strip":
        return bool(normalizer["strip_right"])  # else white space at the end of a text would stay, as part of no word
    if normalizer["type"] == "Replace":
        text = normalizer["pattern"].get("String")
        return bool(text) and not re.search(rf"[\s{MARK}]", text + normalizer["content"])
    return normalizer["type"] in (*_BY_CHARACTER, "Precompiled", "Nmt")


def _merged(normalizers: Sequence[Part], splitters: Sequence[Part]) -> Cuts | None:
    """Return the cuts of a model that sees whole texts, their spaces written as marks, and merges nothing over the place before a mark."""
    if normalizers in ([_MARKS], [_PREPEND, _MARKS]) and splitters in ([], [_NO_SPLIT]):
        return evolve(_SPACES, lead=_PREPEND in normalizers)
    split = [(part["type"], part.get("replacement"), part.get("split")) for part in splitters]
    return _SPACES if not normalizers and split == [("Metaspace", MARK, False)] else None
