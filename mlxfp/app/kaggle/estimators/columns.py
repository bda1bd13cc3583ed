"""Conversion of table columns to numbers for estimators, fitted on training rows.

The columns hold numbers, dates, categories and texts. Texts become word counts.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen
from numpy.typing import NDArray
from pyarrow import RecordBatch

from mlxfp import Dataset, schema, select_columns, to_table
from mlxfp.app.kaggle.specs.cells import are_numbers, as_floats, spell
from mlxfp.app.kaggle.specs.dates import PARTS, Order, column_order, date_numbers, date_texts
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.models import WordCounts, fit_word_counts
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import DataError
from mlxfp.support.optional import optional

# An estimator reads one of three input formats: "codes", "scaled" or "sparse".
# Format "codes": missing values are NaN, and each category is a number.
# Format "scaled": missing values are filled, each category is a 0/1 column, and each text becomes up to 32 numbers (a truncated SVD).
# Format "sparse": the same as "scaled", but each text becomes TF-IDF weights of its words instead of a truncated SVD.
Layout = Literal["codes", "scaled", "sparse"]

_COMPONENTS = 16  # a truncated SVD turns a text into 16 numbers for words and 16 for character n-grams; 8 to 32 give similar scores
_LARGEST = 1e30  # numbers are clipped to the range from -1e30 to 1e30, so that float32 can represent every number
_TYPICAL = 16  # an unexpectedly missing value is replaced by the values of 16 training rows, in turn; the 16 predictions are averaged
_FEW_CODES = 20  # whole numbers are treated as identifiers only if a column has more than 20 distinct values
_ROWS_PER_CODE = 2  # whole numbers are treated as identifiers only if a column has at least 2 rows per distinct value on average
_SHARED = 0.8  # whole numbers are treated as identifiers only if at least 80 % of the rows share their value with another row
_RARE = 2  # minimum number of rows of a category for a separate one-hot column; rarer categories share a column


@frozen
class Categories:
    """Sorted distinct categories of a column in the training rows. The index of a category is its code."""

    column: str
    values: tuple[str, ...]


@frozen(eq=False)
class Columns:
    """Fitted conversion of rows to numbers. Returned by `fit_columns`.

    `dates` holds columns of dates. In the layout "sparse", dates are also text columns, and their words are counted in one form.
    `texts` holds text columns with their word counts. `scaler` is the scikit-learn transformer for all other columns, or None if
    the estimator needs no scaling.
    """

    layout: Layout
    numbers: tuple[str, ...]
    categories: tuple[Categories, ...]
    texts: tuple[tuple[str, WordCounts], ...] = field(default=())
    scaler: Any = field(default=None, repr=False)
    dates: tuple[tuple[str, Order], ...] = ()
    typical: NDArray[np.float64] | None = field(default=None, repr=False)  # sample of T training rows and F features, float64[T, F]

    def __call__(self, rows: Dataset[Any]) -> Any:
        """Return float64[N, F] or a sparse matrix. Column order: numbers, dates, categories, texts."""
        batch = _read(rows, self.names)
        texts = {name: _texts(batch, name, dict(self.dates)) for name, _ in self.texts}
        return self.joined(self.table(batch), [counts(texts[name]) for name, counts in self.texts])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns to read."""
        coded = (categories.column for categories in self.categories)
        return tuple(dict.fromkeys((*self.numbers, *(name for name, _ in self.dates), *coded, *(name for name, _ in self.texts))))

    @property
    def measured(self) -> int:
        """Number of numeric features. In the result of `table`, the numeric features come before the category codes."""
        return len(self.numbers) + PARTS * len(self.numeric_dates)

    @property
    def numeric_dates(self) -> tuple[tuple[str, Order], ...]:
        """Columns of dates that become numbers."""
        return () if self.layout == "sparse" else self.dates

    @property
    def coded(self) -> tuple[int, ...]:
        """Indices of the columns with category codes in the result of `table`."""
        return tuple(range(self.measured, self.measured + len(self.categories)))

    def table(self, batch: RecordBatch) -> NDArray[np.float64]:
        """Return numbers, date parts and category codes as float64[N, F]. Missing, infinite and unknown values are NaN."""
        numbers = [as_floats(batch.column(name)) for name in self.numbers]
        codes = [
            as_floats(pc.index_in(spell(batch, categories.column), pa.array(categories.values, pa.string())))
            for categories in self.categories
        ]
        dates = [column for name, order in self.numeric_dates for column in date_numbers(spell(batch, name), order).T]
        parts = [*numbers, *dates, *codes]
        features = np.stack(parts, axis=1) if parts else np.empty((batch.num_rows, 0))
        return np.where(np.isinf(features), np.nan, np.clip(features, -_LARGEST, _LARGEST))

    def novel(self, numbers: Any) -> NDArray[np.bool_]:
        """Return bool[N, F]: True for a missing value in a column that was complete in the training rows.

        Tree libraries treat such a value as the first category or as 0, or choose an arbitrary branch.
        """
        if self.typical is None:
            return np.zeros((numbers.shape[0], 0), bool)
        complete = ~np.isnan(self.typical).any(axis=0)
        return np.asarray(np.isnan(numbers[:, : self.typical.shape[1]]) & complete)

    def joined(self, table: NDArray[np.float64], texts: Sequence[Any]) -> Any:
        """Return the features of the rows: the columns of `table`, scaled if `scaler` is set, followed by the text features."""
        numbers = table if self.scaler is None else self.scaler.transform(table)
        if self.layout == "sparse":
            sparse = optional("scipy.sparse", extra="kaggle", needed_by="Words as counts")
            return sparse.hstack([sparse.csr_array(numbers), *texts], format="csr", dtype=np.float64)
        return np.concatenate([numbers, *texts], axis=1)


