"""Which texts of a column an engine may encode: those of cleared characters alone, without the text of an added token."""

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
_GROUPS = 6  # expressions: one whose matches all begin alike takes a seventh of the time of one that has to look at each character
_PIECE = 1 << 21  # bytes that are looked at together: memory for the results of more is not used again
_LEAD = 0xC0  # the least byte that begins a character of several bytes


@frozen(eq=False)
class Gate:
    """The characters that are cleared, bool[0x110000]; and regular expressions (RE2) for texts that do not pass for another reason.

    `begins` are the first bytes of what the expressions match: they are tried on texts that have one, alone; empty: on all texts.
    """

    cleared: NDArray[np.bool_]
    refused: tuple[str, ...]
    begins: tuple[int, ...] = ()

    def closed(self, texts: pa.Array) -> NDArray[np.intp]:
        """Return the places of the texts that do not pass, in order. There is at least one text."""
        parts = pieces(texts, _PIECE)
        firsts = ends_of(np.array([len(part) for part in parts]))
        return np.concatenate([self._closed(part) + first for part, first in zip(parts, firsts[:-1], strict=True)])

    def _closed(self, texts: pa.Array) -> NDArray[np.intp]:
        data, ends = text_bytes(texts)
        looked_at = data >= _ASCII
        for byte in self.begins:
            looked_at |= data == byte
        places = np.flatnonzero(looked_at)
        letters = data[places]
        wide = letters >= _ASCII
        held = np.zeros(len(texts), bool)
        rows = np.unique(_rows_of(ends, places[~wide])) if self.begins else np.arange(len(texts))
        if len(rows):
            some = texts if len(rows) == len(texts) else texts.take(number_array(rows))
            for pattern in self.refused:
                held[rows] |= matches(some, pattern)
        # What is ASCII needs no decoding: few letters are left, as a rule.
        bad = ~self.cleared[np.frombuffer(letters[wide].tobytes().decode().encode("utf-32-le"), np.uint32)]
        if bad.any():
            held[_rows_of(ends, places[letters >= _LEAD][bad])] = True
        return np.flatnonzero(held)


def _rows_of(ends: NDArray[np.int64], places: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the rows of the bytes at these places."""
    return np.searchsorted(ends, places, side="right") - 1


def make_gate(cleared: NDArray[np.bool_], added: Sequence[Part]) -> Gate:
    """Return the gate for cleared characters and the added tokens of a tokenizer."""
    texts = sorted({*(token["content"] for token in added), *map(chr, np.flatnonzero(~cleared[:_ASCII]).tolist())})
    groups = ["|".join(map(re.escape, group)) for _, group in groupby(texts, key=itemgetter(0))]
    if len(groups) > _GROUPS:
        return Gate(cleared, ("|".join(groups),))
    return Gate(cleared, tuple(groups), tuple(sorted({text.encode()[0] for text in texts})))


def searches_normalized_text(added: Sequence[Part], normalizers: Sequence[Part]) -> bool:
    """Whether an added token is searched in normalized text, where a gate cannot see it."""
    return bool(normalizers) and any(token["normalized"] for token in added)
