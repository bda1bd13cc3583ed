"""`filter_by` keeps what a function of the row would keep."""

import datetime as dt
import math
import operator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.arrow.conditions import OPERATORS, Condition
from mlxfp.support.errors import MlxfpError, SchemaError
from mlxfp.testing import laws
from mlxfp.testing.strategies import rechunkings, tables

COLUMNS = pa.schema([("n", pa.int32()), ("x", pa.float64()), ("t", pa.string())])
VALUES = {
    "n": st.integers(-3, 3),
    "x": st.sampled_from([0.0, -0.0, math.inf, math.nan]) | st.floats() | st.integers(-3, 3),
    "t": st.sampled_from(["", "a", "\0"]) | st.text(st.characters(codec="utf-8"), max_size=2),
}
MEETS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, values: any(value == each for each in values),
}


@st.composite
def conditions(draw):
    name, how = draw(st.sampled_from(sorted(VALUES))), draw(st.sampled_from(OPERATORS))
    value = draw(st.lists(VALUES[name], min_size=1, max_size=3) if how == "in" else VALUES[name])
    return name, how, value


@given(data=st.data(), some=st.lists(conditions(), min_size=1, max_size=3))
def test_the_rows_that_meet_all_conditions_are_kept(data, some):
    table = data.draw(tables(COLUMNS))
    kept = fp.filter(lambda row: all(row[name] is not None and MEETS[how](row[name], value) for name, how, value in some))
    laws.assert_same_items(fp.pipe(fp.from_table(table), fp.filter_by(some)), fp.pipe(fp.from_table(table), kept))
    laws.assert_chunks_do_not_matter(fp.filter_by(some), data.draw(rechunkings(table)), data.draw(rechunkings(table)))


@given(values=st.lists(st.floats(allow_nan=False) | st.integers(-3, 3).map(float), min_size=1), some=conditions())
def test_what_the_ends_exclude_no_value_meets(values, some):
    _, how, value = some
    if isinstance(value, str) or (how == "in" and isinstance(value[0], str)):
        return
    condition = Condition("x", how, tuple(value) if how == "in" else value)
    column = pa.array(values, pa.float64())
    if condition.mask(pa.record_batch({"x": column})).true_count:
        ends = np.min(values), np.max(values)
        assert condition.possible(*(pa.array([end], pa.float64()) for end in ends))


def test_a_missing_value_meets_nothing_and_nan_only_what_differs():
    rows = fp.from_table({"x": pa.array([None, math.nan, 1.0])})
    kept = {how: len(list(fp.pipe(rows, fp.filter_by([("x", how, 1.0)])))) for how in OPERATORS if how != "in"}
    assert kept == {"==": 1, "!=": 1, "<": 0, "<=": 1, ">": 0, ">=": 1}


def test_it_is_a_stage_like_others():
    rows = fp.from_table({"x": [1, 2, 3], "t": ["a", "b", "c"]})
    stage, other = fp.filter_by([("x", ">", 1)]), fp.filter_by([("x", ">=", 1)])
    laws.assert_value(stage(rows))
    laws.assert_told_apart(stage, other)
    laws.assert_prints(stage, {"filter_by": fp.filter_by})
    laws.assert_refused(stage(rows), other(rows))
    laws.assert_resumable(fp.pipe(rows, stage, fp.batch(1)))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (pa.array([2**62, 2**53 + 1]), 2**62),
        (pa.array([1, 2], pa.int8()), 2),
        (pa.array([2**64 - 1, 0], pa.uint64()), 0),
        (pa.array(["a", "b"]).dictionary_encode(), "b"),
        (pa.array([b"a", b"b"]), b"a"),
        (pa.array([True, False]), False),
        (pa.array([dt.date(2020, 1, 1), dt.date(2021, 1, 1)]), dt.date(2020, 1, 1)),
        (pa.array([dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1)]), dt.datetime(2021, 1, 1)),
        (pa.array([0.5, 1.0]), 1),
    ],
    ids=["int64", "int8", "uint64", "dictionary", "binary", "bool", "date", "timestamp", "float64"],
)
def test_values_of_many_types_are_compared(column, value):
    rows = fp.from_table({"x": column})
    for how in ("==", "in"):
        kept = list(fp.pipe(rows, fp.filter_by([("x", how, [value] if how == "in" else value)])))
        assert kept == [{"x": value}]


