"""Safe cuts of a text: positions at which the text can be split and each part encoded separately, without changing the ids.

A *word* is the text between two neighbouring cuts. For BERT's tokenizer, "It's  a cat." is cut into "It", "'", "s", "  a", " cat" and
".". The two bytes around a position decide about a cut, and the second byte is always an ASCII character. Texts are never cut if the
tokenizer contains a component unknown to this module.

Encoding has three steps before the model. A cut between `left` and `right` is safe because of three arguments:

1. Search for added tokens. A cut may divide a token: "[CLS]" becomes "[", "CLS" and "]". Some tokens also depend on the neighbouring text.
   A part of each such token, here "CLS", always lies inside a word. `boundary_rules` finds rows with these words, which are encoded as a
   whole.
2. Normalization. The normalizers known here map single characters or compose characters ("e" and a combining accent become "é"). No
   character composes with a following ASCII character (Unicode Standard Annex 15). Hence `normal(left + right)` equals
   `normal(left) + normal(right)`.
3. Pre-tokenization. The pre-tokenizer splits before `right` in any context, and splits `left` as a text of its own. BERT splits before
   each space and each ASCII punctuation character. GPT-2 does not always split after white space: with W for a wide space (U+3000),
   "aW  b" becomes "a", "W " and " b", but "aW" alone becomes "a" and "W". Hence the cuts of GPT-2 are `strict`: valid only if the
   normalized `left` does not end in white space. Rows with other words are encoded as a whole.

The model encodes each split separately, so it needs no argument. Models without a pre-tokenizer read whole texts and are handled by
`_merged`.
"""

import re
import string
from collections.abc import Sequence
from functools import cached_property
from itertools import dropwhile, product

import numpy as np
from attrs import evolve, frozen

from mlxfp.text.tokenizers.configuration import MARK, Configuration, Part

_SOLID = bytes(range(33, 256))  # All bytes except ASCII white space and ASCII control characters.
_WHITE = b" \t\n\r"
_ALNUM = (string.ascii_letters + string.digits).encode()
_PUNCT = string.punctuation.encode()


def _without(some: bytes, characters: bytes) -> bytes:
    return bytes(byte for byte in characters if byte not in some)


@frozen
class Cuts:
    """Byte pairs that mark a cut. `pairs` holds at most four pairs of (bytes before the cut, bytes after the cut).

    - `strict`: words must not end in white space.
    - `single`: words must also begin with exactly one space after normalization, because the normalizer may strip spaces.
    - `lead`: the tokenizer adds a space before each text.
    """

    pairs: tuple[tuple[bytes, bytes], ...]
    strict: bool = True
    single: bool = False
    lead: bool = False

    @cached_property
    def table(self) -> bytes:
        """Lookup table with an entry for each of 256 bytes.

        Bit `i` is set if pair `i` allows the byte before a cut. Bit `i + 4` is set if pair `i` allows the byte after a cut.
        """
        bits = np.zeros(256, np.uint8)
        for number, (before, after) in enumerate(self.pairs):
            bits[list(before)] |= 1 << number
            bits[list(after)] |= 16 << number
        return bits.tobytes()


# The pre-tokenizer WhitespaceSplit drops white space, so "a,  b" is cut into the words "a," and "  b".
_BLANKS = Cuts(((_SOLID, _WHITE),), strict=False)

# The pre-tokenizer splits only at spaces and writes each space as a mark, so "a, b" is cut into the words "a," and " b".
_SPACES = Cuts(((_SOLID, b" "),))

# BERT drops white space and splits off each ASCII punctuation character, so "it's a_b" is cut into "it", "'", "s", " a", "_" and "b".
_BERT = Cuts(((_SOLID, _WHITE + _PUNCT), (_PUNCT, _ALNUM)), strict=False)

# Pattern \w+|[^\w\s]+ with the underscore as part of \w: "it's a_b" is cut into the words "it", "'", "s" and " a_b".
_WORDS = Cuts(((_SOLID, _WHITE), (_ALNUM, _without(b"_", _PUNCT)), (_without(b"_", _PUNCT), _ALNUM)), strict=False)

