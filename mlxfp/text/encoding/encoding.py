"""Encoding of a text column to ids without special tokens: by an engine, by cached words, or by the tokenizer itself.

The choice follows fixed rules without timing. After 1 MB of text, a verified engine (see `engines`) encodes the texts that pass
the gate of the engine. Otherwise a block of the column is encoded by words if at most half of the bytes are new: words missing from the
memo, and rows that a cut may change. Otherwise the tokenizer encodes the rest of the column. The first block is small to keep the extra
cost low for columns without repeated words. All three ways return the same ids.
"""

import json as jsons
import os
from functools import lru_cache
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tokenizers as hf
from attrs import define
from numpy.typing import NDArray

from mlxfp.core.arrow.light_arrays import number_array, numbers_of
from mlxfp.core.arrow.ragged import Ragged, ends_of, to_lists
from mlxfp.text.encoding.batch_calls import Caller, Encoded, find_caller, read
from mlxfp.text.encoding.boundary_rules import HINTED, WHOLE, Rule, Words, cut_words, find_rule
from mlxfp.text.encoding.engine_calls import encode_with
from mlxfp.text.encoding.framing import find_frame, gather
from mlxfp.text.encoding.memo import Entries, Flags, Memo
from mlxfp.text.engines.choosing import choose
from mlxfp.text.engines.columns import matches, text_offsets
from mlxfp.text.tokenizers.tokenizer import EngineName, Tokenizer, engine

# Tuned on 2 cores with BERT and GPT-2 over tables, WikiText, documentation and source code.
_WORTH = 1 << 20  # Bytes of text before an engine is tried: start and probe of an engine take as long as encoding 3 MB by words.
_LEAST = 4 << 10  # Bytes of a column below which Arrow and NumPy calls take as long as the tokenizer.
_FEW = 8  # Maximum number of short texts for which Python lists are faster than arrays.
_FIRST = 1 / 16  # share of the column in the first block
_LEAST_FIRST = 32 << 10  # Least bytes of the first block: two blocks of 10 KB take 1.7 times as long as a single block.
_BLOCK = 8 << 20  # Bytes of each further block. Encoding takes about five times as much memory. Smaller blocks repeat more look-ups.
_NEW = 0.5  # Share of new bytes per block: a new word costs 1.5 times as much as the same word inside a text.
_TRIED = (0, 23)  # Newest `tokenizers` version that passed the law tests. With later versions, each text is encoded whole.
_LEARNED = 1 / 64  # If the tokenizer encodes a column whole, new words up to this share of its bytes are cached for later columns.


