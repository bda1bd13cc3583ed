"""Comparison is exact and total."""

import math
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.cursors import Snapshot
from mlxfp.testing.comparing import assert_same, difference, same
from mlxfp.testing.strategies import rechunkings, tables

_NAN = float("nan")
_TENSOR = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((2, 3), np.float32))

DIFFERENT: list[tuple[Any, Any]] = [
    (1, True),
    (1, 1.0),
    (0.0, -0.0),
    (1.0, np.float64(1.0)),
    ([1], (1,)),
    ([1], [1, 1]),
    ({"x": 1}, {"y": 1}),
    ({"x": _NAN}, {"x": None}),
    (np.zeros(2, np.float32), np.zeros(2, np.float64)),
    (np.zeros(2), np.zeros((2, 1))),
    (np.array([0.0]), np.array([-0.0])),
    (np.array([complex(1, 0.0)]), np.array([complex(1, -0.0)])),
    (np.array([[1], None], object), np.array([[2], None], object)),
    (np.array([1]), np.array([2])),
    (pa.array([1], pa.int8()), pa.array([1], pa.int16())),
    (pa.array([1.0]), pa.array([None], pa.float64())),
    (pa.array([[0.0]]), pa.array([[-0.0]])),
    (pa.array([[1], [2]]), pa.array([[1, 2], []])),
    (pa.array([{"a": 0.0}]), pa.array([{"a": -0.0}])),
    (pa.array(["a"]).dictionary_encode(), pa.array(["b"]).dictionary_encode()),
    (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())), pa.array([[("a", 2)]], pa.map_(pa.string(), pa.int8()))),
    (_TENSOR, pa.FixedShapeTensorArray.from_numpy_ndarray(-np.zeros((2, 3), np.float32))),
    (pa.table({"x": [1], "y": [2]}), pa.table({"y": [2], "x": [1]})),
    (pa.table({"x": [1]}), pa.table({"x": [1, 1]})),
    (mx.array([1.0]), mx.array([1])),
    (mx.array([1.0]), mx.array([[1.0]])),
    (mx.array([0.0], mx.bfloat16), mx.array([-0.0], mx.bfloat16)),
    (Snapshot(0, 1), Snapshot(0, 2)),
]

SAME: list[tuple[Any, Any]] = [
    (_NAN, -_NAN),
    ([_NAN, {"x": (_NAN,)}], [math.nan, {"x": (math.inf - math.inf,)}]),
    (np.array([_NAN, 1.0]), np.array([_NAN, 1.0])),
    (np.array([complex(_NAN, 1)]), np.array([complex(_NAN, 1)])),
    (np.array([[_NAN], None], object), np.array([[_NAN], None], object)),
    (pa.array([_NAN, None]), pa.array([1.0, _NAN, None])[1:]),
    (pa.array(["a", "b"]).dictionary_encode(), pa.array(["b", "a", "b"]).dictionary_encode()[1:]),
    (pa.chunked_array([[1], [2]]), pa.chunked_array([[1, 2]])),
    (pa.table({"x": [1]}).replace_schema_metadata({"a": "b"}), pa.table({"x": [1]})),
    (_TENSOR, _TENSOR),
    (mx.array([_NAN], mx.bfloat16), mx.array([_NAN], mx.bfloat16)),
    (Snapshot(0, 1, 2, (np.zeros(2),)), Snapshot(0, 1, 2, (np.zeros(2),))),
    (fp.Examples(pa.record_batch({"x": [_NAN]})), fp.Examples(pa.record_batch({"x": [_NAN]}))),
]


@pytest.mark.parametrize(("a", "b"), DIFFERENT, ids=lambda value: f"{value!r:.30}")
def test_what_differs_in_any_way_is_not_the_same(a: Any, b: Any):
    assert not same(a, b)
    assert not same(b, a)
    assert difference(a, b) is not None
    with pytest.raises(AssertionError, match=r"they are one, but the results differ at"):
        assert_same(a, b, "they are one")


@pytest.mark.parametrize(("a", "b"), SAME, ids=lambda value: f"{value!r:.30}")
def test_nan_and_layout_do_not_make_a_difference(a: Any, b: Any):
    assert same(a, b)
    assert difference(a, b) is None


@given(st.data())
def test_tables_are_the_same_however_they_are_chunked(data: st.DataObject):
    table = data.draw(tables())
    again = pa.Table.from_batches(data.draw(rechunkings(table)))
    assert same(table, again)
    assert same(fp.parts.one_chunk(table), fp.parts.one_chunk(again))


@given(tables(), tables())
def test_comparing_tables_is_comparing_their_rows_in_python(a: pa.Table, b: pa.Table):
    by_rows = a.schema.equals(b.schema) and a.num_rows == b.num_rows and same(a.to_pylist(), b.to_pylist())
    assert same(a, b) == by_rows


@given(tables(min_columns=1, min_rows=2), st.data())
def test_leaving_out_a_row_or_a_column_or_a_name_is_seen(table: pa.Table, data: st.DataObject):
    place = data.draw(st.integers(0, table.num_columns - 1))
    assert not same(table, table.slice(1))
    assert not same(table, table.remove_column(place))
    assert not same(table, table.rename_columns([f"{name}?" if at == place else name for at, name in enumerate(table.column_names)]))


def test_the_first_difference_is_named_by_its_place():
    assert difference([{"x": 1}, {"x": (1, 2.0)}], [{"x": 1}, {"x": (1, -0.0)}]) == "[1].x[1]: 2.0, not -0.0"
    assert difference([1], [1, 2]) == ".length: 1, not 2".lstrip(".")
    assert difference(1, True) == "all: int 1, not bool True"
    assert difference(pa.table({"x": [1, 2]}), pa.table({"x": [1, 3]})) == "rows[1].x: 2, not 3"
    assert difference(np.float32(1), np.float64(1)) == "all: float32 np.float32(1.0), not float64 np.float64(1.0)"
    assert (
        difference(fp.Examples(pa.record_batch({"x": [1]})), fp.Examples(pa.record_batch({"y": [1]})))
        == "schema: 'x: int64', not 'y: int64'"
    )
    assert difference(pa.array([1]), pa.array([2])) == "values[0]: 1, not 2"
    assert difference(Snapshot(0, (1,)), Snapshot(0, (2,))) == "position[0]: 1, not 2"
