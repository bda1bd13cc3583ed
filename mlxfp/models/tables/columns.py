"""The columns of a table as the arrays that its networks read: fitted on training rows, and a value from then on.

Numbers are scaled robustly, by the quartiles, and clipped smoothly (Holzmüller, Grinsztajn and Steinwart, "Better by Default: Strong
Pre-Tuned MLPs and Boosted Trees on Tabular Data", 2024, section 3); categories are numbered from 1, and 0 is a missing or unseen one.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.types import decoded, is_number_like, is_text, value_type
from mlxfp.core.checks import as_strings, check_columns, check_not_negative, check_types, explain_call
from mlxfp.core.chunks import HIDDEN, RecordBatch, Schema, one_chunk, set_column, set_field
from mlxfp.core.datasets import Dataset, to_table
from mlxfp.core.errors import ArgumentError, DataError, SchemaError
from mlxfp.core.stages import RowWise
from mlxfp.data.rows.columns import select_columns

NUMBERS, CATEGORIES = "numbers", "categories"
MISSING_FLAG = 2  # the kinds of a column that says whether a number is there
_CLIP = 3.0  # what scaled numbers come near to, and never reach: as published
_LARGEST = 1e60  # larger and infinite numbers are cut off here, so that their squares are finite
_NARROWEST = 1e-6  # of a bin of scaled numbers: narrower ones, of values of all magnitudes, would make outputs of any size
_CATEGORIES = 1000  # the most frequent ones are kept of a column, and all others count as unseen


@frozen
class NumberColumn:
    """How a column of numbers is scaled: (value - median) * factor, clipped smoothly; missing ones become the median.

    `bins` are quantiles of the scaled numbers, in ascending order. With `flag`, a category in addition says whether a number is missing.

    >>> NumberColumn("age", median=40.0, factor=0.1).scale(np.array([40.0, 50.0, np.nan])).round(2).tolist()
    [0.0, 0.949999988079071, 0.0]
    """

    name: str
    median: float
    factor: float
    flag: bool = False
    bins: tuple[float, ...] = ()

    def scale(self, values: NDArray[np.float64]) -> NDArray[np.float32]:
        """Scale numbers, float64[N] with NaN for missing ones: float32[N]."""
        known = np.clip(np.where(np.isnan(values), self.median, values), -_LARGEST, _LARGEST)
        return smooth_clip((known - self.median) * self.factor).astype(np.float32)


@frozen
class CategoryColumn:
    """The known values of a column of categories, as text: the first is category 1.

    >>> CategoryColumn("sex", ("f", "m")).number(pa.array(["m", None, "x"])).tolist()
    [2, 0, 0]
    """

    name: str
    values: tuple[str, ...]

    def number(self, column: pa.Array) -> NDArray[np.int32]:
        """Return the numbers of the values of a column: int32[N], 0 for missing and unseen ones."""
        places = pc.index_in(_texts(column), pa.array(self.values, pa.string()), skip_nulls=True)
        return np.asarray(pc.fill_null(places, -1).to_numpy(zero_copy_only=False), np.int32) + 1


@frozen(repr=False)
class TableColumns(RowWise):
    """Columns of a table as arrays, fitted by `fit_columns`: a value, and a stage that adds them to rows.

    The stage adds the column `numbers`, float32[numbers], if there are any, and `categories`, int32[columns of categories]. The latter has
    a column for each in `categories`, and then one for each column of numbers with a flag: 1 where the number is there, 2 where it is
    missing.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> columns = TableColumns((NumberColumn("age", median=40.0, factor=0.1),), (CategoryColumn("sex", ("f", "m")),))
    >>> [row["categories"].tolist() for row in columns(from_examples([{"age": 40.0, "sex": "m"}, {"age": None, "sex": "x"}]))]
    [[2], [0]]

    See also: `RealMLP` and `TabM`, which read these arrays.
    """

    numbers: tuple[NumberColumn, ...] = ()
    categories: tuple[CategoryColumn, ...] = ()

    @property
    def kinds(self) -> tuple[int, ...]:
        """The number of known categories in each column of the array `categories`."""
        return (*(len(column.values) for column in self.categories), *(MISSING_FLAG for column in self.numbers if column.flag))

    def columns_read(self) -> tuple[str, ...]:
        """Say which columns are read."""
        return (*(column.name for column in self.numbers), *(column.name for column in self.categories))

    def schema(self, schema: Schema) -> Schema:
        """Add the columns; raise `SchemaError` for columns that are missing, and for numbers that are none."""
        check_columns(self.columns_read(), [name for name in schema.names if name not in HIDDEN], "fit_columns")
        _check_kinds(schema, self.numbers, self.categories)
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
        floats = {column.name: _floats(chunk.column(column.name)) for column in self.numbers}
        numbers = [column.scale(floats[column.name]) for column in self.numbers]
        categories = [column.number(chunk.column(column.name)) for column in self.categories]
        categories += [1 + np.isnan(floats[column.name]).astype(np.int32) for column in self.numbers if column.flag]
        found: dict[str, list[Any]] = {NUMBERS: numbers, CATEGORIES: categories}
        return {name: np.stack(columns, axis=1) for name, columns in found.items() if columns}

    def __repr__(self) -> str:
        return f"TableColumns({len(self.numbers)} of numbers, {len(self.categories)} of categories)"

    def _kinds(self) -> dict[str, Any]:
        counts = {NUMBERS: (pa.float32(), len(self.numbers)), CATEGORIES: (pa.int32(), len(self.kinds))}
        return {name: pa.fixed_shape_tensor(kind, (count,)) for name, (kind, count) in counts.items() if count}


@explain_call
def fit_columns(rows: Dataset[Any], *, numbers: Sequence[str] = (), categories: Sequence[str] = (), bins: int = 0) -> TableColumns:
    """Fit how the columns of training rows become arrays: medians and quartiles of numbers, and the values of categories.

    `numbers` and `categories` name the columns; numbers can be categories too, such as codes. With `bins`, so many quantiles of each
    column of numbers are found, which `TabM` needs (its authors take 48). A category that is not among the 1,000 most frequent of its
    column counts as unseen. A column of numbers gets a flag if a training row lacks a value. Reads the rows once.

    Raises `ArgumentError` without columns, `SchemaError` for columns that are not there or have other types, `DataError` without rows.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"age": 22.0, "sex": "m"}, {"age": None, "sex": "f"}, {"age": 38.0, "sex": "f"}])
    >>> columns = fit_columns(rows, numbers=["age"], categories=["sex"])
    >>> columns.numbers[0].median, columns.numbers[0].flag, columns.categories[0].values, columns.kinds
    (30.0, True, ('f', 'm'), (2, 2))

    See also: `TableColumns`, what it makes.
    """
    check_types(Dataset, rows=rows)
    number_names, category_names = as_strings("numbers", numbers), as_strings("categories", categories)
    check_not_negative(bins=bins)
    names = [*number_names, *category_names]
    if not names:
        raise ArgumentError("fit_columns needs columns to fit, got none. Name some: numbers=[...], categories=[...].")
    if twice := sorted({*number_names} & {*category_names}):
        raise ArgumentError(f"A column is a number or a category, got {twice[0]!r} as both. Leave it out of one of the two.")
    table = one_chunk(to_table(select_columns(names)(rows)))
    empty = TableColumns(
        tuple(NumberColumn(name, 0.0, 1.0) for name in number_names), tuple(CategoryColumn(name, ()) for name in category_names)
    )
    _check_kinds(table.schema, empty.numbers, empty.categories)
    if not table.num_rows:
        raise DataError(f"Columns are fitted on training rows, and {rows!r} has none. Give at least one.")
    return TableColumns(
        tuple(_fit_number(name, _floats(table.column(name)), bins) for name in number_names),
        tuple(_fit_category(name, table.column(name)) for name in category_names),
    )


def smooth_clip(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bring numbers to between -3 and 3 without a kink: x / sqrt(1 + (x / 3)²)."""
    return np.asarray(values / np.sqrt(1 + (values / _CLIP) ** 2))