def fit_columns(  # noqa: PLR0913  # keyword-only arguments with defaults
    spec: DatasetSpec,
    rows: Dataset[Any],
    layout: Layout,
    *,
    seed: int = 0,
    parts: bool = True,
    reads_texts: bool = True,
    reads_codes: bool = False,
) -> tuple[Columns, Any]:
    """Fit the conversion of the columns in a spec to numbers. Return the fitted conversion, and the converted training rows.

    - `parts=False` counts only words in texts, without character n-grams: see `fit_word_counts`.
    - `reads_texts=False` ignores text columns, except text columns with dates.
    - `reads_codes=True` uses whole numbers that look like identifiers (see `are_codes`) twice: as numbers and as categories.

    Raises `SchemaError` for missing columns. Raises `DataError` if there are no training rows, or if all columns are empty.
    """
    names = [column.name for column in spec.columns]
    check_columns(names, schema(rows).names, "estimator")
    batch = _read(rows, tuple(names))
    kinds: Mapping[str, list[str]] = {
        kind: [column.name for column in spec.columns if column.type == kind] for kind in ("numerical", "categorical", "text")
    }
    numbers = tuple(name for name in kinds["numerical"] if batch.column(name).null_count < batch.num_rows)
    # Layout "sparse" counts the words of dates, because they contain parts of dates, such as "2024-" and "24-05".
    dated = kinds["text"] if layout == "sparse" else (*kinds["categorical"], *kinds["text"])
    dates = tuple((name, order) for name in dated if (order := column_order(spell(batch, name))) is not None)
    read = {} if layout == "sparse" else dict(dates)
    named, texts = ([name for name in kinds[kind] if name not in read] for kind in ("categorical", "text"))
    named += [name for name in numbers if reads_codes and are_codes(batch.column(name))]
    columns = Columns(layout, numbers, tuple(_categories(batch, name) for name in named), dates=dates)
    count = partial(fit_word_counts, components=0 if layout == "sparse" else _COMPONENTS, seed=seed, parts=parts)
    fitted = [(name, result) for name in (texts if reads_texts else ()) for result in count(_texts(batch, name, dict(dates)))]
    table = columns.table(batch)
    scaler = None if layout == "codes" or not table.shape[1] else _scaler(columns).fit(table)
    counts = tuple((name, counts) for name, (counts, _) in fitted)
    typical = _typical(table, seed) if layout == "codes" else None
    columns = Columns(layout, columns.numbers, columns.categories, counts, scaler, dates, typical)
    joined = columns.joined(table, [weighted for _, (_, weighted) in fitted])
    if 0 in joined.shape:
        raise DataError(
            f"An estimator needs training rows with values, but {rows!r} has no values in the columns {', '.join(names)}. Add rows or "
            "columns with values, or use fewer folds: validation.folds=2."
        )
    return columns, joined


def are_codes(values: pa.Array | pa.ChunkedArray) -> bool:
    """Return True for whole numbers with many repeated values. Such numbers may be identifiers of persons, shops or other things.

    >>> are_codes(pa.array([1000 + row % 50 for row in range(200)])), are_codes(pa.array([row / 7 for row in range(200)]))
    (True, False)
    """
    numbers = as_floats(values)
    numbers = numbers[np.isfinite(numbers)]
    if not len(numbers) or not (numbers == np.round(numbers)).all() or np.abs(numbers).max() >= 1 / np.finfo(np.float64).eps:
        return False
    counts = np.unique(numbers, return_counts=True)[1]
    shared = int(counts[counts > 1].sum())
    return len(counts) > _FEW_CODES and _ROWS_PER_CODE * len(counts) <= len(numbers) and shared >= _SHARED * len(numbers)


def _read(rows: Dataset[Any], names: tuple[str, ...]) -> RecordBatch:
    table = to_table(select_columns(list(names))(rows))
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def _texts(batch: RecordBatch, name: str, dates: Mapping[str, Order]) -> list[str]:
    texts = spell(batch, name)
    return [text or "" for text in (date_texts(texts, dates[name]) if name in dates else texts.to_pylist())]


def _categories(batch: RecordBatch, name: str) -> Categories:
    values = pc.drop_null(spell(batch, name)).unique()
    return Categories(name, tuple(sorted(values.to_pylist(), key=float if are_numbers(values) else str)))


def _typical(table: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return a random sample of table rows. A column with a missing value anywhere in the table is NaN in all rows of the sample."""
    rows = np.random.default_rng(seed).choice(len(table), min(_TYPICAL, len(table)), replace=False)
    return np.where(np.isnan(table).any(axis=0), np.nan, table[rows])


def _scaler(columns: Columns) -> Any:
    """Return a transformer that fills missing numbers with the median, adds indicator columns, and one-hot encodes categories."""
    compose, impute, preprocessing, pipeline = (
        optional(f"sklearn.{name}", extra="kaggle", needed_by="estimator") for name in ("compose", "impute", "preprocessing", "pipeline")
    )
    known = impute.SimpleImputer(strategy="median", add_indicator=True)
    parts = [("numbers", pipeline.make_pipeline(known, preprocessing.StandardScaler()), list(range(columns.measured)))]
    if columns.categories:
        coded = impute.SimpleImputer(strategy="constant", fill_value=-1)
        one_hot = preprocessing.OneHotEncoder(
            handle_unknown="infrequent_if_exist", min_frequency=_RARE, sparse_output=columns.layout == "sparse"
        )
        parts.append(("categories", pipeline.make_pipeline(coded, one_hot), list(columns.coded)))
    return compose.ColumnTransformer([part for part in parts if part[2]])
