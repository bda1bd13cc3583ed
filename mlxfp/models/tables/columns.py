"""The columns of a table as the arrays that its networks read: fitted on training rows, and a value from then on.

Numbers are scaled robustly, by the quartiles, and clipped smoothly (Holzmüller, Grinsztajn and Steinwart, "Better by Default: Strong
Pre-Tuned MLPs and Boosted Trees on Tabular Data", 2024, section 3); categories are numbered from 1, and 0 is a missing or unseen one.
Texts are the first components of their counts of words, as more numbers.
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
from mlxfp.core.stages import RowWise, Traits
from mlxfp.data.rows.columns import select_columns
from mlxfp.support.arrow_types import decoded, is_number_like, is_text, value_type
from mlxfp.support.checks import as_strings, check_columns, check_not_negative, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, SchemaError
from mlxfp.text.word_counts import Analyzer, WordCounts, fit_word_counts

NUMBERS, CATEGORIES = "numbers", "categories"
MISSING_FLAG = 2  # the kinds of a column that says whether a number is there
CLIP = 3.0  # what scaled numbers come near to, and never reach: as published
_LARGEST = 1e60  # larger and infinite numbers are cut off here, so that their squares are finite
_NARROWEST = 1e-6  # of a bin of scaled numbers: narrower ones, of values of all magnitudes, would make outputs of any size
_COMPONENTS = 16  # of counts of words, and as many of parts of words: as many as trees get
_NGRAMS = 2048  # the most frequent ones of a column of texts, so that what is fitted stays small enough for a file of text
_DIGITS = 6  # of weights and components after the point
_CATEGORIES = 1000  # the most frequent ones are kept of a column, and all others count as unseen


@frozen
class NumberColumn:
    """How a column of numbers is scaled: (value - median) * factor, clipped smoothly; missing ones become the median.

    `bins` are quantiles of the scaled numbers, in ascending order. With `flag`, a category in addition says whether a number is missing;
    then `counts` are the training rows that have the number, and those that lack it.

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
        """Scale numbers, float64[N] with NaN for missing ones: float32[N]."""
        known = np.clip(np.where(np.isnan(values), self.median, values), -_LARGEST, _LARGEST)
        return smooth_clip((known - self.median) * self.factor).astype(np.float32)


@frozen
class CategoryColumn:
    """The known values of a column of categories, as text: the first is category 1.

    `counts` are the training rows with each of the values, after those with none of them.

    >>> CategoryColumn("sex", ("f", "m")).number(pa.array(["m", None, "x"])).tolist()
    [2, 0, 0]
    """

    name: str
    values: tuple[str, ...]
    counts: tuple[int, ...] = ()

    def number(self, column: pa.Array) -> NDArray[np.int32]:
        """Return the numbers of the values of a column: int32[N], 0 for missing and unseen ones."""
        places = pc.index_in(_texts(column), pa.array(self.values, pa.string()), skip_nulls=True)
        return np.asarray(pc.fill_null(places, -1).to_numpy(zero_copy_only=False), np.int32) + 1


