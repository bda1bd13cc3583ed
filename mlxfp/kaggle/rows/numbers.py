"""Numbers as text: as they are, rounded, or said as a quantile of the training rows.

The work is per distinct value, as in templates: each value of a column is written once, and the strings are gathered.
"""

from typing import Any, Literal

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.types import decoded

Numbers = Literal["raw", "round", "significant", "quantile"]

_EXACT = 2**53  # floats above it skip integers: their digits would say what is not known


@frozen
class NumberFormat:
    """How the numbers of a column are written.

    - `"raw"`: with the fewest digits that say exactly this number (22, 7.25, 1e-07).
    - `"round"`: with at most `digits` digits after the point.
    - `"significant"`: with at most `digits` significant ones, and zeros after them.
    - `"quantile"`: as a range between two training values and their place among the training rows. `bins` are the lower ends, each with
      the percent of training rows below it; without any, there is nothing to compare with, and all is missing.

    >>> NumberFormat("round", 2).write(pa.array([22.0, 71.2833, None, -0.001])).to_pylist()
    ['22', '71.28', None, '0']
    >>> NumberFormat("significant", 2).write(pa.array([208_500, 0.012345])).to_pylist()
    ['210000', '0.012']
    """

    style: Numbers
    digits: int
    bins: tuple[tuple[float, int], ...] = ()

    def write(self, column: pa.Array) -> pa.StringArray:
        """Write each number of a column of integers, floats, decimals or booleans; null and NaN become null."""
        numbers = decoded(column)
        if pa.types.is_null(numbers.type):
            return pa.nulls(len(numbers), pa.string())
        if self.style == "quantile":
            return self._ranges(as_floats(numbers))
        if pa.types.is_boolean(numbers.type):
            numbers = numbers.cast(pa.int8())
        if pa.types.is_float16(numbers.type) or pa.types.is_decimal(numbers.type):
            numbers = numbers.cast(pa.float64())
        encoded = numbers.dictionary_encode()
        texts = [None if value is None or value != value else self._text(value) for value in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)

    def _text(self, value: float) -> str:
        if self.style == "round":
            return shortest(round(value, self.digits))
        if self.style == "significant":
            return shortest(float(f"{value:.{self.digits - 1}e}"))
        return shortest(value)

    def _ranges(self, numbers: NDArray[np.float64]) -> pa.StringArray:
        if not self.bins:
            return pa.nulls(len(numbers), pa.string())
        places = np.searchsorted([low for low, _ in self.bins[1:]], numbers, side="right")
        return pa.array(self._names()).take(pa.array(places, mask=np.isnan(numbers)))

    def _names(self) -> list[str]:
        ends = [*self.bins[1:], (float("inf"), 100)]
        last = len(self.bins) - 1
        names = []
        for place, ((low, below), (high, upto)) in enumerate(zip(self.bins, ends, strict=True)):
            inside = f"{shortest(low)} or more" if place == last else f"{shortest(low)} to {shortest(high)}"
            said = "" if not last else f"below {shortest(high)}, " if not place else f"{inside}, "
            names.append(f"{said}quantile {below}-{upto} %")
        return names


def find_bins(numbers: NDArray[np.float64], count: int) -> tuple[tuple[float, int], ...]:
    """Find the lower ends of `count` quantiles of numbers, float64[N], and the percent of numbers below each; NaN are left out.

    Ends are values that there are (the inverted distribution function: Hyndman and Fan 1996, definition 1), so they are short to write.
    Quantiles that begin with the same number are one.

    >>> find_bins(np.array([1.0, 2.0, 2.0, 2.0, 3.0, 10.0]), 3)
    ((1.0, 0), (2.0, 33), (3.0, 67))
    """
    known = np.sort(numbers[~np.isnan(numbers)])
    if not len(known):
        return ()
    lows = [float(known[place * len(known) // count]) for place in range(count)]
    firsts = {low: round(100 * place / count) for place, low in reversed(list(enumerate(lows)))}
    return tuple(sorted(firsts.items()))


def as_floats(column: pa.Array) -> NDArray[np.float64]:
    """Return numbers as float64[N], NaN for missing ones."""
    numbers = decoded(column)
    numbers = numbers.cast(pa.int8()) if pa.types.is_boolean(numbers.type) else numbers
    found: Any = numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(found, np.float64)


def shortest(value: float) -> str:
    """Write a number with the fewest digits that say exactly it; no point where it is whole.

    >>> shortest(22.0), shortest(7.25), shortest(1e300), shortest(-0.0), shortest(2**60)
    ('22', '7.25', '1e+300', '0', '1152921504606846976')
    """
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) <= _EXACT else repr(value)
    return str(value)
