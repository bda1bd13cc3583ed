"""Engine that uses the Rust package tokie, for WordPiece and Unigram. The input is Python strings, and the output is flat arrays.

Two parts of a column are processed at a time. Python creates the strings of one part while the threads of tokie encode another part.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import ends_of
from mlxfp.support.optional import optional
from mlxfp.text.engines.columns import pieces
from mlxfp.text.engines.protocol import EngineKind, Flat

_STARTED_IN = os.getpid()
_PIECE = 1 << 20  # maximum number of bytes of text in one call of tokie


def _build(json: str) -> "_Tokie":
    if os.getpid() != _STARTED_IN:
        raise RuntimeError("threads of tokie do not survive a fork of the process")
    with TemporaryDirectory() as folder:  # The temporary file is needed, because tokie loads tokenizers only from files.
        path = Path(folder, "tokenizer.json")
        path.write_text(json, encoding="utf-8")
        return _Tokie(optional("tokie", extra="fast", needed_by='engine="tokie"').Tokenizer.from_json(str(path)))


@frozen
class _Tokie:
    tokenizer: Any

    def encode(self, texts: pa.StringArray) -> Flat:
        cut = pieces(texts, _PIECE)
        if len(cut) == 1:
            ids, lengths = self._encode(texts)
        else:
            with ThreadPoolExecutor(2) as pool:
                ids, lengths = map(np.concatenate, zip(*pool.map(self._encode, cut), strict=True))
        return ids.view(np.int32), ends_of(lengths.astype(np.int64))

    def _encode(self, texts: pa.StringArray) -> tuple[NDArray[Any], NDArray[Any]]:
        ids, lengths = self.tokenizer.encode_batch_flat(texts.to_pylist(), add_special_tokens=False)
        return ids, lengths


TOKIE = EngineKind("tokie", _build)
