"""Templates, which write a row as a sentence."""

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
    """Write each row as a sentence, in a column of strings.

    The pattern is a Python format string with column names as fields: `{Age}`, `{Fare:.2f}`, `{Name!r}`. A literal brace is written `{{`.
    `policy` selects the treatment of missing values (null or NaN), as described in `Template`. Other columns are unchanged. An existing
    column `into` is replaced.

    `seed` shuffles the phrases of the sentence, for augmentation. A phrase is the text between two separators such as ", " (see
    `policy="drop"` of `Template`). Only phrases with a field move. Each row and epoch has a new order, and all orders have the same
    probability. The pattern needs at least two phrases with fields.

    Raises `SchemaError` at construction of the pipeline if a column is missing or a format does not fit the type of a column. Raises
    `DataError` at run time if a value does not fit the format, or is missing with `policy="raise"`.

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
        raise ArgumentError(f"into={into!r} is empty or a reserved column name. Choose another name.")
    Template(pattern, missing=missing, policy=policy)  # create a `Template` only to check the arguments
    if seed is not None:
        check_integer(seed=seed)
        movable = sum(bool(phrase.fields) for phrase in parse(pattern))
        if movable < 2:
            raise ArgumentError(
                f"seed= shuffles phrases with fields, but template({pattern!r}) has only {movable}. "
                "Separate phrases by one of . , ; | ! ? or a line end, or omit seed."
            )
    return _Template(pattern, missing, policy, into, seed)


@frozen
class Template:
    """Sentence with fields for the values of a row. A template is immutable, and can be compared and pickled.

    `policy` selects the treatment of missing values (null or NaN):

    - `"say"`: writes the text `missing`.
    - `"drop"`: drops each phrase with a missing value. A phrase is the text between two separators: a line end, or one of `. , ; | ! ?`
      followed by white space or at the end of the pattern. The sentence always ends with the last separator of the pattern, such as a full
      stop. If all phrases are dropped, the sentence is "".
    - `"raise"`: raises a `DataError` with the field and the row.

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
        """Check the pattern and the policy for missing values when the template is created."""
        check_text(pattern=self.pattern, missing=self.missing)
        check_choice(_POLICIES, policy=self.policy)
        parse(self.pattern)

    @property
    def columns(self) -> tuple[str, ...]:
        """Distinct columns of the pattern, in the order of their first use."""
        return tuple(dict.fromkeys(field.name for field in self._fields))

    @property
    def _fields(self) -> tuple[Field, ...]:
        return tuple(dict.fromkeys(field for phrase in parse(self.pattern) for field in phrase.fields))

    def check(self, schema: Schema) -> None:
        """Raise `SchemaError` if a column is missing, or if its type does not fit the format in its placeholder, such as `{Fare:.2f}`."""
        check_columns(self.columns, [name for name in schema.names if name not in HIDDEN], f"template({self.pattern!r})")
        for placeholder in self._fields:
            check_format(schema.field(placeholder.name).type, placeholder, self.pattern)

    def render_row(self, row: Mapping[str, Any]) -> str:
        """Write one row as a sentence. Slow reference implementation of `render`, for single rows."""
        check_columns(self.columns, tuple(row), f"template({self.pattern!r})")
        phrases = parse(self.pattern)
        texts = [(self._phrase(phrase, row), phrase.end) for phrase in phrases]
        kept = [(text, end) for text, end in texts if text is not None]
        return "".join(text + end for text, end in kept[:-1]) + kept[-1][0] + phrases[-1].end if kept else ""

    def _phrase(self, phrase: Phrase, row: Mapping[str, Any]) -> str | None:
        absent = [field.name for field in phrase.fields if is_missing(row[field.name])]
        if absent and self.policy == "drop":
            return None
        if absent and self.policy == "raise":
            raise _missing(self.pattern, absent[0], "the row")
        return "".join(
            piece if isinstance(piece, str) else self.missing if piece.name in absent else piece.write(row[piece.name])
            for piece in phrase.pieces
        )

    def render(self, chunk: RecordBatch, *, keys: Keys | None = None) -> pa.StringArray:
        """Write each row of a chunk as a sentence. The results equal `render_row` of each row.

        The argument `keys`, uint64[N], holds a random key for each row. The key determines the order of the phrases with fields.
        Phrases without fields keep their places. `keys=None` keeps all phrases in the order of the template.
        """
        texts = {field: format_column(chunk, field) for field in self._fields}
        gaps = {field: text for field, text in texts.items() if text.null_count}
        if gaps and self.policy == "raise":
            rows = {field: pc.index(text.is_null(), True).as_py() for field, text in gaps.items()}
            first = min(rows, key=lambda field: rows[field])
            raise _missing(self.pattern, first.name, row_at(chunk, rows[first]))
        if gaps and self.policy == "say":
            texts |= {field: text.fill_null(self.missing) for field, text in gaps.items()}
        join = _join_present if gaps and self.policy == "drop" else _join_all
        phrases = parse(self.pattern)
        sentences = join(phrases, texts) if keys is None else join(*_shuffled(phrases, texts, keys))
        return sentences if isinstance(sentences, pa.Array) else pa.repeat(sentences, chunk.num_rows)