@frozen(repr=False)
class TextColumn:
    """How the texts of a column become numbers: the components of their counts of words, or of parts of words (TF-IDF).

    `kept` are the places of n-grams that are counted, `weights` their inverse document frequencies, and `components` the singular vectors
    of the training rows, which have a weight for each n-gram.

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
        """The names of the columns of numbers that the texts make."""
        return tuple(f"{self.name}: {self.analyzer} {number}" for number in range(1, len(self.components) + 1))

    def numbers(self, column: pa.Array) -> NDArray[np.float64]:
        """Return the components of the texts of a column, float64[N, C]; those of a missing text are zeros."""
        arrays = np.array(self.kept, np.int32), np.array(self.weights, np.float32), np.array(self.components, np.float32)
        return np.asarray(WordCounts(self.analyzer, *arrays)(_texts(column).fill_null("").to_pylist()), np.float64)


@frozen(repr=False)
class TableColumns(RowWise):
    """Columns of a table as arrays, fitted by `fit_columns`: a value, and a stage that adds them to rows.

    The stage adds the column `numbers`, float32[numbers], if there are any, and `categories`, int32[columns of categories]. The latter has
    a column for each in `categories`, and then one for each column of numbers with a flag: 1 where the number is there, 2 where it is
    missing. `texts` are columns of texts, and `numbers` also has those that they make.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"age": 40.0, "sex": "m"}, {"age": None, "sex": "x"}])
    >>> columns = TableColumns((NumberColumn("age", median=40.0, factor=0.1),), (CategoryColumn("sex", ("f", "m")),))
    >>> [row["categories"].tolist() for row in columns(rows)]
    [[2], [0]]

    See also: `TABLE_MODELS`, the networks that read these arrays.
    """

    numbers: tuple[NumberColumn, ...] = ()
    categories: tuple[CategoryColumn, ...] = ()
    texts: tuple[TextColumn, ...] = ()

    @property
    def kinds(self) -> tuple[int, ...]:
        """The number of known categories in each column of the array `categories`."""
        return (*(len(column.values) for column in self.categories), *(MISSING_FLAG for column in self.numbers if column.flag))

    @property
    def counts(self) -> tuple[tuple[int, ...], ...]:
        """How many training rows have each category of each column of the array `categories`, from 0 on; empty where it is not known."""
        flags = ((0, *column.counts) if column.counts else () for column in self.numbers if column.flag)
        return (*(column.counts for column in self.categories), *flags)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*(column.name for column in self._measured()), *self._named())

    @property
    def traits(self) -> Traits:
        """The columns that are read."""
        return Traits(row_wise=True, columns_read=self.names, longest_row=identity)

    def schema(self, schema: Schema) -> Schema:
        """Add the columns; raise `SchemaError` for columns that are missing, and for numbers that are none."""
        check_columns(self.names, [name for name in schema.names if name not in HIDDEN], "fit_columns")
        _check_kinds(schema, [column.name for column in self._measured()], self._named())
        made = schema
        for name, kind in self._kinds().items():
            made = set_field(made, name, kind)
        return made

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        """Add the columns to a chunk."""
        kinds, made = self._kinds(), chunk
        for name, array in self.arrays(chunk).items():
            storage = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])
            made = set_column(made, name, pa.ExtensionArray.from_storage(kinds[name], storage))
        return made

    def arrays(self, chunk: RecordBatch) -> dict[str, NDArray[Any]]:
        """Make the arrays of a chunk of rows: `numbers`, float32[N, ...], and `categories`, int32[N, ...], those that there are."""
        floats = {column.name: _floats(chunk.column(column.name)) for column in self._measured()}
        for text in self.texts:
            floats |= dict(zip(text.names, text.numbers(chunk.column(text.name)).T, strict=True))
        numbers = [column.scale(floats[column.name]) for column in self.numbers]
        categories = [column.number(chunk.column(column.name)) for column in self.categories]
        categories += [1 + np.isnan(floats[column.name]).astype(np.int32) for column in self.numbers if column.flag]
        found: dict[str, list[Any]] = {NUMBERS: numbers, CATEGORIES: categories}
        return {name: np.stack(columns, axis=1) for name, columns in found.items() if columns}

    def __repr__(self) -> str:
        return f"TableColumns({len(self.numbers)} of numbers, {len(self.categories)} of categories)"

    def _measured(self) -> tuple[NumberColumn, ...]:
        """Return the columns of numbers that are in the rows."""
        made = {name for text in self.texts for name in text.names}
        return tuple(column for column in self.numbers if column.name not in made)

    def _named(self) -> tuple[str, ...]:
        """Return the names of the columns of categories and of texts; a column of texts may be in `texts` twice."""
        return tuple(dict.fromkeys((*(column.name for column in self.categories), *(text.name for text in self.texts))))

    def _kinds(self) -> dict[str, Any]:
        counts = {NUMBERS: (pa.float32(), len(self.numbers)), CATEGORIES: (pa.int32(), len(self.kinds))}
        return {name: pa.fixed_shape_tensor(kind, (count,)) for name, (kind, count) in counts.items() if count}


@explain_call
def fit_columns(
    rows: Dataset[Any], *, numbers: Sequence[str] = (), categories: Sequence[str] = (), texts: Sequence[str] = (), bins: int = 0
) -> TableColumns:
    """Fit how the columns of training rows become arrays: medians and quartiles of numbers, the values of categories, words of texts.

    `numbers`, `categories` and `texts` name the columns; numbers can be categories too, such as codes. With `bins`, so many quantiles of
    each column of numbers are found, for piecewise linear embeddings (their authors take 48). A category that is not among the 1,000 most
    frequent of its column counts as unseen. A column of numbers gets a flag if a training row lacks a value. A text becomes the first 16
    components of its TF-IDF of words, and 16 of parts of words, which are numbers from then on. Reads the rows once.

    Raises `ArgumentError` without columns, `SchemaError` for columns that are not there or have other types, `DataError` without rows,
    `MissingExtraError` for texts without scikit-learn.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"age": 22.0, "sex": "m"}, {"age": None, "sex": "f"}, {"age": 38.0, "sex": "f"}])
    >>> columns = fit_columns(rows, numbers=["age"], categories=["sex"])
    >>> columns.numbers[0].median, columns.numbers[0].flag, columns.categories[0].values, columns.kinds
    (30.0, True, ('f', 'm'), (2, 2))

    See also: `TableColumns`, what it makes.
    """
    check_types(Dataset, rows=rows)
    named = {"numbers": as_strings("numbers", numbers), "categories": as_strings("categories", categories)}
    named |= {"texts": as_strings("texts", texts)}
    check_not_negative(bins=bins)
    names = [name for group in named.values() for name in group]
    if not names:
        raise ArgumentError("fit_columns needs columns to fit, got none. Name some: numbers=[...], categories=[...], texts=[...].")
    if twice := sorted(name for name, count in Counter(name for group in named.values() for name in {*group}).items() if count > 1):
        raise ArgumentError(f"A column is a number, a category or a text, got {twice[0]!r} twice. Leave it out of one of them.")
    table = one_chunk(to_table(select_columns(names)(rows)))
    _check_kinds(table.schema, named["numbers"], [*named["categories"], *named["texts"]])
    if not table.num_rows:
        raise DataError(f"Columns are fitted on training rows, and {rows!r} has none. Give at least one.")
    found = tuple(text for name in named["texts"] for text in _fit_texts(name, table.column(name)))
    components = [
        (name, values) for text in found for name, values in zip(text.names, text.numbers(table.column(text.name)).T, strict=True)
    ]
    measured = [(name, _floats(table.column(name))) for name in named["numbers"]]
    return TableColumns(
        tuple(_fit_number(name, values, bins) for name, values in (*measured, *components)),
        tuple(_fit_category(name, table.column(name)) for name in named["categories"]),
        found,
    )


def smooth_clip(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bring numbers to between -3 and 3 without a kink: x / sqrt(1 + (x / 3)²)."""
    return np.asarray(values / np.sqrt(1 + (values / CLIP) ** 2))


