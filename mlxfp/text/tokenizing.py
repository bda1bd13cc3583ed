"""Stages that convert text columns to token ids."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.arrow.ragged import Ends, Ragged, check_values, column_without_nulls, ends_of, places_within, read_lists, to_lists
from mlxfp.core.chunks import HIDDEN, KEY, Example, RecordBatch, Schema, row_keys, set_column, set_field
from mlxfp.core.datasets import Dataset
from mlxfp.core.row_names import row_at
from mlxfp.core.stages import CACHE_ADVICE, RowWise, Stage, State, Traits, unknown
from mlxfp.support.arrow_types import is_list_like, is_text
from mlxfp.support.checks import check_choice, check_not_negative, check_positive, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, SchemaError
from mlxfp.support.randomness import fold_in_rows, fold_into_rows
from mlxfp.text.encoding.encoding import cut_spans, describe_engine, encode_few, encode_rows, encode_spans
from mlxfp.text.encoding.framing import Frame, Side, cut, few_to_lists, find_frame, fit, frame_rows
from mlxfp.text.templates.formatting import check_text_column, read_text
from mlxfp.text.tokenizers.tokenizer import Tokenizer, check_tokenizer, for_literal_text

Truncation = Literal["right", "left", "error"]
Encoded = dict[str, list[Ragged]]  # values of each output column, for the first text and, with `pair`, for the second text
_TRUNCATIONS = ("right", "left", "error")
_TYPES = "token_type_ids"
_SPANS = ("token_starts", "token_ends")
_WORDS = "word_ids"
# Number of pieces of long texts in one output chunk. The number is small, because each piece repeats all columns, also the whole text.
_PIECES_AT_ONCE = 256


@explain_call
def tokenize(  # noqa: PLR0913  # each argument controls one property of the ids
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
    """Convert a text column to token ids, a column of list<int32>.

    Rows longer than `max_length` ids, including special ids, are truncated on the right or left. `truncation="error"` raises an error
    instead. `special=False` omits the special tokens around a text. Other columns are unchanged. An existing column `into` is
    replaced.

    `pair` names a second text column, encoded after the first column. The added column `token_type_ids` (list<int32>) is 0 for ids of the
    first text and 1 for ids of the second text. For pairs, the longer text is truncated first.

    A special token spelled in the text, such as "</s>", is encoded as the special token. `literal=True` encodes special tokens in the
    text as ordinary text (`split_special_tokens` in transformers). Use `literal=True` for text from untrusted sources.

    `offsets=True` adds the columns `token_starts` and `token_ends` (list<int32>), character offsets as in the `tokenizers` package: a token
    stands for `text[start:end]` of its text. Both offsets are 0 for special tokens. The tokenizer decides if the space before a word
    belongs to the token of the word. If a character is split into several byte tokens, each token has the offsets of the whole
    character.

    The column may also contain a list of words per row. The words are joined with spaces. The added column `word_ids` (list<int32>)
    contains the word index of each token, starting at 0, and -1 for special tokens. A token for the space before a word belongs to this
    word.

    `stride` splits long texts instead of truncating: a long text becomes several rows of up to `max_length` ids. Neighbouring rows share
    `stride` tokens, as in the `tokenizers` package. `truncation="left"` starts at the end of the text. Each row has a copy of the other
    columns and a random key of its own. `stride` cannot be combined with `pair`.

    Raises `SchemaError` at construction of the pipeline if the column is missing or contains no text. Raises `DataError` for rows without
    a text.

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
        raise ArgumentError(f"into={into!r} is empty or a reserved column name. Choose another name.")
    if max_length is None and truncation != "right":
        raise ArgumentError(
            f"truncation={truncation!r} has no effect without max_length. Pass max_length=..., the maximum number of ids per row."
        )
    cutting: dict[str, Any] = {"max_length": max_length, "truncation": truncation}
    stage = _Tokenize(tokenizer, column=column, pair=pair, **cutting, special=special, literal=literal, offsets=offsets, into=into)
    if max_length is not None:
        check_positive(max_length=max_length)
        if max_length <= stage.frame.added:
            raise ArgumentError(
                f"max_length={max_length} leaves no room for text next to the {stage.frame.added} special tokens of {tokenizer!r}. "
                "Increase max_length, or omit special tokens with special=False."
            )
    if stride is None:
        return stage
    _check_stride(stride, stage)
    return _TokenizeLong(stage, stride)


