"""The columns of a table as numbers for estimators, fitted on training rows: numbers, dates, categories, and texts as counts of words."""

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
from mlxfp.app.kaggle.estimators.dates import PARTS, are_dates, date_numbers
from mlxfp.app.kaggle.specs.cells import are_numbers, as_floats, spell
from mlxfp.app.kaggle.specs.specs import DatasetSpec
from mlxfp.models import WordCounts, fit_word_counts
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import DataError
from mlxfp.support.optional import optional

# codes: missing values are NaN and categories are numbers; scaled: no missing values, categories one-hot, texts as components;
# sparse: the same with all counts of words.
Layout = Literal["codes", "scaled", "sparse"]

_COMPONENTS = 16  # of each kind of counts of a text column, where estimators take dense numbers; 8 to 32 score alike
_LARGEST = 1e30  # larger numbers are cut off here: squares must be finite, and trees of scikit-learn read float32
_TYPICAL = 16  # training rows that stand for values missing only in new rows
_RARE = 2  # rows that a category needs for a one-hot column of its own; rarer ones share one


@frozen
class Categories:
    """The categories of a column in training rows, numbers in their order."""

    column: str
    values: tuple[str, ...]


@frozen(eq=False)
class Columns:
    """Rows to numbers, as `fit_columns` fitted them.

    `texts` are the columns of texts with their counts of words, and `scaler` is the fitted transformer of scikit-learn that fills,
    scales and makes one-hot what is not a text, where the estimator needs that.
    """

    layout: Layout
    numbers: tuple[str, ...]
    categories: tuple[Categories, ...]
    texts: tuple[tuple[str, WordCounts], ...] = field(default=())
    scaler: Any = field(default=None, repr=False)
    dates: tuple[str, ...] = ()
    typical: NDArray[np.float64] | None = field(default=None, repr=False)  # float64[T, F]: some training rows of `table`

    def __call__(self, rows: Dataset[Any]) -> Any:
        """Return float64[N, F], or a sparse matrix: numbers, then dates, then categories, then texts."""
        batch = _read(rows, self.names)
        texts = {name: _texts(batch, name) for name, _ in self.texts}
        return self.joined(self.table(batch), [counts(texts[name]) for name, counts in self.texts])

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        coded = (each.column for each in self.categories)
        return tuple(dict.fromkeys((*self.numbers, *self.dates, *coded, *(name for name, _ in self.texts))))

    @property
    def measured(self) -> int:
        """How many numbers of a row come before its categories."""
        return len(self.numbers) + PARTS * len(self.dates)

    @property
    def coded(self) -> tuple[int, ...]:
        """The places of the categories among the numbers of a row, in the layout codes."""
        return tuple(range(self.measured, self.measured + len(self.categories)))

    def table(self, batch: RecordBatch) -> NDArray[np.float64]:
        """Return numbers, parts of dates and codes of categories, float64[N, F]; NaN for missing, infinite and unknown ones."""
        numbers = [as_floats(batch.column(name)) for name in self.numbers]
        codes = [as_floats(pc.index_in(spell(batch, each.column), pa.array(each.values, pa.string()))) for each in self.categories]
        dates = [column for name in self.dates for column in date_numbers(spell(batch, name)).T]
        every = [*numbers, *dates, *codes]
        made = np.stack(every, axis=1) if every else np.empty((batch.num_rows, 0))
        return np.where(np.isinf(made), np.nan, np.clip(made, -_LARGEST, _LARGEST))

    def novel(self, numbers: Any) -> NDArray[np.bool_]:
        """Return bool[N, F], true for cells without a value in columns that always have one in the training rows.

        Libraries of trees take such a cell as the first category, as 0, or as any branch.
        """
        if self.typical is None:
            return np.zeros((numbers.shape[0], 0), bool)
        complete = ~np.isnan(self.typical).any(axis=0)
        return np.asarray(np.isnan(numbers[:, : len(complete)]) & complete)

    def joined(self, table: NDArray[np.float64], texts: Sequence[Any]) -> Any:
        """Join what `table` gives, scaled if needed, and the numbers of the texts."""
        numbers = table if self.scaler is None else self.scaler.transform(table)
        if self.layout == "sparse":
            sparse = optional("scipy.sparse", extra="kaggle", needed_by="Words as counts")
            return sparse.hstack([sparse.csr_array(numbers), *texts], format="csr", dtype=np.float64)
        return np.concatenate([numbers, *texts], axis=1)


