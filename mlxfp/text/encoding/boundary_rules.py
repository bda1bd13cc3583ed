"""How the texts of a tokenizer are cut into words, and how words are told in which a cut may have done harm."""

import json as jsons
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers as hf
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from mlxfp.text.encoding.beginnings import WORD, Begins, find_beginnings
from mlxfp.text.encoding.boundaries import MARK, Cuts, find_cuts, flat, keeps_ascii
from mlxfp.text.tokenizers.tokenizer import engine

HINTED, HELD = 1, 2  # a word whose row may have to be encoded whole; a word whose row must be

# What may be white space to a tokenizer: all that cannot be seen, as versions of Unicode differ. Written for RE2, as a set's members.
_BLANK = r"\x{0}-\x{20}\x{7f}-\x{a0}\x{1680}\x{180e}\x{2000}-\x{200f}\x{2028}-\x{202f}\x{205f}-\x{206f}\x{3000}\x{feff}\x{2581}"
_ENDS_BLANK = rf"(?:\A|[{_BLANK}])\z"

# The characters that make one grapheme with a space behind them (Unicode 16: Grapheme_Cluster_Break=Prepend).
_JOINING = (
    r"[\x{600}-\x{605}\x{6dd}\x{70f}\x{890}-\x{891}\x{8e2}\x{d4e}\x{110bd}\x{110cd}\x{111c2}-\x{111c3}\x{113d1}\x{1193f}\x{11941}"
    r"\x{11a3a}\x{11a84}-\x{11a89}\x{11d46}\x{11f02}]"
)


