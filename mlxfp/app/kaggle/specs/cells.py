"""Conversion of table cells to texts and to floats."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import RecordBatch

from mlxfp import Template
from mlxfp.support.arrow_types import decoded
from mlxfp.support.checks import in_nfc

DECIMAL_COMMA = r"^(\s*[-+]?\d*),(\d+(?:[eE][-+]?\d+)?\s*)$"
_EXACT = 2**53  # float64 represents every integer up to 2**53 exactly


def as_floats(column: pa.Array) -> NDArray[np.float64]:
    """Return a numeric column as float64[N], with NaN for missing values."""
    numbers = decoded(column)
    numbers = numbers.cast(pa.int8()) if pa.types.is_boolean(numbers.type) else numbers
    return np.asarray(numbers.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def shortest(value: float) -> str:
    """Return the shortest exact text of a number, without a decimal point for whole numbers."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) <= _EXACT else repr(value)
    return str(value)


def write_distinct(numbers: pa.Array, write: Callable[[Any], str]) -> pa.StringArray:
    """Format a numeric column as texts. The function `write` formats each distinct number once. Null and NaN become null."""
    encoded = numbers.dictionary_encode()
    texts = [None if value is None or value != value else write(value) for value in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def spell(chunk: RecordBatch, name: str) -> pa.StringArray:
    """Return a column as texts, formatted as in a CSV file.

    A whole float such as 3.0 becomes "3", because integer columns with nulls often become float columns.
    """
    column = decoded(chunk.column(name))
    if pa.types.is_floating(column.type):
        return write_distinct(column.cast(pa.float64()), shortest)
    texts = Template("{cell}", policy="drop").render(pa.record_batch([column], ["cell"]))
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))


def with_points(texts: pa.Array) -> pa.Array:
    """Replace decimal commas by points. Texts that are not a number with a single comma stay unchanged.

    >>> with_points(pa.array(["12,5", "-,5", "1,5E-05", "1.234,5", "12,5 kg", None])).to_pylist()
    ['12.5', '-.5', '1.5E-05', '1.234,5', '12,5 kg', None]
    """
    return pc.replace_substring_regex(texts, DECIMAL_COMMA, r"\1.\2")


def are_numbers(texts: pa.Array) -> bool:
    """Return True if all texts of the array parse as floats."""
    try:
        pc.utf8_trim_whitespace(texts).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def rounded_integers(texts: pa.Array | pa.ChunkedArray) -> list[str]:
    """Select the integers above 2**53, such as 64-bit hashes, which float64 may round. All `texts` must be numbers."""
    numbers = pc.utf8_trim_whitespace(texts)
    large = numbers.filter(pc.greater_equal(pc.abs(numbers.cast(pa.float64())), float(_EXACT))).to_pylist()
    return [text for text in large if text.lstrip("+-").isdecimal() and abs(int(text)) > _EXACT]


def not_numbers(texts: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return the distinct texts that do not parse as floats."""
    values = texts.drop_null().unique()
    if are_numbers(values):
        return values.slice(0, 0)
    return values.filter(pa.array([not are_numbers(values.slice(index, 1)) for index in range(len(values))]))


def folded(text: str) -> str:
    r"""Return a text in lower case, without outer and repeated spaces, in the Unicode form NFC.

    >>> folded(" Cafe\u0301  au lait") == folded("caf\u00e9 au lait")
    True
    """
    return in_nfc(" ".join(text.split()).casefold())
