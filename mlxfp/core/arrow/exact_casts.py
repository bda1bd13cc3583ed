"""Casts of Arrow columns to float types. Decimals may be rounded, but integers must stay exact.

An integer must lie in the range in which all integers are exact: up to 2^24 for float32, up to 2^53 for float64. A finite number must not
become infinite. Otherwise, the cast raises an error. Arrow itself checks integer columns only.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.support.arrow_types import decoded, is_list_like, is_text, value_type

_EXACT = {16: 1 << 11, 32: 1 << 24, 64: 1 << 53}  # limit up to which a float type holds every integer, by bits of the type
_INFINITE = {16: 65520.0, 32: 2.0**128 - 2.0**103, 64: np.inf}  # smallest float64 that a cast makes infinite, by bits of the new float type
_INTEGER = r"^\s*[+-]?\d{4,}\s*$"  # An integer of fewer than 4 digits is exact in every float type, including float16.


def largest_exact(kind: pa.DataType) -> int:
    """Return the limit up to which a float type holds every integer."""
    return _EXACT[kind.bit_width]


def loses(value: Any, kind: pa.DataType) -> bool:
    """Return True if a Python value contains a number that a float type would round or turn infinite. Decimals may be rounded.

    >>> loses([1e39], pa.list_(pa.float32())), loses(2**24 + 1, pa.float32()), loses(0.1, pa.float32())
    (True, True, False)
    """
    kind = value_type(kind)
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        return any(loses(value.get(field.name), field.type) for field in kind)
    if is_list_like(kind) and isinstance(value, list | tuple | np.ndarray):
        return any(loses(part, kind.value_type) for part in value)
    if not pa.types.is_floating(kind) or isinstance(value, bool):
        return False
    if isinstance(value, int | np.integer):
        return abs(int(value)) > largest_exact(kind)
    return isinstance(value, float | np.floating) and _INFINITE[kind.bit_width] <= abs(float(value)) < np.inf


def array_of(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Return Python values as an Arrow array. Raises `ArrowInvalid` if a number does not fit the type exactly (see `loses`)."""
    column = pa.array(values, kind)
    widths = set[int]() if kind is None else _float_widths(kind)
    if (16 in widths or (32 in widths and _infinities(column))) and any(loses(value, kind) for value in values):
        raise pa.ArrowInvalid(f"a number does not fit the type {kind}")
    return column


def cast_exactly(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column. Raises `ArrowInvalid` for a value that the type cannot hold. Decimals may be rounded.

    >>> cast_exactly(pa.array([0.1]), pa.float32()).type
    DataType(float)
    """
    result = column.cast(kind)
    _check_cast(column, result)
    return result


def rounds_texts(texts: pa.Array, numbers: pa.Array) -> bool:
    """Return True if a text has an integer that the float rounds, or a number that became infinite. The texts inf and nan are allowed."""
    infinite = pc.is_inf(numbers.cast(pa.float64()))
    if pc.any(pc.and_(infinite, pc.match_substring_regex(texts, r"\d"))).as_py():
        return True
    limit = largest_exact(numbers.type)
    return any(abs(int(text)) > limit for text in texts.filter(pc.match_substring_regex(texts, _INTEGER)).to_pylist())


def _check_cast(column: pa.Array, result: pa.Array) -> None:
    """Raise `ArrowInvalid` if a cast to floats has rounded an integer or turned a finite number infinite."""
    column, result = decoded(column), decoded(result)
    before, after = column.type, result.type
    if before == after or not _float_widths(after):
        return
    if pa.types.is_struct(after):
        old, new = dict(zip((f.name for f in before), column.flatten(), strict=True)), result.flatten()
        for field, values in zip(after, new, strict=True):
            if field.name in old:
                _check_cast(old[field.name], values)
    elif is_list_like(after):
        _check_cast(column.flatten(), result.flatten())
    elif (lost := _lost(column, result)) is not None:
        raise pa.ArrowInvalid(f"the number {lost} does not fit the type {after}")


def _lost(column: pa.Array, result: pa.Array) -> Any:
    """Return a value that the cast rounded or turned infinite, or None."""
    kind = column.type
    if is_text(kind):
        return f"in {column[0].as_py()!r:.60}" if rounds_texts(column, result) else None
    if pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale <= 0):
        limit = largest_exact(result.type)
        return next((end for end in pc.min_max(column).as_py().values() if end is not None and abs(end) > limit), None)
    infinite = pc.is_inf(result.cast(pa.float64()))
    if pa.types.is_floating(kind):
        infinite = pc.and_not(infinite, pc.is_inf(column.cast(pa.float64())))
    lost = column.filter(infinite)
    return lost[0].as_py() if len(lost) else None


def _infinities(column: pa.Array) -> int:
    """Return the number of infinite values in a column, at any depth."""
    column = decoded(column)
    if pa.types.is_floating(column.type):
        return int(pc.sum(pc.is_inf(column.cast(pa.float64()))).as_py() or 0)
    if pa.types.is_struct(column.type):
        return sum(map(_infinities, column.flatten()))
    return _infinities(column.flatten()) if is_list_like(column.type) else 0


def _float_widths(kind: pa.DataType) -> set[int]:
    """Return the bit widths of all float types in a type, at any depth."""
    kind = value_type(kind)
    inner = (_float_widths(kind.field(index).type) for index in range(kind.num_fields))
    return {kind.bit_width} if pa.types.is_floating(kind) else set[int]().union(*inner)
