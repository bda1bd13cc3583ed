"""Columns of text to token ids."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.arrow.ragged import Ragged, ends_of, places_within, to_lists
from mlxfp.core.chunks import HIDDEN, KEY, Example, RecordBatch, Schema, row_keys, set_column, set_field
from mlxfp.core.datasets import Dataset
from mlxfp.core.row_names import row_at
from mlxfp.core.stages import CACHE_ADVICE, RowWise, Stage, State, Traits, unknown
from mlxfp.support.arrow_types import is_list_like
from mlxfp.support.checks import check_choice, check_not_negative, check_positive, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, SchemaError
from mlxfp.support.randomness import fold_in_rows, fold_into_rows
from mlxfp.text.encoding.encoding import cut_spans, describe_engine, encode_few, encode_rows, encode_spans
from mlxfp.text.encoding.framing import Frame, Side, cut, few_to_lists, find_frame, fit, put_around
from mlxfp.text.templates.formatting import check_text_column, read_text
from mlxfp.text.tokenizers.tokenizer import Tokenizer, check_tokenizer, for_literal_text
from mlxfp.text.word_lists import holds_words, read_words

Truncation = Literal["right", "left", "error"]
Encoded = dict[str, list[Ragged]]  # for each column to make, the values of each text
_TRUNCATIONS = ("right", "left", "error")
_TYPES = "token_type_ids"
_SPANS = ("token_starts", "token_ends")
_WORDS = "word_ids"
_PIECES_AT_ONCE = 256  # pieces in a chunk: each has a copy of the other columns, its whole text among them


@explain_call
def tokenize(  # noqa: PLR0913  # each argument says one thing about the ids
    tokenizer: Tokenizer,
    *,
    column: str = "text",
    pair: str | None = None,
    max_length: int | None = None,
    truncation: Truncation = "right",
    stride: int | None = None,
    special: bool = True,
    literal: bool = False,
    offsets: bool = False,
    into: str = "input_ids",
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Turn a column of text into token ids, a column of list<int32>.

    `pair` names a second column of text, joined to the first; the column `token_type_ids` (list<int32>) then has 0 for ids of the first
    text and 1 for ids of the second. Rows of more than `max_length` ids, special ids included, are truncated on the right or the left, of
    a pair the longer text first; `truncation="error"` raises instead. `special=False` leaves out the special tokens around a text. The
    other columns stay; a column named `into` is replaced.

    A text that spells a special token, such as "</s>", becomes this token. With `literal=True`, it is ordinary text
    (`split_special_tokens` in transformers): use it for what others wrote.

    `offsets=True` adds the columns `token_starts` and `token_ends` (list<int32>): the text of a token is `text[start:end]`, counted in
    characters of its own text of a pair. Both are 0 for special tokens. They are those of the `tokenizers` package: whether the space in
    front of a word belongs to its token is up to the tokenizer, and the bytes of one character each have the whole character.

    The column may also hold a list of words for each row. Their text is the words with a space between, and the column `word_ids`
    (list<int32>) then has the number of the word of each token, counted from 0, and -1 for special tokens. A token that holds only the
    space before a word belongs to that word.

    With `stride`, nothing is truncated: a long text becomes several rows of up to `max_length` ids. The first `stride` tokens of a row are
    the last tokens of the row before, as in the `tokenizers` package; `truncation="left"` begins at the end of the text. Each row has
    the other columns, and its own random keys. This is for one text, not for a pair.

    Raises `SchemaError` when the pipeline is built if the column is missing or does not hold text; `DataError` for a row whose text is
    missing.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"text": "a cat"}, {"text": "a hat, a cat"}])
    >>> tokenizer = fp.train_tokenizer(rows, kind="wordpiece", vocab_size=20)
    >>> [tokenizer.tokens(row["input_ids"]) for row in fp.pipe(rows, fp.tokenize(tokenizer, max_length=5))]
    [['[CLS]', 'a', 'cat', '[SEP]'], ['[CLS]', 'a', 'h', '##at', '[SEP]']]

    >>> [tokenizer.tokens(row["input_ids"]) for row in fp.pipe(rows, fp.tokenize(tokenizer, max_length=4, stride=1, special=False))][1:]
    [['a', 'h', '##at', ','], [',', 'a', 'cat']]

    See also: `template`, which writes rows as text; `pad` for rows of one length; `windows` for one continuous stream of tokens.
    """
    check_tokenizer(tokenizer=tokenizer)
    check_text(column=column, into=into)
    check_types((str, type(None)), pair=pair)
    check_choice(_TRUNCATIONS, truncation=truncation)
    check_types(bool, literal=literal, offsets=offsets)
    if into in (*HIDDEN, _TYPES, _WORDS, *(_SPANS if offsets else ()), ""):
        raise ArgumentError(f"into={into!r} cannot name the column of ids; choose another name.")
    if max_length is None and truncation != "right":
        raise ArgumentError(f"truncation={truncation!r} does nothing without max_length. Give the longest row that you want.")
    cutting: dict[str, Any] = {"max_length": max_length, "truncation": truncation}
    stage = _Tokenize(tokenizer, column=column, pair=pair, **cutting, special=special, literal=literal, offsets=offsets, into=into)
    if max_length is not None:
        check_positive(max_length=max_length)
        if max_length <= stage.frame.added:
            raise ArgumentError(
                f"max_length={max_length} leaves no room for text next to the {stage.frame.added} special tokens of {tokenizer!r}. "
                "Make it larger, or leave them out with special=False."
            )
    if stride is None:
        return stage
    _check_stride(stride, stage)
    return _TokenizeLong(stage, stride)


