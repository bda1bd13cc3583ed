"""Tokenizers of all kinds and of random parts, and texts that hurt those who cut text: for the laws of encoding by words."""

import base64
import json as jsons
import struct
from functools import lru_cache
from typing import Any

import tokenizers as hf
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers, trainers

from mlxfp.text.encoding.boundaries import PATTERNS
from mlxfp.text.tokenizers.configuration import MARK
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from tests.text.corpora import SENTENCES, trained

Part = dict[str, Any]

_BEHAVIORS = st.sampled_from(["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"])


def charsmap(rules: dict[str, str]) -> str:
    """Write the rules of a SentencePiece normalizer as it does: a double array over UTF-8, and the texts that its leaves point to."""
    texts, units, nodes = bytearray(), [0], {b"": 0}
    places: dict[bytes, int] = {}
    for key, text in rules.items():
        places[key.encode()] = len(texts)
        texts += text.encode() + b"\0"
        for end in range(1, len(key.encode()) + 1):
            nodes.setdefault(key.encode()[:end], len(nodes))
    units = [0] * (256 * (len(nodes) + 1))  # node n has its children in block n + 1
    units[0] = 256 << 10
    for key, number in nodes.items():
        if key:
            place = 256 * (nodes[key[:-1]] + 1) + key[-1]
            units[place] = key[-1] | (key in places) << 8 | (place ^ 256 * (number + 1)) << 10
        if key in places:
            units[256 * (number + 1)] = places[key]
    trie = struct.pack(f"<{len(units)}I", *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + bytes(texts)).decode()


CHARSMAP = charsmap(
    {"\u3000": " ", "\u200b": " ", "ﬁ": "fi", "½": "1/2", "\x85": "", "\u0600": "x", "\uff21": "A", "é": "e\u0301", "\t": " "}
)


