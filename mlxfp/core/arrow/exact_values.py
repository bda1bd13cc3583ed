"""Conversion of Python values to Arrow arrays that changes no value.

Arrow itself drops parts of values without an error: the fraction of 1.5 in an integer column, the time of day in a date column, the
nanoseconds of pandas, time zones, and keys of a mapping that are not fields of the struct.
"""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mlxfp.core.arrow.exact_casts import INFINITE, cast_exactly, largest_exact
from mlxfp.support.arrow_types import decoded, float_widths, has_times, in_unit, is_list_like, parts_of, value_type

_PLAIN = {int, type(None)}  # Python types of values that an integer column stores exactly
MISFITS = (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError)


def array_of(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Return Python values as an Arrow array of the type `kind`. Raises `ArrowInvalid` for a value that the type cannot hold.

    Rounding a fraction such as 0.1 raises no error. If `kind` is None, Arrow infers the type, and times from pandas keep nanoseconds.

    >>> array_of([1, 1.5], pa.int64())
    Traceback (most recent call last):
    pyarrow.lib.ArrowInvalid: a value does not fit the type int64
    """
    column = pa.array(values, kind)
    if kind is not None and has_times(kind):
        column.validate(full=True)  # `pa.array` accepts any integer as a time of day, so check the range
    widths = set[int]() if kind is None else float_widths(kind)
    if (16 in widths or (32 in widths and _infinities(column))) and any(loses(value, kind) for value in values):
        raise pa.ArrowInvalid(f"a number does not fit the type {kind}")
    if (has_times(column.type) if kind is None else _may_change(kind)) and changes(values, column.type):
        finer = in_unit(column.type, "ns")
        if kind is not None or finer == column.type or changes(values, finer):
            raise pa.ArrowInvalid(f"a value does not fit the type {column.type}")
        return pa.array(values, finer)
    return column


def loses(value: Any, kind: pa.DataType) -> bool:
    """Return True if a cast to the type `kind` rounds an integer or makes a finite number infinite. Rounded fractions do not count.

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
    return isinstance(value, float | np.floating) and INFINITE[kind.bit_width] <= abs(float(value)) < np.inf


def _may_change(kind: pa.DataType) -> bool:
    """Return True if Arrow may change Python values without an error when the values are converted to the type `kind`."""
    kind = value_type(kind)
    if pa.types.is_temporal(kind) or pa.types.is_integer(kind) or pa.types.is_struct(kind):
        return True
    return any(_may_change(kind.field(index).type) for index in range(kind.num_fields))


def changes(values: Iterable[Any], kind: pa.DataType) -> bool:
    """Return True if Arrow changes a Python value in the conversion to a type."""
    kind = value_type(kind)
    if not _may_change(kind):
        return False
    known = values if isinstance(values, list) else list(values)
    types = set(map(type, known))
    if pa.types.is_struct(kind):
        return _changes_rows(known if types == {dict} else [value for value in known if isinstance(value, Mapping)], kind)
    if pa.types.is_map(kind):
        pairs = [pair for value in known if value is not None for pair in (value.items() if isinstance(value, Mapping) else value)]
        return any(changes([pair[index] for pair in pairs], part) for index, part in enumerate((kind.key_type, kind.item_type)))
    if not is_list_like(kind):
        return not (pa.types.is_integer(kind) and types <= _PLAIN) and _any_changed(known, kind)
    arrays = [value for value in known if _is_plain_array(value)] if types != {list} else []
    lists = known if types == {list} else [value for value in known if value is not None and not _is_plain_array(value)]
    if pa.types.is_integer(kind.value_type):
        lists = [part for part in lists if not _are_integers(part)]
    return changes(chain.from_iterable(lists), kind.value_type) or any(_changes_array(array, kind.value_type) for array in arrays)


def _are_integers(values: Any) -> bool:
    """Return True if all values are Python integers: the sum is then an `int`. This check is faster than a check of each value."""
    try:
        return type(sum(values)) is int
    except TypeError:
        return False


def _is_plain_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype != object


def _changes_rows(rows: list[Mapping[Any, Any]], kind: pa.DataType) -> bool:
    """Return True if Arrow drops a key, or changes a value, in the conversion of mappings to structs."""
    names = [member.name for member in kind]
    dropped = not set[Any]().union(*rows).issubset(names)
    return dropped or any(_may_change(part.type) and changes([row.get(part.name) for row in rows], part.type) for part in kind)


def _any_changed(values: list[Any], kind: pa.DataType) -> bool:
    """Return True if Arrow changes a value in the conversion to integers, dates, times or durations."""
    groups: dict[Any, list[Any]] = {}
    for value in values:
        if value is not None and type(value) is not int:
            groups.setdefault((type(value), getattr(value, "tzinfo", None) is None), []).append(value)
    return any(_changes_group(group, kind, zoned=not naive) for (_, naive), group in groups.items())


def _changes_group(values: list[Any], kind: pa.DataType, *, zoned: bool) -> bool:
    """Return True if a conversion to the Arrow type `kind` changes a value. All values have the same type and, if `zoned`, a time zone."""
    dated = pa.types.is_timestamp(kind) and hasattr(values[0], "tzinfo")
    if (dated and zoned != (kind.tz is not None)) or (zoned and pa.types.is_time(kind)):
        return True
    if getattr(kind, "unit", None) != "ns" and any(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0) for value in values):
        return True
    return _fails_to_cast(pa.array(values), kind)


def _changes_array(array: Any, kind: pa.DataType) -> bool:
    """Return True if a conversion of a NumPy array to the Arrow type `kind` changes a value. Arrow itself checks the range of integers."""
    return not (array.dtype.kind in "iu" and pa.types.is_integer(kind)) and _fails_to_cast(pa.array(array), kind)


def _fails_to_cast(column: pa.Array, kind: pa.DataType) -> bool:
    try:
        cast_exactly(column, kind)
    except pa.ArrowException:
        return True
    return False


def _infinities(column: pa.Array) -> int:
    """Return the number of infinite values in a column, also inside lists and structs."""
    column = decoded(column)
    if pa.types.is_floating(column.type):
        return int(pc.sum(pc.is_inf(column.cast(pa.float64()))).as_py() or 0)
    return sum(map(_infinities, parts_of(column)))