def _check_stride(stride: int, stage: "_Tokenize") -> None:
    check_not_negative(stride=stride)
    if stage.room is None:
        raise ArgumentError(f"stride={stride} does nothing without max_length. Give the longest row that you want.")
    if stage.pair is not None:
        raise ArgumentError(
            f"stride={stride} needs one text, got the pair {stage.column!r} and {stage.pair!r}: it is unclear which to divide. "
            "Write both as one text with template."
        )
    if stage.truncation == "error":
        raise ArgumentError(
            f'stride={stride} truncates no text, and truncation="error" is about texts that would be truncated. Leave one of them out.'
        )
    if len(stage.frame.ids) - stage.frame.added > 1:
        raise ArgumentError(
            f"stride={stride} needs a tokenizer that writes a text once, and {stage.tokenizer!r} writes it several times. Use another one."
        )
    if stride >= stage.room:
        raise ArgumentError(
            f"stride={stride} must be below the {stage.room} tokens of a text in max_length={stage.max_length}, "
            "or the pieces do not advance. Make it smaller, or max_length larger."
        )


@frozen(repr=False)
class _Tokenize(RowWise):
    tokenizer: Tokenizer
    column: str = "text"
    pair: str | None = None
    max_length: int | None = None
    truncation: Truncation = "right"
    special: bool = True
    literal: bool = False
    offsets: bool = False
    into: str = "input_ids"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,) if self.pair is None else (self.column, self.pair)

    @property
    def encoder(self) -> Tokenizer:
        """The tokenizer to encode texts with."""
        return for_literal_text(self.tokenizer) if self.literal else self.tokenizer

    @cached_property
    def frame(self) -> Frame:
        return find_frame(self.tokenizer.json, pair=self.pair is not None, special=self.special)

    @property
    def room(self) -> int | None:
        """How many ids of texts a row can have; None: any number."""
        return None if self.max_length is None else self.max_length - self.frame.added

    def schema(self, schema: Schema) -> Schema:
        words = self.column in schema.names and holds_words(schema.field(self.column).type)
        if words and self.pair is not None:
            raise SchemaError(f"tokenize takes a pair of texts, got lists of words in column {self.column!r}. Join them with map.")
        for name in self.columns[words:]:
            check_text_column(schema, name, "tokenize")
        out = schema
        for name in (self.into, *(_SPANS if self.offsets else ()), *([_WORDS] if words else [])):
            out = set_field(out, name, pa.list_(pa.int32()))
        return out if self.pair is None else set_field(out, _TYPES, pa.list_(pa.int32()))

    @property
    def traits(self) -> Traits:
        return Traits(
            row_wise=True,
            columns_read=self.columns,
            longest_row=(lambda tokens: self.max_length) if self.into == "input_ids" else identity,
            decoders={self.into: self.tokenizer},
            notes=lambda: ("encoded by tokenizers, as engines give no offsets" if self.offsets else describe_engine(self.encoder),),
            advice=CACHE_ADVICE,
        )

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        if self.pair is None and self.truncation != "error" and not self.offsets:
            texts = read_text(chunk, self.column, "tokenize")
            few = None if is_list_like(texts.type) else encode_few(self.encoder, texts)
            if few is not None:
                kept = slice(self.room) if self.truncation == "right" else slice(-(self.room or 0), None)
                return set_column(chunk, self.into, few_to_lists([self.frame.write([ids[kept]]) for ids in few]))
        return self.framed(chunk, self.encode(chunk))

    def encode(self, chunk: RecordBatch) -> Encoded:
        """Return the values of each text for each column: ids; with `offsets`, where the text of each begins and ends; of words, which."""
        if holds_words(chunk.column(self.column).type):
            words = read_words(chunk, self.column, "tokenize")
            ids, starts, ends = encode_spans(self.encoder, words.texts)
            spans = {_SPANS[0]: [starts], _SPANS[1]: [ends]} if self.offsets else {}
            return {self.into: [ids], **spans, _WORDS: [words.numbers_of(starts)]}
        texts = [read_text(chunk, name, "tokenize") for name in self.columns]
        if not self.offsets:
            return {self.into: [encode_rows(self.encoder, text) for text in texts]}
        return dict(
            zip((self.into, *_SPANS), map(list, zip(*(encode_spans(self.encoder, text) for text in texts), strict=True)), strict=True)
        )

    def framed(self, chunk: RecordBatch, encoded: Encoded) -> RecordBatch:
        """Cut the values of each text, put those of the special ids around them, and add them to the chunk."""
        if self.frame.bare and self.max_length is None:
            for name, (text,) in encoded.items():
                chunk = set_column(chunk, name, to_lists(text.values, ends_of(text.lengths)))
            return chunk
        kept, types = self._lengths(encoded[self.into], chunk), None
        fitting: Encoded = encoded
        if kept is not None:
            fitting = {
                name: [cut(text, count, self._side) for text, count in zip(texts, kept, strict=True)] for name, texts in encoded.items()
            }
            if self.offsets and self.truncation == "left" and _WORDS not in encoded:
                pairs = zip(self.columns, kept, zip(*(encoded[name] for name in _SPANS), strict=True), strict=True)
                spans = [cut_spans(self.encoder, read_text(chunk, name, "tokenize"), count, found) for name, count, found in pairs]
                fitting |= dict(zip(_SPANS, map(list, zip(*spans, strict=True)), strict=True))
        for name, texts in fitting.items():
            values, types = put_around(self.frame_of(name), texts)
            chunk = set_column(chunk, name, values)
        return chunk if types is None else set_column(chunk, _TYPES, types)

    def frame_of(self, name: str) -> Frame:
        """Return what stands around the texts in a column: special ids, and 0 in those of places, -1 in that of words."""
        if name == self.into:
            return self.frame
        silent = self.frame.silent
        return silent if name != _WORDS else evolve(silent, ids=tuple(number or -1 for number in silent.ids))

    @property
    def _side(self) -> Side:
        return "left" if self.truncation == "left" else "right"

    def _lengths(self, texts: list[Ragged], chunk: RecordBatch) -> tuple[NDArray[np.int64], ...] | None:
        """Return how many ids of each text stay; None: all."""
        if self.max_length is None or self.room is None:
            return None
        if self.truncation != "error":
            return fit([text.lengths for text in texts], self.room)
        excess = np.sum([text.lengths for text in texts], axis=0) - self.room
        if (excess > 0).any():
            place = int(np.argmax(excess > 0))
            raise DataError(
                f"tokenize gave {self.max_length + excess[place]} ids for {row_at(chunk, place)}, above max_length={self.max_length}. "
                'Choose truncation="right" or "left", or a larger max_length.'
            )
        return None