def _fit_number(name: str, values: NDArray[np.float64], bins: int) -> NumberColumn:
    found = np.clip(values[~np.isnan(values)], -_LARGEST, _LARGEST)
    known = found if len(found) else np.zeros(1)
    low, median, high = np.quantile(known, [0.25, 0.5, 0.75])
    span = high - low or (known.max() - known.min()) / 2
    column = NumberColumn(name, float(median), float(1 / span) if span else 0.0, flag=len(found) < len(values))
    if not bins:
        return column
    edges = np.unique(np.quantile(column.scale(known), np.linspace(0, 1, bins + 1)).astype(np.float32))
    edges = edges[np.concatenate([[True], np.diff(edges) > _NARROWEST])]
    edges = edges if len(edges) > 1 else np.concatenate([edges, edges + 1])
    return NumberColumn(name, column.median, column.factor, column.flag, tuple(map(float, edges)))


def _fit_category(name: str, column: pa.Array) -> CategoryColumn:
    counts = Counter(_texts(column).drop_null().to_pylist())
    kept = sorted(counts, key=lambda text: (-counts[text], text))[:_CATEGORIES]
    return CategoryColumn(name, tuple(sorted(kept)))


def _check_kinds(schema: Schema, numbers: Sequence[NumberColumn], categories: Sequence[CategoryColumn]) -> None:
    for column in numbers:
        kind = schema.field(column.name).type
        if not is_number_like(value_type(kind)):
            raise SchemaError(f"Column {column.name!r} must hold numbers, got {kind}. Name it in categories, or read it as a number.")
    for each in categories:
        kind = schema.field(each.name).type
        if not (is_number_like(value_type(kind)) or is_text(value_type(kind))):
            raise SchemaError(f"Column {each.name!r} must hold texts or numbers, got {kind}. Leave it out, or turn it into text.")


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
