"""Encoding of a text column to ids without special tokens, in one of three ways. All three ways return the same ids.

Fixed rules select the way, without measuring time:

1. If a faster package (engine) is known to encode a text correctly, the engine encodes the text. By default, engines start after 1 MB.
2. All other texts are encoded word by word, in blocks, with a cache of the ids of words.
3. If more than half of the bytes of a block are new, the tokenizer encodes this block and all remaining texts of the column as a whole. New
   bytes belong to words missing from the cache, or to rows that must not be split into words (see `boundary_rules`).

The first block is small, so that a column without repeated words loses little time.
"""

import json as jsons
import os
from collections.abc import Callable
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
from mlxfp.text.encoding.framing import find_frame, gather
from mlxfp.text.encoding.memo import Entries, Flags, Memo
from mlxfp.text.engines.choosing import Proved, choose
from mlxfp.text.engines.columns import matches, text_offsets
from mlxfp.text.tokenizers.json_checks import is_panic
from mlxfp.text.tokenizers.tokenizer import EngineName, Tokenizer, engine

# The limits below were tuned on 2 cores with BERT and GPT-2 over tables, WikiText, documentation and source code.
_WORTH = 1 << 20  # Number of bytes after which a faster package is tried. Testing such a package takes as long as encoding 3 MB.
_LEAST = 4 << 10  # Columns with fewer bytes are encoded as a whole, because splitting such small columns into words takes longer.
_FEW = 8  # Number of short texts up to which Python lists are faster than arrays.
_FIRST = 1 / 16  # size of the first block as a share of the column
_LEAST_FIRST = 32 << 10  # Minimum number of bytes in the first block. Two blocks of 10 KB take 1.7 times as long as one block of 20 KB.
# Number of bytes in each block after the first. Encoding a block needs memory of about five times this size.
# Smaller blocks would repeat the search for the same words in the cache, because each block searches each distinct word once.
_BLOCK = 8 << 20
# Maximum share of new words (words without cached ids) in a block, by bytes. Above this share, encoding whole texts is faster.
# Encoding single words takes 1.5 times as long as encoding the same words inside a text.
_NEW = 0.5
_TRIED = (0, 23)  # Newest version of `tokenizers` that passed the tests. With later versions, each text is encoded as a whole.
# When a column is encoded as a whole, new words are cached up to this share of the column's bytes.
_LEARNED = 1 / 64


def encode_chunk(tokenizer: Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Return the ids of each text without special tokens, list<int32>. The texts must not contain nulls.

    The ids equal `tokenizer.encode(text, special=False)`, except for tokenizers with a post-processor that repeats the text.
    """
    rows = encode_rows(tokenizer, texts)
    return to_lists(rows.values, ends_of(rows.lengths))


def encode_rows(tokenizer: Tokenizer, texts: pa.Array) -> Ragged:
    """Return the ids of each text as `encode_chunk` does, but as concatenated NumPy arrays."""
    ids, lengths = _join(_encoder(tokenizer.json, tokenizer.engine).encode(texts))
    return Ragged(ids, lengths.cumsum() - lengths, lengths)


def _join(blocks: list[Encoded]) -> Encoded:
    if len(blocks) == 1:
        return blocks[0]
    ids, lengths = zip(*blocks, strict=True)
    return np.concatenate(ids), np.concatenate(lengths)


def encode_spans(tokenizer: Tokenizer, texts: pa.Array) -> tuple[Ragged, Ragged, Ragged]:
    """Return the ids of each text as `encode_rows` does, and the character offsets at which each token starts and ends.

    Slower than `encode_rows`, which caches the ids of words.
    """
    encodings = _encoder(tokenizer.json, tokenizer.engine).caller.call(texts.to_pylist(), offsets=True)
    ids, lengths = read(encodings)
    offsets = np.fromiter(chain.from_iterable(chain.from_iterable(encoding.offsets for encoding in encodings)), np.int32, 2 * len(ids))
    first = lengths.cumsum() - lengths
    starts, ends = np.ascontiguousarray(offsets.reshape(-1, 2).T)
    return Ragged(ids, first, lengths), Ragged(starts, first, lengths), Ragged(ends, first, lengths)


def cut_spans(tokenizer: Tokenizer, texts: pa.Array, kept: NDArray[np.int64], spans: tuple[Ragged, Ragged]) -> tuple[Ragged, Ragged]:
    """Return the start and end offsets of the last `kept` tokens of each text.

    Some tokenizers exclude the space before a word from token offsets, but include the space in the first token of a text. If tokens at the
    start are removed, the first kept token therefore gets new offsets.
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
    """Return the ids of each text as a list. Returns None for many or long texts, for which arrays are faster."""
    if len(texts) > _FEW:
        return None
    spelled = texts.to_pylist()
    return (
        [encoding.ids for encoding in _encoder(tokenizer.json, tokenizer.engine).caller.call(spelled)]
        if sum(map(len, spelled)) < _LEAST
        else None
    )


def describe_engine(tokenizer: Tokenizer) -> str:
    """Return a text that names the package (engine) for encoding long columns, and says why other installed engines are not used."""
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


# A lock that another thread holds during a fork would never be released in the child process, so all caches are cleared.
os.register_at_fork(after_in_child=forget_words)


@define
class _Encoder:
    """Tokenizer with its word cache."""

    json: str
    wanted: EngineName
    caller: Caller
    memo: Memo | None
    met: int = 0  # number of bytes of text that this object has encoded

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
        """Encode texts with the `tokenizers` package, without an engine (a faster package).

        Blocks of texts are encoded word by word. If a block has too many new words, the remaining texts are encoded as a whole.
        """
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
    """Encode texts word by word with a cache. Return None if more than the fraction `most_new` of all bytes is new.

    Bytes are new if their word is missing from the cache, or if their row must be encoded as a whole. If the result is None, the cache
    stores only the first new words, up to `learned` bytes of text.
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
    lengths = entries.lengths.take(words.indices)
    bounds = ends_of(lengths)[words.firsts]
    return Ragged(gather(entries.ids, entries.starts.take(words.indices), lengths), bounds[:-1], np.diff(bounds))


def _find_whole_rows(rule: Rule, texts: pa.StringArray, words: Words, flags: Flags) -> NDArray[np.int64]:
    """Return the indices of the rows that must not be split into words, because a split may change the ids."""
    whole = numbers_of(pc.starts_with(texts, " ")) if rule.cuts.lead else np.zeros(len(texts), bool)
    if flags.any():
        flagged = flags[words.indices]
        whole[words.rows(np.flatnonzero(flagged == WHOLE))] = True
        hinted = words.rows(np.flatnonzero(flagged == HINTED))
        whole[hinted] |= matches(texts.take(number_array(hinted)), rule.spelled)
    return np.flatnonzero(whole)


def replace_rows(rows: Ragged, indices: NDArray[np.int64], others: Ragged) -> Ragged:
    """Return a copy of `rows` with new ids in some rows: row `indices[i]` gets the ids of row `i` of `others`."""
    starts, lengths = rows.starts.copy(), rows.lengths.copy()
    starts[indices], lengths[indices] = len(rows.values) + others.starts, others.lengths
    return Ragged(gather(np.concatenate([rows.values, others.values]), starts, lengths), lengths.cumsum() - lengths, lengths)


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
        if isinstance(error, Exception) or is_panic(error):  # the engine failed, so the caller encodes the texts with `tokenizers`
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