@lru_cache
def marked(*, fused: bool, by_bytes: bool) -> Part:
    """Train BPE as Llama 2 has it: on whole texts, spaces written as marks."""
    built = hf.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fused, byte_fallback=by_bytes))
    built.normalizer = normalizers.Sequence([normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    built.pre_tokenizer = pre_tokenizers.Split(MARK, "merged_with_next")
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special, show_progress=False)
    built.train_from_iterator(SENTENCES * 3, trainer)
    data: Part = jsons.loads(built.to_str())
    kept = [token for token in data["added_tokens"] if token["id"] < 3]
    return {**data, "pre_tokenizer": None, "added_tokens": kept}


@lru_cache
def listed() -> Part:
    """List words, so that each split is one id: nothing shows better where a text was split."""
    words = [word for sentence in SENTENCES for word in sentence.replace(".", " .").split()]
    vocab = dict.fromkeys(["[UNK]", *words, *words, *".,!?'_-[]()", "'s", "a", "b", "in", " in", "Ġin", "▁in"])
    model = {"type": "WordLevel", "vocab": {word: number for number, word in enumerate(vocab)}, "unk_token": "[UNK]"}
    return {"version": "1.0", "model": model, "added_tokens": [], "normalizer": None, "pre_tokenizer": None}


def with_parts(base: Part, **parts: Any) -> Tokenizer:
    """Give a tokenizer other parts."""
    return Tokenizer(jsons.dumps({**base, "post_processor": None, **parts}))


def splitter(name: str, **options: Any) -> Part:
    """Write a pre-tokenizer as JSON has it, with usual options unless others are given."""
    usual: dict[str, Part] = {
        "ByteLevel": {"add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "Metaspace": {"replacement": MARK, "prepend_scheme": "always", "split": True},
        "Digits": {"individual_digits": False},
        "Punctuation": {"behavior": "Isolated"},
        "Split": {"behavior": "Isolated", "invert": False},
    }
    return {"type": name, **usual.get(name, {}), **options}


def replaced(pattern: Part, content: str) -> Part:
    """Write a normalizer that replaces text."""
    return {"type": "Replace", "pattern": pattern, "content": content}


PREPEND = {"type": "Prepend", "prepend": MARK}
MARKS = replaced({"String": " "}, MARK)
RUNS, MARKED_RUNS = replaced({"Regex": " {2,}"}, " "), replaced({"Regex": " {2,}"}, MARK)
PRECOMPILED = {"type": "Precompiled", "precompiled_charsmap": CHARSMAP}
STRIPS = [{"type": "Strip", "strip_left": left, "strip_right": right} for left, right in ((True, True), (False, True), (True, False))]


def sequence(parts: list[Part], key: str) -> Part | None:
    """Write one part as itself, and more as a sequence."""
    return None if not parts else parts[0] if len(parts) == 1 else {"type": "Sequence", key: parts}


def known() -> dict[str, Tokenizer]:
    """Make one tokenizer of each kind that people use."""
    digits, patterns = splitter("Digits", individual_digits=True), list(PATTERNS)
    bpe = jsons.loads(trained("bpe").json)
    unigram = jsons.loads(trained("unigram").json)
    llama = marked(fused=True, by_bytes=True)
    plain_bytes = splitter("ByteLevel", use_regex=False)
    spaces = splitter("Metaspace")
    t5 = sequence([PRECOMPILED, STRIPS[1], MARKED_RUNS], "normalizers")
    deberta = sequence([STRIPS[0], PRECOMPILED, RUNS], "normalizers")
    llama3 = sequence([splitter("Split", pattern={"Regex": patterns[1]}), plain_bytes], "pretokenizers")
    starcoder = sequence([digits, splitter("ByteLevel")], "pretokenizers")
    return {
        "bert": trained("wordpiece", lowercase=True),
        "bert-cased": trained("wordpiece"),
        "gpt2": trained("bpe"),
        "roberta": with_parts(bpe, pre_tokenizer=splitter("ByteLevel", add_prefix_space=True)),
        "llama3": with_parts(bpe, pre_tokenizer=llama3),
        "starcoder": with_parts(bpe, pre_tokenizer=starcoder),
        "unigram": trained("unigram"),
        "t5": with_parts(unigram, normalizer=t5, pre_tokenizer=spaces),
        "deberta3": with_parts(unigram, normalizer=deberta, pre_tokenizer=sequence([spaces], "pretokenizers")),
        "xlmr": with_parts(unigram, normalizer=PRECOMPILED, pre_tokenizer=sequence([splitter("WhitespaceSplit"), spaces], "pretokenizers")),
        "llama2": with_parts(llama),
        "mistral": with_parts(llama, normalizer=None, pre_tokenizer=splitter("Metaspace", prepend_scheme="first", split=False)),
        "gemma": with_parts(
            llama, normalizer=MARKS, pre_tokenizer=splitter("Split", pattern={"String": " "}, behavior="MergedWithPrevious")
        ),
        "words": with_parts(listed(), pre_tokenizer=splitter("Whitespace")),
        "listed-gpt2": with_parts(listed(), pre_tokenizer=splitter("Split", pattern={"Regex": patterns[0]})),
        "listed-gpt4": with_parts(
            listed(), pre_tokenizer=splitter("Split", pattern={"Regex": patterns[-1]}, behavior="Removed", invert=True)
        ),
    }


_BERT = st.fixed_dictionaries(
    {
        "type": st.just("BertNormalizer"),
        "clean_text": st.booleans(),
        "handle_chinese_chars": st.booleans(),
        "strip_accents": st.sampled_from([None, True, False]),
        "lowercase": st.booleans(),
    }
)
_SIMPLE = st.sampled_from(["Lowercase", "NFC", "NFD", "NFKC", "NFKD", "StripAccents"]).map(lambda name: {"type": name})
_QUOTES = st.builds(
    replaced, st.sampled_from(["''", "a", "ab", ".", "\u0301"]).map(lambda text: {"String": text}), st.sampled_from(["", '"', "é", " "])
)
_OTHER = st.sampled_from([RUNS, MARKED_RUNS, PRECOMPILED, PREPEND, MARKS, {"type": "Nmt"}, *STRIPS]) | _QUOTES
_NORMALIZERS = st.lists(_SIMPLE | _BERT, max_size=2) | st.lists(_SIMPLE | _BERT | _OTHER, max_size=3)

_BLANKS = st.builds(
    lambda pattern, behavior, invert: splitter("Split", pattern=pattern, behavior=behavior, invert=invert),
    st.sampled_from([{"String": " "}, {"Regex": r"\s+"}, {"Regex": "[aeiou]"}])
    | st.sampled_from(list(PATTERNS)).map(lambda text: {"Regex": text}),
    _BEHAVIORS,
    st.booleans(),
)
_PATTERN = st.sampled_from(list(PATTERNS)).map(lambda text: splitter("Split", pattern={"Regex": text}))
_METASPACE = st.builds(
    lambda mark, scheme, split: splitter("Metaspace", replacement=mark, prepend_scheme=scheme, split=split),
    st.sampled_from([MARK, MARK, "_"]),
    st.sampled_from(["always", "always", "first", "never"]),
    st.sampled_from([True, True, True, False]),
)
_SPLITTER = (
    st.sampled_from(["BertPreTokenizer", "Whitespace", "WhitespaceSplit", "UnicodeScripts"]).map(splitter)
    | st.builds(lambda prefix, regex: splitter("ByteLevel", add_prefix_space=prefix, use_regex=regex), st.booleans(), st.booleans())
    | _METASPACE
    | _PATTERN
    | _BLANKS
    | st.booleans().map(lambda apart: splitter("Digits", individual_digits=apart))
    | _BEHAVIORS.map(lambda behavior: splitter("Punctuation", behavior=behavior))
)

_CONTENTS = (
    "[MASK]",
    "<mask>",
    "<|end|>",
    "year",
    "a",
    "old in",
    "x.y",
    "  ",
    " ",
    "\n\n",
    "é",
    "don't",
    "_b",
    "b_",
    "[X",
    "y]",
    "in.",
    "▁a",
    "漢",
)
_CONTENTS += ("e\u0301", "\u0301a", " q", "b c", "-", "7.2", "ﬁ", ". A")


@st.composite
def tokenizers(draw: st.DrawFn) -> Tokenizer:
    """Draw a tokenizer of random parts; few are of use, and all should be encoded alike."""
    bases = [*(jsons.loads(trained(kind).json) for kind in ("bpe", "wordpiece", "unigram")), listed(), listed()]
    base = draw(
        st.sampled_from([*bases, *(marked(fused=fused, by_bytes=by_bytes) for fused in (True, False) for by_bytes in (True, False))])
    )
    if "<s>" in base["model"]["vocab"] and draw(st.booleans()):
        parts = {"normalizer": base["normalizer"], "pre_tokenizer": None}
    else:
        parts = {
            "normalizer": sequence(draw(_NORMALIZERS), "normalizers"),
            "pre_tokenizer": sequence(draw(st.lists(_SPLITTER, min_size=1, max_size=3)), "pretokenizers"),
        }
    return with_parts(base, **parts, added_tokens=[*base["added_tokens"], *draw(_added_tokens(base))])


@st.composite
def _added_tokens(draw: st.DrawFn, base: Part) -> list[Part]:
    vocab = base["model"]["vocab"]
    numbers = vocab if isinstance(vocab, dict) else {piece: number for number, (piece, _) in enumerate(vocab)}
    free = max([*numbers.values(), *(token["id"] for token in base["added_tokens"])]) + 1
    contents = draw(st.lists(st.sampled_from(_CONTENTS), max_size=3, unique=True))
    there = {token["content"] for token in base["added_tokens"]}
    switches = st.tuples(*[st.booleans()] * 5)
    return [
        {"id": numbers.get(text, free + place), "content": text}
        | dict(zip(("single_word", "lstrip", "rstrip", "normalized", "special"), draw(switches), strict=True))
        for place, text in enumerate(contents)
        if text not in there
    ]


_WHITE = (*"\n\t\u00a0\u3000\u200b\u2009\x85\x0b\x0c\x1c\0\x7f\ufeff\u2028", "  ", "\r\n")
_MARKS = (*"\u0301\u0308\u00a8\u00b4\u00ad\u200d\u180e\u0600\u0d4e\u202e\u0e33▁Ġ🏽ﷺ…", "▁▁", "##")
_LETTERS = (*"각한éÉ\uff21\uff0e\uff3b\u017fςİß½①²٣漢ﬁक", "e\u0301", "שלום", "\U0001f468\u200d\U0001f469", "x" * 120)
_ASCII = (*"_-[]<>|(#\"'.,3ab", *".,'" * 2, "year", "old", "in", "don", "'s", "'S", "'ll", "12", "7.25")
_PIECES = st.sampled_from([*_WHITE, *_MARKS, *_LETTERS, *_ASCII, *_ASCII, *" " * 40, *_CONTENTS, "[CLS]", "[SEP]", "<s>", *SENTENCES[:3]])
HURTFUL = (
    st.lists(_PIECES | st.characters(codec="utf-8"), max_size=14).map("".join)
    | st.lists(_PIECES, max_size=8).map(" ".join)
    | st.text(alphabet=st.characters(max_codepoint=127), max_size=30)
)
