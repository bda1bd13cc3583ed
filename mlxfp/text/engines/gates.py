"""Which texts of a column an engine may encode: those of cleared characters alone, without the text of an added token."""

import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.text.engines.columns import found, text_bytes
from mlxfp.text.tokenizers.configuration import Part

_ASCII = 128
_GROUPS = 6  # expressions: one whose matches all begin alike takes a seventh of the time of one that has to look at each character
_LEAD = 0xC0  # the least byte that begins a character of several bytes


@frozen(eq=False)
class Gate:
    """The characters that are cleared, bool[0x110000]; and regular expressions (RE2) for texts that do not pass for another reason."""

    cleared: NDArray[np.bool_]
    refused: tuple[str, ...]

    def closed(self, texts: pa.Array) -> NDArray[np.intp]:
        """Return the places of the texts that do not pass, in order. There is at least one text."""
        data, ends = text_bytes(texts)
        held = np.zeros(len(texts), bool)
        for pattern in self.refused:
            held |= found(texts, pattern)
        wide = np.flatnonzero(data >= _ASCII)
        letters = data[wide]  # few, as a rule: what is ASCII needs no decoding
        bad = ~self.cleared[np.frombuffer(letters.tobytes().decode().encode("utf-32-le"), np.uint32)]
        if bad.any():
            begins = wide[letters >= _LEAD]
            held[np.searchsorted(ends, begins[bad], side="right") - 1] = True
        return np.flatnonzero(held)


def make_gate(cleared: NDArray[np.bool_], added: Sequence[Part]) -> Gate:
    """Return the gate for cleared characters and the added tokens of a tokenizer."""
    texts = sorted({*(token["content"] for token in added), *map(chr, np.flatnonzero(~cleared[:_ASCII]).tolist())})
    groups = ["|".join(map(re.escape, group)) for _, group in groupby(texts, key=itemgetter(0))]
    return Gate(cleared, tuple(groups) if len(groups) <= _GROUPS else ("|".join(groups),))


def searches_normalized_text(added: Sequence[Part], normalizers: Sequence[Part]) -> bool:
    """Whether an added token is searched in normalized text, where a gate cannot see it."""
    return bool(normalizers) and any(token["normalized"] for token in added)
