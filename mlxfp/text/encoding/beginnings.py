"""Which ids begin a word: where words are encoded as one text, that tells where each ends, and no token has to be put between them.

Of words that are a space and letters, without flags, the ids of a text are those of its words, end to end (`cuts`, `rules`). Two kinds of
tokenizers have a set of ids of which each word has one in front. Whether a text has as many of them as words is counted, and where a word
is known to have one at least, or one at most, as many say that each has one.

- WordPiece: what goes on inside a split has a prefix, so each word has at least one id without it, and that one is in front.
- Byte-level: a space is written as a letter of its own, so each word has at most one id that begins with it, and that one is in front.
"""

import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.text.encoding.boundaries import Cuts, Part, flat

Begins = NDArray[np.bool_]

# Letters of Latin, Greek and Cyrillic script, for RE2. However they are normalized, some letter stays, and none becomes white space.
LETTERS = (
    r"A-Za-z\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{24f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3ce}"
    r"\x{400}-\x{481}\x{48a}-\x{52f}"
)
WORD = rf"\A [{LETTERS}]+\z"

_SPACE = "\u0120"  # to byte-level tokenizers


def find_beginnings(data: Mapping[str, Any], cuts: Cuts) -> Begins | None:
    """Return which ids begin a word of letters behind a space, bool[ids], for a tokenizer's JSON; None where nothing is known."""
    model, splitters = data["model"], flat(data["pre_tokenizer"], "pretokenizers")
    if cuts.lead or cuts.single or any(part["type"] == "Metaspace" for part in splitters):
        return None  # marks may be anything: what begins a word would be no letter
    if model["type"] == "WordPiece":
        prefix = model["continuing_subword_prefix"]
        known = prefix[:1] in string.punctuation and prefix != "" and not model["unk_token"].startswith(prefix)
        return _table(data, lambda token: not token.startswith(prefix)) if known else None
    if _is_byte_level(splitters) and not (_unknown(model) or "").startswith(_SPACE):
        return _table(data, lambda token: token.startswith(_SPACE))
    return None


def _is_byte_level(splitters: Iterable[Part]) -> bool:
    """Whether one pre-tokenizer writes bytes as letters, and no other does, nor puts spaces anywhere."""
    kinds = [part["type"] for part in splitters]
    return kinds.count("ByteLevel") == 1 and not any(part.get("add_prefix_space") for part in splitters)


def _unknown(model: Mapping[str, Any]) -> str | None:
    """Return the token that stands for what is not in the vocabulary."""
    if model["type"] == "Unigram":
        return None if model["unk_id"] is None else str(model["vocab"][model["unk_id"]][0])
    unknown: str | None = model["unk_token"]
    return unknown


def _table(data: Mapping[str, Any], begins: Callable[[str], bool]) -> Begins:
    vocab = data["model"]["vocab"]
    ids = vocab if isinstance(vocab, Mapping) else {token: number for number, (token, _) in enumerate(vocab)}
    table = np.zeros(1 + max([*ids.values(), *(token["id"] for token in data["added_tokens"])], default=0), bool)
    table[[number for token, number in ids.items() if begins(token)]] = True
    table[[token["id"] for token in data["added_tokens"]]] = data["model"]["type"] == "WordPiece"  # so that the counts are no less, no more
    return table
