"""Conversion of table columns to arrays for table networks, fitted on training rows.

Numbers are scaled by quartiles and clipped smoothly (Holzmüller, Grinsztajn and Steinwart, "Better by Default: Strong Pre-Tuned MLPs and
Boosted Trees on Tabular Data", 2024, section 3). Categories are numbered from 1; 0 is a missing or unseen category. Texts become
additional numbers: principal components of their word counts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import evolve, frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema, one_chunk, set_column, set_field
from mlxfp.core.datasets import Dataset, to_table
from mlxfp.core.describing import schema
from mlxfp.core.stages import RowWise, Traits
from mlxfp.data.rows.columns import select_columns
from mlxfp.support.arrow_types import decoded, is_number_like, is_text, value_type
from mlxfp.support.checks import as_strings, check_columns, check_not_negative, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, SchemaError
from mlxfp.text.word_counts import Analyzer, WordCounts, fit_word_counts

NUMBERS, CATEGORIES = "numbers", "categories"
MISSING_FLAG = 2  # a flag column has two categories: number present, number missing
CLIP = 3.0  # scaled numbers lie between -3 and 3, as published (Holzmüller et al., 2024)
_LARGEST = 1e60  # numbers are clipped to the range from -1e60 to 1e60, so that squares are finite
_NARROWEST = 1e-6  # minimum bin width of scaled numbers: narrower bins would allow arbitrarily large outputs
_COMPONENTS = 16  # number of principal components of a text column: 16 of word counts, and 16 of counts of word parts
_NGRAMS = 2048  # maximum number of n-grams of a text column, most frequent first; limits the size of the saved config
_DIGITS = 6  # number of decimal digits of the saved TF-IDF weights and principal components
_CATEGORIES = 1000  # maximum number of categories of a column, most frequent first; other categories count as unseen


@frozen
class NumberColumn:
    """Scaling of a numeric column: (value - median) * factor, clipped smoothly. Missing values become the median.

    `bins` are ascending quantiles of the scaled numbers. `flag=True` adds a column with two categories: number present, number missing.
    `counts` has the number of training rows in each of the two categories.

    >>> NumberColumn("age", median=40.0, factor=0.1).scale(np.array([40.0, 50.0, np.nan])).round(2).tolist()
    [0.0, 0.949999988079071, 0.0]
    """

    name: str
    median: float
    factor: float
    flag: bool = False
    bins: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()

    def scale(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Scale numbers, float64[N] with NaN for missing numbers, to float32[N]."""
        known = np.clip(np.where(np.isnan(values), self.median, values), -_LARGEST, _LARGEST)
        with np.errstate(over="ignore"):  # the factor is huge if the training numbers are almost equal; an infinite result is then clipped
            scaled = np.clip((known - self.median) * self.factor, -_LARGEST, _LARGEST)
        return np.asarray(scaled / np.sqrt(1 + (scaled / CLIP) ** 2), np.float32)  # smooth clipping to numbers between -3 and 3


@frozen
class CategoryColumn:
    """Conversion of a column to category numbers: `values[0]` is category 1, `values[1]` category 2, and so on.

    `values` are the categories in the training rows, as text. Category 0 stands for missing and unseen values. `counts` holds the number of
    training rows of each category, from category 0.

    >>> CategoryColumn("sex", ("f", "m")).number(pa.array(["m", None, "x"])).tolist()
    [2, 0, 0]
    """

    name: str
    values: tuple[str, ...]
    counts: tuple[int, ...] = ()

    def number(self, column: pa.Array) -> NDArray[np.int32]:
        """Return the category of each value, int32[N]. Missing and unseen values are 0."""
        indices = pc.index_in(_texts(column), pa.array(self.values, pa.string()), skip_nulls=True)
        return np.asarray(pc.fill_null(indices, -1).to_numpy(zero_copy_only=False), np.int32) + 1


