"""Conditions on a column, tested for whole columns at once, or for the least and greatest value of a column."""

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
# Which ends of a column must meet which conditions for any value between them to meet the one that is asked for.
_LEAST: Mapping[str, str] = {"<": "<", "<=": "<=", "==": "<="}
_GREATEST: Mapping[str, str] = {">": ">", ">=": ">=", "==": ">="}


@frozen
class Condition:
    """A comparison of a column with a value; a missing value never meets it."""

    column: str
    operator: Operator
    value: Any  # for "in": a tuple

    def mask(self, chunk: RecordBatch) -> pa.Array:
        """Return which rows meet the condition: bool[N], false or null where they do not."""
        column = chunk.column(self.column)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if self.operator != "in":
            return _compare(self.operator, column, self.value)
        if pa.types.is_floating(column.type):  # Arrow's sets hold nan, and tell 0.0 from -0.0
            return reduce(pc.or_, [_compare("==", column, value) for value in self.value])
        return pc.is_in(column, pa.array(self.value, column.type))

    def possible(self, least: pa.Array, greatest: pa.Array) -> bool:
        """Return whether a value can meet the condition in a column with this least and this greatest value, arrays of one value each."""
        if self.operator == "in":
            return any(Condition(self.column, "==", value).possible(least, greatest) for value in self.value)
        ends = ((_LEAST, least), (_GREATEST, greatest))
        return all(_compare(tests[self.operator], end, self.value)[0].as_py() for tests, end in ends if self.operator in tests)


def _compare(operator: str, column: pa.Array, value: Any) -> pa.Array:
    """Compare as values of the column's type, which is exact; raise where that cannot hold the value."""
    if pa.types.is_integer(column.type) and isinstance(value, float):  # Arrow would cut it off
        raise TypeError(f"{value!r} is not an integer")
    return _COMPARE[operator](column, pa.scalar(value, column.type))
