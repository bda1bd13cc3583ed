"""Collator for token classification. Makes token labels from word labels or character spans, and converts predicted labels to spans."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.collators.columns import GROUP, at_row, column_of, ids_of, lists_of, names_of
from mlxfp.collators.cutting import MASK, OF_PACK, Columns, Padded, aligned_values, carried_columns, document_columns, side_columns
from mlxfp.collators.padding import Side, check_ids, check_padding
from mlxfp.core.arrow.ragged import Ends, check_values, read_lists, row_of
from mlxfp.core.examples import Examples
from mlxfp.support.arrow_types import is_list_like
from mlxfp.support.checks import as_strings, check_choice, check_positive, check_text, explain_call, not_none
from mlxfp.support.errors import ArgumentError, DataError, SchemaError

Scheme = Literal["first", "all", "bio"]
Labels = NDArray[np.int32]
_SCHEMES = ("first", "all", "bio")


@explain_call
def tokens(  # noqa: PLR0913  # columns of labels, and the arguments of `text`
    *,
    pad_id: int,
    scheme: Scheme = "all",
    words: str | None = None,
    spans: str | None = None,
    labels: str | None = None,
    packed: bool = False,
    classes: int | None = None,
    vocab_size: int | None = None,
    ignore_index: int = -100,
    length: int | None = None,
    lengths: Sequence[int] = (),
    pad_multiple: int = 1,
    side: Side = "right",
    type_ids: bool = False,
    carry: Sequence[str] = (),
) -> "_Tokens":
    """Return the collator for token classification: the batch of `text`, with `labels` int32[B, L], a label per token.

    Exactly one of three arguments names the column of labels:

    - `labels`: lists with one label per token of `input_ids`.
    - `words`: lists with one label per word. The column `word_ids`, from `tokenize` on a column of words, gives the word of each token.
    - `spans`: lists of non-overlapping spans, `{"start": 6, "end": 11, "label": 1}`, in characters of the text. `tokenize(offsets=True)`
      gives the characters of each token. A token that touches two spans belongs to the first span.

    Special tokens and padding have the label `ignore_index`.

    | scheme | of words | of spans |
    | --- | --- | --- |
    | "first" | first token of a word: label of the word; other tokens: `ignore_index` | - |
    | "all" | all tokens of a word: label of the word | all tokens of a span: label of the span; other tokens: 0 |
    | "bio" | labels are tags; only the first token of a word begins an entity | span of label k: first token 2k - 1, other tokens 2k |

    In "bio", tag 0 is outside of entities, tag 2k - 1 begins an entity of kind k, and tag 2k continues it. In CoNLL-2003, the tags are
    O, B-PER, I-PER, B-ORG and so on (Ramshaw and Marcus, "Text Chunking using Transformation-Based Learning", 1995). Labels of spans are at
    least 1; labels of words are at least 0, or `ignore_index`. `classes` is the number of possible token labels, equal to `outputs` of a
    `TokenClassifier`.

    `packed=True` is for rows from `pack(aligned=...)` and needs `labels`: the batch also contains `segment_ids` and `positions` int32[B, L]
    (0 on padding). Raises `SchemaError` for rows of `pack` without `packed=True`.

    Raises `DataError` with the row for an empty or overlapping span, a word without a label, and an invalid label. Also raises the errors
    of `text`.

    >>> collator = tokens(pad_id=0, spans="names", scheme="bio")
    >>> row = {"input_ids": [2, 7, 8, 9, 3], "token_starts": [0, 0, 4, 8, 0], "token_ends": [0, 3, 8, 11, 0]}  # [CLS] Ada Love ##lace [SEP]
    >>> collator([{**row, "names": [{"start": 4, "end": 11, "label": 1}]}])["labels"].tolist()
    [[-100, 0, 1, 2, -100]]
    >>> tokens(pad_id=0, labels="labels")([{"input_ids": [7, 8], "labels": [0, 1]}, {"input_ids": [9], "labels": [1]}])["labels"].tolist()
    [[0, 1], [1, -100]]
    >>> collator = tokens(pad_id=0, words="tags", scheme="first")
    >>> collator([{"input_ids": [2, 7, 8, 9, 3], "word_ids": [-1, 0, 1, 1, -1], "tags": [0, 4]}])["labels"].tolist()
    [[-100, 0, 4, -100, -100]]

    See also: `character_spans`, which makes spans of predicted labels; `TokenClassifier`.
    """
    check_ids(pad_id=pad_id, ignore_index=ignore_index)
    check_choice(_SCHEMES, scheme=scheme)
    check_text(**not_none(words=words, spans=spans, labels=labels))
    if len(names_of(words, spans, labels)) != 1:
        raise ArgumentError(
            "tokens needs exactly one of three columns: labels (a label per token), words (a label per word) or spans, got "
            f"labels={labels!r}, words={words!r} and spans={spans!r}."
        )
    if labels is not None and scheme != "all":
        raise ArgumentError(f"labels={labels!r} has a label per token and needs no scheme, got scheme={scheme!r}. Remove scheme.")
    if packed and labels is None:
        raise ArgumentError(
            f"packed=True needs the argument `labels`, a column with a label for each token, got words={words!r} and spans={spans!r}. "
            "The stage pack cannot keep labels of words or spans. Write "
            "pack(..., aligned=['labels']) and tokens(labels='labels', packed=True)."
        )
    if spans is not None and scheme == "first":
        raise ArgumentError('scheme="first" is for labels of words, got spans. Choose "all" or "bio".')
    check_positive(**not_none(classes=classes, vocab_size=vocab_size))
    fixed = check_padding(length=length, lengths=lengths, pad_multiple=pad_multiple, side=side)
    carry = as_strings("carry", carry)
    return _Tokens(
        pad_id, scheme, words, spans, labels, packed, classes, vocab_size, ignore_index, fixed, pad_multiple, side, type_ids, carry
    )


@explain_call
def character_spans(
    text: str, labels: Sequence[int], starts: Sequence[int], ends: Sequence[int], *, scheme: Literal["all", "bio"]
) -> list[dict[str, int]]:
    """Return the character spans, `{"start": 6, "end": 11, "label": 1}`, in order, for the token labels of a text.

    `labels` are the labels of a row, predicted by a model or created by `tokens(spans=..., scheme=...)`. `starts` and `ends` are the
    columns `token_starts` and `token_ends` of the row. All three need the same length; remove padding with
    `labels[: len(row["token_starts"])]`.

    Special tokens without text are ignored. White space at the ends of a span is removed, because some tokenizers include the space
    before a word in its token. With "bio", an inside tag starts a span if the previous token has another span label. Raises
    `ArgumentError` for lists of different lengths.

    >>> character_spans("by Ada Lovelace", [-100, 0, 1, 2, 2, -100], [0, 0, 2, 6, 11, 0], [0, 2, 6, 11, 15, 0], scheme="bio")
    [{'start': 3, 'end': 15, 'label': 1}]
    """
    check_text(text=text)
    check_choice(_SCHEMES[1:], scheme=scheme)
    tags, firsts, lasts = (np.asarray(values, np.int64) for values in (labels, starts, ends))
    if not len(tags) == len(firsts) == len(lasts):
        raise ArgumentError(
            f"character_spans needs one label, start and end per token, got {len(tags)} labels, {len(firsts)} starts, {len(lasts)} ends. "
            'Remove padding: labels[: len(row["token_starts"])].'
        )
    written = lasts > firsts
    tags, firsts, lasts = tags[written], firsts[written], lasts[written]
    kinds = np.maximum(0, (tags + 1) // 2 if scheme == "bio" else tags)
    begins = np.diff(kinds, prepend=0) != 0
    if scheme == "bio":
        # If several tokens share one character, only the first of these tokens may begin an entity.
        begins |= (tags % 2 == 1) & (firsts >= np.append(0, lasts)[:-1])
    bounds = np.flatnonzero(begins | (kinds == 0))
    spans = []
    for first, stop in pairwise([*bounds, len(kinds)]):
        start, end = int(firsts[first]), int(lasts[stop - 1])
        part = text[start:end]
        if kinds[first] and part.strip():
            start, end = start + len(part) - len(part.lstrip()), end - len(part) + len(part.rstrip())
            spans.append({"start": start, "end": end, "label": int(kinds[first])})
    return spans


@frozen(repr=False)
class _Tokens(Padded):
    pad_id: int
    scheme: Scheme
    words: str | None = None
    spans: str | None = None
    labels: str | None = None
    packed: bool = False
    classes: int | None = None
    vocab_size: int | None = None
    ignore_index: int = -100
    lengths: tuple[int, ...] = ()
    pad_multiple: int = 1
    side: Side = "right"
    type_ids: bool = False
    carry: tuple[str, ...] = ()

    @property
    def uses(self) -> tuple[str, ...]:
        positions = () if self.labels is not None else ("token_starts", "token_ends") if self.words is None else ("word_ids",)
        types = (*(("token_type_ids",) if self.type_ids else ()), *(OF_PACK if self.packed else ()))
        return "input_ids", MASK, *types, *positions, *names_of(self.words, self.spans, self.labels), *self.carry

    def read(self, examples: Examples) -> Columns:
        ids, ends = ids_of(examples, "input_ids", self.vocab_size, _NAME)
        if (column := self.labels) is not None:
            labels = aligned_values(examples, column, ends, _NAME, integers=True)
            self._check_classes(labels, lambda at: at_row(examples, column, row_of(ends, at), _NAME), known=self.ignore_index)
        else:
            labels = self._of_spans(examples, str(self.spans), ends) if self.words is None else self._of_words(examples, self.words, ends)
        ragged = {"input_ids": (ids, self.pad_id), **side_columns(examples, ends, _NAME, type_ids=self.type_ids)}
        ragged |= document_columns(examples, ends, _NAME, packed=self.packed)
        ragged["labels"] = (labels, self.ignore_index)
        return Columns(self, examples, ends, ragged, carried_columns(examples, self.carry, _NAME, {*ragged, self.mask}))

    def _of_words(self, examples: Examples, column: str, ends: Ends) -> Labels:
        numbers = aligned_values(examples, "word_ids", ends, _NAME, integers=True)
        given, bounds = lists_of(examples, column, _NAME)
        self._check_classes(given, lambda at: at_row(examples, column, row_of(bounds, at), _NAME), known=self.ignore_index)
        rows = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        inside = numbers >= 0
        counts = np.diff(bounds)[rows]
        if (missing := inside & (numbers >= counts)).any():
            token = int(np.argmax(missing))
            raise DataError(
                f"{at_row(examples, column, int(rows[token]), _NAME)} has {counts[token]} labels, but word_ids contains word "
                f"{numbers[token]}. Give each word a label, and number words from 0."
            )
        labels = np.full(len(numbers), self.ignore_index, np.int32)
        labels[inside] = given[(bounds[rows] + numbers)[inside]]
        first = _changes(numbers, ends)
        if self.scheme == "first":
            labels[~first] = self.ignore_index
        elif self.scheme == "bio":
            labels[~first & (labels > 0) & (labels % 2 == 1)] += 1
        return labels

    def _of_spans(self, examples: Examples, column: str, ends: Ends) -> Labels:
        starts, stops = (
            aligned_values(examples, name, ends, _NAME, integers=True).astype(np.int64) for name in ("token_starts", "token_ends")
        )
        spans, bounds = self._read_spans(examples, column)
        written = stops > starts
        labels = np.where(written, np.int32(0), np.int32(self.ignore_index))
        if not len(spans.labels):
            return labels
        # Add `i * stretch` to the positions in row `i`, so that one search finds the spans of the tokens in all rows.
        stretch = int(max(stops.max(initial=0), starts.max(initial=0), spans.ends.max())) + 1
        rows = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        owners = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        index = np.searchsorted(owners * stretch + spans.ends, rows * stretch + starts, side="right")
        span = np.minimum(index, len(spans.labels) - 1)
        inside = written & (index < len(spans.labels)) & (owners[span] == rows) & (spans.starts[span] < stops)
        kinds = spans.labels[span[inside]]
        if self.scheme == "bio":
            kinds = 2 * kinds - _changes(np.where(inside, span, -1), ends)[inside]
        labels[inside] = kinds
        return labels

    def _read_spans(self, examples: Examples, column: str) -> tuple["_Spans", Ends]:
        """Return all spans, sorted by row and start, and the bounds of the rows: row `i` has the spans `bounds[i]:bounds[i + 1]`."""
        lists = column_of(examples, column, _NAME)
        kind = lists.type.value_type if is_list_like(lists.type) else lists.type
        if not is_list_like(lists.type) or not (pa.types.is_null(kind) or {"start", "end", "label"} <= _fields(kind)):
            raise SchemaError(
                f"{_NAME}: column {column!r} must hold lists of objects with integers start, end and label, "
                f"got {lists.type}. Create such a column with map."
            )
        values, bounds = read_lists(lists)
        check_values((values, bounds), examples.chunk, column, _NAME, of=GROUP)
        if not len(values):
            return _Spans(*(np.zeros(0, np.int64) for _ in range(3))), bounds
        starts, ends, labels = (_integers(examples, column, values, name, bounds) for name in ("start", "end", "label"))
        owners = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))

        def at(index: int) -> str:
            return at_row(examples, column, int(owners[index]), _NAME)

        if (wrong := (starts < 0) | (ends <= starts)).any():
            index = int(np.argmax(wrong))
            raise DataError(
                f"{at(index)} has a span from {starts[index]} to {ends[index]}, without any character. The end is the index after the last "
                "character."
            )
        if (wrong := labels < 1).any():
            index = int(np.argmax(wrong))
            raise DataError(f"{at(index)} has a span with label {labels[index]}. Span labels start at 1; 0 means outside of spans.")
        self._check_classes(2 * labels if self.scheme == "bio" else labels, at)
        order = np.lexsort((starts, owners))
        starts, ends, labels = starts[order], ends[order], labels[order]
        if (wrong := (owners[1:] == owners[:-1]) & (starts[1:] < ends[:-1])).any():
            index = int(np.argmax(wrong))
            pair = f"{starts[index]} to {ends[index]} and {starts[index + 1]} to {ends[index + 1]}"
            raise DataError(f"{at(index)} has overlapping spans: {pair}. A token has only one label: remove one of the spans with map.")
        return _Spans(starts, ends, labels), bounds

    def _check_classes(self, labels: NDArray[Any], at: Callable[[int], str], *, known: int | None = None) -> None:
        """Raise `DataError` for a label that is negative or outside `classes`. A label equal to the argument `known` is allowed."""
        wrong = (labels < 0) & (labels != known) if self.classes is None else ((labels < 0) | (labels >= self.classes)) & (labels != known)
        if wrong.any():
            index = int(np.argmax(wrong))
            allowed = "at least 0" if self.classes is None else f"from 0 to {self.classes - 1}"
            raise DataError(
                f"{at(index)} has the label {labels[index]}, but token labels must be {allowed}. Correct the data, or give "
                "the right number of classes."
            )


@frozen(eq=False)
class _Spans:
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    labels: NDArray[np.int64]


_NAME = "collators.tokens"


def _changes(numbers: NDArray[Any], ends: Ends) -> NDArray[np.bool_]:
    """Return True for each number that differs from the previous number in the row: bool[N]."""
    changes = np.ones(len(numbers), bool)
    changes[1:] = numbers[1:] != numbers[:-1]
    changes[ends[:-1][np.diff(ends) > 0]] = True
    return changes


def _fields(kind: pa.DataType) -> set[str]:
    fields = [kind.field(index) for index in range(kind.num_fields)] if pa.types.is_struct(kind) else []
    return {field.name for field in fields if pa.types.is_integer(field.type)}


def _integers(examples: Examples, column: str, values: pa.StructArray, name: str, bounds: Ends) -> NDArray[np.int64]:
    inner = values.field(name)
    check_values((inner, bounds), examples.chunk, column, _NAME, of=GROUP)
    numbers: NDArray[np.int64] = inner.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers
