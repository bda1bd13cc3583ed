"""Encoding of a text column with an engine (a faster package). Texts that the engine may not encode correctly are encoded by a fallback.

All texts are encoded in one call, because the threads of an engine wait for each other at the end of each call.
"""

from collections.abc import Callable
from itertools import chain

import numpy as np
import pyarrow as pa

from mlxfp.core.arrow.light_arrays import number_array
from mlxfp.text.encoding.batch_calls import Encoded
from mlxfp.text.engines.choosing import Proved
from mlxfp.text.tokenizers.json_checks import is_panic

Fallback = Callable[[pa.Array], Encoded]  # function that encodes texts without an engine


def encode_with(proved: Proved, texts: pa.Array, fallback: Fallback) -> Encoded | None:
    """Encode suitable texts with an engine, and other texts with `fallback`. Returns None if no text is suitable or the engine fails."""
    try:
        closed = proved.gate.closed(texts)
        if len(closed) == len(texts):
            return None
        passed = texts.take(number_array(np.delete(np.arange(len(texts)), closed))) if len(closed) else texts
        ids, ends = proved.engine.encode(passed)
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):  # None selects the fallback, which reports an invalid text.
            return None
        raise
    lengths = np.diff(ends)
    if not len(closed):
        return ids, lengths
    rest, counts = fallback(texts.take(number_array(closed)))
    left_out = closed - np.arange(len(closed))
    parts = np.split(ids, ends[left_out])
    joined = np.concatenate([*chain(*zip(parts, np.split(rest, counts.cumsum()[:-1]), strict=False)), parts[-1]])
    return joined, np.insert(lengths, left_out, counts)
