"""Row filters given as conditions on columns. Unlike Python functions, conditions can be evaluated by file readers."""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from attrs import field, frozen
from toolz import identity

from mlxfp.core.arrow.conditions import OPERATORS, Condition, Operator
from mlxfp.core.chunks import Example, RecordBatch, Schema, no_rows
from mlxfp.core.datasets import Dataset
from mlxfp.core.identity import comparable
from mlxfp.core.stages import Stage, State, Traits
from mlxfp.support.checks import check_choice, check_columns, check_text, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, SchemaError

_EXAMPLE = "Write conditions as in [('age', '>', 18), ('sex', 'in', ['male', 'female'])]."


@explain_call
def filter_by(conditions: Sequence[tuple[str, Operator, Any]]) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Keep the examples that meet every condition. A condition is a tuple (column, operator, value).

    The operators are `==`, `!=`, `<`, `<=`, `>`, `>=` and `in`. The value of `in` is a sequence. A missing value meets no condition. NaN
    meets only `!=`. Conditions are evaluated on whole columns. A Parquet reader skips row groups that have no match according to the file
    statistics. The reader skips nothing if any stage between the reader and `filter_by` does more than choose columns.

    Raises `SchemaError` at construction if a column is missing or its type cannot be compared with the value.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"age": 22, "sex": "male"}, {"age": 38, "sex": "female"}, {"age": None, "sex": "male"}])
    >>> list(fp.pipe(rows, fp.filter_by([("age", ">", 18), ("sex", "in", ["male", "other"])])))
    [{'age': 22, 'sex': 'male'}]

    See also: `filter` for any function of a row.
    """
    if not isinstance(conditions, Sequence):
        raise ArgumentTypeError(f"conditions must be a list, got {type(conditions).__name__}: {conditions!r:.60}. {_EXAMPLE}")
    if not conditions:
        raise ArgumentError(f"filter_by needs at least one condition, got none. {_EXAMPLE}")
    return _FilterBy(tuple(map(_condition, conditions)))


def _condition(condition: Any) -> tuple[str, Operator, Any]:
    if not isinstance(condition, tuple) or len(condition) != 3:
        raise ArgumentTypeError(f"A condition is (column, operator, value), got {condition!r:.60}. {_EXAMPLE}")
    column, operator, value = condition
    check_text(column=column)
    check_choice(OPERATORS, operator=operator)
    if operator == "in" and (isinstance(value, str) or not isinstance(value, Iterable)):
        raise ArgumentTypeError(
            f"The value of 'in' is a sequence of values, got {value!r:.60} for {column!r}. For a single value use '=='."
        )
    values = tuple(value) if operator == "in" else (value,)
    if not values or any(element is None for element in values):
        raise ArgumentError(
            f"A condition needs a value to compare with, got {value!r:.60} for {column!r}. A missing value meets no condition."
        )
    return column, operator, values if operator == "in" else value


@frozen(repr=False)
class _FilterBy(Stage):
    conditions: tuple[tuple[str, Operator, Any], ...] = field(eq=comparable)

    @property
    def traits(self) -> Traits:
        return Traits(columns_read=tuple(column for column, *_ in self.conditions), predicates=self._predicates, longest_row=identity)

    @property
    def _predicates(self) -> tuple[Condition, ...]:
        return tuple(Condition(*condition) for condition in self.conditions)

    def schema(self, schema: Schema) -> Schema:
        check_columns([column for column, *_ in self.conditions], schema.names, "filter_by")
        for condition in self._predicates:
            try:
                condition.mask(no_rows(schema))
            except (pa.ArrowException, TypeError, OverflowError) as error:
                kind = schema.field(condition.column).type
                raise SchemaError(
                    f"filter_by cannot compare the column {condition.column!r} of {kind} with {condition.value!r:.60}: {error}. "
                    "Use a value of the column's type, or use filter(lambda row: ...)."
                ) from error
        return schema

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        return state, (chunk.filter(reduce(pc.and_, [condition.mask(chunk) for condition in self._predicates])),)