@frozen(repr=False)
class TextColumn:
    """Conversion of a text column to numbers: principal components of TF-IDF counts of words or parts of words.

    `kept` are the indices of the counted n-grams, `weights` the inverse document frequencies, and `components` the singular vectors of the
    training rows, with a weight for each n-gram.

    >>> said = TextColumn("said", "words", kept=(371, 1_048_000), weights=(1.0, 1.0), components=((0.6, 0.8),))
    >>> said.names, said.numbers(pa.array(["unknown words", None])).tolist()
    (('said: words 1',), [[0.0], [0.0]])
    """

    name: str
    analyzer: Analyzer
    kept: tuple[int, ...]
    weights: tuple[float, ...]
    components: tuple[tuple[float, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the numeric columns computed from the texts."""
        return tuple(f"{self.name}: {self.analyzer} {number}" for number in range(1, len(self.components) + 1))

    def numbers(self, column: pa.Array) -> NDArray[np.float64]:
        """Convert texts to numbers, float64[N, C]: the principal components of their n-gram counts. Missing texts become zeros."""
        arrays = np.array(self.kept, np.int32), np.array(self.weights, np.float32), np.array(self.components, np.float32)
        return np.asarray(WordCounts(self.analyzer, *arrays)(_texts(column).fill_null("").to_pylist()), np.float64)


@frozen(repr=False)
class TableColumns(RowWise):
    """Conversion of table columns to two arrays, fitted by `fit_columns`. The conversion is also a stage that adds both arrays to rows.

    - The array `numbers`, float32[N, numbers], holds the scaled numeric columns, including the numbers computed from the `texts` columns.
    - The array `categories`, int32[N, category columns], holds the category columns, followed by a flag for each numeric column with
      missing values. The flag is 1 for a present number and 2 for a missing number.

    An empty array is left out.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"age": 40.0, "sex": "m"}, {"age": None, "sex": "x"}])
    >>> columns = TableColumns((NumberColumn("age", median=40.0, factor=0.1),), (CategoryColumn("sex", ("f", "m")),))
    >>> [row["categories"].tolist() for row in columns(rows)]
    [[2], [0]]

    See also: `TABLE_MODELS` for the networks with these inputs.
    """

    numbers: tuple[NumberColumn, ...] = ()
    categories: tuple[CategoryColumn, ...] = ()
    texts: tuple[TextColumn, ...] = ()

    @property
    def kinds(self) -> tuple[int, ...]:
        """Number of known categories of each column in the array `categories`."""
        return (*(len(column.values) for column in self.categories), *(MISSING_FLAG for column in self.numbers if column.flag))

    @property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """Number of training rows per category, starting with category 0, for each column in the array `categories`. Empty if unknown."""
        flags = ((0, *column.counts) if column.counts else () for column in self.numbers if column.flag)
        return (*(column.counts for column in self.categories), *flags)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the input columns."""
        return (*(column.name for column in self._measured()), *self._named())

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, columns_read=self.names, longest_row=identity)

    def schema(self, schema: Schema) -> Schema:
        """Return the schema with the added columns. Raises `SchemaError` if an input column is missing or has the wrong type."""
        check_columns(self.names, [name for name in schema.names if name not in HIDDEN], "fit_columns")
        _check_kinds(schema, [column.name for column in self._measured()], self._named())
        extended = schema
        for name, kind in self._kinds().items():
            extended = set_field(extended, name, kind)
        return extended

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        kinds, extended = self._kinds(), chunk
        for name, array in self.arrays(chunk).items():
            storage = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])
            extended = set_column(extended, name, pa.ExtensionArray.from_storage(kinds[name], storage))
        return extended

    def arrays(self, chunk: RecordBatch) -> dict[str, NDArray[Any]]:
        """Return the arrays of a chunk: `numbers`, float32[N, ...], and `categories`, int32[N, ...]. Leave out empty arrays."""
        floats = {column.name: _floats(chunk.column(column.name)) for column in self._measured()}
        for text in self.texts:
            floats |= dict(zip(text.names, text.numbers(chunk.column(text.name)).T, strict=True))
        numbers = [column.scale(floats[column.name]) for column in self.numbers]
        categories = [column.number(chunk.column(column.name)) for column in self.categories]
        categories += [1 + np.isnan(floats[column.name]).astype(np.int32) for column in self.numbers if column.flag]
        parts: dict[str, list[Any]] = {NUMBERS: numbers, CATEGORIES: categories}
        return {name: np.stack(columns, axis=1) for name, columns in parts.items() if columns}

    def __repr__(self) -> str:
        return f"TableColumns({len(self.numbers)} of numbers, {len(self.categories)} of categories)"

    def _measured(self) -> tuple[NumberColumn, ...]:
        """Return the numeric columns of the rows, without the columns computed from texts."""
        from_texts = {name for text in self.texts for name in text.names}
        return tuple(column for column in self.numbers if column.name not in from_texts)

    def _named(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*(column.name for column in self.categories), *(text.name for text in self.texts))))

    def _kinds(self) -> dict[str, Any]:
        counts = {NUMBERS: (pa.float32(), len(self.numbers)), CATEGORIES: (pa.int32(), len(self.kinds))}
        return {name: pa.fixed_shape_tensor(kind, (count,)) for name, (kind, count) in counts.items() if count}


