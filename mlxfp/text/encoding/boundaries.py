"""Where a tokenizer lets text be cut, so that the ids of a text are the ids of its words, end to end.

A *word* is what lies between two cuts. A cut is seen by two neighbouring bytes, and always lies in front of an ASCII character. A
tokenizer with a part that is not known here is never cut. That encoding `left + right` is encoding `left`, then `right`, takes three
steps, as encoding does:

1. Added tokens are searched. Of one that a cut may divide, or that looks at what stands around it, some part is always found inside a
   word: rows with such words are encoded whole (`rules`).
2. Text is normalized. The normalizers here map characters one by one, or compose them, and nothing composes with an ASCII character that
   comes second (Unicode Standard Annex 15). So `normal(left + right) == normal(left) + normal(right)`.
3. The pre-tokenizer splits in front of `right`, whatever stands around it, and splits `left` as if the text ended there. Some do so only
   where `left` does not end in white space; they are `strict`, and rows with words that do, once normalized, are encoded whole.

Models see the splits one by one, so they need no proof, but for those that have no pre-tokenizer (`_merged`).
"""

import re
import string
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import dropwhile, product
from typing import Any

import numpy as np
from attrs import evolve, frozen

Part = Mapping[str, Any]  # of a tokenizer's JSON

MARK = "\u2581"  # a space, to SentencePiece

_SOLID = bytes(range(33, 256))  # neither white space nor control characters of ASCII; all bytes of other characters
_WHITE = b" \t\n\r"
_ALNUM = (string.ascii_letters + string.digits).encode()
_PUNCT = string.punctuation.encode()


def _without(some: bytes, characters: bytes) -> bytes:
    return bytes(byte for byte in characters if byte not in some)


@frozen
class Cuts:
    """Between which bytes words are cut: at most four pairs of (one of these, one of those).

    With `strict`, words must not end in white space. With `single`, they must also begin with one space once normalized, and the
    normalizer may strip it. With `lead`, the tokenizer puts a space in front of a text itself.
    """

    pairs: tuple[tuple[bytes, bytes], ...]
    strict: bool = True
    single: bool = False
    lead: bool = False

    @cached_property
    def between(self) -> re.Pattern[bytes]:
        """Match where a cut is."""
        sets = [[b"".join(b"\\x%02x" % byte for byte in some) for some in pair] for pair in self.pairs]
        return re.compile(b"|".join(b"(?=[%s])(?<=[%s])" % (after, before) for before, after in sets))

    @cached_property
    def table(self) -> bytes:
        """Give each byte four bits for the pairs that it may begin, and above them four for those that it may end."""
        bits = np.zeros(256, np.uint8)
        for number, (before, after) in enumerate(self.pairs):
            bits[list(before)] |= 1 << number
            bits[list(after)] |= 16 << number
        return bits.tobytes()


_BLANKS = Cuts(((_SOLID, _WHITE),), strict=False)  # white space is dropped
_SPACES = Cuts(((_SOLID, b" "),))  # a space begins a split, and no other character does without a mark in front of it

# White space is dropped, and each character of ASCII punctuation stands apart.
_BERT = Cuts(((_SOLID, _WHITE + _PUNCT), (_PUNCT, _ALNUM)), strict=False)

# \w+|[^\w\s]+ where the underscore belongs to \w.
_WORDS = Cuts(((_SOLID, _WHITE), (_ALNUM, _without(b"_", _PUNCT)), (_without(b"_", _PUNCT), _ALNUM)), strict=False)

# Behind what is not white space, no match goes on with white space. Letters and digits end in front of punctuation, and punctuation in
# front of them, but for the apostrophe in 's. The match that ends at a cut looks at one character more: whether it is white space,
# which is as good as the end of the text.
_GPT2 = Cuts(((_SOLID, _WHITE), (_ALNUM, _PUNCT), (_without(b"'", _PUNCT), _ALNUM)))
_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# Later ones: punctuation may go on with letters and with line ends, and in some, letters with an apostrophe.
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