def test_rows_stay_as_long_as_they_are():
    rows = fp.pipe(
        fp.from_table({"input_ids": [[1, 2], [3]], "x": [1, 2]}), fp.pad(8, pad_id=0), fp.filter_by([("x", ">", 1)]), fp.batch(2)
    )
    assert max(length for _, length in fp.inspect.batch_shapes(fp.pipe(rows, fp.collate(fp.collators.text(pad_id=0))))) == 8


def test_a_column_that_cannot_be_compared_is_found_when_the_pipeline_is_built():
    rows = fp.from_table({"x": [1], "ids": [[1, 2]]})
    with pytest.raises(
        SchemaError, match=r"filter_by cannot compare the column 'x' of int64 with 'a': .*\. Use a value of the column's type"
    ):
        fp.schema(fp.pipe(rows, fp.filter_by([("x", "==", "a")])))
    with pytest.raises(SchemaError, match="filter_by cannot compare the column 'ids' of list<item: int64> with 1: "):
        fp.schema(fp.pipe(rows, fp.filter_by([("ids", ">", 1)])))
    with pytest.raises(SchemaError, match="filter_by cannot compare the column 'x' of int64 with"):
        fp.schema(fp.pipe(rows, fp.filter_by([("x", "in", ["a"])])))
    for value in (0.5, 2**70, dt.date(2020, 1, 1)):
        with pytest.raises(SchemaError, match="filter_by cannot compare the column 'x' of int64 with"):
            fp.schema(fp.pipe(rows, fp.filter_by([("x", "==", value)])))
    with pytest.raises(SchemaError, match="filter_by needs the column 'y', which is missing"):
        fp.schema(fp.pipe(rows, fp.filter_by([("y", "==", 1)])))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (3, "conditions must be a list, got int: 3. Write conditions as in"),
        ([], "filter_by needs at least one condition, got none. Write conditions as in"),
        ("x > 3", "A condition is (column, operator, value), got 'x'. Write conditions as in"),
        (("x", ">", 3), "A condition is (column, operator, value), got 'x'. Write conditions as in"),
        ([("x", ">")], "A condition is (column, operator, value), got ('x', '>'). Write conditions as in"),
        ([(3, ">", 3)], "column must be a string, got column=3."),
        ([("x", "=", 3)], "No operator is named '='. Did you mean"),
        ([("x", "in", "ab")], "The value of 'in' is a sequence of values, got 'ab' for 'x'. For a single value use '=='."),
        ([("x", "in", 3)], "The value of 'in' is a sequence of values, got 3 for 'x'. For a single value use '=='."),
        ([("x", "in", [])], "A condition needs a value to compare with, got [] for 'x'. A missing value meets no condition."),
        ([("x", "==", None)], "A condition needs a value to compare with, got None for 'x'. A missing value meets no condition."),
    ],
)
def test_messages(wrong, message):
    with pytest.raises(MlxfpError) as caught:
        fp.filter_by(wrong)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("column", "condition"),
    [
        (pa.array([1, 2]), ("in", [2.5])),
        (pa.array([dt.date(2024, 1, 1)]), ("==", dt.datetime(2024, 1, 1, 10))),
        (pa.array([dt.date(2024, 1, 1)]), ("in", [dt.datetime(2024, 1, 1, 10)])),
        (pa.array([0], pa.timestamp("s")), ("<", dt.datetime(1970, 1, 1, 0, 0, 0, 500_000))),
    ],
)
def test_values_that_the_column_type_would_truncate_are_refused(column: pa.Array, condition: tuple[str, Any]):
    with pytest.raises(SchemaError, match=r"filter_by cannot compare the column 'x' of .*Use a value of the column's type"):
        list(fp.pipe(fp.from_table(pa.table({"x": column})), fp.filter_by([("x", *condition)])))


@pytest.mark.parametrize(("zone", "value"), [("Europe/Berlin", dt.datetime(2024, 1, 1)), (None, dt.datetime(2024, 1, 1, tzinfo=dt.UTC))])
def test_a_time_with_a_zone_is_not_compared_with_a_time_without(zone: str | None, value: dt.datetime):
    """Arrow takes a time without a zone for UTC."""
    rows = fp.from_table(pa.table({"t": pa.array([0], pa.timestamp("us", zone))}))
    with pytest.raises(SchemaError, match=r"cannot compare the column 't' of .* has (no|a) time zone, unlike the column\. Use a value"):
        list(fp.pipe(rows, fp.filter_by([("t", "<", value)])))
