"""A call of an engine for the texts of a column that pass its gate; the others are encoded by the caller.

One call holds all of them: an engine shares them among threads of its own, some of which have to wait at the end of each call.
"""

from collections.abc import Callable
from itertools import chain

import numpy as np
import pyarrow as pa

from mlxfp.core.arrow.light_arrays import number_array
from mlxfp.text.encoding.batch_calls import Encoded
from mlxfp.text.engines.choosing import Proved
from mlxfp.text.tokenizers.json_checks import is_panic

Plainly = Callable[[pa.Array], Encoded]  # encodes texts without an engine


def encode_with(proved: Proved, texts: pa.Array, plainly: Plainly) -> Encoded | None:
    """Encode texts with an engine and `plainly`; None if the engine can encode none of them, or fails."""
    try:
        closed = proved.gate.closed(texts)
        if len(closed) == len(texts):
            return None
        passed = texts.take(number_array(np.delete(np.arange(len(texts)), closed))) if len(closed) else texts
        ids, ends = proved.engine.encode(passed)
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):  # such as a text that is not valid: the tokenizer itself says so
            return None
        raise
    lengths = np.diff(ends)
    if not len(closed):
        return ids, lengths
    rest, counts = plainly(texts.take(number_array(closed)))
    left_out = closed - np.arange(len(closed))
    parts = np.split(ids, ends[left_out])
    joined = np.concatenate([*chain(*zip(parts, np.split(rest, counts.cumsum()[:-1]), strict=False)), parts[-1]])
    return joined, np.insert(lengths, left_out, counts)
