"""A chunk of texts to ids, without special tokens: by words met before where that is faster, else by the tokenizer itself."""

import json as jsons
import os
from functools import lru_cache
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import Factory, define
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import Ragged, ends_of, to_lists
from mlxfp.text.encoding.batch_calls import ID_BYTES, Caller, Encoded, Ids, Lengths, find_caller
from mlxfp.text.encoding.boundary_rules import HELD, HINTED, Rule, find_rule, found
from mlxfp.text.encoding.credit import CALL_BYTES, Credit
from mlxfp.text.encoding.framing import frame_of, gather
from mlxfp.text.encoding.memo import Entries, Flags, Memo
from mlxfp.text.encoding.snippets import Lexicon
from mlxfp.text.encoding.words import Words, cut_words, text_offsets
from mlxfp.text.tokenizers.tokenizer import Tokenizer, engine

# What the way by words may cost, in bytes of text that the tokenizer itself encodes in that time: for a column, for each byte of it, and
# for each byte of a new word. Tuned on 2 cores with BERT and GPT-2 over tables, wikitext, documentation and source code. What it did cost
# is measured (`credit`).
_COLUMN, _BYTE, _NEW = 600, 0.1, 1.5
_BLOCK = 8 << 20  # bytes of text that go by words at a time, as they take some five times that in memory; fewer repeat more look-ups
_SAMPLE = 64 << 10  # bytes of text that the tokenizer is timed over: fewer do not use all cores
_FEW, _LITTLE = 128, 12 << 10  # rows and their characters, at most, that go by words in plain Python


def encode_chunk(tokenizer: Tokenizer, texts: pa.Array) -> pa.ListArray:
    """Return list<int32>: the ids of each text itself, with nothing around it. The texts hold no nulls.

    That is `tokenizer.encode(text, special=False)`, but for a few odd frames that write a text twice. Special tokens and truncation are
    `framing`'s work, so a faster way to encode has only this law to keep.
    """
    ids, lengths = _encode(tokenizer, texts)
    return to_lists(ids, ends_of(lengths))


def encode_rows(tokenizer: Tokenizer, texts: pa.Array) -> Ragged:
    """Do what `encode_chunk` does, and leave the ids in numpy."""
    ids, lengths = _encode(tokenizer, texts)
    return Ragged(ids, lengths.cumsum() - lengths, lengths)


def find_words(tokenizer: Tokenizer) -> Rule | None:
    """Return how texts of a tokenizer may be cut into words, or None where nothing is known."""
    memo = _encoder(tokenizer.json).memo
    return None if memo is None else memo.rule


def encode_parts(tokenizer: Tokenizer, parts: pa.StringArray, size: float) -> tuple[Ragged, NDArray[np.bool_]] | None:
    """Return the ids of parts of texts, as they are where the texts are cut around them, and in which a cut may have done harm: bool[N].

    None where too many words are new. `size` is that of all texts that the parts are of, in bytes.
    """
    return _encoder(tokenizer.json).parts(parts, size)


def encode_few(tokenizer: Tokenizer, texts: pa.Array) -> list[bytes] | None:
    """Do what `encode_chunk` does, as bytes of int32 for each text, or return None where there is too much text for that to be fastest."""
    return _encoder(tokenizer.json).few(texts)


def _encode(tokenizer: Tokenizer, texts: pa.Array) -> Encoded:
    parts = _encoder(tokenizer.json).encode(texts)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([lengths for _, lengths in parts])


@lru_cache(maxsize=32)
def _without_frame(json: str) -> str:
    return jsons.dumps({**jsons.loads(json), "post_processor": None}, ensure_ascii=False)


@lru_cache(maxsize=8)
def _encoder(json: str) -> "_Encoder":
    if not frame_of(json, pair=False, special=False).bare:
        json = _without_frame(json)
    caller, rule = find_caller(engine(json)), find_rule(json)
    return _Encoder(caller) if rule is None else _Encoder(caller, Memo(caller, rule), Lexicon(caller, rule))


os.register_at_fork(after_in_child=_encoder.cache_clear)  # another thread may have held a lock


