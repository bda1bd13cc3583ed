"""Texts that hurt, and tokenizers trained on a few sentences: shared by the tests of the text room."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import attrs
from hypothesis import strategies as st
from tokenizers import processors

import mlxfp as fp
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine
from mlxfp.text.tokenizers.training import Kind, train_tokenizer

SENTENCES = (
    "A 22 year old male travelling in class 3 paid 7.25.",
    "A 38 year old female travelling in class 1 paid 71.28!",
    "The café isn't naïve; it's déjà-vu, they've said (twice).",
    "漢字 and 仮名 and emoji \U0001f468\u200d\U0001f469\u200d\U0001f467 stand in the text, ﬁne.",
    "def f(x):\n    return x ** 2  # squares, squared, squaring",
    "unknown unknown words unfold unfoldingly",
)

# Accents as marks of their own, joiners, right-to-left, zero width, control, wide spaces, long words, special tokens in the text.
_SPACES = ("", " ", "  ", "\n", "\t a", " a ", "\u00a0", "\u3000", "\u200b", "\u200d", "\ufeff", "\0", "\x7f", "\u2028", "\r\n")
_LETTERS = (
    "e\u0301",
    "a\u0308\u0304",
    "\U0001f468\u200d\U0001f469",
    "\u202eabc",
    "שלום",
    "مرحبا",
    "ﬁ",
    "İ",
    "ß",
    "½",
    "漢字",
    "\U0010ffff",
)
_MARKS = (
    "[CLS]",
    "[SEP]x",
    " [MASK] ",
    "[PAD][PAD]",
    "[cls]",
    "<|endoftext|>",
    "<mask>",
    "##ing",
    "##",
    "▁",
    "Ġ",
    "'s",
    "won't",
    "x" * 120,
)
_ODD = st.sampled_from([*_SPACES, *_LETTERS, *_MARKS, "\ufffd", "\U0010ffff", "won't"])
TEXTS = st.lists(st.sampled_from([*SENTENCES, "year", "old", " in", "the "]) | _ODD | st.text(max_size=12), max_size=4).map("".join)


@lru_cache
def trained(kind: Kind, *, lowercase: bool = False) -> Tokenizer:
    """Train a tokenizer on the sentences, once."""
    rows = fp.from_table({"text": [*SENTENCES, *SENTENCES[:3]]})
    return train_tokenizer(rows, kind=kind, vocab_size=300, lowercase=lowercase)


def framed(tokenizer: Tokenizer, processor: object) -> Tokenizer:
    """Put another post-processor into a tokenizer."""
    own = type(engine(tokenizer.json)).from_str(tokenizer.json)
    own.post_processor = processor
    return attrs.evolve(tokenizer, json=own.to_str())


@lru_cache
def framings() -> tuple[Tokenizer, ...]:
    """Make tokenizers of every kind, and every kind of frame around a text."""
    words, parts = trained("wordpiece", lowercase=True), trained("bpe")
    odd = processors.TemplateProcessing(
        single="[SEP] [CLS] $A:3", pair="$B:2 [MASK]:7 $A [SEP]:1", special_tokens=[("[SEP]", 3), ("[CLS]", 2), ("[MASK]", 4)]
    )
    twice = processors.TemplateProcessing(single="$A [SEP] $A", pair="$A $B:1 $A:2", special_tokens=[("[SEP]", 3)])
    chain = processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 2)])])
    return (
        words,
        parts,
        trained("unigram"),
        framed(words, processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))),
        framed(parts, processors.RobertaProcessing(("[SEP]", 3), ("[CLS]", 2))),
        framed(parts, processors.ByteLevel()),
        framed(words, odd),
        framed(words, twice),
        framed(parts, chain),
    )


def stage_of(transform: Callable[[fp.Dataset[Any]], fp.Dataset[Any]]) -> Any:
    """See a transform as the stage that it is, to apply it to single chunks."""
    return transform
