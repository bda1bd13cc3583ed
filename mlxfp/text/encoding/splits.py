"""Short texts that go to a tokenizer's model as they are: a call of the whole tokenizer takes three to ten times as long for a word.

A tokenizer normalizes a text and splits it, and its model encodes each split. Of the parts that are known here, normalizers look at each
character, and pre-tokenizers at what kind of characters stand beside each other. So what they do to samples of all ways in which letters
and digits can follow each other, they do to all such words; and what they do to a single character is tried for each.
"""

import json as jsons
import re
import string
from array import array
from collections.abc import Callable, Iterator
from itertools import chain, product
from typing import Any

from attrs import frozen

from mlxfp.text.encoding.boundaries import MARK, PATTERNS, Part, flat

# Of ASCII, whole words: from those that most tokenizers leave in one split, to those that all do.
_KINDS = ("[A-Za-z0-9]+", "[A-Za-z]+", "[A-Z]?[a-z]+", "[A-Z]+", "[0-9]+")
_ALPHABETS = (string.ascii_lowercase, string.ascii_uppercase, string.digits)
_SAMPLES = (
    *string.ascii_letters,
    *string.digits,
    *_ALPHABETS,
    *("".join(letters) for count in (2, 3, 4) for letters in product("aZ5", repeat=count)),
)
_PART = re.compile(rf"[ {MARK}]?(?:[A-Za-z0-9]*|.)", re.DOTALL)  # what may be found inside such a word, normalized or not

NOTHING = re.compile("(?!)")  # matches no text

_BY_CHARACTER = ("Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents", "BertNormalizer", "Precompiled", "Nmt", "Strip")
_BY_KIND = ("Digits", "Punctuation", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "ByteLevel", "Metaspace")


@frozen
class Splits:
    """The texts that are one split of a tokenizer, and how that is written: a prefix for the space or for its lack, and small letters."""

    tokenize: Callable[[str], list[Any]]  # of the model
    whole: re.Pattern[str]
    bare: str
    spaced: str
    lower: bool

    def encode(self, text: str) -> bytes | None:
        """Return the ids of a text as bytes of int32, or None where it is not known to be one split."""
        return None if self.whole.fullmatch(text) is None else self.ids_of(text)

    def ids_of(self, text: str) -> bytes | None:
        """Return the ids of a text that matches `whole`, or None where the model cannot encode it."""
        letters = text.lower() if self.lower else text
        split = self.spaced + letters[1:] if text[0] == " " else self.bare + letters
        try:
            tokens = self.tokenize(split)
        except Exception:  # noqa: BLE001  # the package has no other; the whole tokenizer raises the same, and there it is told
            return None
        return array("i", [token.id for token in tokens]).tobytes()


def find_splits(own: Any) -> Splits:
    r"""Return which texts a tokenizer of the package hands to its model as they are: none where nothing is known.

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> own = Tokenizer(models.WordLevel({"[UNK]": 0, "cat": 1}, "[UNK]"))
    >>> own.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    >>> find_splits(own).encode(" cat"), find_splits(own).encode("a cat")
    (b'\x01\x00\x00\x00', None)
    """
    normalizers, splitters = _parts(own.normalizer, "normalizers"), _parts(own.pre_tokenizer, "pretokenizers")
    known = all(map(_keeps_words, normalizers)) and all(map(_keeps_kinds, splitters))
    if not known or any(map(_PART.fullmatch, _added(own))):
        return Splits(own.model.tokenize, NOTHING, "", "", lower=False)
    capital = _written(own, "A")
    lower = capital is not None and capital.endswith("a")
    prefixes, kinds = [], []
    for space in ("", " "):
        small = _written(own, f"{space}a")
        prefix = "" if small is None else small.removesuffix("a")
        samples = (*_SAMPLES, *string.punctuation)
        seen = {text for text in samples if _written(own, space + text) == prefix + (text.lower() if lower else text)}
        fit = [kind for kind in _KINDS if all(text in seen for text in _SAMPLES if re.fullmatch(kind, text))]
        marks = re.escape("".join(mark for mark in string.punctuation if mark in seen))
        prefixes.append(prefix)
        kinds += [space + kind for kind in (*fit, *([f"[{marks}]"] if marks else ()))]
    return Splits(own.model.tokenize, re.compile("|".join(kinds)) if kinds else NOTHING, prefixes[0], prefixes[1], lower)


def _parts(part: Any, parts: str) -> list[Part]:
    return [] if part is None else flat(jsons.loads(part.__getstate__()), parts)


def _keeps_words(normalizer: Part) -> bool:
    """Whether a normalizer looks at each character of a word of ASCII alone, and at the space in front of it."""
    if normalizer["type"] == "Replace":
        pattern = normalizer["pattern"]
        marks = (pattern, normalizer["content"]) == ({"String": " "}, MARK)
        return marks or pattern == {"Regex": " {2,}"} or re.search(rf"[^A-Za-z0-9 {MARK}]", pattern.get("String", "")) is not None
    return normalizer["type"] in _BY_CHARACTER or normalizer == {"type": "Prepend", "prepend": MARK}


def _keeps_kinds(splitter: Part) -> bool:
    """Whether a pre-tokenizer sees of letters and digits only that they are."""
    if splitter["type"] != "Split":
        return splitter["type"] in _BY_KIND
    # Of a space, a pattern of one character, words have one at most.
    return splitter["pattern"] == {"String": " "} or splitter["pattern"].get("Regex") in PATTERNS


def _added(own: Any) -> Iterator[str]:
    """Yield what the tokenizer searches in texts."""
    contents = [token.content for token in own.get_added_tokens_decoder().values()]
    yield from chain(contents, map(own.normalizer.normalize_str, contents) if own.normalizer else ())


def _written(own: Any, text: str) -> str | None:
    """Return the one split of a text, as the model sees it, or None where there are more or fewer."""
    normal = own.normalizer.normalize_str(text) if own.normalizer else text
    splits = own.pre_tokenizer.pre_tokenize_str(normal) if own.pre_tokenizer else [(normal, (0, len(normal)))]
    return str(splits[0][0]) if len(splits) == 1 else None
