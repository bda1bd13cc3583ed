"""Sentences to token ids."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pyarrow as pa
from attrs import frozen

from mlxfp.core.checks import check_choice, check_positive, check_text, check_types
from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema, set_column, set_field
from mlxfp.core.datasets import Dataset, RowWise
from mlxfp.core.errors import ArgumentError, DataError
from mlxfp.text.columns import Ragged, check_text_column, name_row, read_ragged, read_text
from mlxfp.text.encoding import encode_chunk
from mlxfp.text.framing import Frame, cut, find_frame, fit, put_around
from mlxfp.text.tokenizers import Tokenizer

Truncation = Literal["right", "left", "error"]
_TRUNCATIONS = ("right", "left", "error")
_TYPES = "token_type_ids"


def tokenize(  # noqa: PLR0913  # each argument says one thing about the ids
    tokenizer: Tokenizer,
    *,
    column: str = "text",
    pair: str | None = None,
    max_length: int | None = None,
    truncation: Truncation = "right",
    special: bool = True,
    into: str = "input_ids",
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Turn a column of text into token ids, a column of list<int32>.

    `pair` names a second column of text, joined to the first; `token_type_ids` (list<int32>) then says 0 for ids of the first and 1 for
    those of the second. Rows of more than `max_length` ids, special ones included, are cut on the right or the left, of a pair the longer
    text first; `truncation="error"` raises instead. `special=False` leaves out what the tokenizer puts around a text. The other columns
    stay; a column named `into` is replaced.

    Raises `SchemaError` when the pipeline is built if there is no such column of text; `DataError` for a row whose text is missing.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> from mlxfp.text.tokenizer_training import train_tokenizer
    >>> rows = from_examples([{"text": "a cat"}, {"text": "a hat, a cat"}])
    >>> tokenizer = train_tokenizer(rows, kind="wordpiece", vocab_size=20)
    >>> [tokenizer.tokens(row["input_ids"]) for row in pipe(rows, tokenize(tokenizer, max_length=5))]
    [['[CLS]', 'a', 'cat', '[SEP]'], ['[CLS]', 'a', 'h', '##at', '[SEP]']]

    See also: `template`, which writes rows as text; `pad` for rows of one length.
    """
    check_types(Tokenizer, tokenizer=tokenizer)
    check_text(column=column, into=into)
    check_types((str, type(None)), pair=pair)
    check_choice(_TRUNCATIONS, truncation=truncation)
    if into in (*HIDDEN, _TYPES, ""):
        raise ArgumentError(f"into={into!r} cannot name the column of ids; choose another name.")
    if max_length is None and truncation != "right":
        raise ArgumentError(f"truncation={truncation!r} does nothing without max_length. Give the longest row that you want.")
    stage = _Tokenize(tokenizer, column=column, pair=pair, max_length=max_length, truncation=truncation, special=special, into=into)
    if max_length is not None:
        check_positive(max_length=max_length)
        if max_length <= stage.frame.added:
            raise ArgumentError(
                f"max_length={max_length} leaves no room for text beside the {stage.frame.added} special tokens of {tokenizer!r}. "
                "Make it larger, or leave them out with special=False."
            )
    return stage


@frozen(repr=False)
class _Tokenize(RowWise):
    tokenizer: Tokenizer
    column: str = "text"
    pair: str | None = None
    max_length: int | None = None
    truncation: Truncation = "right"
    special: bool = True
    into: str = "input_ids"

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,) if self.pair is None else (self.column, self.pair)

    @property
    def frame(self) -> Frame:
        return find_frame(self.tokenizer, pair=self.pair is not None, special=self.special)

    def schema(self, schema: Schema) -> Schema:
        for name in self.columns:
            check_text_column(schema, name, "tokenize")
        out = set_field(schema, self.into, pa.list_(pa.int32()))
        return out if self.pair is None else set_field(out, _TYPES, pa.list_(pa.int32()))

    def longest(self, tokens: int | None) -> int | None:
        return self.max_length if self.into == "input_ids" else tokens

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        encoded = [encode_chunk(self.tokenizer, read_text(chunk, name, "tokenize")) for name in self.columns]
        if self.frame.bare and self.max_length is None:
            return set_column(chunk, self.into, encoded[0])
        ids, types = put_around(self.frame, self._shorten([read_ragged(column) for column in encoded], chunk))
        out = set_column(chunk, self.into, ids)
        return out if types is None else set_column(out, _TYPES, types)

    def _shorten(self, texts: list[Ragged], chunk: RecordBatch) -> list[Ragged]:
        if self.max_length is None:
            return texts
        room = self.max_length - self.frame.added
        if self.truncation != "error":
            kept = fit([text.lengths for text in texts], room)
            return [cut(text, count, self.truncation) for text, count in zip(texts, kept, strict=True)]
        excess = np.sum([text.lengths for text in texts], axis=0) - room
        if (excess > 0).any():
            place = int(np.argmax(excess > 0))
            raise DataError(
                f"tokenize gave {self.max_length + excess[place]} ids for {name_row(chunk, place)}, above max_length={self.max_length}. "
                'Choose truncation="right" or "left", or a larger max_length.'
            )
        return texts
