"""Conditions on a column, such as `age > 30`.

A condition selects the rows of a chunk. The minimum and maximum of a column also show if any row can match, so readers can skip data.
"""

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
from attrs import frozen

from mlxfp.core.chunks import RecordBatch

Operator = Literal["==", "!=", "<", "<=", ">", ">=", "in"]
OPERATORS: tuple[Operator, ...] = get_args(Operator)

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
# Maps an operator to the operator that compares the column minimum with the value. If the comparison is false, no row matches.
_LEAST: Mapping[str, str] = {"<": "<", "<=": "<=", "==": "<="}
# Maps an operator to the operator that compares the column maximum with the value. If the comparison is false, no row matches.
_GREATEST: Mapping[str, str] = {">": ">", ">=": ">=", "==": ">="}


@frozen
class Condition:
    """A comparison of a column with a value. Missing values never meet a condition."""

    column: str
    operator: Operator
    value: Any  # a tuple of values for the operator "in"

    def mask(self, chunk: RecordBatch) -> pa.Array:
        """Return True for rows that meet the condition: bool[N], false or null for other rows."""
        column = chunk.column(self.column)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if self.operator != "in":
            return _compare(self.operator, column, self.value)
        if pa.types.is_floating(column.type):  # values are compared with ==, because `pc.is_in` matches nan and distinguishes 0.0 from -0.0
            return reduce(pc.or_, [_compare("==", column, value) for value in self.value])
        return pc.is_in(column, pa.array([_exact(value, column.type) for value in self.value], column.type))

    def possible(self, least: pa.Array, greatest: pa.Array) -> bool:
        """Return True if a column with this minimum and maximum (arrays of one value) can contain a value that meets the condition."""
        if self.operator == "in":
            return any(Condition(self.column, "==", value).possible(least, greatest) for value in self.value)
        ends = ((_LEAST, least), (_GREATEST, greatest))
        return all(_compare(tests[self.operator], end, self.value)[0].as_py() for tests, end in ends if self.operator in tests)


def _compare(operator: str, column: pa.Array, value: Any) -> pa.Array:
    return _COMPARE[operator](column, _exact(value, column.type))


def _exact(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a value as a scalar of the column type. Raises an error for a value that Arrow would truncate."""
    if pa.types.is_integer(kind) and isinstance(value, float):
        raise TypeError(f"{value!r} is not an integer")
    scalar = pa.scalar(value, kind)
    if pa.types.is_timestamp(kind) and hasattr(value, "tzinfo") and (value.tzinfo is None) is not (kind.tz is None):
        raise TypeError(f"{value!r} has {'no time zone' if kind.tz else 'a time zone'}, unlike the column")
    if pa.types.is_temporal(kind) and scalar.cast((original := pa.scalar(value)).type) != original:
        raise TypeError(f"{value!r} has a time of day, or a finer time unit than the type {kind}")
    return scalar
