"""Functions that access text columns as bytes."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mlxfp.core.arrow.light_arrays import numbers_of
from mlxfp.support.arrow_types import is_large


def text_offsets(texts: pa.Array) -> NDArray[Any]:
    """Return the byte offsets of the texts in the data buffer of the column, followed by the end of the last text, [N + 1]."""
    kind = np.int64 if is_large(texts.type) else np.int32
    offsets: NDArray[Any] = np.frombuffer(texts.buffers()[1], kind)[texts.offset : texts.offset + len(texts) + 1]
    return offsets


def text_bytes(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the concatenated bytes of all texts, uint8[M], and the offset of each text, int64[N + 1]. Requires at least one text."""
    ends = text_offsets(texts).astype(np.int64)
    data = texts.buffers()[2]
    whole = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return whole[ends[0] : ends[-1]], ends - ends[0]


def pieces(texts: pa.Array, size: int) -> list[pa.Array]:
    """Split a column into parts of about `size` bytes each."""
    offsets = text_offsets(texts)
    total = int(offsets[-1] - offsets[0])
    count = max(1, total // size)
    cuts = np.searchsorted(offsets, offsets[0] + np.arange(1, count) * (total / count))
    bounds = np.unique([0, *cuts, len(texts)]).tolist()
    return [texts.slice(first, end - first) for first, end in pairwise(bounds)]


def matches(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    """Return True for each text in which the regular expression (RE2) finds a match, bool[N]. An empty pattern matches nothing."""
    if not pattern:
        return np.zeros(len(texts), bool)
    return numbers_of(pc.match_substring_regex(texts, pattern))
