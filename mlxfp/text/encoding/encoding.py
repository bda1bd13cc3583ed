"""A column of texts to ids, without special tokens: by an engine, by words that were met before, or by the tokenizer itself.

The choice is a fixed rule, without a clock. From the first `_WORTH` bytes on, an engine gets the texts that pass its gate, if one is
proved (see `engines`). Otherwise, a block of a column goes by its words if the words that are new to the memo, together with the rows in
which a cut may change ids, hold at most half of its bytes. Otherwise the rest of the column goes to the tokenizer whole. The first block is
small, so a column of words that never repeat costs little more than the tokenizer alone. The ids are the same either way.
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
from mlxfp.text.encoding.boundary_rules import HELD, HINTED, Rule, Words, cut_words, find_rule
from mlxfp.text.encoding.engine_calls import encode_with
from mlxfp.text.encoding.framing import find_frame, gather
from mlxfp.text.encoding.memo import Entries, Flags, Memo
from mlxfp.text.engines.choosing import choose
from mlxfp.text.engines.columns import found, text_offsets
from mlxfp.text.tokenizers.tokenizer import EngineName, Tokenizer, engine

# Tuned on 2 cores with BERT and GPT-2 over tables, wikitext, documentation and source code.
_WORTH = 1 << 20  # bytes of text from which on an engine pays for its start and its probe, which take as long as 3 MB by words
_LEAST = 4 << 10  # bytes of a column below which calls of Arrow and NumPy take as long as the tokenizer
_FEW = 8  # texts up to which, if they hold so little, lists are faster than arrays
_FIRST = 1 / 16  # of a column, its first block
_LEAST_FIRST = 32 << 10  # bytes of the first block: two blocks of 10 KB take 1.7 times as long as one, and words that never repeat 8 % less
_BLOCK = 8 << 20  # bytes of each further block, which takes some five times that in memory; smaller blocks repeat more look-ups
_NEW = 0.5  # of a block's bytes: a new word costs 1.5 times what the tokenizer needs for it as a part of its text
_TRIED = (0, 23)  # the newest version of tokenizers that the laws were tried with; later ones encode each text whole, until they are
_LEARNED = 1 / 64  # of a column that goes to the tokenizer: so many bytes of new words are kept, so that short columns are learned, too


def encode_chunk(tokenizer: Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Return list<int32>: the ids of each text itself, with nothing around it. The texts hold no nulls.

    That is `tokenizer.encode(text, special=False)`, except for a few odd frames that write a text twice. Special tokens and truncation
    are the work of `framing`, so a faster way to encode has only this law to keep.
    """
    rows = encode_rows(tokenizer, texts)
    return to_lists(rows.values, ends_of(rows.lengths))


def encode_rows(tokenizer: Tokenizer, texts: pa.Array) -> Ragged:
    """Do what `encode_chunk` does, and leave the ids in NumPy, end to end."""
    ids, lengths = _join(_encoder(tokenizer.json, tokenizer.engine).encode(texts))
    return Ragged(ids, lengths.cumsum() - lengths, lengths)


def _join(blocks: list[Encoded]) -> Encoded:
    if len(blocks) == 1:
        return blocks[0]
    ids, lengths = zip(*blocks, strict=True)
    return np.concatenate(ids), np.concatenate(lengths)


def encode_spans(tokenizer: Tokenizer, texts: pa.Array) -> tuple[Ragged, Ragged, Ragged]:
    """Return the ids of `encode_rows`; and, in the same places, at which character of its text each token begins, and where it ends.

    These are the offsets of the `tokenizers` package, of its slower call. Words that were met before do not know them.
    """
    encodings = _encoder(tokenizer.json, tokenizer.engine).caller.call(texts.to_pylist(), offsets=True)
    ids, lengths = read(encodings)
    offsets = np.fromiter(chain.from_iterable(chain.from_iterable(each.offsets for each in encodings)), np.int32, 2 * len(ids))
    first = lengths.cumsum() - lengths
    starts, ends = np.ascontiguousarray(offsets.reshape(-1, 2).T)
    return Ragged(ids, first, lengths), Ragged(starts, first, lengths), Ragged(ends, first, lengths)


def cut_spans(tokenizer: Tokenizer, texts: pa.Array, kept: NDArray[np.int64], spans: tuple[Ragged, Ragged]) -> tuple[Ragged, Ragged]:
    """Return where the last `kept` tokens of each text begin and end.

    Some tokenizers leave spaces out of tokens, but not the one in front of the first token: that is another one where a text was cut.
    """
    starts, ends = (Ragged(each.values.copy(), each.starts + each.lengths - kept, kept) for each in spans)
    own = engine(_encoder(tokenizer.json, tokenizer.engine).json)
    if '"trim_offsets":true' not in own.to_str():
        return starts, ends
    bare = engine(jsons.dumps({**jsons.loads(tokenizer.json), "post_processor": None}, ensure_ascii=False))
    for row in np.flatnonzero((kept > 0) & (kept < spans[0].lengths)).tolist():
        encoding = bare.encode(texts[row].as_py(), add_special_tokens=False)
        encoding.truncate(int(kept[row]), direction="left")
        first = starts.starts[row]
        starts.values[first], ends.values[first] = own.post_process(encoding, None, add_special_tokens=False).offsets[0]
    return starts, ends


