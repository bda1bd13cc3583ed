"""Rows written as sentences."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen
from toolz import identity

from mlxfp.core.arrow.light_arrays import text_scalar
from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema, row_keys, set_column, set_field
from mlxfp.core.datasets import Dataset
from mlxfp.core.row_names import row_at
from mlxfp.core.stages import CACHE_ADVICE, RowWise, Traits, seeded
from mlxfp.support.checks import check_choice, check_columns, check_integer, check_text, explain_call
from mlxfp.support.errors import ArgumentError, DataError
from mlxfp.support.randomness import Keys, fold_into_rows
from mlxfp.text.templates.formatting import check_format, format_column, is_missing
from mlxfp.text.templates.random_templates import Field, Phrase, parse

Policy = Literal["say", "drop", "raise"]
_POLICIES = ("say", "drop", "raise")


@explain_call
def template(
    pattern: str, *, missing: str = "unknown", policy: Policy = "say", into: str = "text", seed: int | None = None
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Write each row as a sentence, into a column of strings.

    The pattern is a Python format string whose fields name columns: `{Age}`, `{Fare:.2f}`, `{Name!r}`, `{{` for a brace. `policy` decides
    what is written for a missing value (null or NaN); see `Template`. All other columns stay; a column named `into` is replaced.

    With `seed`, for augmentation, the phrases with fields change places: every row has another order in every epoch, and all orders are
    equally likely. The separators between the phrases keep their places. Phrases are those of `policy="drop"`; the pattern needs at least
    two with fields.

    Raises `SchemaError` when the pipeline is built, for missing columns and for formats that do not fit a column's type; while running,
    `DataError` for a value that does not fit its format, and for a missing value under `policy="raise"`.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"Age": 22, "Fare": 7.25}, {"Age": None, "Fare": 71.2833}])
    >>> [row["text"] for row in fp.pipe(rows, fp.template("Aged {Age}, paid {Fare:.2f}."))]
    ['Aged 22, paid 7.25.', 'Aged unknown, paid 71.28.']
    >>> [row["text"] for row in fp.pipe(rows, fp.template("Aged {Age}, paid {Fare:.2f}.", policy="drop"))]
    ['Aged 22, paid 7.25.', 'paid 71.28.']
    >>> [row["text"] for row in fp.pipe(rows, fp.template("Aged {Age}, paid {Fare:.2f}.", seed=1))]
    ['paid 7.25, Aged 22.', 'Aged unknown, paid 71.28.']

    See also: `tokenize`, which turns the sentences into token ids; `drop_fields`, which hides values at random.
    """
    check_text(into=into)
    if into in HIDDEN or not into:
        raise ArgumentError(f"into={into!r} cannot name a column; choose another name.")
    Template(pattern, missing=missing, policy=policy)  # checks
    if seed is not None:
        check_integer(seed=seed)
        movable = sum(bool(phrase.fields) for phrase in parse(pattern))
        if movable < 2:
            raise ArgumentError(
                f"template({pattern!r}) has {movable} phrases with fields, and with seed= they change places. "
                "Write two or more, with one of . , ; | ! ? or a line end between them, or leave seed out."
            )
    return _Template(pattern, missing, policy, into, seed)


@frozen
class Template:
    """A sentence with fields for the values of a row. An immutable value: compare it, pickle it, print it.

    `policy` decides what is written for a missing value (null or NaN):

    - `"say"`: the text `missing`.
    - `"drop"`: nothing, and the phrase around the field is left out. Phrases end at one of `. , ; | ! ?` before white space or the
      pattern's end, and at line ends. Each phrase that stays keeps the separator after it; the last one takes the end of the pattern. If no
      phrase stays, the sentence is "".
    - `"raise"`: nothing; a `DataError` names the field and the row.

    >>> sentence = Template("{name}, aged {age}, sails.", policy="drop")
    >>> sentence.render_row({"name": "Ann", "age": None})
    'Ann, sails.'
    >>> sentence.columns
    ('name', 'age')
    """

    pattern: str = field()
    missing: str = field(default="unknown", kw_only=True)
    policy: Policy = field(default="say", kw_only=True)

    def __attrs_post_init__(self) -> None:
        """Check the pattern and the policy: a mistake must not wait for the first row."""
        check_text(pattern=self.pattern, missing=self.missing)
        check_choice(_POLICIES, policy=self.policy)
        parse(self.pattern)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the pattern names, in order, each once."""
        return tuple(dict.fromkeys(place.name for place in self._fields))

    @property
    def _fields(self) -> tuple[Field, ...]:
        return tuple(dict.fromkeys(place for phrase in parse(self.pattern) for place in phrase.fields))

    def check(self, schema: Schema) -> None:
        """Raise `SchemaError` if the schema lacks a column or a column's type cannot take its format."""
        check_columns(self.columns, [name for name in schema.names if name not in HIDDEN], f"template({self.pattern!r})")
        for place in self._fields:
            check_format(schema.field(place.name).type, place, self.pattern)

    def render_row(self, row: Mapping[str, Any]) -> str:
        """Write one row: the plain definition of what `render` does to many."""
        check_columns(self.columns, tuple(row), f"template({self.pattern!r})")
        phrases = parse(self.pattern)
        texts = [(self._phrase(phrase, row), phrase.end) for phrase in phrases]
        kept = [(text, end) for text, end in texts if text is not None]
        return "".join(text + end for text, end in kept[:-1]) + kept[-1][0] + phrases[-1].end if kept else ""

    def _phrase(self, phrase: Phrase, row: Mapping[str, Any]) -> str | None:
        absent = [place.name for place in phrase.fields if is_missing(row[place.name])]
        if absent and self.policy == "drop":
            return None
        if absent and self.policy == "raise":
            raise _missing(self.pattern, absent[0], "the row")
        return "".join(
            piece if isinstance(piece, str) else self.missing if piece.name in absent else piece.write(row[piece.name])
            for piece in phrase.pieces
        )

    def render(self, chunk: RecordBatch, *, keys: Keys | None = None) -> pa.StringArray:
        """Write every row of a chunk: strings, one for each row, equal to `render_row` of each.

        With `keys`, uint64[N], the phrases with fields change places, in an order that the row's key decides.
        """
        texts = {place: format_column(chunk, place) for place in self._fields}
        gaps = {place: text for place, text in texts.items() if text.null_count}
        if gaps and self.policy == "raise":
            places = {place: pc.index(text.is_null(), True).as_py() for place, text in gaps.items()}
            first = min(places, key=lambda place: places[place])
            raise _missing(self.pattern, first.name, row_at(chunk, places[first]))
        if gaps and self.policy == "say":
            texts |= {place: text.fill_null(self.missing) for place, text in gaps.items()}
        join = _join_present if gaps and self.policy == "drop" else _join_all
        phrases = parse(self.pattern)
        sentences = join(phrases, texts) if keys is None else join(*_shuffled(phrases, texts, keys))
        return sentences if isinstance(sentences, pa.Array) else pa.repeat(sentences, chunk.num_rows)


