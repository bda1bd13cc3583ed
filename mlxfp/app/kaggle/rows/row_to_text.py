"""Conversion of competition rows to text, based on the spec."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from numpy.typing import NDArray
from pyarrow import RecordBatch, Schema
from toolz import identity

from mlxfp import Dataset, RowWise, Template, select_columns, to_table
from mlxfp.app.kaggle.rows.numbers import NumberFormat, NumberStyle, find_bins
from mlxfp.app.kaggle.specs.cells import as_floats, spell
from mlxfp.app.kaggle.specs.specs import ColumnSpec, DatasetSpec, humanize
from mlxfp.parts import Example, Traits, fold_into_rows, row_keys, set_column, set_field
from mlxfp.support.arrow_types import is_binary, is_number_like, value_type
from mlxfp.support.checks import check_choice, check_columns, check_integer, check_text, check_types
from mlxfp.support.errors import ArgumentError, SchemaError
from mlxfp.support.randomness import Keys

Form = Literal["sentence", "key_value"]
Missing = Literal["drop", "unknown"]
Bins = Mapping[str, tuple[tuple[float, int], ...]]  # for each bin of a column: lower bound, and percentage of rows below the bound


def fit_row_to_text(  # noqa: PLR0913  # one keyword-only argument per option
    spec: DatasetSpec,
    rows: Dataset[Any],
    *,
    form: Form = "sentence",
    missing: Missing = "drop",
    numbers: NumberStyle = "round",
    digits: int = 2,
    seed: int | None = None,
    into: str = "text",
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Return a stage that writes rows as text, from a spec and the training rows.

    - `form="sentence"` writes a question about the target, then a sentence for each column, such as "The age is 22.". A text column is
      written as "Name: ...". Rows of a time series begin with the time and use the past tense.
    - `form="key_value"` writes "age: 22;" for each column. Backslashes escape `:` in titles, `;` in values, and backslashes.

    Columns and values have the names from the spec. The argument `missing` applies to missing values (null, NaN) and to values that the
    spec lists as `absent`. `missing="drop"` omits missing and absent values. `missing="unknown"` writes "unknown" for missing values and
    "none" for absent values.

    The argument `numbers` selects the number format: `"raw"` (exact), `"round"` (`digits` decimals) or `"quantile"` (one of `digits`
    quantiles, such as "40 to 50, quantile 50-60 %"). If `seed` is given, every row and epoch has a different column order.

    Only quantiles are fitted: one pass over `rows`, with all numbers in memory. Numbers beyond the training rows fall into the first or
    last quantile. Unknown categories are written unchanged. A column without numbers in the training rows counts as missing.

    Building a pipeline raises `SchemaError` if the columns do not fit the spec.

    >>> import mlxfp as fp
    >>> columns = [ColumnSpec(name="Age", type="numerical"), ColumnSpec(name="Sex", type="categorical", values={"f": "female"})]
    >>> about = {"train": fp.kaggle.FileSpec(name="train.csv"), "target": ["Survived"], "classes": ["0", "1"], "metric": "accuracy"}
    >>> spec = DatasetSpec(name="ship", kind="binary", columns=columns, **about)
    >>> train = fp.from_examples([{"Age": 22.0, "Sex": "f"}, {"Age": 31.5, "Sex": "m"}, {"Age": None, "Sex": "f"}])
    >>> for row in fp.pipe(train, fit_row_to_text(spec, train)):
    ...     print(row["text"])
    Survived or not? The age is 22. The sex is female.
    Survived or not? The age is 31.5. The sex is m.
    Survived or not? The sex is female.
    >>> for row in fp.pipe(train, fit_row_to_text(spec, train, form="key_value", missing="unknown", numbers="quantile")):
    ...     print(row["text"])
    age: below 31.5, quantile 0-50 %; sex: female;
    age: 31.5 or more, quantile 50-100 %; sex: m;
    age: unknown; sex: female;

    See also: `template` for your own pattern; `token_budget` for the number of tokens; `drop_fields` for hiding values at random.
    """
    check_types(DatasetSpec, spec=spec)
    check_types(Dataset, rows=rows)
    check_integer(digits=digits, **({} if seed is None else {"seed": seed}))
    check_text(into=into)
    if into in ("__row__", "__key__") or not into:
        raise ArgumentError(f"into={into!r} is empty or a reserved column name. Choose another name.")
    _check_written(spec, form, missing, numbers, digits)
    bins = find_quantiles(spec, rows, digits) if numbers == "quantile" else {}
    return write_rows(spec, bins, form=form, missing=missing, numbers=numbers, digits=digits, seed=seed, into=into)


