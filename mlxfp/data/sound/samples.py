"""Columns of waveforms, and conversion of sound samples to floats."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import Ends, row_of
from mlxfp.core.chunks import HIDDEN, Schema
from mlxfp.support.arrow_types import is_list_like, is_number, is_tensor
from mlxfp.support.checks import check_columns
from mlxfp.support.errors import DataError, SchemaError

Floats = NDArray[np.float32]

_SAMPLES = np.iinfo(np.int16)


def waveform_values(schema: Schema, column: str, stage: str) -> pa.DataType:
    """Return the type of the samples in a column of waveforms. Raise `SchemaError` for a column of another type."""
    check_columns([column], [name for name in schema.names if name not in HIDDEN], stage)
    kind = schema.field(column).type
    if not ((is_list_like(kind) or is_tensor(kind, axes=1)) and is_number(kind.value_type)):
        raise SchemaError(f"{stage} needs lists or tensors [T] of numbers in column {column!r}, got {kind}. Choose another column.")
    return kind.value_type


def as_samples(values: NDArray[Any], ends: Ends, at: Callable[[int], str]) -> Floats:
    """Return samples as float32. Floats are unchanged. Integers are 16-bit samples and are divided by 32768.

    `ends` holds the row boundaries, int64[B + 1]. Error messages about a row begin with the text `at(row)`. Raises `DataError` for
    8-bit integers, for integers outside the 16-bit range and for floats outside the range of float32.
    """
    if values.dtype.kind == "f":
        with np.errstate(over="ignore"):
            floats = values.astype(np.float32, copy=False)
        overflow = np.isinf(floats) & np.isfinite(values) if values.dtype.itemsize > 4 else np.zeros(0, bool)
        if overflow.any():
            index = int(overflow.argmax())
            raise DataError(
                f"{at(row_of(ends, index))} holds {values[index]}, beyond 32-bit floats. Scale the samples with map before batch."
            )
        return floats
    if values.dtype.itemsize == 1 and len(values):
        raise DataError(
            f"{at(row_of(ends, 0))} holds 8-bit samples ({values.dtype}), but integers must be 16-bit samples. Convert the samples to "
            "floats between -1 and 1 with map before batch: (samples - 128) / 128 for uint8."
        )
    wrong = np.flatnonzero((values < _SAMPLES.min) | (values > _SAMPLES.max))
    if len(wrong):
        raise DataError(
            f"{at(row_of(ends, int(wrong[0])))} holds {values[wrong[0]]}, but integers must be 16-bit samples, "
            "-32768 to 32767. Convert other samples to floats between -1 and 1 with map before batch."
        )
    return values.astype(np.float32) / np.float32(32768)
