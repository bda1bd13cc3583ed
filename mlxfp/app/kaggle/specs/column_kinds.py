"""The kinds of columns: each is one entry of `COLUMN_KINDS`, and all that depends on the type of a column asks its entry.

A further kind is a further name in `ColumnType` and a further entry in the table.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray

from mlxfp.app.kaggle.specs.cells import are_numbers, not_numbers

ColumnType = Literal["text", "categorical", "numerical"]
Cells = NDArray[Any]  # of strings, as a file has them; "" is a missing value

_CATEGORIES = 20  # so many distinct texts are categories, whatever the number of rows, if rows share them
_SHARE = 0.05  # and so are distinct texts that are fewer than this share of the rows
_MADE_CATEGORIES = 4  # of a synthetic column whose values have no names
_WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "fern", "grove", "harbor", "island", "juniper", "kettle", "lantern"),
    *("meadow", "north", "orchard", "pebble", "quartz", "river", "south", "timber", "upland", "valley", "willow", "yellow"),
)


@frozen
class SyntheticColumn:
    """The cells of a synthetic column, and their effect on the target: float64[N], 0 for a cell without effect."""

    cells: Cells
    signal: NDArray[np.float64]


@frozen
class ColumnKind:
    """What depends on the type of a column.

    - `is_number`: its cells are read as float64, may be scaled, and have quantiles; the cells of other kinds are read as strings.
    - `has_names`: a spec may give names to its values.
    - `phrase`: what stands before a value in a sentence, of `{title}`, `{Title}` and `{verb}`.
    - `holds`: what its cells are, for errors.
    - `recognizes(known, others)`: whether a column of a train file is of this kind, by its cells that are not missing, and those of the
      test file.
    - `unfit(cells)`: the distinct cells that a column of this kind cannot hold.
    - `synthesize(codes, count, random)`: random cells, among `codes` if there are some.
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
        """The type that the column is read as."""
        return pa.float64() if self.is_number else pa.string()


def standardize(values: NDArray[Any]) -> NDArray[np.float64]:
    """Move numbers to a mean of 0 and a standard deviation of 1, or 0 if they are equal."""
    centered = np.asarray(values - values.mean(), np.float64)
    return centered / (centered.std() or 1)


def _are_categories(known: pa.ChunkedArray, others: pa.ChunkedArray) -> bool:
    distinct = len(known.unique())
    return distinct <= max(_CATEGORIES, _SHARE * len(known)) and 2 * distinct <= len(known)


def _synthetic_texts(codes: Sequence[str], count: int, random: np.random.Generator) -> SyntheticColumn:
    effects = random.permutation(standardize(np.arange(len(_WORDS))))
    rows = [random.integers(len(_WORDS), size=size) for size in random.integers(2, 6, size=count)]
    cells = np.array([" ".join(_WORDS[word] for word in row) for row in rows], object)
    return SyntheticColumn(cells, np.array([effects[row].sum() / 2 for row in rows]))


def _synthetic_categories(codes: Sequence[str], count: int, random: np.random.Generator) -> SyntheticColumn:
    codes = codes or random.choice(_WORDS, _MADE_CATEGORIES, replace=False).tolist()
    chosen = random.integers(len(codes), size=count)
    return SyntheticColumn(np.array(codes, object)[chosen], random.permutation(standardize(np.arange(len(codes))))[chosen])


def _synthetic_numbers(codes: Sequence[str], count: int, random: np.random.Generator) -> SyntheticColumn:
    values = random.standard_normal(count)
    size = int(random.integers(4))  # about 3, 30, 300 or 3000
    return SyntheticColumn(np.array([f"{value:.{0 if size else 2}f}" for value in 3 * 10**size * np.exp(values / 2)], object), values)


_KINDS = (
    ColumnKind("text", phrase="{Title}: ", holds="texts", recognizes=lambda known, others: True, synthesize=_synthetic_texts),
    ColumnKind(
        "categorical",
        has_names=True,
        phrase="The {title} {verb} ",
        holds="texts",
        recognizes=_are_categories,
        synthesize=_synthetic_categories,
    ),
    ColumnKind(
        "numerical",
        is_number=True,
        phrase="The {title} {verb} ",
        holds="numbers",
        recognizes=lambda known, others: are_numbers(known) and are_numbers(others),
        unfit=not_numbers,
        synthesize=_synthetic_numbers,
    ),
)
# From the widest kind to the narrowest: a column is taken for the last one that recognizes it.
COLUMN_KINDS: Mapping[ColumnType, ColumnKind] = {kind.name: kind for kind in _KINDS}