@frozen
class Rule:
    """Where words end, and in which of them a cut may have done harm.

    `held` and `hinted` are regular expressions (RE2) for words: those of `held`, seen once normalized, have their rows encoded whole;
    those of `hinted` if the row matches `spelled`. With `keeps`, what ends in ASCII that can be seen ends so once normalized.
    """

    cuts: Cuts
    normal: Callable[[str], str] | None  # without stripping
    keeps: bool = False
    held: str = ""
    hinted: str = ""
    spelled: str = ""
    begins: Begins | None = field(default=None, eq=False, repr=False)  # the ids that begin a word which may be `joined`

    def joined(self, words: pa.StringArray, flags: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Say which words may be encoded as one text, as the ids that begin one are known: bool[N]."""
        return np.zeros(len(words), bool) if self.begins is None else found(words, WORD) & (flags == 0)

    def bare(self, words: Sequence[str]) -> Sequence[str]:
        """Take from words the space that the tokenizer adds."""
        return [word.removeprefix(" ") for word in words] if self.cuts.lead else words

    def plain(self, words: Iterable[str]) -> bool:
        """Whether words are such that they have no flags for sure: of ASCII only, as most are. Takes a tenth of the time of looking."""
        joined = "\n".join([*words, ""])
        seen = self.keeps and not self.held and not self.cuts.single and re.fullmatch(r"(?:[ -~]*[!-~]\n)*", joined) is not None
        return seen and not (self.hinted and re.search(self.hinted, joined))

    def flags(self, words: pa.StringArray | Sequence[str]) -> NDArray[np.uint8]:
        """Return 0, `HINTED` or `HELD` for each word, uint8[N]. A few are faster as strings."""
        seen = words
        if self.normal is not None and (self.cuts.strict or self.held):
            seen = list(map(self.normal, self.bare(words.to_pylist() if isinstance(words, pa.Array) else words)))
            seen = pa.array(seen, pa.string()) if isinstance(words, pa.Array) else seen
        held, hinted = found(seen, self.held), found(words, self.hinted)
        if self.cuts.strict:  # white space alone ends its row: there is no cut behind it
            held |= self._harmed(words, seen) & ~found(words, "" if self.cuts.lead else r"\A[ \t\n\r]+\z")
        return np.where(held, np.uint8(HELD), np.where(hinted, np.uint8(HINTED), np.uint8(0)))

    def _harmed(self, words: pa.StringArray | Sequence[str], seen: pa.StringArray | Sequence[str]) -> NDArray[np.bool_]:
        harmed = found(seen, _ENDS_BLANK)
        if self.cuts.single:
            spaced = found(words, rf"\A(?:[^ ]| +[^{_BLANK}])") & (found(words, r"\A[^ ]") | found(seen, rf"\A[ \x{{2581}}][^{_BLANK}]"))
            harmed |= found(words, _ENDS_BLANK) | found(words, _JOINING) | ~spaced
        return harmed

    def find(self, text: bytes) -> NDArray[np.bool_]:
        """Say for each byte whether there is a cut in front of it, bool[N]."""
        kinds = np.frombuffer(text.translate(self.cuts.table), np.uint8)
        cuts = np.zeros(len(kinds), bool)
        np.not_equal((kinds[1:] >> 4) & kinds[:-1], 0, out=cuts[1:])
        return cuts

    def split(self, text: bytes) -> list[bytes]:
        """Cut one text into its words: what `find` does for many, in half the time for a short one."""
        return self.cuts.between.split(text) if text else []


def found(texts: pa.Array | Sequence[str], pattern: str) -> NDArray[np.bool_]:
    """Say which texts a regular expression (RE2) matches anywhere, bool[N]; an empty one matches nothing."""
    if not pattern:
        return np.zeros(len(texts), bool)
    if not isinstance(texts, pa.Array):
        return np.fromiter((match is not None for match in map(_of_python(pattern).search, texts)), bool, len(texts))
    matches: NDArray[np.bool_] = pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False)
    return matches


@lru_cache(maxsize=256)
def _of_python(pattern: str) -> re.Pattern[str]:
    """Write a regular expression of RE2 for Python: other names for characters and for the end of a text."""
    return re.compile(re.sub(r"\\(?:x\{(?P<code>\w+)\}|(?P<other>.))", _escape, pattern, flags=re.DOTALL))


def _escape(match: re.Match[str]) -> str:
    if match["code"]:
        return f"\\U{int(match['code'], 16):08x}"
    return r"\Z" if match["other"] == "z" else match[0]


@lru_cache(maxsize=32)
def find_rule(json: str) -> Rule | None:
    """Return how the texts of a tokenizer may be cut, or None where nothing is known.

    >>> model = {"type": "WordLevel", "vocab": {"one": 0, "[UNK]": 1}, "unk_token": "[UNK]"}
    >>> rule = find_rule(jsons.dumps({"model": model, "pre_tokenizer": {"type": "WhitespaceSplit"}}))
    >>> np.flatnonzero(rule.find(b"one  two,three four")).tolist()
    [3, 14]
    """
    own = engine(json)
    data = jsons.loads(own.to_str())  # older files leave out what is the default
    cuts = find_cuts(data)
    if cuts is None or own.encode("", add_special_tokens=False).ids:
        return None
    keeps = all(map(keeps_ascii, flat(data["normalizer"], "normalizers")))
    rule = Rule(cuts, _normalize(data), keeps, begins=find_beginnings(data, cuts))
    return _guarded(rule, data["added_tokens"], own.normalizer)


def _normalize(data: Mapping[str, Any]) -> Callable[[str], str] | None:
    """Return what the normalizer does to a part of a text: all but stripping its ends."""
    parts = [part for part in flat(data["normalizer"], "normalizers") if part["type"] != "Strip"]
    if not parts:
        return None
    probe = hf.Tokenizer(hf.models.BPE()).to_str()
    normalizer = {"type": "Sequence", "normalizers": parts}
    normal: Callable[[str], str] = hf.Tokenizer.from_str(
        jsons.dumps({**jsons.loads(probe), "normalizer": normalizer})
    ).normalizer.normalize_str
    return normal


def _guarded(rule: Rule, tokens: Sequence[Mapping[str, Any]], normalizer: Any) -> Rule | None:
    """Add to a rule how words are told in which an added token may be divided, or may not see what stands around it.

    A token that is searched before normalization is cut, wherever it stands, as it is cut alone, so its longest part is in one word. Of
    a token that is searched after it, the part up to a cut ends a word.
    """
    held, hinted, spelled = set(), set(), set()
    for token in tokens:
        text = token["content"]
        around = token["rstrip"] or token["single_word"] or rule.cuts.lead or rule.cuts.single
        if normalizer is None or not token["normalized"]:
            parts = _parts(text, rule.find(text.encode()))
            if around or len(parts) > 1:
                hinted.add(max(parts, key=len))
                spelled.add(text)
            continue
        text = normalizer.normalize_str(text)
        if not text or unicodedata.category(text[0])[0] == "M" or "\u1160" <= text[0] <= "\u11ff":
            return None  # found everywhere, or made one with the character in front of it
        data = text.replace(MARK, " ").encode()
        begins = np.frombuffer(data.translate(rule.cuts.table), np.uint8) & 16 > 0  # the first pair: what may stand in front may change
        ends = np.cumsum([len(part) for part in _parts(text.replace(MARK, " "), rule.find(data) | begins)])
        held |= {re.escape(text[:end]) + r"\z" for end in ends[:-1].tolist() if end} | ({re.escape(text)} if around else set())
    strict = rule.cuts.strict or any(token["lstrip"] for token in tokens)  # one of these takes the white space that ends the word before it
    return evolve(rule, cuts=evolve(rule.cuts, strict=strict), held="|".join(sorted(held)), hinted=_any(hinted), spelled=_any(spelled))


def _any(texts: Iterable[str]) -> str:
    return "|".join(map(re.escape, sorted(texts)))


def _parts(text: str, cuts: NDArray[np.bool_]) -> list[str]:
    data, places = text.encode(), [0, *np.flatnonzero(cuts).tolist(), len(text.encode())]
    return [data[first:end].decode() for first, end in pairwise(places)]