def fit_columns(spec: DatasetSpec, rows: Dataset[Any], layout: Layout, *, seed: int = 0, parts: bool = True) -> tuple[Columns, Any]:
    """Fit the columns of a spec on training rows, and return what they give for these rows as well; `parts` is that of `fit_word_counts`.

    Raises `SchemaError` for rows without a column of the spec, and `DataError` where the columns say nothing: no row, or no value.
    """
    names = [column.name for column in spec.columns]
    check_columns(names, schema(rows).names, "estimator")
    batch = _read(rows, tuple(names))
    kinds: Mapping[str, list[str]] = {
        kind: [column.name for column in spec.columns if column.type == kind] for kind in ("numerical", "categorical", "text")
    }
    numbers = tuple(name for name in kinds["numerical"] if batch.column(name).null_count < batch.num_rows)
    # Where all counts of words are taken, those of dates say the same: 2024-, 2024-05.
    dated = () if layout == "sparse" else (*kinds["categorical"], *kinds["text"])
    dates = tuple(name for name in dated if are_dates(spell(batch, name)))
    named, texts = ([name for name in kinds[kind] if name not in dates] for kind in ("categorical", "text"))
    made = Columns(layout, numbers, tuple(_categories(batch, name) for name in named), dates=dates)
    count = partial(fit_word_counts, components=0 if layout == "sparse" else _COMPONENTS, seed=seed, parts=parts)
    fitted = [(name, each) for name in texts for each in count(_texts(batch, name))]
    table = made.table(batch)
    scaler = None if layout == "codes" or not table.shape[1] else _scaler(made).fit(table)
    counts = tuple((name, counts) for name, (counts, _) in fitted)
    made = Columns(layout, made.numbers, made.categories, counts, scaler, dates, _typical(table, seed) if layout == "codes" else None)
    joined = made.joined(table, [weighted for _, (_, weighted) in fitted])
    if 0 in joined.shape:
        raise DataError(f"An estimator needs rows with values to learn from, got {rows!r}, which have none in {', '.join(names)}.")
    return made, joined


def _read(rows: Dataset[Any], names: tuple[str, ...]) -> RecordBatch:
    table = to_table(select_columns(list(names))(rows))
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], schema=table.schema)


def _texts(batch: RecordBatch, name: str) -> list[str]:
    return list(pc.fill_null(spell(batch, name), "").to_pylist())


def _categories(batch: RecordBatch, name: str) -> Categories:
    found = pc.drop_null(spell(batch, name)).unique()
    return Categories(name, tuple(sorted(found.to_pylist(), key=float if are_numbers(found) else str)))


def _typical(table: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    """Return some rows of a table, with NaN in all columns with a missing value."""
    rows = np.random.default_rng(seed).choice(len(table), min(_TYPICAL, len(table)), replace=False)
    return np.where(np.isnan(table).any(axis=0), np.nan, table[rows])


def _scaler(columns: Columns) -> Any:
    """Make the transformer: numbers with the median in place of missing ones, which are marked, and categories one-hot."""
    compose, impute, preprocessing, pipeline = (
        optional(f"sklearn.{name}", extra="kaggle", needed_by="estimator") for name in ("compose", "impute", "preprocessing", "pipeline")
    )
    known = impute.SimpleImputer(strategy="median", add_indicator=True)
    parts = [("numbers", pipeline.make_pipeline(known, preprocessing.StandardScaler()), list(range(columns.measured)))]
    if columns.categories:
        coded = impute.SimpleImputer(strategy="constant", fill_value=-1)
        one_hot = preprocessing.OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=_RARE, sparse_output=False)
        parts.append(("categories", pipeline.make_pipeline(coded, one_hot), list(columns.coded)))
    return compose.ColumnTransformer([part for part in parts if part[2]])
