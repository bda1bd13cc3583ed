"""Safe positions for splitting a text into pieces: encoding the pieces separately gives the same ids as encoding the whole text.

A safe position is called a *cut*. A *word* is the text between two neighbouring cuts. For BERT's tokenizer, "It's  a cat." consists of the
words "It", "'", "s", "  a", " cat" and ".".

The two bytes around a position determine whether the position is a cut. The second byte is always an ASCII character. If the tokenizer
contains a component unknown to this module, texts have no cuts.

A tokenizer processes a text in four steps. A cut divides the text into `left` and `right`. The result of each step stays the same:

1. Search for added tokens. If a cut could divide an added token of a row, the row is encoded as a whole. For example, cuts would divide
   "[CLS]" into the words "[", "CLS" and "]". The module `boundary_rules` finds such rows. Rows with tokens that are recognized only next
   to certain characters are also encoded as a whole.
2. Normalization. Known normalizers map single characters, or combine characters ("e" and a combining accent become "é"). `right` begins
   with an ASCII character, which is never combined with the character before (Unicode Standard Annex 15).
3. Pre-tokenization. The pre-tokenizer always splits the text before `right`. For example, BERT splits before each space and each ASCII
   punctuation character. The split of `left` must not depend on `right`. GPT-2 violates this rule if `left` ends in white space: with W for
   a wide space (U+3000), "aW  b" becomes "a", "W " and " b", but "aW" alone becomes "a" and "W". The cuts of GPT-2 are therefore `strict`:
   rows with such words are encoded as a whole.
4. Model. The model encodes each piece from the pre-tokenizer separately. For models without a pre-tokenizer, `_merged` finds the cuts.
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
    """Rules for cuts, the positions at which a text may be split into words.

    - `pairs`: one to four pairs of byte sets. A position is a cut if, for at least one pair, the byte before the cut is in the first set
      and the byte after the cut is in the second set.
    - `strict`: words must not end in white space.
    - `single`: a word with leading spaces must have exactly one leading space after normalization.
    - `lead`: the tokenizer adds a space before each text.
    """

    pairs: tuple[tuple[bytes, bytes], ...]
    strict: bool = True
    single: bool = False
    lead: bool = False

    @cached_property
    def table(self) -> bytes:
        """Eight bits for each of the 256 byte values.

        Bit `i` is 1 if the byte value is in the first set of `pairs[i]`. Bit `4 + i` is 1 if the value is in the second set of `pairs[i]`.
        """
        bits = np.zeros(256, np.uint8)
        for number, (before, after) in enumerate(self.pairs):
            bits[list(before)] |= 1 << number
            bits[list(after)] |= 16 << number
        return bits.tobytes()


# Cuts for the pre-tokenizer WhitespaceSplit: before white space. For example, "a,  b" consists of the words "a," and "  b".
_BLANKS = Cuts(((_SOLID, _WHITE),), strict=False)

# Cuts for pre-tokenizers that split only at spaces. For example, "a, b" consists of the words "a," and " b".
_SPACES = Cuts(((_SOLID, b" "),))

# Cuts for BERT: before white space and around ASCII punctuation. The words of "it's a_b" are "it", "'", "s", " a", "_" and "b".
_BERT = Cuts(((_SOLID, _WHITE + _PUNCT), (_PUNCT, _ALNUM)), strict=False)

# The pre-tokenizer Whitespace drops white space and matches \w+|[^\w\s]+, where \w includes the underscore.
# For the pre-tokenizer Whitespace, "it's a_b" is cut into the words "it", "'", "s" and " a_b". Words keep their leading space.
_WORDS = Cuts(((_SOLID, _WHITE), (_ALNUM, _without(b"_", _PUNCT)), (_without(b"_", _PUNCT), _ALNUM)), strict=False)

# A word of GPT-2 never has white space after a visible character.
# Other cuts for GPT-2: between a letter or digit and punctuation, in either order, but not after an apostrophe (as in 's).
# For GPT-2, "it's 5, (a)" is cut into the words "it", "'s", " 5", ",", " (", "a" and ")".
# The test (?!\S) in the pattern of GPT-2 succeeds before white space, and also at the end of a text.
_GPT2 = Cuts(((_SOLID, _WHITE), (_ALNUM, _PUNCT), (_without(b"'", _PUNCT), _ALNUM)))
_GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

# In GPT-4 and later models, a word can contain punctuation and the following letters or line ends. In some models, "it's" is one word.
# For GPT-4 and later models, "it's 5, (a)" is cut into the words "it's", " 5", ",", " (a" and ")".
_GPT4 = Cuts(((_SOLID, b" \t"), (_ALNUM, _without(b"'", _PUNCT))))
_UPPER, _LOWER, _ENDINGS = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]", r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = (
    rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+",  # regular expression for words of letters in GPT-4, Llama 3 and Qwen 2
    *(rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{end}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{end}" for end in ("", f"{_ENDINGS}?")),
)
PATTERNS = {_GPT2_PATTERN: _GPT2} | {
    rf"{letters}|{digits}| ?[^\s\p{{L}}\p{{N}}]+{ends}|\s*[\r\n]+|\s+(?!\S)|\s+": _GPT4
    for letters, digits, ends in product(_LETTERS, (r"\p{N}{1,3}", r"\p{N}"), (r"[\r\n]*", r"[\r\n/]*"))
}

# Pre-tokenizers that look only at the two characters around a position to decide whether to split there.
_LOCAL = ("Digits", "Punctuation")
# Pre-tokenizers that process each split of the preceding pre-tokenizer separately.
_APART = (*_LOCAL, "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "ByteLevel", "Metaspace", "Split")
_BY_CHARACTER = ("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "BertNormalizer")

# Normalizer that merges several spaces to one. With this normalizer, a text must not be split between two spaces.
_RUNS = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
_PREPEND = {"type": "Prepend", "prepend": MARK}
_MARKS = {"type": "Replace", "pattern": {"String": " "}, "content": MARK}
# Pre-tokenizer that splits at spaces. It has no effect after a normalizer that replaces all spaces by marks.
_NO_SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}


def find_cuts(configuration: Configuration) -> Cuts | None:
    """Return rules for splitting texts without changing the ids of a tokenizer. Return None if no split is known to be safe."""
    normalizers, splitters = configuration.normalizers, configuration.splitters
    return _divided(normalizers, splitters) or (_merged(normalizers, splitters) if _merges_within_words(configuration.model) else None)


def _merges_within_words(model: Part) -> bool:
    """Return True if a BPE model never merges text across the start of a word. The mark U+2581 stands for the space before a word.

    No token may contain a mark after another character. The vocabulary must contain the mark, because an unknown mark could be merged with
    other unknown characters.
    """
    # With these options, BPE follows other rules. For example, `ignore_merges` turns a text that is in the vocabulary into one token.
    unusual = ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges")
    ordinary = model.get("type") == "BPE" and MARK in model["vocab"] and not any(model.get(option) for option in unusual)
    return ordinary and not any(re.search(f"[^{MARK}]{MARK}", token) for token in model["vocab"])


def _divided(normalizers: Sequence[Part], splitters: Sequence[Part]) -> Cuts | None:
    """Return the cuts (safe positions to split texts) for a list of pre-tokenizers. Return None if no safe positions are known.

    The first pre-tokenizer that looks at more than two neighbouring characters decides the cuts. All later pre-tokenizers must process each
    piece separately.
    """
    rest = list(dropwhile(lambda part: part["type"] in _LOCAL, splitters))
    if not rest or not all(part["type"] in _APART and part.get("prepend_scheme") != "first" for part in rest[1:]):
        # The scheme "first" adds a mark only at the start of a text. Encoding words separately would add a mark to each word.
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
    """Return the cuts for a tokenizer with the normalizer of SentencePiece. Return None if no safe positions are known.

    T5, XLM-R, ALBERT and DeBERTa 3 have this normalizer. Texts are cut before spaces. The normalizer replaces graphemes (characters with
    their combining marks), and a space begins a new grapheme. A few characters, such as U+0600, combine with a following space. Rows with
    these characters are encoded as a whole.

    If the normalizer removes the space at the start of a word, the pre-tokenizer adds a mark in place of the space. The ids stay the same.
    """
    dropped = splitter["type"] == "WhitespaceSplit"
    if not dropped and (splitter["type"] != "Metaspace" or splitter["prepend_scheme"] != "always"):
        return None
    runs = (_RUNS,) if dropped else (_RUNS, {**_RUNS, "content": MARK})
    return evolve(_SPACES, single=True) if all(part in runs or _keeps_spaces(part) for part in normalizers) else None


def _keeps_spaces(normalizer: Part) -> bool:
    """Return True if a normalizer changes each word independently of the other words."""
    if normalizer["type"] == "Strip":
        # Stripping only the left side is unsafe: a last word of white space would be empty, but in the whole text the white space stays.
        return bool(normalizer["strip_right"])
    if normalizer["type"] == "Replace":
        text = normalizer["pattern"].get("String")
        return bool(text) and not re.search(rf"[\s{MARK}]", text + normalizer["content"])
    return normalizer["type"] in (*_BY_CHARACTER, "Precompiled", "Nmt")


def _merged(normalizers: Sequence[Part], splitters: Sequence[Part]) -> Cuts | None:
    """Return the positions at which texts may be split (cuts) for a tokenizer without pre-tokenizer, or None.

    The tokenizer must replace spaces by the character U+2581, and its model must never merge text across this character.
    """
    if normalizers in ([_MARKS], [_PREPEND, _MARKS]) and splitters in ([], [_NO_SPLIT]):
        return evolve(_SPACES, lead=_PREPEND in normalizers)
    split = [(part["type"], part.get("replacement"), part.get("split")) for part in splitters]
    return _SPACES if not normalizers and split == [("Metaspace", MARK, False)] else None
