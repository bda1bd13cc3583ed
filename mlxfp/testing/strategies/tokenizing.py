"""Strategies of tokenizers, of every kind that can be trained, trained on random words."""

from hypothesis import strategies as st

from mlxfp.data.sources.in_memory import from_examples
from mlxfp.text.tokenizers.tokenizer import Tokenizer
from mlxfp.text.tokenizers.training import Kind, train_tokenizer

_WORDS = ("the", "cat", "Cat", "sat", "satisfied", "42", "3.14", "é", "e\u0301", "naïve", "中文", "🙂", "un-do", "it's", "a_b", "x\ty")


@st.composite
def tokenizers(draw: st.DrawFn) -> Tokenizer:
    """Make tokenizers, trained on random words: byte-level BPE, WordPiece, Unigram.

    >>> from hypothesis import find
    >>> tokenizer = find(tokenizers(), lambda tokenizer: tokenizer.vocab_size < 50)
    >>> tokenizer.decode(tokenizer.encode("cat"))
    'cat'
    """
    kind: Kind = draw(st.sampled_from(["bpe", "wordpiece", "unigram"]))
    words = draw(st.lists(st.sampled_from(_WORDS) | st.text(st.characters(codec="utf-8"), max_size=5), max_size=8))
    text, size = (
        " ".join(["cat", *words]),
        draw(st.integers(300, 400)),
    )  # room for all 256 bytes; with `cat` because spaces alone cannot be trained on
    return train_tokenizer(from_examples([{"text": text}]), kind=kind, vocab_size=size, lowercase=draw(st.booleans()))