def write_rows(  # noqa: PLR0913  # arguments of `fit_row_to_text`
    spec: DatasetSpec, bins: Bins, *, form: Form, missing: Missing, numbers: NumberStyle, digits: int, seed: int | None, into: str = "text"
) -> "RowToText":
    """Return the stage of `fit_row_to_text` from known quantiles, without reading rows. The dict `bins` maps column names to quantiles."""
    _check_written(spec, form, missing, numbers, digits)
    columns = _in_order(spec)
    formats = tuple(NumberFormat(numbers, digits, bins.get(column.name, ())) for column in columns)
    question = spec.task.question.format(", ".join(map(humanize, spec.target))) if form == "sentence" else ""
    return RowToText(
        columns, formats, question[:1].upper() + question[1:], spec.time if spec.task.column == "time" else None, form, missing, seed, into
    )


def _check_written(spec: DatasetSpec, form: Form, missing: Missing, numbers: NumberStyle, digits: int) -> None:
    check_choice(get_args(Form), form=form)
    check_choice(get_args(Missing), missing=missing)
    check_choice(get_args(NumberStyle), numbers=numbers)
    least = 2 if numbers == "quantile" else 0
    if digits < least:
        raise ArgumentError(f"digits must be at least {least} if numbers={numbers!r}, got digits={digits}. Set digits={least} or higher.")
    if not spec.columns:
        raise ArgumentError(f"The spec of {spec.name!r} has no columns to write. Add the input columns to the spec.")


def _in_order(spec: DatasetSpec) -> tuple[ColumnSpec, ...]:
    """Return the columns to write. In a time series, the time column comes first."""
    if spec.task.column != "time" or spec.time is None:
        return spec.columns
    listed = [column for column in spec.columns if column.name == spec.time]
    first = listed[0] if listed else ColumnSpec(name=spec.time, type="text")
    return (first, *(column for column in spec.columns if column.name != spec.time))


def find_quantiles(spec: DatasetSpec, rows: Dataset[Any], count: int) -> Bins:
    """Divide the numbers of each numerical column into `count` quantiles. Values that the spec lists as `absent` are ignored."""
    columns = {column.name: column for column in spec.columns if column.kind.is_number}
    if not columns:
        return {}
    chunks = to_table(select_columns(list(columns))(rows)).to_batches()
    return {
        name: find_bins(np.concatenate([_known(chunk, column) for chunk in chunks] or [np.empty(0)]), count)
        for name, column in columns.items()
    }


def _known(chunk: RecordBatch, column: ColumnSpec) -> NDArray[np.float64]:
    absent = _absent(chunk, column)
    numbers = as_floats(chunk.column(column.name))
    return numbers if absent is None else numbers[~absent.to_numpy(zero_copy_only=False)]


def _absent(chunk: RecordBatch, column: ColumnSpec) -> pa.BooleanArray | None:
    """Return a mask of the values in `ColumnSpec.absent`, or None if the spec lists no absent values."""
    if not column.absent:
        return None
    if column.kind.is_number:
        absent = np.isin(as_floats(chunk.column(column.name)), [float(value) for value in column.absent])
        return pa.array(absent)  # compare in NumPy, because -0.0 differs from 0.0 in Arrow
    return pc.is_in(spell(chunk, column.name), pa.array(column.absent))


