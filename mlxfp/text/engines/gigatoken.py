"""Engine that uses the Rust package gigatoken, for byte-level BPE and SentencePiece BPE.

Texts and ids are Arrow buffers and are not copied.
"""

from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import define, field
from numpy.typing import NDArray

from mlxfp.support.optional import optional
from mlxfp.text.engines.columns import text_bytes
from mlxfp.text.engines.protocol import EngineKind, Flat

# gigatoken caches each distinct word and never frees the cache. The cache needs about 20 bytes of memory per byte of a word.
# Maximum total number of bytes of the cached words. Above this limit, the gigatoken tokenizer is created again, with an empty cache.
# The number of distinct words is estimated from a fixed sample of 4 KB per MB of text.
_KEPT = 16 << 20
_SAMPLED, _OF = 4 << 10, 1 << 20


def _build(json: str) -> "_Gigatoken":
    return _Gigatoken(json, _start(json))


def _start(json: str) -> Any:
    return optional("gigatoken", extra="fast", needed_by='engine="gigatoken"').Tokenizer.from_json(json)


@define
class _Gigatoken:
    json: str
    tokenizer: Any
    new: float = 0  # estimated bytes of distinct words in the cache of the current tokenizer
    seen: set[bytes] = field(factory=set)
    lock: Any = field(factory=Lock)

    def encode(self, texts: pa.StringArray) -> Flat:
        data, ends = text_bytes(texts)
        ids = self._current(data).encode_batch(_to_awkward(data, ends)).layout
        return np.asarray(ids.content.data).view(np.int32), np.asarray(ids.offsets.data)

    def _current(self, data: NDArray[np.uint8]) -> Any:
        size = min(_SAMPLED, len(data) * _SAMPLED // _OF + 1)
        words = [word for first in range(0, len(data), _OF) for word in data[first : first + size].tobytes().split()]
        with self.lock:
            if self.new > _KEPT:
                self.tokenizer, self.new, self.seen = _start(self.json), 0, set()
            known = len(self.seen)
            self.seen.update(words)
            self.new += len(data) * (len(self.seen) - known) / max(1, len(words))
            return self.tokenizer


def _to_awkward(data: NDArray[np.uint8], ends: NDArray[np.int64]) -> Any:
    """Wrap the text buffers as an Awkward array. gigatoken accepts only 64-bit offsets."""
    awkward = optional("awkward", extra="fast", needed_by='engine="gigatoken"')
    letters = awkward.contents.NumpyArray(data, parameters={"__array__": "char"})
    return awkward.Array(awkward.contents.ListOffsetArray(awkward.index.Index64(ends), letters, parameters={"__array__": "string"}))


GIGATOKEN = EngineKind("gigatoken", _build)
