"""Cells of a table: as a file writes them, and as numbers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import RecordBatch

from mlxfp import Template
from mlxfp.support.arrow_types import decoded

_EXACT = 2**53  # floats above it skip integers: their last digits would be invented


def as_floats(column: pa.Array) -> NDArray[np.float64]:
    """Return numbers as float64[N], NaN for missing ones."""
    numbers = decoded(column)
    numbers = numbers.cast(pa.int8()) if pa.types.is_boolean(numbers.type) else numbers
    return np.asarray(numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def shortest(value: float) -> str:
    """Write a number exactly, with as few digits as possible; without a point where it is whole."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) <= _EXACT else repr(value)
    return str(value)


def write_distinct(numbers: pa.Array, write: Callable[[Any], str]) -> pa.StringArray:
    """Write each distinct number once; null and NaN become null."""
    encoded = numbers.dictionary_encode()
    texts = [None if value is None or value != value else write(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def spell(chunk: RecordBatch, name: str) -> pa.StringArray:
    """Write the values of a column as a file has them: whole floats, which is what integers next to nulls become, without a point."""
    column = decoded(chunk.column(name))
    if pa.types.is_floating(column.type):
        return write_distinct(column.cast(pa.float64()), shortest)
    texts = Template("{cell}", policy="drop").render(pa.record_batch([column], ["cell"]))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def are_numbers(texts: pa.Array) -> bool:
    """Whether all texts of an array can be read as floats."""
    try:
        pc.utf8_trim_whitespace(texts).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def not_numbers(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the distinct texts that cannot be read as floats."""
    values = texts.drop_null().unique()
    if are_numbers(values):
        return values.slice(0, 0)
    return values.filter(pa.array([not are_numbers(values.slice(place, 1)) for place in range(len(values))]))
