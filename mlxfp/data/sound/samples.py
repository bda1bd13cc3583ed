"""Samples of sound as floats."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import Ends, row_of
from mlxfp.support.errors import DataError

Floats = NDArray[np.float32]

_SAMPLES = np.iinfo(np.int16)


def as_samples(values: NDArray[Any], ends: Ends, at: Callable[[int], str]) -> Floats:
    """Return numbers as samples from -1 to 1: floats as they are, integers as 16-bit samples, which are divided by 32768.

    `ends` are those of the rows, int64[B + 1], and `at` begins a message about a row. Raises `DataError` for integers beyond 16 bits and
    for floats beyond 32.
    """
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            floats = values.astype(np.float32, copy=False)
        beyond = np.isinf(floats) & np.isfinite(values) if values.dtype.itemsize > 4 else np.zeros(0, bool)
        if beyond.any():
            place = int(beyond.argmax())
            raise DataError(f"{at(row_of(ends, place))} holds {values[place]}, beyond 32-bit floats. Scale it before batch.")
        return floats
    wrong = np.flatnonzero((values < _SAMPLES.min) | (values > _SAMPLES.max))
    if len(wrong):
        raise DataError(
            f"{at(row_of(ends, int(wrong[0])))} holds {values[wrong[0]]}, and integers are taken as 16-bit "
            "samples, -32768 to 32767. Turn others into floats between -1 and 1 before batch."
        )
    return values.astype(np.float32) / np.float32(32768)
