"""Column types of a spec. `COLUMN_KINDS` holds all type-specific behaviour, with one entry per type.

To add a type, extend `ColumnType` and `COLUMN_KINDS`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.app.kaggle.specs.cells import are_numbers, not_numbers, rounded_integers
from mlxfp.support.formatted_numbers import have_leading_zeros

ColumnType = Literal["text", "categorical", "numerical"]
Cells = NDArray[Any]  # strings as in a CSV file; "" is a missing value

_CATEGORIES = 20  # a column of texts is categorical if it has at most 20 distinct values, and at least two rows per value on average
_SHARE = 0.05  # with more than 400 rows, a categorical column may have more than 20 distinct values: up to 5 % of the number of rows
_SYNTHETIC_CATEGORIES = 4  # number of categories of a synthetic column if the spec lists no categories
_WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fern", "grove", "harbor", "island", "juniper", "kettle", "lantern"),
    *("meadow", "north", "orchard", "pebble", "quartz", "river", "south", "timber", "upland", "valley", "willow", "yellow"),
)


@frozen
class SyntheticColumn:
    """Column of a synthetic data set. `cells` holds the values, and `signal`, float64[N], the effect of each value on the target."""

    cells: Cells
    signal: NDArray[np.float64]


@frozen
class ColumnKind:
    """Behaviour of columns of one type: text, categorical or numerical.

    - `is_number`: True if cells are read as float64, False if cells are read as strings. Only numbers are scaled or divided into quantiles.
    - `has_names`: True if a spec may give names to the values of the column.
    - `phrase`: start of a sentence, up to the value. `{title}` or `{Title}` stands for the column title, `{verb}` for a verb.
    - `holds`: plural noun for the cells, used in error messages.
    - `recognizes(known, others)`: return True if a column has this type. The argument `known` holds the non-missing cells of the train
      file, `others` the non-missing cells of the test file.
    - `unfit(cells)`: return the distinct cells that are invalid for this type.
    - `synthesize(codes, count, random)`: return `count` random cells. If `codes` is not empty, each cell is one of the `codes`.
    """

    name: ColumnType
    is_number: bool = field(kw_only=True, default=False)
    has_names: bool = field(kw_only=True, default=False)
    phrase: str = field(kw_only=True)
    holds: str = field(kw_only=True)
    recognizes: Callable[[pa.ChunkedArray, pa.ChunkedArray], bool] = field(kw_only=True)
    unfit: Callable[[pa.Array | pa.ChunkedArray], pa.Array] = field(kw_only=True, default=lambda _: pa.array([], pa.string()))
    synthesize: Callable[[Sequence[str], int, np.random.Generator], SyntheticColumn] = field(kw_only=True)

    @property
    def arrow_type(self) -> pa.DataType:
        """Arrow type of the column after reading."""
        return pa.float64() if self.is_number else pa.string()


def standardize(values: NDArray[Any]) -> NDArray[np.float64]:
    """Scale numbers to a mean of 0 and a standard deviation of 1. Constant input becomes all zeros."""
    centered = np.asarray(values - values.mean(), np.float64)
    return centered / (centered.std() or 1)


def _are_categories(known: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    distinct = len(known.unique())
    return distinct <= max(_CATEGORIES, _SHARE * len(known)) and 2 * distinct <= len(known)


def _are_codes(known: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    """Return True if integers are codes, not amounts: some exceed the precision of float64, or a few distinct codes have leading zeros."""
    if not (are_numbers(known) and are_numbers(others)):
        return False
    return bool(rounded_integers(known) or rounded_integers(others)) or (have_leading_zeros(known) and _are_categories(known, others))


def _synthetic_texts(codes: Sequence[str], count: int, random: np.random.Generator) -> SyntheticColumn:
    effects = random.permutation(standardize(np.arange(len(_WORDS))))
    rows = [random.integers(len(_WORDS), size=size) for size in random.integers(2, 6, size=count)]
    cells = np.array([" ".join(_WORDS[word] for word in row) for row in rows], object)
    return SyntheticColumn(cells, np.array([effects[row].sum() / 2 for row in rows]))


def _synthetic_categories(codes: Sequence[str], count: int, random: np.random.Generator) -> SyntheticColumn:
    codes = codes or random.choice(_WORDS, _SYNTHETIC_CATEGORIES, replace=False).tolist()
    chosen = random.integers(len(codes), size=count)
    return SyntheticColumn(np.array(codes, object)[chosen], random.permutation(standardize(np.arange(len(codes))))[chosen])


def _synthetic_numbers(codes: Sequence[str], count: int, random: np.random.Generator) -> SyntheticColumn:
    values = random.standard_normal(count)
    size = int(random.integers(4))  # the median of the synthetic numbers is 3, 30, 300 or 3000
    return SyntheticColumn(np.array([f"{value:.{0 if size else 2}f}" for value in 3 * 10**size * np.exp(values / 2)], object), values)


_KINDS = (
    ColumnKind("text", phrase="{Title}: ", holds="texts", recognizes=lambda known, others: True, synthesize=_synthetic_texts),
    ColumnKind(
        "categorical",
        has_names=True,
        phrase="The {title} {verb} ",
        holds="texts",
        recognizes=lambda known, others: _are_categories(known, others) or _are_codes(known, others),
        synthesize=_synthetic_categories,
    ),
    ColumnKind(
        "numerical",
        is_number=True,
        phrase="The {title} {verb} ",
        holds="numbers",
        recognizes=lambda known, others: are_numbers(known) and are_numbers(others) and not _are_codes(known, others),
        unfit=not_numbers,
        synthesize=_synthetic_numbers,
    ),
)
# Inference takes the last type in `COLUMN_KINDS` that recognizes a column. More specific types therefore come after general types.
COLUMN_KINDS: Mapping[ColumnType, ColumnKind] = {kind.name: kind for kind in _KINDS}