@define
class _Encoder:
    """A tokenizer with the words that it met: in columns, and in a few texts at a time."""

    caller: Caller
    memo: Memo | None = None
    lexicon: Lexicon | None = None
    credit: Credit = Factory(Credit)  # for columns; the lexicon has its own

    def encode(self, texts: pa.Array) -> list[Encoded]:
        """Encode texts in parts of neighbouring rows."""
        few = self.few(texts)
        if few is not None:
            return [(np.frombuffer(b"".join(few), np.int32), np.array(list(map(len, few)), np.int64) // ID_BYTES)]
        if self.memo is None or not len(texts):
            return [self.caller.encode(texts.to_pylist())]
        offsets = text_offsets(texts)
        if not _pays(int(offsets[-1] - offsets[0])):
            return [self.caller.encode(texts.to_pylist())]
        offsets = offsets + CALL_BYTES * np.arange(len(offsets))
        self.credit.earn(int(offsets[-1] - offsets[0]))
        parts, first = [], 0
        while first < len(texts):
            end, memo = self._reach(offsets, first)
            tried = None if memo is None else self._try(memo, texts.slice(first, end - first), int(offsets[end] - offsets[first]))
            if memo is not None and tried is None:
                end = len(texts)  # the rest at once, as few texts do not use all cores
            parts.append(tried or self._by_tokenizer(texts.slice(first, end - first), int(offsets[end] - offsets[first])))
            first = end
        return parts

    def _try(self, memo: Memo, texts: pa.Array, size: int) -> Encoded | None:
        began = perf_counter()
        encoded = _by_words(memo, texts, self.credit.left / self.credit.pace)
        self.credit.settle(0 if encoded is None else size, perf_counter() - began)
        return encoded

    def _by_tokenizer(self, texts: pa.Array, size: int) -> Encoded:
        began = perf_counter()
        encoded = self.caller.encode(texts.to_pylist())
        self.credit.timed(size, perf_counter() - began)
        return encoded

    def few(self, texts: pa.Array) -> list[bytes] | None:
        """Return the ids of each text as bytes of int32, or None where there is too much text for that to be fastest."""
        if len(texts) > _FEW:
            return None
        spelled = texts.to_pylist()
        size = sum(map(len, spelled))
        if size > _LITTLE:
            return None
        return self.caller.pieces(spelled) if self.lexicon is None else self.lexicon.encode(spelled, size)

    def parts(self, texts: pa.StringArray, size: float) -> tuple[Ragged, NDArray[np.bool_]] | None:
        """Return the ids of parts of texts, and in which a cut may have done harm: bool[N]; None where too many words are new."""
        if self.memo is None:
            return None
        began = perf_counter()
        self.credit.earn(size)
        words = cut_words(self.memo.rule, texts)
        entries = self.memo.find(words.distinct, _most(words, size, self.credit.left / self.credit.pace))
        if entries is None:
            self.credit.settle(0, perf_counter() - began)
            return None
        harmed = np.zeros(len(texts), bool)
        if entries.flags.any():
            harmed[words.rows(np.flatnonzero(entries.flags[words.places]))] = True
        ids, bounds = _put_together(words, entries)
        self.credit.settle(size, perf_counter() - began)
        return Ragged(ids, bounds[:-1], np.diff(bounds)), harmed

    def _reach(self, offsets: NDArray[Any], first: int) -> tuple[int, Memo | None]:
        """Return up to which row texts are encoded at once, and by which words, if by any."""
        sample = max(_within(offsets, first, _SAMPLE), first + 1)
        if self.credit.due(offsets[sample] - offsets[first]):
            return sample, None
        most = max(0.0, (self.credit.left / self.credit.pace - _COLUMN) / _BYTE)
        end = _within(offsets, first, min(most, _BLOCK))
        if end == first and offsets[first + 1] - offsets[first] <= most:
            end += 1  # a row that is longer than a block
        return (end, self.memo) if end > first and _pays(offsets[end] - offsets[first]) else (len(offsets) - 1, None)


def _within(offsets: NDArray[Any], first: int, size: float) -> int:
    """Return up to which row there are no more than so many bytes."""
    return int(np.searchsorted(offsets, offsets[first] + size, side="right")) - 1


def _pays(size: int) -> bool:
    """Whether the way by words may be faster for so many bytes."""
    return (1 - _BYTE) * size > _COLUMN


def _by_words(memo: Memo, texts: pa.Array, credit: float) -> Encoded | None:
    """Encode texts by their words, unless too many are new."""
    texts = texts.cast(pa.string())
    offsets = text_offsets(texts)
    words = cut_words(memo.rule, texts)

    def lost(flags: Flags) -> float:
        """Return how many bytes of new words are not worth it, as rows go to the tokenizer whole."""
        whole = _whole_rows(memo.rule, texts, words, flags)
        return float((offsets[whole + 1] - offsets[whole]).sum()) / _NEW

    entries = memo.find(words.distinct, _most(words, float(offsets[-1] - offsets[0]), credit), lost)
    if entries is None:
        return None
    ids, bounds = _put_together(words, entries)
    whole = _whole_rows(memo.rule, texts, words, entries.flags)
    if not len(whole):
        return ids, np.diff(bounds)
    more, counts = memo.caller.encode(texts.take(pa.array(whole)).to_pylist())
    mixed = replace_rows(Ragged(ids, bounds[:-1], np.diff(bounds)), whole, Ragged(more, np.cumsum(counts) - counts, counts))
    return mixed.values, mixed.lengths


def _most(words: Words, size: float, credit: float) -> float:
    """Return how many bytes new words may have, where all words stand for `size` bytes of text."""
    return (credit + size - _BYTE * words.size - _COLUMN) / _NEW


def _put_together(words: Words, entries: Entries) -> tuple[Ids, Lengths]:
    """Return the ids of all words end to end, and where those of each text begin, and the last ones end."""
    lengths = entries.lengths.take(words.places)
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return gather(entries.ids, entries.starts.take(words.places), lengths), ends[words.firsts]


def _whole_rows(rule: Rule, texts: pa.StringArray, words: Words, flags: Flags) -> NDArray[np.int64]:
    """Return the rows in which a cut may have done harm."""
    held = pc.starts_with(texts, " ").to_numpy(zero_copy_only=False) if rule.cuts.lead else np.zeros(len(texts), bool)
    if flags.any():
        flagged = flags[words.places]
        held[words.rows(np.flatnonzero(flagged == HELD))] = True
        hinted = words.rows(np.flatnonzero(flagged == HINTED))
        held[hinted] |= found(texts.take(pa.array(hinted)), rule.spelled)
    return np.flatnonzero(held)


def replace_rows(rows: Ragged, places: NDArray[np.int64], others: Ragged) -> Ragged:
    """Put other rows in some places, with the ids of all rows end to end."""
    starts, lengths = rows.starts.copy(), rows.lengths.copy()
    starts[places], lengths[places] = len(rows.values) + others.starts, others.lengths
    return Ragged(gather(np.concatenate([rows.values, others.values]), starts, lengths), lengths.cumsum() - lengths, lengths)