def concat(pieces: list[Any]) -> Any:
    """Join strings and columns of strings row by row; null where one is null."""
    texts = [text_scalar(piece) if isinstance(piece, str) else piece for piece in (*pieces, "")]
    return pc.binary_join_element_wise(*(texts if pieces else [text_scalar(""), *texts]))


def _join_all(phrases: tuple[Phrase, ...], texts: Mapping[Field, pa.StringArray]) -> Any:
    pieces = [piece for phrase in phrases for piece in (*phrase.pieces, phrase.end)]
    return concat([texts[piece] if isinstance(piece, Field) else piece for piece in pieces])


def _join_present(phrases: tuple[Phrase, ...], texts: Mapping[Field, pa.StringArray]) -> Any:
    """Leave out each phrase with a missing field, row by row."""
    parts: list[Any] = []
    followed: Any = pa.scalar(value=False)  # whether a later phrase is kept: then this phrase keeps its own separator
    for phrase in reversed(phrases):
        text = _phrase_texts(phrase, texts)
        parts.append(concat([text, pc.if_else(followed, phrase.end, phrases[-1].end)]))
        followed = pc.or_(followed, pc.is_valid(text))
    return pc.binary_join_element_wise(*reversed(parts), "", null_handling="replace", null_replacement="")


def _phrase_texts(phrase: Phrase, texts: Mapping[Field, pa.StringArray]) -> Any:
    """Write a phrase without its end, for every row; null where it is to be dropped."""
    return concat([texts[piece] if isinstance(piece, Field) else piece for piece in phrase.pieces])


def _shuffled(
    phrases: tuple[Phrase, ...], texts: Mapping[Field, pa.StringArray], keys: Keys
) -> tuple[tuple[Phrase, ...], dict[Field, pa.StringArray]]:
    """Let the phrases with fields change places: return phrases of one field each, and for each field the phrase of every row there."""
    movable = [place for place, phrase in enumerate(phrases) if phrase.fields]
    written = pa.concat_arrays([_phrase_texts(phrases[place], texts) for place in movable])
    order = np.argsort([fold_into_rows(keys, place) for place in range(len(movable))], axis=0)  # of each row, in a column
    fields = {place: Field(str(place)) for place in movable}  # parse refuses columns named by a number
    return (
        tuple(Phrase((fields[place],), phrase.end) if place in fields else phrase for place, phrase in enumerate(phrases)),
        {fields[place]: written.take(pa.array(order[at] * len(keys) + np.arange(len(keys)))) for at, place in enumerate(movable)},
    )


def _missing(pattern: str, name: str, row: str) -> DataError:
    return DataError(
        f"template({pattern!r}) needs the field {name!r}, which is missing in {row}. "
        'Fill it with map, leave such rows out with filter, or choose policy="say" or policy="drop".'
    )


@frozen(repr=False)
class _Template(RowWise):
    pattern: str
    missing: str = "unknown"
    policy: Policy = "say"
    into: str = "text"
    seed: int | None = None

    @property
    def template(self) -> Template:
        return Template(self.pattern, missing=self.missing, policy=self.policy)

    def schema(self, schema: Schema) -> Schema:
        self.template.check(schema)
        return set_field(schema, self.into, pa.string())

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, draws=seeded(self), columns_read=self.template.columns, longest_row=identity, advice=CACHE_ADVICE)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        keys = None if self.seed is None else fold_into_rows(row_keys(chunk), "template", self.seed)
        return set_column(chunk, self.into, self.template.render(chunk, keys=keys))
