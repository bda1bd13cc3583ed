"""Casts of Arrow columns that raise an error for a changed value. One change is allowed: a cast to floats may round numbers such as 0.1.

A cast to floats raises an error for an integer beyond 2^24 (float32) or 2^53 (float64), and for a finite number that becomes infinite. All
other casts raise an error if the result does not convert back to the same value. The casts of Arrow itself change some values without an
error. For example, a cast to dates drops the time of day, and a cast to booleans turns 2 into true.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.support.arrow_types import decoded, float_widths, is_text, parts_of

_EXACT = {16: 1 << 11, 32: 1 << 24, 64: 1 << 53}  # maps the number of bits of a float type to the limit up to which every integer is exact
INFINITE = {16: 65520.0, 32: 2.0**128 - 2.0**103, 64: np.inf}  # smallest float64 that becomes infinite as a float of 16, 32 or 64 bits
_INTEGER = r"^\s*[+-]?\d{4,}\s*$"  # An integer of fewer than 4 digits is exact in every float type, including float16.


def largest_exact(kind: pa.DataType) -> int:
    """Return the limit up to which a float type holds every integer."""
    return _EXACT[kind.bit_width]


def cast_exactly(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column. Raises `ArrowInvalid` for a value that the type cannot hold. Only decimals such as 0.1 may be rounded.

    >>> cast_exactly(pa.array([0.1]), pa.float32()).type
    DataType(float)
    """
    result = column.cast(kind)
    result.validate(full=True)  # Arrow casts integers to times of day without a check of the range
    _check_cast(column, result)
    return result


def rounds_texts(texts: pa.Array, numbers: pa.Array) -> bool:
    """Return True if the conversion of `texts` to the floats `numbers` rounded an integer, or made a finite number infinite."""
    infinite = pc.is_inf(numbers.cast(pa.float64()))
    if pc.any(pc.and_(infinite, pc.match_substring_regex(texts, r"\d"))).as_py():
        return True
    limit = largest_exact(numbers.type)
    return any(abs(int(text)) > limit for text in texts.filter(pc.match_substring_regex(texts, _INTEGER)).to_pylist())


def hexadecimal(texts: pa.Array) -> pa.Array:
    """Return a mask of the texts that are hexadecimal numbers. Arrow reads 0xFF as the int8 -1, and 0x0a and 0x0A as the same integer.

    >>> hexadecimal(pa.array(["0xFF", "255", None])).to_pylist()
    [True, False, None]
    """
    return pc.match_substring_regex(texts, r"^\s*[+-]?0[xX]")


def _check_cast(column: pa.Array, result: pa.Array) -> None:
    """Raise `ArrowInvalid` if a cast has changed a value."""
    column, result = decoded(column), decoded(result)
    before, after = column.type, result.type
    if before == after:
        return
    if pa.types.is_struct(before) and pa.types.is_struct(after):
        names = [member.name for member in after]
        if lacking := [member.name for member in before if member.name not in names]:
            raise pa.ArrowInvalid(f"the type {after} lacks the field {lacking[0]!r}")
        parts = dict(zip(names, result.flatten(), strict=True))
        for member, values in zip(before, column.flatten(), strict=True):
            _check_cast(values, parts[member.name])
    elif pa.types.is_nested(before):
        for old, new in zip(parts_of(column), parts_of(result), strict=True):
            _check_cast(old, new)
    elif (lost := _lost(column, result)) is not None:
        raise pa.ArrowInvalid(f"the {'number' if float_widths(after) else 'value'} {lost} does not fit the type {after}")


def _lost(column: pa.Array, result: pa.Array) -> Any:
    """Return a value of `column` that is changed in `result`, the column after the cast. Return None if no value is changed."""
    if pa.types.is_floating(result.type):
        return _rounded(column, result)
    changed = None if pa.types.is_null(column.type) else _changed(column, result)
    if changed is None or not pc.any(changed).as_py():
        return None
    return column.filter(changed)[:1].cast(pa.string())[0].as_py()


def _changed(column: pa.Array, result: pa.Array) -> pa.Array | None:  # noqa: PLR0911  # one return per kind of types
    """Return a mask of the values that a cast has changed. Return None for casts in which Arrow raises an error for such values."""
    before, after = column.type, result.type
    if is_text(before):  # Arrow parses other texts exactly, or raises an error.
        return hexadecimal(column) if pa.types.is_integer(after) else None
    if is_text(after) and pa.types.is_temporal(before):
        return pc.match_substring(result, "<value out of range")
    if pa.types.is_timestamp(before) and pa.types.is_time(after):
        return pc.not_equal(_clock(column).cast(pa.date32()), pa.scalar(0, pa.date32()))
    if pa.types.is_temporal(before) and pa.types.is_temporal(after):
        zoned = [kind for kind in (before, after) if getattr(kind, "tz", None) is not None]
        if len(zoned) == 1:
            return pc.not_equal(*(_clock(times).cast(pa.timestamp(zoned[0].unit)) for times in (column, result)))
        return pc.not_equal(result.cast(before), column)
    if pa.types.is_boolean(after) or (pa.types.is_decimal(after) and pa.types.is_floating(before)):
        return pc.invert(pc.equal(result.cast(before), column))
    return None


def _clock(times: pa.Array) -> pa.Array:
    """Return the dates and times that a clock in the time zone of the column shows, without a time zone."""
    return pc.local_timestamp(times) if getattr(times.type, "tz", None) is not None else times


def _rounded(column: pa.Array, result: pa.Array) -> Any:
    """Return a value that was rounded or became infinite in a cast to floats. Return None if there is no such value."""
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