def encode_few(tokenizer: Tokenizer, texts: pa.Array) -> list[list[int]] | None:
    """Do what `encode_chunk` does, with a list for each text; None for so many texts, or so long texts, that arrays are faster."""
    if len(texts) > _FEW:
        return None
    spelled = texts.to_pylist()
    return (
        [encoding.ids for encoding in _encoder(tokenizer.json, tokenizer.engine).caller.call(spelled)]
        if sum(map(len, spelled)) < _LEAST
        else None
    )


def say_engine(tokenizer: Tokenizer) -> str:
    """Say which engine encodes long columns, and why not another one; this tries the engines that are installed."""
    found = _encoder(tokenizer.json, tokenizer.engine)
    return str(choose(found.json, found.wanted))


def forget_words() -> None:
    """Forget the words that all tokenizers met."""
    _encoder.cache_clear()


@lru_cache(maxsize=8)
def _encoder(json: str, wanted: EngineName) -> "_Encoder":
    if not find_frame(json, pair=False, special=False).bare:
        json = jsons.dumps({**jsons.loads(json), "post_processor": None}, ensure_ascii=False)
    if tuple(map(int, hf.__version__.split(".")[:2])) > _TRIED:
        return _Encoder(json, "tokenizers", Caller(engine(json), separator=None, apart=False), None)
    caller, rule = find_caller(engine(json)), find_rule(json)
    return _Encoder(json, wanted, caller, None if rule is None else Memo(caller, rule))


os.register_at_fork(after_in_child=forget_words)  # another thread may have held a lock


@define
class _Encoder:
    """A tokenizer with the words that it met."""

    json: str
    wanted: EngineName
    caller: Caller
    memo: Memo | None
    met: int = 0  # bytes of text

    def encode(self, texts: pa.Array) -> list[Encoded]:
        """Encode texts in blocks of neighbouring rows."""
        offsets = text_offsets(texts) if len(texts) else np.zeros(1, np.int64)
        size = int(offsets[-1] - offsets[0])
        if size < _LEAST:
            return [self.caller.encode(texts.to_pylist())]
        self.met += size
        worth = self.wanted != "tokenizers" and (self.met >= _WORTH or self.wanted != "auto")
        proved = choose(self.json, self.wanted).proved if worth else None
        encoded = None if proved is None else encode_with(proved, texts, lambda some: _join(self._encode_plainly(some)))
        return self._encode_plainly(texts) if encoded is None else [encoded]

    def _encode_plainly(self, texts: pa.Array) -> list[Encoded]:
        """Encode texts by their words, or by the tokenizer itself."""
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
    """Encode a block of texts by their words, or return None if new words and whole rows hold more than this share of its bytes.

    In that case, at most `learned` bytes of the new words are kept.
    """
    texts = texts.cast(pa.string())
    sizes = np.diff(text_offsets(texts))
    words = cut_words(memo.rule, texts)

    def lost(flags: Flags) -> float:
        return float(sizes[_find_whole_rows(memo.rule, texts, words, flags)].sum())

    entries = memo.find(words.distinct, most_new * words.size, lost=lost, learned=learned)
    if entries is None:
        return None
    rows = _put_together(words, entries)
    whole = _find_whole_rows(memo.rule, texts, words, entries.flags)
    if len(whole):
        ids, lengths = memo.caller.encode(texts.take(number_array(whole)).to_pylist())
        rows = replace_rows(rows, whole, Ragged(ids, np.cumsum(lengths) - lengths, lengths))
    return rows.values, rows.lengths


def _put_together(words: Words, entries: Entries) -> Ragged:
    """Return the ids of each row, those of all rows end to end."""
    lengths = entries.lengths.take(words.places)
    bounds = ends_of(lengths)[words.firsts]
    return Ragged(gather(entries.ids, entries.starts.take(words.places), lengths), bounds[:-1], np.diff(bounds))


def _find_whole_rows(rule: Rule, texts: pa.StringArray, words: Words, flags: Flags) -> NDArray[np.int64]:
    """Return the rows in which a cut may change ids: the tokenizer encodes them whole."""
    held = numbers_of(pc.starts_with(texts, " ")) if rule.cuts.lead else np.zeros(len(texts), bool)
    if flags.any():
        flagged = flags[words.places]
        held[words.rows(np.flatnonzero(flagged == HELD))] = True
        hinted = words.rows(np.flatnonzero(flagged == HINTED))
        held[hinted] |= found(texts.take(number_array(hinted)), rule.spelled)
    return np.flatnonzero(held)


def replace_rows(rows: Ragged, places: NDArray[np.int64], others: Ragged) -> Ragged:
    """Put other rows in some places, with the ids of all rows end to end."""
    starts, lengths = rows.starts.copy(), rows.lengths.copy()
    starts[places], lengths[places] = len(rows.values) + others.starts, others.lengths
    return Ragged(gather(np.concatenate([rows.values, others.values]), starts, lengths), lengths.cumsum() - lengths, lengths)