@frozen(repr=False)
class _TokenizeLong(Stage):
    """Tokenize with several rows for a long text."""

    whole: _Tokenize
    stride: int

    def schema(self, schema: Schema) -> Schema:
        return self.whole.schema(schema)

    @property
    def traits(self) -> Traits:
        return evolve(self.whole.traits, row_wise=False, length=unknown)

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        return state, self._pieces(chunk, self.whole.encode(chunk))

    def _pieces(self, chunk: RecordBatch, encoded: Encoded) -> Iterator[RecordBatch]:
        whole = self.whole
        rows, within, starts, lengths = self._cut(encoded[whole.into][0])
        keys = fold_in_rows(fold_into_rows(row_keys(chunk), "tokenize")[rows], within)
        for first in range(0, len(rows), _PIECES_AT_ONCE):
            some = slice(first, first + _PIECES_AT_ONCE)
            repeated = set_column(chunk.take(pa.array(rows[some])), KEY, pa.array(keys[some]))
            for name, (text,) in encoded.items():
                values, _ = put_around(whole.frame_of(name), [Ragged(text.values, starts[some], lengths[some])])
                repeated = set_column(repeated, name, values)
            yield repeated

    def _cut(self, texts: Ragged) -> tuple[NDArray[np.int64], ...]:
        """Return for each piece its text, the number of the piece in its text, its first place in the values, and its length: int64[N]."""
        room = self.whole.room or 0
        advance = room - self.stride
        counts = 1 + np.maximum(0, -((room - texts.lengths) // advance))  # rounded up
        rows, within = np.repeat(np.arange(len(counts)), counts), places_within(counts)
        kept = np.minimum(room, texts.lengths[rows] - within * advance)
        left = self.whole.truncation == "left"
        offsets = texts.lengths[rows] - within * advance - kept if left else within * advance
        return rows, within, texts.starts[rows] + offsets, kept

    def __repr__(self) -> str:
        return f"{repr(self.whole).removesuffix(')')}, stride={self.stride})"