@frozen(repr=False)
class RowToText(RowWise):
    """Stage that writes rows as text. Returned by `fit_row_to_text`.

    >>> import mlxfp as fp
    >>> about = {"train": fp.kaggle.FileSpec(name="train.csv"), "target": ["price"], "metric": "rmse"}
    >>> spec = DatasetSpec(name="homes", kind="regression", columns=[ColumnSpec(name="Rooms", type="numerical")], **about)
    >>> fit_row_to_text(spec, fp.from_examples([{"Rooms": 3}])).phrases(pa.record_batch({"Rooms": [4, None]}))["Rooms"].to_pylist()
    ['The rooms is 4', None]
    """

    written: tuple[ColumnSpec, ...]
    formats: tuple[NumberFormat, ...]  # number format of each column
    question: str
    time: str | None
    form: Form
    missing: Missing
    seed: int | None
    into: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns to write."""
        return tuple(column.name for column in self.written)

    def schema(self, schema: Schema) -> Schema:
        """Add the text column. Raise `SchemaError` for missing columns and for types that do not fit the spec."""
        check_columns(self.columns, schema.names, "fit_row_to_text")
        for column in self.written:
            _check_type(column, schema.field(column.name).type)
        return set_field(schema, self.into, pa.string())

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, draws=self.seed is not None, columns_read=self.columns, longest_row=identity)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        keys = None if self.seed is None else fold_into_rows(row_keys(chunk), "fit_row_to_text", self.seed)
        return set_column(chunk, self.into, self.texts(chunk, keys))

    def texts(self, chunk: RecordBatch, keys: Keys | None = None) -> pa.StringArray:
        """Return the text of every row. `keys`, uint64[N], selects the random order of the columns in each row."""
        phrases = self.phrases(chunk)
        names = [f"c{index}" for index in range(len(phrases))]  # some column names, such as names with braces, are invalid in a template
        pattern = "".join(f"{{{name}}}{'. ' if self.form == 'sentence' else '; '}" for name in names)
        written = Template(pattern.rstrip(), policy="drop").render(pa.record_batch(list(phrases.values()), names), keys=keys)
        if not self.question:
            return written
        return pc.if_else(pc.equal(written, ""), self.question, pc.binary_join_element_wise(self.question, written, " "))

    def phrases(self, chunk: RecordBatch) -> Mapping[str, pa.StringArray]:
        """Return the text of each column in each row, such as "The age is 22". The text is null if the row omits the column."""
        return {column.name: self._phrase(column, numbers, chunk) for column, numbers in zip(self.written, self.formats, strict=True)}

    def _phrase(self, column: ColumnSpec, numbers: NumberFormat, chunk: RecordBatch) -> pa.StringArray:
        is_unknown = self.missing == "unknown"
        texts = numbers.write(chunk.column(column.name)) if column.kind.is_number else spell(chunk, column.name)
        if column.values:
            codes, names = (pa.array(part, pa.string()) for part in zip(*column.values, strict=True))
            texts = pc.coalesce(names.take(pc.index_in(texts, codes)), texts)
        absent = _absent(chunk, column)
        if absent is not None:
            texts = pc.if_else(absent, pa.scalar("none" if is_unknown else None, pa.string()), texts)
        if self.form == "key_value":
            texts = pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), ";", "\\;")
        if is_unknown:
            texts = texts.fill_null("unknown")
        return pc.binary_join_element_wise(self._prefix(column), texts, "")

    def _prefix(self, column: ColumnSpec) -> str:
        if self.form == "key_value":
            return column.title.replace("\\", "\\\\").replace(":", "\\:") + ": "
        if column.name == self.time:
            return "On "
        title, verb = column.title, "is" if self.time is None else "was"
        return column.kind.phrase.format(title=title, Title=title[:1].upper() + title[1:], verb=verb)


def _check_type(column: ColumnSpec, kind: pa.DataType) -> None:
    inner = value_type(kind)
    if column.kind.is_number and not is_number_like(inner):
        raise SchemaError(
            f"The column {column.name!r} is {column.type} in the spec, but has the type {kind}. "
            "Read the column as a number, for example with read_csv(schema=...), or change the type in the spec."
        )
    if pa.types.is_nested(inner) or is_binary(inner):
        raise SchemaError(
            f"The column {column.name!r} has the type {kind}, which cannot be written as text. Remove the column from the spec, or convert "
            "the values with fp.map."
        )
