"""Rows of a competition as text: what is known of the columns says how."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.types import decoded, is_binary, is_number_like, value_type
from mlxfp.core.checks import check_choice, check_columns, check_integer, check_text, check_types
from mlxfp.core.chunks import HIDDEN, Example, RecordBatch, Schema, row_keys, set_column, set_field
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import ArgumentError, SchemaError
from mlxfp.core.execution import run, start
from mlxfp.core.nodes import check_dataset
from mlxfp.core.pipelines import pipe
from mlxfp.core.randomness import Keys, fold_into_rows
from mlxfp.core.stages import RowWise
from mlxfp.data.rows.columns import select_columns
from mlxfp.kaggle.rows.key_values import escape_key, escape_values
from mlxfp.kaggle.rows.numbers import NumberFormat, Numbers, as_floats, find_bins, shortest
from mlxfp.kaggle.specs.specs import ColumnSpec, DatasetSpec, humanize
from mlxfp.text.templates.formatting import format_column
from mlxfp.text.templates.random_templates import Field
from mlxfp.text.templates.templates import Template

Form = Literal["sentence", "key_value"]
Missing = Literal["drop", "unknown"]
Bins = Mapping[str, tuple[tuple[float, int], ...]]  # of each column, see `find_bins`

_UNKNOWN, _NOTHING = "unknown", "none"
# What a row is asked, so that a model that has read much knows what the sentences are about.
_QUESTIONS = {
    "binary": "{0} or not?",
    "multiclass": "Which {0}?",
    "multilabel": "Which of {0}?",
    "regression": "What {0}?",
    "ordinal": "How much {0}?",
    "ranking": "How much {0}?",
    "time_series": "What {0} at that time?",
}


def fit_wording(  # noqa: PLR0913  # what has a default is keyword-only; each is one choice of how rows read
    spec: DatasetSpec,
    rows: Dataset[Any],
    *,
    form: Form = "sentence",
    missing: Missing = "drop",
    numbers: Numbers = "round",
    digits: int = 2,
    seed: int | None = None,
    into: str = "text",
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Find how rows are written as text, from a spec and the training rows: a stage for these and any other rows.

    - `form="sentence"`: a question that the kind of competition asks, then "The age is 22." for each column, text columns as "Name: ...".
      Of a time series in the past tense, after its time.
    - `form="key_value"`: "age: 22;" for each column, which `read_key_values` reads back.

    Columns and values go by the names that the spec gives them. A value that is missing (null, NaN) is left out or said to be unknown;
    one that is `absent` by the spec is left out or said to be none. Numbers are written `"raw"`, with `digits` digits after the point
    (`"round"`) or `"significant"` ones, or as one of `digits` quantiles (`"quantile"`), as in "40 to 50, quantile 50-60 %". With `seed`,
    the columns come in another order for every row and epoch.

    Only quantiles are learnt: `rows` are then read once, in epoch 0, and their numbers held in memory. What other rows hold changes
    nothing: a number beyond the training rows is in the first or last quantile, a category never seen is written as it is, and a
    column without any number in the training rows counts as missing.

    Raises `SchemaError` when a pipeline is built whose columns do not fit the spec.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.kaggle.specs.specs import FileSpec
    >>> columns = [ColumnSpec(name="Age", type="numerical"), ColumnSpec(name="Sex", type="categorical", values={"f": "female"})]
    >>> about = {"train": FileSpec(name="train.csv"), "target": ["Survived"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> spec = DatasetSpec(name="ship", kind="binary", columns=columns, **about)
    >>> train = from_examples([{"Age": 22.0, "Sex": "f"}, {"Age": 31.5, "Sex": "m"}, {"Age": None, "Sex": "f"}])
    >>> for row in pipe(train, fit_wording(spec, train)):
    ...     print(row["text"])
    Survived or not? The age is 22. The sex is female.
    Survived or not? The age is 31.5. The sex is m.
    Survived or not? The sex is female.
    >>> for row in pipe(train, fit_wording(spec, train, form="key_value", missing="unknown", numbers="quantile")):
    ...     print(row["text"])
    age: below 31.5, quantile 0-50 %; sex: female;
    age: 31.5 or more, quantile 50-100 %; sex: m;
    age: unknown; sex: female;

    See also: `template` for a pattern of your own; `token_budget` for what the text costs; `drop_fields`, which hides values at random.
    """
    check_types(DatasetSpec, spec=spec)
    check_dataset(rows, fit_wording)
    check_choice(get_args(Form), form=form)
    check_choice(get_args(Missing), missing=missing)
    check_choice(get_args(Numbers), numbers=numbers)
    check_integer(digits=digits, **({} if seed is None else {"seed": seed}))
    check_text(into=into)
    if into in HIDDEN or not into:
        raise ArgumentError(f"into={into!r} cannot name a column; choose another name.")
    _check_written(spec, numbers, digits)
    bins = _find_bins(spec, rows, digits) if numbers == "quantile" else {}
    return write_rows(spec, bins, form=form, missing=missing, numbers=numbers, digits=digits, seed=seed, into=into)


