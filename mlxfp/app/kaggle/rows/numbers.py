"""Formatting of numbers as text: exact, rounded, or as quantiles of the training rows. Each distinct value is formatted once."""

from typing import Literal

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.app.kaggle.specs.cells import as_floats, shortest, write_distinct
from mlxfp.support.arrow_types import decoded

NumberStyle = Literal["raw", "round", "quantile"]


@frozen
class NumberFormat:
    """Format in which the numbers of a column are written as text, selected by `style`.

    - "raw" writes the shortest exact digits (22, 7.25, 1e-07).
    - "round" rounds to `digits` decimals.
    - "quantile" writes a range and percentages, such as "2 to 5, quantile 25-50 %". `bins` holds a pair for each range: the smallest
      number, and the percentage of training rows below this number. Without ranges (empty `bins`), all numbers become null.
    """

    style: NumberStyle
    digits: int
    bins: tuple[tuple[float, int], ...] = ()

    def write(self, column: pa.Array) -> pa.StringArray:
        """Format a column of integers, floats, decimals or booleans. Null and NaN become null."""
        numbers = decoded(column)
        if pa.types.is_null(numbers.type):
            return pa.nulls(len(numbers), pa.string())
        if self.style == "quantile":
            return self._ranges(as_floats(numbers))
        if pa.types.is_boolean(numbers.type):
            numbers = numbers.cast(pa.int8())
        if pa.types.is_float16(numbers.type) or pa.types.is_decimal(numbers.type):
            numbers = numbers.cast(pa.float64())
        return write_distinct(numbers, shortest if self.style == "raw" else lambda value: shortest(round(value, self.digits)))

    def _ranges(self, numbers: NDArray[np.float64]) -> pa.StringArray:
        if not self.bins:
            return pa.nulls(len(numbers), pa.string())
        ends = [*self.bins[1:], (float("inf"), 100)]
        last = len(self.bins) - 1
        names = []
        for index, ((low, below), (high, upto)) in enumerate(zip(self.bins, ends, strict=True)):
            inside = f"{shortest(low)} or more" if index == last else f"{shortest(low)} to {shortest(high)}"
            bounds = "" if not last else f"below {shortest(high)}, " if not index else f"{inside}, "
            names.append(f"{bounds}quantile {below}-{upto} %")
        indices = np.searchsorted([low for low, _ in self.bins[1:]], numbers, side="right")
        return pa.array(names).take(pa.array(indices, mask=np.isnan(numbers)))


def find_bins(numbers: NDArray[np.float64], count: int) -> tuple[tuple[float, int], ...]:
    """Divide numbers, float64[N], into `count` quantiles. Return pairs of the smallest number and the percentage of smaller numbers.

    One pair describes one quantile. NaN is ignored. Quantiles with equal smallest numbers are merged. Each smallest number occurs in the
    column, without interpolation (Hyndman and Fan 1996, definition 1: inverse of the distribution function).
    """
    known = np.sort(numbers[~np.isnan(numbers)])
    if not len(known):
        return ()
    lows = [float(known[index * len(known) // count]) for index in range(count)]
    firsts = {low: round(100 * index / count) for index, low in reversed(list(enumerate(lows)))}
    return tuple(sorted(firsts.items()))
