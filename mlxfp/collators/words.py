"""Which tokens of a vocabulary continue a word, for whole-word masking."""

from functools import lru_cache

from mlxfp.core.checks import check_types
from mlxfp.core.errors import ArgumentError
from mlxfp.text.tokenizers.configuration import read_configuration
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine


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
    found, added = read_configuration(json), engine(json).get_added_tokens_decoder()
    kind = found.kind
    if kind is None:
        raise ArgumentError(
            f"The vocabulary does not say where words begin: got a {found.model.get('type')} model with the parts "
            f"{sorted(found.part_types) or 'none'}. Give the ids of the tokens that continue a word yourself, or mask single tokens."
        )
    vocabulary = engine(json).get_vocab().items()
    return frozenset(number for token, number in vocabulary if number not in added and kind.continues(token, found.model))