@explain_call
def fit_columns(
    rows: Dataset[Any], *, numbers: Sequence[str] = (), categories: Sequence[str] = (), texts: Sequence[str] = (), bins: int = 0
) -> TableColumns:
    """Compute medians, quartiles and categories of training rows, for converting table columns to arrays. A column has one of three kinds.

    - `numbers` are names of numeric columns. The medians and quartiles of the columns are computed. `bins` is the number of bins of each
      column for piecewise linear embeddings (Gorishniy et al. use 48). A column with missing values gets a category column that marks them.
    - `categories` are names of columns with text or numeric codes. Only the 1,000 most frequent categories of a column are known. All other
      categories count as unseen.
    - `texts` are names of text columns. A text becomes 32 numbers: 16 principal components of the TF-IDF of its words, and 16 principal
      components of the TF-IDF of its character n-grams.

    Reads the rows once.

    Raises `ArgumentError` without columns, `SchemaError` for missing columns and wrong types, `DataError` without rows, and
    `MissingExtraError` for texts without scikit-learn.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"age": 22.0, "sex": "m"}, {"age": None, "sex": "f"}, {"age": 38.0, "sex": "f"}])
    >>> columns = fit_columns(rows, numbers=["age"], categories=["sex"])
    >>> columns.numbers[0].median, columns.numbers[0].flag, columns.categories[0].values, columns.kinds
    (30.0, True, ('f', 'm'), (2, 2))

    See also: `TableColumns`, the type of the result.
    """
    check_types(Dataset, rows=rows)
    named = {"numbers": as_strings("numbers", numbers), "categories": as_strings("categories", categories)}
    named |= {"texts": as_strings("texts", texts)}
    check_not_negative(bins=bins)
    names = [name for group in named.values() for name in group]
    if not names:
        raise ArgumentError("fit_columns needs column names, got none. Give numbers=[...], categories=[...] or texts=[...].")
    if twice := sorted(name for name, count in Counter(name for group in named.values() for name in {*group}).items() if count > 1):
        raise ArgumentError(
            f"A column can be in only one of numbers, categories and texts, got {twice[0]!r} twice. Remove the column from one list."
        )
    check_columns(names, [name for name in schema(rows).names if name not in HIDDEN], "fit_columns")
    table = one_chunk(to_table(select_columns(names)(rows)))
    _check_kinds(table.schema, named["numbers"], [*named["categories"], *named["texts"]])
    if not table.num_rows:
        raise DataError(f"fit_columns needs training rows, but {rows!r} has no rows. Pass at least one row.")
    text_columns = tuple(text for name in named["texts"] for text in _fit_texts(name, table.column(name)))
    components = [
        (name, values) for text in text_columns for name, values in zip(text.names, text.numbers(table.column(text.name)).T, strict=True)
    ]
    measured = [(name, _floats(table.column(name))) for name in named["numbers"]]
    return TableColumns(
        tuple(_fit_number(name, values, bins) for name, values in (*measured, *components)),
        tuple(_fit_category(name, table.column(name)) for name in named["categories"]),
        text_columns,
    )


