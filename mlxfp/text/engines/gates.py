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
from mlxfp.text.engines.columns import found, text_bytes
from mlxfp.text.tokenizers.configuration import Part

_ASCII = 128
_GROUPS = 6  # expressions: one whose matches all begin alike takes a seventh of the time of one that has to look at each character
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
        data, ends = text_bytes(texts)
        held = np.zeros(len(texts), bool)
        rows = self._rows_to_search(data, ends)
        if len(rows):
            some = texts if len(rows) == len(texts) else texts.take(number_array(rows))
            for pattern in self.refused:
                held[rows] |= found(some, pattern)
        wide = np.flatnonzero(data >= _ASCII)
        letters = data[wide]  # few, as a rule: what is ASCII needs no decoding
        bad = ~self.cleared[np.frombuffer(letters.tobytes().decode().encode("utf-32-le"), np.uint32)]
        if bad.any():
            begins = wide[letters >= _LEAD]
            held[np.searchsorted(ends, begins[bad], side="right") - 1] = True
        return np.flatnonzero(held)

    def _rows_to_search(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.intp]:
        if not self.begins:
            return np.arange(len(ends) - 1)
        masks = (data == byte for byte in self.begins)
        places = [np.flatnonzero(mask) for mask in masks if mask.any()]  # to see that there is none takes a third of listing none
        return np.unique(np.searchsorted(ends, np.concatenate(places), side="right") - 1) if places else np.empty(0, np.intp)


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