_LOCAL = ("Digits", "Punctuation")  # whether they split between two characters is said by these two, so a cut more changes nothing
_APART = (*_LOCAL, "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "ByteLevel", "Metaspace", "Split")  # see each split by itself
_BY_CHARACTER = ("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "BertNormalizer")

_RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}  # a run of spaces is not divided, where cuts are strict
_PREPEND = {"type": "Prepend", "prepend": MARK}
_MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
_NO_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}  # of spaces that are gone


def find_cuts(data: Part) -> Cuts | None:
    """Return where texts of a tokenizer, given by its JSON, may be cut, or None where nothing is known."""
    normalizers = flat(data["normalizer"], "normalizers")
    splitters = flat(data["pre_tokenizer"], "pretokenizers")
    return _divided(normalizers, splitters) or _merged(normalizers, splitters, data["model"])


def flat(part: Part | None, parts: str) -> list[Part]:
    """Write sequences of sequences out."""
    if part is None:
        return []
    return [inner for one in part[parts] for inner in flat(one, parts)] if part["type"] == "Sequence" else [part]


def _divided(normalizers: Sequence[Part], splitters: Sequence[Part]) -> Cuts | None:
    """Return the cuts of the first pre-tokenizer that has any; those after it see its splits one by one."""
    rest = list(dropwhile(lambda part: part["type"] in _LOCAL, splitters))
    if not rest or not all(part["type"] in _APART and part.get("prepend_scheme") != "first" for part in rest[1:]):
        return None  # a mark in front of the first split of a text, not in front of each word's
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

    It maps graphemes, and there is a boundary of those in front of a space unless a few characters stand before it, which words must not
    have. Words lose nothing that texts keep by stripping: only their one space, which comes back as a mark.
    """
    dropped = splitter["type"] == "WhitespaceSplit"
    if not dropped and (splitter["type"] != "Metaspace" or splitter["prepend_scheme"] != "always"):
        return None
    runs = (_RUNS,) if dropped else (_RUNS, {**_RUNS, "content": MARK})
    return evolve(_SPACES, single=True) if all(part in runs or _keeps_spaces(part) for part in normalizers) else None


def _keeps_spaces(normalizer: Part) -> bool:
    """Whether a normalizer maps what stands between spaces by itself, but for the ends of a text."""
    if normalizer["type"] == "Strip":
        return bool(normalizer["strip_right"])  # else white space would stay at the end of a text, and not alone
    if normalizer["type"] == "Replace":
        text = normalizer["pattern"].get("String")
        return bool(text) and not re.search(rf"[\s{MARK}]", text + normalizer["content"])
    return normalizer["type"] in (*_BY_CHARACTER, "Precompiled", "Nmt")


def keeps_ascii(normalizer: Part) -> bool:
    """Whether a normalizer leaves text that ends in ASCII that can be seen with such an end."""
    return normalizer["type"] in _BY_CHARACTER or normalizer in (_RUNS, _PREPEND, _MARKS)


def _merged(normalizers: Sequence[Part], splitters: Sequence[Part], model: Part) -> Cuts | None:
    """Return the cuts of BPE that sees whole texts, their spaces written as marks (Llama 2, Mistral, Gemma).

    Where no token has a mark behind another character, no merge leads over a cut, so those on its two sides do not know of each other.
    Unknown characters are not joined over it either, as the mark is known.
    """
    unusual = ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")  # the last looks for whole texts in the vocabulary
    plain = model["type"] == "BPE" and not any(model[option] for option in unusual)
    if not plain or MARK not in model["vocab"] or any(re.search(f"[^{MARK}]{MARK}", token) for token in model["vocab"]):
        return None
    if normalizers in ([_MARKS], [_PREPEND, _MARKS]) and splitters in ([], [_NO_SPLIT]):
        return evolve(_SPACES, lead=_PREPEND in normalizers)
    split = [(part["type"], part.get("replacement"), part.get("split")) for part in splitters]
    return _SPACES if not normalizers and split == [("Metaspace", MARK, False)] else None