def write_rows(  # noqa: PLR0913  # those of `fit_wording`
    spec: DatasetSpec, bins: Bins, *, form: Form, missing: Missing, numbers: Numbers, digits: int, seed: int | None, into: str = "text"
) -> "Wording":
    """Make the stage of what `fit_wording` learns: the `bins` of its quantiles, none where numbers are written otherwise."""
    _check_written(spec, numbers, digits)
    words = tuple(_Words(column, NumberFormat(numbers, digits, bins.get(column.name, ()))) for column in _said(spec))
    question = _question(spec) if form == "sentence" else ""
    return Wording(words, question, spec.time if spec.kind == "time_series" else None, form, missing, seed, into)


def _check_written(spec: DatasetSpec, numbers: Numbers, digits: int) -> None:
    least = {"raw": 0, "round": 0, "significant": 1, "quantile": 2}[numbers]
    if digits < least:
        raise ArgumentError(f"digits must be at least {least} for numbers={numbers!r}, got {digits}.")
    if not spec.columns:
        raise ArgumentError(f"The spec of {spec.name!r} has no columns to write. Name those that a model may see.")


def _said(spec: DatasetSpec) -> tuple[ColumnSpec, ...]:
    """Return the columns to write; of a time series the time first."""
    if spec.kind != "time_series" or spec.time is None:
        return spec.columns
    own = [column for column in spec.columns if column.name == spec.time]
    first = own[0] if own else ColumnSpec(name=spec.time, type="text")
    return (first, *(column for column in spec.columns if column.name != spec.time))


def _question(spec: DatasetSpec) -> str:
    asked = _QUESTIONS[spec.kind].format(", ".join(map(humanize, spec.target)))
    return asked[:1].upper() + asked[1:]


def _find_bins(spec: DatasetSpec, rows: Dataset[Any], count: int) -> Bins:
    columns = {column.name: column for column in spec.columns if column.type == "numerical"}
    if not columns:
        return {}
    chunks = [chunk for chunk, _ in run(pipe(rows, select_columns(list(columns))), start(0, None))]
    return {
        name: find_bins(np.concatenate([_known(chunk, column) for chunk in chunks] or [np.empty(0)]), count)
        for name, column in columns.items()
    }


def _known(chunk: RecordBatch, column: ColumnSpec) -> NDArray[np.float64]:
    absent = _absent(chunk, column)
    numbers = as_floats(chunk.column(column.name))
    return numbers if absent is None else numbers[~absent.to_numpy(zero_copy_only=False)]


@frozen
class _Words:
    """How the values of a column are said."""

    column: ColumnSpec
    numbers: NumberFormat

    def write(self, chunk: RecordBatch, *, nothing: str | None) -> pa.StringArray:
        """Return what is said of each value, `nothing` of those that say that there is nothing; null where it is missing."""
        column = self.column
        absent = _absent(chunk, column)
        texts = self.numbers.write(chunk.column(column.name)) if column.type == "numerical" else spell(chunk, column.name)
        if column.values:
            codes, names = (pa.array(part, pa.string()) for part in zip(*column.values, strict=True))
            texts = pc.coalesce(names.take(pc.index_in(texts, codes)), texts)
        return texts if absent is None else pc.if_else(absent, pa.scalar(nothing, pa.string()), texts)


def _absent(chunk: RecordBatch, column: ColumnSpec) -> pa.BooleanArray | None:
    """Say of each value whether it means that there is nothing."""
    if not column.absent:
        return None
    if column.type == "numerical":
        absent = np.isin(as_floats(chunk.column(column.name)), [float(value) for value in column.absent])
        return pa.array(absent)  # by numpy: to Arrow, -0.0 is not 0.0
    return pc.is_in(spell(chunk, column.name), pa.array(column.absent))


