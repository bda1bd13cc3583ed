"""Token ids as text."""

from collections.abc import Sequence
from typing import Any, Protocol

from mlxfp.support.errors import MlxfpError

IGNORED = -100  # label value of positions excluded from the loss
_LONGEST = 512  # maximum number of decoded ids


class Decoder(Protocol):
    """Tokenizer methods required to show ids as text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the token of each id."""


def holds_tokens(name: str) -> bool:
    """Return True if the name of a column or array says that the values are token ids."""
    return name.endswith(("input_ids", "labels"))


def decoded(ids: Any, decoder: Decoder | None) -> str | None:
    """Convert a list of token ids to text, without ignored labels. Return None for other values and without a decoder.

    If an id is outside the vocabulary, return the error message as text.
    """
    if decoder is None or not isinstance(ids, list | tuple) or not all(isinstance(token, int) for token in ids):
        return None
    shown = [token for token in ids[:_LONGEST] if token != IGNORED]
    try:
        return decoder.decode(shown) + (" …" if len(ids) > _LONGEST else "")
    except MlxfpError as error:
        return str(error)