def robust_scale(least: float, low: float, median: float, high: float, most: float) -> tuple[float, float]:
    """Return what to subtract from numbers, and what to multiply them by, from their ends, quartiles and median.

    >>> robust_scale(0, 2, 3, 6, 9), robust_scale(0, 0, 0, 0, 1), robust_scale(1, 1, 1, 1, 1)
    ((3.0, 0.25), (0.0, 2.0), (1.0, 0.0))
    """
    span = high - low or (most - least) / 2
    return float(median), float(1 / span) if span else 0.0


def _fit_number(name: str, values: NDArray[np.float64], bins: int) -> NumberColumn:
    found = np.clip(values[~np.isnan(values)], -_LARGEST, _LARGEST)
    known = found if len(found) else np.zeros(1)
    median, factor = robust_scale(*np.quantile(known, [0, 0.25, 0.5, 0.75, 1]))
    counts = (len(found), len(values) - len(found)) if len(found) < len(values) else ()
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
            raise SchemaError(f"Column {name!r} must hold numbers, got {kind}. Name it in categories, or read it as a number.")
    for name in others:
        kind = schema.field(name).type
        if not (is_number_like(value_type(kind)) or is_text(value_type(kind))):
            raise SchemaError(f"Column {name!r} must hold texts or numbers, got {kind}. Leave it out, or turn it into text.")


def _floats(column: pa.Array) -> NDArray[np.float64]:
    numbers = decoded(column)
    numbers = numbers.cast(pa.int8()) if pa.types.is_boolean(numbers.type) else numbers
    return np.asarray(numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def _texts(column: pa.Array) -> pa.StringArray:
    """Return categories as text; whole numbers alike, whether they were read as integers or, next to missing ones, as floats."""
    values = decoded(column)
    if not is_number_like(values.type):
        return values.cast(pa.string())
    floats = _floats(values)
    whole = np.where(np.isfinite(floats) & (np.abs(floats) < 2**53), np.round(floats), 0.5)
    integers = pa.array(np.where(whole == floats, whole, 0).astype(np.int64)).cast(pa.string())
    others = pa.array(floats, from_pandas=True).cast(pa.string())
    return pc.if_else(pa.array(whole == floats), integers, others)
