"""A chunk of texts to ids, without special tokens: the plain way, one call for all rows."""

import json as jsons
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from mlxfp.text.columns import to_lists
from mlxfp.text.framing import find_frame
from mlxfp.text.tokenizers import Tokenizer, engine


def encode_chunk(tokenizer: Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Return list<int32>: the ids of each text itself, with nothing around it. The texts hold no nulls.

    That is `tokenizer.encode(text, special=False)`, but for a few odd frames that write a text twice. Special tokens and truncation are
    `framing`'s work, so a faster way to encode has only this law to keep.
    """
    encodings = _unframed(tokenizer).encode_batch_fast(texts.to_pylist(), add_special_tokens=False)
    rows = [encoding.ids for encoding in encodings]
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return to_lists(np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths)


def _unframed(tokenizer: Tokenizer) -> Any:
    plain = find_frame(tokenizer, pair=False, special=False).bare
    return engine(tokenizer.json if plain else _without_frame(tokenizer.json))


@lru_cache(maxsize=32)
def _without_frame(json: str) -> str:
    return jsons.dumps({**jsons.loads(json), "post_processor": None}, ensure_ascii=False)