def encode_chunk(tokenizer: Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Return the ids of each text without special tokens, list<int32>. The texts must not contain nulls.

    The ids equal `tokenizer.encode(text, special=False)`, except for rare post-processors that repeat a text. `framing` adds special tokens
    and truncates.
    """
    rows = encode_rows(tokenizer, texts)
    return to_lists(rows.values, ends_of(rows.lengths))


def encode_rows(tokenizer: Tokenizer, texts: pa.Array) -> Ragged:
    """Return the ids of `encode_chunk` as concatenated NumPy arrays."""
    ids, lengths = _join(_encoder(tokenizer.json, tokenizer.engine).encode(texts))
    return Ragged(ids, lengths.cumsum() - lengths, lengths)


def _join(blocks: list[Encoded]) -> Encoded:
    if len(blocks) == 1:
        return blocks[0]
    ids, lengths = zip(*blocks, strict=True)
    return np.concatenate(ids), np.concatenate(lengths)


def encode_spans(tokenizer: Tokenizer, texts: pa.Array) -> tuple[Ragged, Ragged, Ragged]:
    """Return the ids of `encode_rows` with the start and end character offset of each token.

    Uses the slower call of the `tokenizers` package that computes offsets. The word cache contains no offsets.
    """
    encodings = _encoder(tokenizer.json, tokenizer.engine).caller.call(texts.to_pylist(), offsets=True)
    ids, lengths = read(encodings)
    offsets = np.fromiter(chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings)), np.int32, 2 * len(ids))
    first = lengths.cumsum() - lengths
    starts, ends = np.ascontiguousarray(offsets.reshape(-1, 2).T)
    return Ragged(ids, first, lengths), Ragged(starts, first, lengths), Ragged(ends, first, lengths)


def cut_spans(tokenizer: Tokenizer, texts: pa.Array, kept: NDArray[np.int64], spans: tuple[Ragged, Ragged]) -> tuple[Ragged, Ragged]:
    """Return the start and end offsets of the last `kept` tokens of each text.

    Some tokenizers exclude spaces from tokens, except before the first token of a text. Truncation changes the first token, so the offsets
    of the new first token are computed again.
    """
    starts, ends = (Ragged(span.values.copy(), span.starts + span.lengths - kept, kept) for span in spans)
    tokenizer_engine = engine(_encoder(tokenizer.json, tokenizer.engine).json)
    if '"trim_offsets":true' not in tokenizer_engine.to_str():
        return starts, ends
    bare = engine(jsons.dumps({**jsons.loads(tokenizer.json), "post_processor": None}, ensure_ascii=False))
    for row in np.flatnonzero((kept > 0) & (kept < spans[0].lengths)).tolist():
        encoding = bare.encode(texts[row].as_py(), add_special_tokens=False)
        encoding.truncate(int(kept[row]), direction="left")
        first = starts.starts[row]
        starts.values[first], ends.values[first] = tokenizer_engine.post_process(encoding, None, add_special_tokens=False).offsets[0]
    return starts, ends


def encode_few(tokenizer: Tokenizer, texts: pa.Array) -> list[list[int]] | None:
    """Return the ids of each text as a list. Return None if arrays are faster, for many or long texts."""
    if len(texts) > _FEW:
        return None
    spelled = texts.to_pylist()
    return (
        [encoding.ids for encoding in _encoder(tokenizer.json, tokenizer.engine).caller.call(spelled)]
        if sum(map(len, spelled)) < _LEAST
        else None
    )


def describe_engine(tokenizer: Tokenizer) -> str:
    """Describe the engine that encodes long columns and the reasons against other engines. All installed engines are probed."""
    encoder = _encoder(tokenizer.json, tokenizer.engine)
    return str(choose(encoder.json, encoder.wanted))


def forget_words() -> None:
    """Clear the word caches of all tokenizers."""
    _encoder.cache_clear()


@lru_cache(maxsize=8)
def _encoder(json: str, wanted: EngineName) -> "_Encoder":
    if not find_frame(json, pair=False, special=False).bare:
        json = jsons.dumps({**jsons.loads(json), "post_processor": None}, ensure_ascii=False)
    if tuple(map(int, hf.__version__.split(".")[:2])) > _TRIED:
        return _Encoder(json, "tokenizers", Caller(engine(json), separator=None, apart=False), None)
    caller, rule = find_caller(engine(json)), find_rule(json)
    return _Encoder(json, wanted, caller, None if rule is None else Memo(caller, rule))


os.register_at_fork(after_in_child=forget_words)  # another thread may have held a lock during the fork


@define
class _Encoder:
    """Tokenizer with its word cache."""

    json: str
    wanted: EngineName
    caller: Caller
    memo: Memo | None
    met: int = 0  # bytes of text encoded by this object

    def encode(self, texts: pa.Array) -> list[Encoded]:
        """Encode texts in blocks of neighbouring rows."""
        offsets = text_offsets(texts) if len(texts) else np.zeros(1, np.int64)
        size = int(offsets[-1] - offsets[0])
        if size < _LEAST:
            return [self.caller.encode(texts.to_pylist())]
        self.met += size
        worth = self.wanted != "tokenizers" and (self.met >= _WORTH or self.wanted != "auto")
        proved = choose(self.json, self.wanted).proved if worth else None
        encoded = None if proved is None else encode_with(proved, texts, lambda remaining: _join(self._encode_plainly(remaining)))
        return self._encode_plainly(texts) if encoded is None else [encoded]

    def _encode_plainly(self, texts: pa.Array) -> list[Encoded]:
        """Encode texts without an engine: by cached words or with the tokenizer."""
        if self.memo is None:
            return [self.caller.encode(texts.to_pylist())]
        offsets = text_offsets(texts)
        size = int(offsets[-1] - offsets[0])
        blocks, first, room = list[Encoded](), 0, max(_LEAST_FIRST, size * _FIRST)
        while first < len(texts):
            end = max(first + 1, int(np.searchsorted(offsets, offsets[first] + room, side="right")) - 1)
            encoded = encode_by_words(self.memo, texts.slice(first, end - first), learned=_LEARNED * size)
            if encoded is None:
                encoded, end = self.caller.encode(texts.slice(first).to_pylist()), len(texts)
            blocks.append(encoded)
            first, room = end, _BLOCK
        return blocks


def encode_by_words(memo: Memo, texts: pa.Array, *, most_new: float = _NEW, learned: float = 0) -> Encoded | None:
    """Encode a block of texts by words. Return None if new words and whole rows exceed the share `most_new` of the bytes.

    If the result is None, at most `learned` bytes of new words are cached.
    """
    texts = texts.cast(pa.string())
    sizes = np.diff(text_offsets(texts))
    words = cut_words(memo.rule, texts)

    def lost(flags: Flags) -> float:
        return float(sizes[_find_whole_rows(memo.rule, texts, words, flags)].sum())

    entries = memo.find(words.distinct, most_new * words.size, lost=lost, learned=learned)
    if entries is None:
        return None
    rows = _join_words(words, entries)
    whole = _find_whole_rows(memo.rule, texts, words, entries.flags)
    if len(whole):
        ids, lengths = memo.caller.encode(texts.take(number_array(whole)).to_pylist())
        rows = replace_rows(rows, whole, Ragged(ids, np.cumsum(lengths) - lengths, lengths))
    return rows.values, rows.lengths


def _join_words(words: Words, entries: Entries) -> Ragged:
    """Return the ids of each row, concatenated."""
    lengths = entries.lengths.take(words.indices)
    bounds = ends_of(lengths)[words.firsts]
    return Ragged(gather(entries.ids, entries.starts.take(words.indices), lengths), bounds[:-1], np.diff(bounds))


def _find_whole_rows(rule: Rule, texts: pa.StringArray, words: Words, flags: Flags) -> NDArray[np.int64]:
    """Return the rows in which a cut may change the ids. The tokenizer encodes these rows whole."""
    whole = numbers_of(pc.starts_with(texts, " ")) if rule.cuts.lead else np.zeros(len(texts), bool)
    if flags.any():
        flagged = flags[words.indices]
        whole[words.rows(np.flatnonzero(flagged == WHOLE))] = True
        hinted = words.rows(np.flatnonzero(flagged == HINTED))
        whole[hinted] |= matches(texts.take(number_array(hinted)), rule.spelled)
    return np.flatnonzero(whole)


def replace_rows(rows: Ragged, indices: NDArray[np.int64], others: Ragged) -> Ragged:
    """Replace some rows by `others`, and concatenate the ids of all rows."""
    starts, lengths = rows.starts.copy(), rows.lengths.copy()
    starts[indices], lengths[indices] = len(rows.values) + others.starts, others.lengths
    return Ragged(gather(np.concatenate([rows.values, others.values]), starts, lengths), lengths.cumsum() - lengths, lengths)
