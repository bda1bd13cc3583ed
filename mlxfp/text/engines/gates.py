"""Selection of the texts that an engine may encode. Such texts have only characters known to be encoded correctly, and no added tokens."""

import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.light_arrays import number_array
from mlxfp.core.arrow.ragged import ends_of
from mlxfp.text.engines.columns import matches, pieces, text_bytes
from mlxfp.text.tokenizers.configuration import Part

_ASCII = 128
_GROUPS = 6  # Forbidden texts with equal first characters share a pattern. Above 6 patterns, all texts share a single pattern.
_PIECE = 1 << 21  # number of bytes of text per batch; larger batches are slow, because the engine allocates new memory for each batch
_LEAD = 0xC0  # smallest first byte of a multi-byte UTF-8 character
# For its threads, tokie splits texts of 64 KB or more, at spaces if possible.
# A very long word has no space, so tokie splits inside the word. A split inside a word changes the ids.
# Texts of at least 32 KB with a word of more than 4 KB are therefore encoded with `tokenizers`.
_LONG_TEXT, _LONG_WORD = 1 << 15, 1 << 12  # bytes
_SPACE = 0x20


@frozen(eq=False)
class Gate:
    """Filter for texts that a fast encoding package (engine) is known to encode correctly. Other texts are encoded with `tokenizers`.

    - `cleared`: True for each Unicode character that may occur in a text, bool[0x110000].
    - `refused`: regular expressions (RE2). A text with a match is rejected.
    - `begins`: all bytes that a match can begin with. Only texts with such a byte are searched. Without `begins`, all texts are searched.

    A text of at least 32 KB is also rejected if a word of the text has more than 4 KB.
    """

    cleared: NDArray[np.bool_]
    refused: tuple[str, ...]
    begins: tuple[int, ...] = ()

    def closed(self, texts: pa.Array) -> NDArray[np.intp]:
        """Return the sorted indices of the texts that the filter rejects. Needs at least one text."""
        parts = pieces(texts, _PIECE)
        firsts = ends_of(np.array([len(part) for part in parts]))
        return np.concatenate([self._closed(part) + first for part, first in zip(parts, firsts[:-1], strict=True)])

    def _closed(self, texts: pa.Array) -> NDArray[np.intp]:
        data, ends = text_bytes(texts)
        relevant = data >= _ASCII
        for byte in self.begins:
            relevant |= data == byte
        positions = np.flatnonzero(relevant)
        letters = data[positions]
        wide = letters >= _ASCII
        rejected = np.zeros(len(texts), bool)
        rows = np.unique(_rows_of(ends, positions[~wide])) if self.begins else np.arange(len(texts))
        if len(rows):
            candidates = texts if len(rows) == len(texts) else texts.take(number_array(rows))
            for pattern in self.refused:
                rejected[rows] |= matches(candidates, pattern)
        # Only bytes outside ASCII are decoded, usually a small part of the text.
        bad = ~self.cleared[np.frombuffer(letters[wide].tobytes().decode().encode("utf-32-le"), np.uint32)]
        if bad.any():
            rejected[_rows_of(ends, positions[letters >= _LEAD][bad])] = True
        for row in np.flatnonzero(np.diff(ends) >= _LONG_TEXT):
            spaces = np.flatnonzero(data[ends[row] : ends[row + 1]] <= _SPACE)
            rejected[row] |= np.diff(spaces, prepend=-1, append=ends[row + 1] - ends[row]).max() > _LONG_WORD
        return np.flatnonzero(rejected)


def _rows_of(ends: NDArray[np.int64], positions: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the index of the row that contains each byte position."""
    return np.searchsorted(ends, positions, side="right") - 1


def make_gate(cleared: NDArray[np.bool_], added: Sequence[Part]) -> Gate:
    """Return a filter that rejects texts with added tokens or forbidden characters. `cleared[code]` is True for each allowed character."""
    texts = sorted({*(token["content"] for token in added), *map(chr, np.flatnonzero(~cleared[:_ASCII]).tolist())})
    groups = ["|".join(map(re.escape, group)) for _, group in groupby(texts, key=itemgetter(0))]
    if len(groups) > _GROUPS:
        return Gate(cleared, ("|".join(groups),))
    return Gate(cleared, tuple(groups), tuple(sorted({text.encode()[0] for text in texts})))