def _check_stride(stride: int, stage: "_Tokenize") -> None:
    check_not_negative(stride=stride)
    if stage.room is None:
        raise ArgumentError(f"stride={stride} has no effect without max_length. Pass max_length=..., the maximum number of ids per row.")
    if stage.pair is not None:
        raise ArgumentError(
            f"stride={stride} needs a single text column, got the pair {stage.column!r} and {stage.pair!r}. "
            "Combine both columns to one text with fp.template, and omit pair."
        )
    if stage.truncation == "error":
        raise ArgumentError(
            f'stride={stride} splits long texts instead of truncating, so truncation="error" has no effect. Omit stride or truncation.'
        )
    if len(stage.frame.ids) - stage.frame.added > 1:
        raise ArgumentError(
            f"stride={stride} does not work with a tokenizer that repeats the ids of each text, got {stage.tokenizer!r}. "
            "Use another tokenizer or omit stride."
        )
    if stride >= stage.room:
        raise ArgumentError(
            f"stride={stride} must be less than {stage.room}, the number of text tokens per row with max_length={stage.max_length}. "
            "Decrease stride or increase max_length."
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
        """Tokenizer that encodes the texts."""
        return for_literal_text(self.tokenizer) if self.literal else self.tokenizer

    @cached_property
    def frame(self) -> Frame:
        return find_frame(self.tokenizer.json, pair=self.pair is not None, special=self.special)

    @property
    def room(self) -> int | None:
        """Maximum number of text ids per row: `max_length` minus the number of special ids. None means no limit."""
        return None if self.max_length is None else self.max_length - self.frame.added

    def schema(self, schema: Schema) -> Schema:
        words = self.column in schema.names and holds_words(schema.field(self.column).type)
        if words and self.pair is not None:
            raise SchemaError(
                f"tokenize with pair= needs text columns, got lists of words in column {self.column!r}. Join the words with map."
            )
        for name in self.columns[words:]:
            check_text_column(schema, name, "tokenize", "column" if name == self.column else "")
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
            notes=lambda: (
                "encoded by tokenizers, because faster engines give no offsets"
                if self.offsets
                else describe_engine(self.encoder).partition(";")[0],
            ),
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
        """Encode the texts. Return the values of each output column: ids, offsets if requested, and word indices for lists of words."""
        if holds_words(chunk.column(self.column).type):
            lists = read_lists(column_without_nulls(chunk, self.column, "tokenize"))
            check_values(lists, chunk, self.column, "tokenize")
            words = WordLists(*lists)
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
        """Truncate the texts, insert special ids, and add the resulting columns to the chunk."""
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
                spans = [cut_spans(self.encoder, read_text(chunk, name, "tokenize"), count, offsets) for name, count, offsets in pairs]
                fitting |= dict(zip(_SPANS, map(list, zip(*spans, strict=True)), strict=True))
        for name, texts in fitting.items():
            values, types = frame_rows(self.frame_of(name), texts)
            chunk = set_column(chunk, name, values)
        return chunk if types is None else set_column(chunk, _TYPES, types)

    def frame_of(self, name: str) -> Frame:
        """Return the values of special tokens in an output column: the ids in the id column, 0 for offsets, and -1 for word indices."""
        if name == self.into:
            return self.frame
        silent = self.frame.silent
        return silent if name != _WORDS else evolve(silent, ids=tuple(number or -1 for number in silent.ids))

    @property
    def _side(self) -> Side:
        return "left" if self.truncation == "left" else "right"

    def _lengths(self, texts: list[Ragged], chunk: RecordBatch) -> tuple[NDArray[np.int64], ...] | None:
        """Return how many ids of each text to keep, or None to keep all ids."""
        if self.max_length is None or self.room is None:
            return None
        if self.truncation != "error":
            return fit([text.lengths for text in texts], self.room)
        excess = np.sum([text.lengths for text in texts], axis=0) - self.room
        if (excess > 0).any():
            row = int(np.argmax(excess > 0))
            raise DataError(
                f"tokenize gave {self.max_length + excess[row]} ids for {row_at(chunk, row)}, above max_length={self.max_length}. "
                'Choose truncation="right" or "left", or a larger max_length.'
            )
        return None


@frozen(repr=False)
class _TokenizeLong(Stage):
    """Stage that tokenizes texts and splits a long text into several rows."""

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
            part = slice(first, first + _PIECES_AT_ONCE)
            repeated = set_column(chunk.take(pa.array(rows[part])), KEY, pa.array(keys[part]))
            for name, (text,) in encoded.items():
                values, _ = frame_rows(whole.frame_of(name), [Ragged(text.values, starts[part], lengths[part])])
                repeated = set_column(repeated, name, values)
            yield repeated

    def _cut(self, texts: Ragged) -> tuple[NDArray[np.int64], ...]:
        """Cut tokenized texts into pieces. Return four arrays with an entry for each piece, int64[N].

        The first two arrays hold the index of the text, and the index of the piece inside the text. The last two arrays hold the index of
        the piece's first token in `texts.values`, and the number of tokens.
        """
        room = self.whole.room or 0
        advance = room - self.stride
        counts = 1 + np.maximum(0, -((room - texts.lengths) // advance))  # number of pieces of each text, including a short last piece
        rows, within = np.repeat(np.arange(len(counts)), counts), places_within(counts)
        kept = np.minimum(room, texts.lengths[rows] - within * advance)
        from_end = self.whole.truncation == "left"
        offsets = texts.lengths[rows] - within * advance - kept if from_end else within * advance
        return rows, within, texts.starts[rows] + offsets, kept

    def __repr__(self) -> str:
        return f"{repr(self.whole).removesuffix(')')}, stride={self.stride})"


def holds_words(kind: pa.DataType) -> bool:
    """Return True if a column contains lists of text."""
    return is_list_like(kind) and is_text(kind.value_type)


@frozen(eq=False)
class WordLists:
    """Word lists of several rows, stored as one flat array of words."""

    words: pa.Array  # concatenated words of all rows
    ends: Ends  # first word index of each row, and the total number of words, int64[N + 1]

    @property
    def texts(self) -> pa.Array:
        """Words of each row, joined with spaces."""
        return pc.binary_join(to_lists(self.words.cast(pa.string()), self.ends), " ")

    def numbers_of(self, starts: Ragged) -> Ragged:
        """Return the word index of each token within its row. `starts` contains the character offset of each token in the joined text."""
        # lengths of words, including the space after each word
        sizes = pc.utf8_length(self.words).to_numpy(zero_copy_only=False).astype(np.int64) + 1
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])  # character offsets of the words in the joined texts of all rows
        rows = np.repeat(np.arange(len(starts.lengths)), starts.lengths)
        positions = np.repeat(starts.starts - (starts.lengths.cumsum() - starts.lengths), starts.lengths) + np.arange(len(rows))
        offsets = starts.values[positions] + bounds[self.ends[:-1]][rows]
        word = np.searchsorted(bounds[1:] - 1, offsets, side="right")
        last = np.maximum(self.ends[1:] - 1, self.ends[:-1])[rows]
        numbers = np.zeros(len(starts.values), np.int32)
        numbers[positions] = np.minimum(word, last) - self.ends[:-1][rows]
        return Ragged(numbers, starts.starts, starts.lengths)