def spell(chunk: RecordBatch, name: str) -> pa.StringArray:
    """Write the values of a column as a file has them: whole floats, which is what integers beside nulls become, without a point.

    >>> spell(pa.record_batch({"x": [1.0, None, 2.5]}), "x").to_pylist()
    ['1', None, '2.5']
    """
    column = decoded(chunk.column(name))
    if pa.types.is_floating(column.type):
        encoded = column.cast(pa.float64()).dictionary_encode()
        texts = [None if value != value else shortest(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)
    return format_column(chunk, Field(name)).cast(pa.string())


@frozen(repr=False)
class Wording(RowWise):
    """Rows as text, as `fit_wording` found it. A stage, and a value: it knows nothing but what it was fitted on.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> from mlxfp.kaggle.specs.specs import FileSpec
    >>> about = {"train": FileSpec(name="train.csv"), "target": ["price"], "metric": "rmse"}
    >>> spec = DatasetSpec(name="homes", kind="regression", columns=[ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> fit_wording(spec, from_examples([{"Rooms": 3}])).phrases(pa.record_batch({"Rooms": [4, None]}))["Rooms"].to_pylist()
    ['The rooms is 4', None]
    """

    words: tuple[_Words, ...]
    question: str
    time: str | None
    form: Form
    missing: Missing
    seed: int | None
    into: str

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are written."""
        return tuple(words.column.name for words in self.words)

    @property
    def bins(self) -> Bins:
        """What was learned: the lower ends of the quantiles of each column, with the percent of training rows below them."""
        return {words.column.name: words.numbers.bins for words in self.words if words.numbers.bins}

    def schema(self, schema: Schema) -> Schema:
        """Add the column of text; raise `SchemaError` for a column that is not there, or is not of its type."""
        check_columns(self.columns, [name for name in schema.names if name not in HIDDEN], "fit_wording")
        for words in self.words:
            _check_type(words.column, schema.field(words.column.name).type)
        return set_field(schema, self.into, pa.string())

    def looks_at(self) -> tuple[str, ...]:
        """Say which columns are read."""
        return self.columns

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Write each row into the column of text."""
        keys = None if self.seed is None else fold_into_rows(row_keys(chunk), "fit_wording", self.seed)
        return set_column(chunk, self.into, self.texts(chunk, keys))

    def texts(self, chunk: RecordBatch, keys: Keys | None = None) -> pa.StringArray:
        """Write every row; with `keys`, uint64[N], its columns in an order that the row's key decides."""
        phrases = self.phrases(chunk)
        names = [f"c{place}" for place in range(len(phrases))]  # names of columns may be anything, those of fields may not
        pattern = "".join(f"{{{name}}}{'. ' if self.form == 'sentence' else '; '}" for name in names)
        written = Template(pattern.rstrip(), policy="drop").render(pa.record_batch(list(phrases.values()), names), keys=keys)
        if not self.question:
            return written
        return pc.if_else(pc.equal(written, ""), self.question, pc.binary_join_element_wise(self.question, written, " "))

    def phrases(self, chunk: RecordBatch) -> Mapping[str, pa.StringArray]:
        """Write what is said of each column in each row, null where nothing is."""
        return {words.column.name: self._phrase(words, chunk) for words in self.words}

    def _phrase(self, words: _Words, chunk: RecordBatch) -> pa.StringArray:
        says, column = self.missing == "unknown", words.column
        values = words.write(chunk, nothing=_NOTHING if says else None)
        if self.form == "key_value":
            values = escape_values(values)
        if says:
            values = values.fill_null(_UNKNOWN)
        return pc.binary_join_element_wise(self._lead(column), values, "")

    def _lead(self, column: ColumnSpec) -> str:
        if self.form == "key_value":
            return f"{escape_key(column.title)}: "
        if column.name == self.time:
            return "On "
        if column.type == "text":
            return f"{column.title[:1].upper()}{column.title[1:]}: "
        return f"The {column.title} {'is' if self.time is None else 'was'} "


def _check_type(column: ColumnSpec, kind: pa.DataType) -> None:
    inner = value_type(kind)
    if column.type == "numerical" and not is_number_like(inner):
        raise SchemaError(
            f"The spec says that column {column.name!r} is numerical, and it holds {kind}. "
            "Read it as a number, as with read_csv(schema=), or change its type in the spec."
        )
    if pa.types.is_nested(inner) or is_binary(inner):
        raise SchemaError(f"Column {column.name!r} holds {kind}, which has no text. Leave it out of the spec, or make text of it with map.")
