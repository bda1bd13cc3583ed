"""Calls of an engine for the texts of a column that pass its gate; the others are encoded by the caller.

A long column goes in pieces, two at a time: while an engine encodes one, in threads of its own, the texts of the other are looked at, made
into what the engine takes, and its ids are read. With pieces of 2 MB, gigatoken takes 1.1 times as long.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.light_arrays import number_array
from mlxfp.text.encoding.batch_calls import Encoded
from mlxfp.text.engines.choosing import Proved
from mlxfp.text.engines.columns import text_offsets
from mlxfp.text.tokenizers.json_checks import is_panic

_PIECE = 4 << 20  # bytes of text
_THREADS = 2

Plainly = Callable[[pa.Array], Encoded]  # encodes texts without an engine


def encode_with(proved: Proved, texts: pa.Array, plainly: Plainly) -> list[Encoded] | None:
    """Encode neighbouring rows in blocks, with an engine and `plainly`; None if the engine can encode none of them."""
    pieces = _pieces(texts)
    encode = partial(_encode_piece, proved)
    if len(pieces) == 1:
        found = [encode(texts)]
    else:
        with ThreadPoolExecutor(_THREADS) as pool:
            found = list(pool.map(encode, pieces))
    if not any(found):
        return None
    return [plainly(piece) if part is None else part.joined(piece, plainly) for piece, part in zip(pieces, found, strict=True)]


def _pieces(texts: pa.Array) -> list[pa.Array]:
    """Cut a column into pieces of about the same number of bytes; into two from the size of one piece on."""
    offsets = text_offsets(texts)
    size = int(offsets[-1] - offsets[0])
    count = max(2, round(size / _PIECE)) if size >= _PIECE else 1
    cuts = np.searchsorted(offsets, offsets[0] + np.arange(1, count) * (size / count))
    bounds = np.unique([0, *cuts, len(texts)]).tolist()
    return [texts.slice(first, end - first) for first, end in pairwise(bounds)]


@frozen(eq=False)
class _Part:
    """The ids of the texts that passed the gate, and the places of those that did not."""

    ids: NDArray[np.int32]
    ends: NDArray[np.int64]
    closed: NDArray[np.intp]

    def joined(self, texts: pa.Array, plainly: Plainly) -> Encoded:
        """Return the ids of all texts."""
        lengths, closed = np.diff(self.ends), self.closed
        if not len(closed):
            return self.ids, lengths
        rest, counts = plainly(texts.take(number_array(closed)))
        parts = np.split(self.ids, self.ends[closed - np.arange(len(closed))])  # cut where texts were left out
        ids = np.concatenate([*chain(*zip(parts, np.split(rest, counts.cumsum()[:-1]), strict=False)), parts[-1]])
        return ids, np.insert(lengths, closed - np.arange(len(closed)), counts)


def _encode_piece(proved: Proved, texts: pa.Array) -> _Part | None:
    """Encode the texts that pass an engine's gate; None if none passes, or if the engine fails."""
    try:
        closed = proved.gate.closed(texts)
        if len(closed) == len(texts):
            return None
        passed = texts.take(number_array(np.delete(np.arange(len(texts)), closed))) if len(closed) else texts
        return _Part(*proved.engine.encode(passed), closed)
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):  # such as a text that is not valid: the tokenizer itself says so
            return None
        raise
