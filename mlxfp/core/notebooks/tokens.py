"""Token ids as text."""

from collections.abc import Sequence
from typing import Any, Protocol

from mlxfp.support.errors import MlxfpError

IGNORED = -100  # what labels hold where nothing is to be predicted
_LONGEST = 512  # ids that are decoded


class Decoder(Protocol):
    """What a tokenizer must have, so that ids are shown as text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the token of each id."""


def holds_tokens(name: str) -> bool:
    """Return whether a column, or an array of a batch, has the name of one of token ids."""
    return name.endswith(("input_ids", "labels"))


def decoded(ids: Any, decoder: Decoder | None) -> str | None:
    """Return the text of a list of ids without labels that are ignored; None where it is not known.

    An id outside of the vocabulary is said, as it is what a reader looks for.
    """
    if decoder is None or not isinstance(ids, list | tuple) or not all(isinstance(each, int) for each in ids):
        return None
    kept = [each for each in ids[:_LONGEST] if each != IGNORED]
    try:
        return decoder.decode(kept) + (" …" if len(ids) > _LONGEST else "")
    except MlxfpError as error:
        return str(error)