def concat(pieces: list[Any]) -> Any:
    """Join strings and string columns row by row. The result of a row is null if any of its strings is null."""
    texts = [text_scalar(piece) if isinstance(piece, str) else piece for piece in (*pieces, "")]
    return pc.binary_join_element_wise(*(texts if pieces else [text_scalar(""), *texts]))


def _join_all(phrases: tuple[Phrase, ...], texts: Mapping[Field, pa.StringArray]) -> Any:
    pieces = [piece for phrase in phrases for piece in (*phrase.pieces, phrase.end)]
    return concat([texts[piece] if isinstance(piece, Field) else piece for piece in pieces])


def _join_present(phrases: tuple[Phrase, ...], texts: Mapping[Field, pa.StringArray]) -> Any:
    """Join the phrases of a template for each row. Leave out phrases with a missing value."""
    parts: list[Any] = []
    followed: Any = pa.scalar(value=False)  # True for a row if any phrase after the current phrase is present
    for phrase in reversed(phrases):
        text = _phrase_texts(phrase, texts)
        parts.append(concat([text, pc.if_else(followed, phrase.end, phrases[-1].end)]))
        followed = pc.or_(followed, pc.is_valid(text))
    return pc.binary_join_element_wise(*reversed(parts), "", null_handling="replace", null_replacement="")


def _phrase_texts(phrase: Phrase, texts: Mapping[Field, pa.StringArray]) -> Any:
    """Return the text of a phrase for each row, without the separator after the phrase. The text is null if a value is null."""
    return concat([texts[piece] if isinstance(piece, Field) else piece for piece in phrase.pieces])


def _shuffled(
    phrases: tuple[Phrase, ...], texts: Mapping[Field, pa.StringArray], keys: Keys
) -> tuple[tuple[Phrase, ...], dict[Field, pa.StringArray]]:
    """Shuffle the phrases that contain fields, in a separate order for each row. Other phrases keep their places.

    Return new phrases, and a dict from new fields to text columns. A new field replaces each shuffled phrase. The column of a field holds
    the phrase that moves to the place of the field, for each row.
    """
    movable = [index for index, phrase in enumerate(phrases) if phrase.fields]
    written = pa.concat_arrays([_phrase_texts(phrases[index], texts) for index in movable])
    # order[:, i] holds the order of the phrases in row i of the chunk.
    order = np.argsort([fold_into_rows(keys, index) for index in range(len(movable))], axis=0)
    fields = {index: Field(str(index)) for index in movable}  # `parse` rejects numbers as column names, so the new names are unique
    return (
        tuple(Phrase((fields[index],), phrase.end) if index in fields else phrase for index, phrase in enumerate(phrases)),
        {fields[index]: written.take(pa.array(order[rank] * len(keys) + np.arange(len(keys)))) for rank, index in enumerate(movable)},
    )


def _missing(pattern: str, name: str, row: str) -> DataError:
    return DataError(
        f"template({pattern!r}) needs the field {name!r}, which is missing in {row}. "
        'Fill missing values with map, remove the rows with filter, or choose policy="say" or policy="drop".'
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
