"""Texts cut into words, whole columns at a time."""

from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.types import is_large
from mlxfp.text.encoding.boundary_rules import Rule


@frozen
class Words:
    """The distinct words of a column, and where they occur.

    Word `i` of the column is `distinct[places[i]]`, and row `i` has the words from `firsts[i]` up to `firsts[i + 1]`.
    """

    distinct: pa.StringArray
    places: NDArray[np.int32]
    firsts: NDArray[np.int64]
    size: int  # bytes of all words

    def rows(self, words: NDArray[np.intp]) -> NDArray[np.int64]:
        """Return the rows that have one of these words of the column, in order."""
        return np.unique(np.searchsorted(self.firsts, words, side="right") - 1)


def cut_words(rule: Rule, texts: pa.StringArray) -> Words:
    """Cut each text into its words."""
    ends = text_offsets(texts)
    data = texts.buffers()[2][int(ends[0]) : int(ends[-1])]
    ends = ends - ends[0]
    cuts = rule.find(data.to_pybytes())
    cuts[ends[:-1][ends[:-1] < ends[1:]]] = True  # a row begins a word, unless it is empty
    starts = np.flatnonzero(cuts)
    offsets = np.append(starts, len(data)).astype(np.int32)
    encoded = pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), data).dictionary_encode()
    return Words(encoded.dictionary, encoded.indices.to_numpy(), np.searchsorted(starts, ends), len(data))


def text_offsets(texts: pa.Array) -> NDArray[Any]:
    """Return where the bytes of each text begin in the column's buffer, and where the last text ends: [N + 1]."""
    kind = np.int64 if is_large(texts.type) else np.int32
    offsets: NDArray[Any] = np.frombuffer(texts.buffers()[1], kind)[texts.offset : texts.offset + len(texts) + 1]
    return offsets
