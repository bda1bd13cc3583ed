"""Which tokens of a vocabulary continue a word, for whole-word masking."""

import json as jsons
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from mlxfp.core.checks import check_types
from mlxfp.core.errors import ArgumentError
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine

_BYTE_LEVEL_SPACES = tuple("ĠĊĉčċČ")  # how byte-level vocabularies write space, line feed, tab, carriage return, \v and \f
_METASPACE = ("▁",)


def continuations(tokenizer: Tokenizer) -> frozenset[int]:
    """Return the ids of the tokens that continue the word of the token before them, for `masked(continuations=...)`.

    In a WordPiece vocabulary these are the tokens with the prefix `##`; in byte-level and SentencePiece vocabularies the tokens that do not
    begin with a space, so punctuation belongs to the word that it touches, as in RoBERTa. Raises `ArgumentError` for a vocabulary that does
    not tell where words begin.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.text.tokenizers.training import train_tokenizer
    >>> tokenizer = train_tokenizer(from_examples([{"text": "a hat, a cat"}]), kind="wordpiece", vocab_size=20)
    >>> ids = tokenizer.encode("a hat", special=False)
    >>> [(token, number in continuations(tokenizer)) for token, number in zip(tokenizer.tokens(ids), ids)]
    [('a', False), ('h', False), ('##at', True)]
    """
    check_types(Tokenizer, tokenizer=tokenizer)
    return _continuations(tokenizer.json)


@lru_cache(maxsize=8)
def _continuations(json: str) -> frozenset[int]:
    model, added = jsons.loads(json)["model"], engine(json).get_added_tokens_decoder()
    vocabulary = {token: number for token, number in engine(json).get_vocab().items() if number not in added}
    if model.get("type") == "WordLevel":
        return frozenset()
    if model.get("continuing_subword_prefix"):
        prefix = str(model["continuing_subword_prefix"])
        return frozenset(number for token, number in vocabulary.items() if token.startswith(prefix))
    begins = _spaces(json)
    return frozenset(number for token, number in vocabulary.items() if not token.startswith(begins))


def _spaces(json: str) -> tuple[str, ...]:
    """Return the prefixes of the tokens that begin a word."""
    data = jsons.loads(json)
    kinds = set(_kinds(data.get("pre_tokenizer"))) | set(_kinds(data.get("normalizer")))
    if "ByteLevel" in kinds and not data["model"].get("end_of_word_suffix"):
        return _BYTE_LEVEL_SPACES
    if "Metaspace" in kinds or ("Replace", "▁") in kinds:
        return _METASPACE
    raise ArgumentError(
        f"The vocabulary does not tell where words begin: got a {data['model'].get('type')} model with the parts "
        f"{sorted(map(str, kinds)) or 'none'}. Give the ids of the tokens that continue a word yourself, or mask single tokens."
    )


def _kinds(part: Any) -> Iterator[Any]:
    """Yield the types of a normalizer or pre-tokenizer and of its parts, and for a replacement also the new text."""
    if isinstance(part, dict):
        yield part["type"]
        if part["type"] == "Replace":
            yield "Replace", part.get("content")
        for inner in (*part.get("pretokenizers", ()), *part.get("normalizers", ())):
            yield from _kinds(inner)