def robust_scale(least: float, low: float, median: float, high: float, most: float) -> tuple[float, float]:
    """Return the center and factor for scaling numbers, from the extremes, quartiles and median.

    >>> robust_scale(0, 2, 3, 6, 9), robust_scale(0, 0, 0, 0, 1), robust_scale(1, 1, 1, 1, 1)
    ((3.0, 0.25), (0.0, 2.0), (1.0, 0.0))
    """
    span = high - low or (most - least) / 2
    return float(median), float(1 / span) if span else 0.0


def _fit_number(name: str, values: NDArray[np.float64], bins: int) -> NumberColumn:
    present = np.clip(values[~np.isnan(values)], -_LARGEST, _LARGEST)
    known = present if len(present) else np.zeros(1)
    median, factor = robust_scale(*np.quantile(known, [0, 0.25, 0.5, 0.75, 1]))
    counts = (len(present), len(values) - len(present)) if len(present) < len(values) else ()
    column = NumberColumn(name, median, factor, flag=bool(counts), counts=counts)
    if not bins:
        return column
    edges = np.unique(np.quantile(column.scale(known), np.linspace(0, 1, bins + 1)).astype(np.float32))
    edges = edges[np.concatenate([[True], np.diff(edges) > _NARROWEST])]
    edges = edges if len(edges) > 1 else np.concatenate([edges, edges + 1])
    return evolve(column, bins=tuple(map(float, edges)))


def _fit_category(name: str, column: pa.Array) -> CategoryColumn:
    counts = Counter(_texts(column).drop_null().to_pylist())
    kept = sorted(sorted(counts, key=lambda text: (-counts[text], text))[:_CATEGORIES])
    known = [counts[text] for text in kept]
    return CategoryColumn(name, tuple(kept), (len(column) - sum(known), *known))


def _fit_texts(name: str, column: pa.Array) -> Iterator[TextColumn]:
    for counts, _ in fit_word_counts(_texts(column).fill_null("").to_pylist(), components=_COMPONENTS, most=_NGRAMS):
        weights, components = (np.asarray(array, np.float64).round(_DIGITS).tolist() for array in (counts.weights, counts.components))
        yield TextColumn(name, counts.analyzer, tuple(counts.kept.tolist()), tuple(weights), tuple(map(tuple, components)))


def _check_kinds(schema: Schema, numbers: Sequence[str], others: Sequence[str]) -> None:
    for name in numbers:
        kind = schema.field(name).type
        if not is_number_like(value_type(kind)):
            remedy = _date_parts(name, kind) or "List the column in categories, or convert the column to numbers."
            raise SchemaError(f"Column {name!r} must contain numbers, got {kind}. {remedy}")
    for name in others:
        kind = schema.field(name).type
        if not (is_number_like(value_type(kind)) or is_text(value_type(kind))):
            remedy = _date_parts(name, kind) or "Leave out the column, or convert the column to text."
            raise SchemaError(f"Column {name!r} must contain texts or numbers, got {kind}. {remedy}")


def _date_parts(name: str, kind: pa.DataType) -> str:
    """Return a remedy for a column of dates or timestamps: use columns for year and month. Return an empty string for other types."""
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return ""
    return (
        f'Add columns of date parts before, for example fp.map(lambda row: {{**row, "{name}_year": row["{name}"].year, '
        f'"{name}_month": row["{name}"].month}}), and list these columns in numbers or categories.'
    )


def _floats(column: pa.Array) -> NDArray[np.float64]:
    numbers = decoded(column)
    numbers = numbers.cast(pa.int8()) if pa.types.is_boolean(numbers.type) else numbers
    return np.asarray(numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _texts(column: pa.Array) -> pa.StringArray:
    """Return categories as text.

    Integral floats and integers get the same text, because integers with missing values are read as floats.
    """
    values = decoded(column)
    if not is_number_like(values.type):
        return values.cast(pa.string())
    floats = _floats(values)
    whole = np.where(np.isfinite(floats) & (np.abs(floats) < 2**53), np.round(floats), 0.5)
    integers = pa.array(np.where(whole == floats, whole, 0).astype(np.int64)).cast(pa.string())
    others = pa.array(floats, from_pandas=True).cast(pa.string())
    return pc.if_else(pa.array(whole == floats), integers, others)