# The pattern of GPT-2 has no match that continues from a visible character to white space.
# The pattern splits between letters or digits and punctuation, except for the apostrophe in 's.
# For GPT-2, "it's 5, (a)" is cut into the words "it", "'s", " 5", ",", " (", "a" and ")".
# The pattern of GPT-2 also tests whether white space follows a match. The end of a text has the same effect as white space.
_GPT2 = Cuts(((_SOLID, _WHITE), (_ALNUM, _PUNCT), (_without(b"'", _PUNCT), _ALNUM)))
_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Patterns since GPT-4 match punctuation together with the following letters or line ends, and some match letters with an apostrophe.
# For the patterns since GPT-4, "it's 5, (a)" is cut into the words "it's", " 5", ",", " (a" and ")".
_GPT4 = Cuts(((_SOLID, b" \t"), (_ALNUM, _without(b"'", _PUNCT))))
_UPPER, _LOWER, _ENDINGS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+",  # pattern of GPT-4, Llama 3 and Qwen 2
    *(rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{end}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{end}" for end in ("", f"{_ENDINGS}?")),
)
PATTERNS = {_GPT2_PATTERN: _GPT2} | {
    rf"{letters}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{ends}|\s*[\r\n]+|\s+(?!\S)|\s+": _GPT4
    for letters, digits, ends in product(_LETTERS, (r"\p{N}{1,3}", r"\p{N}"), (r"[\r\n]*", r"[\r\n/]*"))
}

# Pre-tokenizers that only compare two neighbouring characters, so an additional cut does not change other splits.
_LOCAL = ("Digits", "Punctuation")
# Pre-tokenizers that process each split of the preceding pre-tokenizer separately.
_APART = (*_LOCAL, "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "ByteLevel", "Metaspace", "Split")
_BY_CHARACTER = ("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "BertNormalizer")

# Normalizer that merges several spaces to one. Strict cuts never lie between two spaces.
_RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_PREPEND = {"type": "Prepend", "prepend": MARK}
_MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
# Pre-tokenizer that splits at spaces. It has no effect after a normalizer that replaces all spaces by marks.
_NO_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def find_cuts(configuration: Configuration) -> Cuts | None:
    """Return the cuts of a tokenizer, or None if no cut is known to be safe."""
    normalizers, splitters, kind = configuration.normalizers, configuration.splitters, configuration.kind
    divides = kind is not None and kind.divides(configuration.model)
    return _divided(normalizers, splitters) or (_merged(normalizers, splitters) if divides else None)


def _divided(normalizers: Sequence[Part], splitters: Sequence[Part]) -> Cuts | None:
    """Return the cuts of the first pre-tokenizer that has known cuts. Later pre-tokenizers process the resulting splits separately."""
    rest = list(dropwhile(lambda part: part["type"] in _LOCAL, splitters))
    if not rest or not all(part["type"] in _APART and part.get("prepend_scheme") != "first" for part in rest[1:]):
        # No cut is safe: the scheme "first" adds a mark only to the first split of a text, but separate words would each get a mark.
        return None
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
    """Return the cuts for the normalizer of SentencePiece (T5, XLM-R, ALBERT, DeBERTa 3).

    The normalizer maps graphemes. A grapheme ends before a space, except after a few characters such as U+0600, so words must not contain
    these characters. Stripping removes the single leading space of a word, and the pre-tokenizer adds the space again as a mark.
    """
    dropped = splitter["type"] == "WhitespaceSplit"
    if not dropped and (splitter["type"] != "Metaspace" or splitter["prepend_scheme"] != "always"):
        return None
    runs = (_RUNS,) if dropped else (_RUNS, {**_RUNS, "content": MARK})
    return evolve(_SPACES, single=True) if all(part in runs or _keeps_spaces(part) for part in normalizers) else None


def _keeps_spaces(normalizer: Part) -> bool:
    """Return True if a normalizer maps the text between two spaces independently of other text, except at the ends of the text."""
    if normalizer["type"] == "Strip":
        # Without `strip_right`, white space at the end of a text would remain, and would belong to no word.
        return bool(normalizer["strip_right"])
    if normalizer["type"] == "Replace":
        text = normalizer["pattern"].get("String")
        return bool(text) and not re.search(rf"[\s{MARK}]", text + normalizer["content"])
    return normalizer["type"] in (*_BY_CHARACTER, "Precompiled", "Nmt")


def _merged(normalizers: Sequence[Part], splitters: Sequence[Part]) -> Cuts | None:
    """Return the cuts for a model without pre-tokenizer.

    The model must write spaces as marks (U+2581) and never merge text across a mark.
    """
    if normalizers in ([_MARKS], [_PREPEND, _MARKS]) and splitters in ([], [_NO_SPLIT]):
        return evolve(_SPACES, lead=_PREPEND in normalizers)
    split = [(part["type"], part.get("replacement"), part.get("split")) for part in splitters]
    return _SPACES if not normalizers and split == [("Metaspace", MARK, False)] else None
