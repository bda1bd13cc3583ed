"""Columns of a group: the same from a view, from the list of its rows, and from mappings."""

from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pytest

from mlxfp.collators.columns import as_view, at_row, column_of, keys_of, lists_of, numbers_of, ragged_of
from mlxfp.core.chunks import number_rows, row_keys
from mlxfp.core.examples import Examples
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.testing.comparing import assert_same

TYPED = pa.schema(
    {
        "byte": pa.uint8(),
        "half": pa.float16(),
        "word": pa.dictionary(pa.int8(), pa.string()),
        "ids": pa.large_list(pa.int16()),
        "empty": pa.list_(pa.float32()),
        "pair": pa.list_(pa.uint8(), 2),
        "vector": pa.fixed_shape_tensor(pa.float32(), [2]),
        "encoded": pa.binary(),
        "nested": pa.struct([("x", pa.int8()), ("y", pa.list_(pa.string()))]),
        "absent": pa.int32(),
    }
)
ROW = {
    "byte": 1,
    "half": np.float16(0.5),
    "word": "a",
    "ids": [1, 2],
    "empty": [],
    "pair": [3, 4],
    "vector": np.array([0.5, 1], np.float32),
    "encoded": b"\x00",
    "nested": {"x": 1, "y": ["b"]},
    "absent": None,
}


def typed_view() -> Examples:
    names = [name for name in TYPED.names if name != "vector"]
    columns = {name: pa.array([ROW[name]] * 3, TYPED.field(name).type) for name in names}
    columns["vector"] = pa.FixedShapeTensorArray.from_numpy_ndarray(np.stack([ROW["vector"]] * 3))
    return Examples(number_rows(pa.record_batch({name: columns[name] for name in TYPED.names}), 2, 30))


def test_the_list_of_a_views_rows_is_the_view_again_with_every_type_row_and_key():
    view = typed_view()
    again = as_view(list(view))
    assert_same(again.chunk, view.chunk, "a view is the view of the list of its rows")
    assert as_view(view) is view
    assert again.rows.tolist() == [30, 31, 32]


def test_rows_of_several_views_and_changed_rows_may_be_mixed():
    first, second = (Examples(number_rows(pa.record_batch({"x": pa.array([1, 2], kind)}), 0, 5)) for kind in (pa.int8(), pa.int8()))
    mixed = as_view([first[1], second[0]])
    assert (mixed.column("x").type, mixed.rows.tolist()) == (pa.int8(), [6, 5])
    other = as_view([first[1], {"x": 2.5}, {**first[0], "y": "a"}])
    assert other.column("x").to_pylist() == [2.0, 2.5, 1.0]
    assert other.column("y").to_pylist() == [None, None, "a"]
    assert other.rows.tolist() == [6, -1, -1]
    edited = first[0]
    edited["y"] = 3
    assert as_view([edited]).column("y").to_pylist() == [3]


def test_any_mapping_will_do():
    assert as_view([MappingProxyType({"x": 1})]).column("x").to_pylist() == [1]


def test_keys_are_those_of_the_pipeline_or_follow_from_the_values():
    view = Examples(number_rows(pa.record_batch({"ids": [[1, 2], [], [2, 1], [1, 2], [0], [0, 0]]}), 0, 0))
    values, ends = lists_of(view, "ids", "test")
    assert keys_of(view, values, ends).tolist() == row_keys(view.chunk).tolist()
    made = keys_of(as_view([dict(row) for row in view]), values, ends).tolist()
    assert made[0] == made[3]
    assert len(set(made)) == 5  # order and length count
    assert all(a != b for a, b in zip(made, row_keys(view.chunk).tolist(), strict=True))


def test_numbers_are_of_32_bits_and_tensors_keep_smaller_types():
    def dtype(column: pa.Array) -> str:
        return str(numbers_of(Examples(pa.record_batch({"x": column})), "x", "test").dtype)

    for kind in (pa.int8(), pa.uint16(), pa.int64(), pa.uint64()):
        assert dtype(pa.array([1], kind)) == "int32"
    assert [dtype(pa.array([0.5], kind)) for kind in (pa.float16(), pa.float32(), pa.float64())] == ["float32"] * 3
    for given, kept in (("uint8", "uint8"), ("int64", "int32"), ("float64", "float32"), ("float16", "float16")):
        assert dtype(pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 2, 2), given))) == kept
    too_large = pa.FixedShapeTensorArray.from_numpy_ndarray(np.array([[1, 2], [3, 2**40]]))
    with pytest.raises(DataError, match=r"column 'x' of row 1 of the group holds 1099511627776, beyond 32-bit integers"):
        dtype(too_large)
    with pytest.raises(DataError, match="holds 9223372036854775808, beyond 32-bit"):
        dtype(pa.array([2**63], pa.uint64()))
    assert numbers_of(Examples(pa.record_batch({"x": [float("inf"), float("nan")]})), "x", "test")[0] == np.inf


def test_lists_of_every_kind_are_read():
    for column in (
        pa.array([[1.5, 2], [], [3]], pa.list_(pa.float64())),
        pa.array([[1.5, 2], [], [3]], pa.large_list(pa.float16())),
    ):
        values, ends = ragged_of(Examples(pa.record_batch({"x": column})), "x", "test")
        assert (values.tolist(), ends.tolist(), values.dtype) == ([1.5, 2, 3], [0, 2, 2, 3], np.float32)
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6).reshape(3, 2))
    values, ends = ragged_of(Examples(pa.record_batch({"x": tensors}).slice(1)), "x", "test")
    assert (values.tolist(), ends.tolist()) == ([2, 3, 4, 5], [0, 2, 4])
    images = pa.FixedShapeTensorArray.from_numpy_ndarray(np.zeros((1, 2, 2)))
    with pytest.raises(SchemaError, match="must hold lists of numbers, got extension"):
        ragged_of(Examples(pa.record_batch({"x": images})), "x", "test")


def test_hidden_columns_cannot_be_asked_for():
    with pytest.raises(SchemaError, match=r"test needs the column '__row__', which is missing\. Columns: 'byte'"):
        column_of(typed_view(), "__row__", "test")


def test_an_example_is_named_by_its_source_row_or_else_by_its_place():
    assert at_row(typed_view(), "x", 1, "test") == "test: column 'x' of source row 31"
    assert at_row(as_view([{"x": 1}]), "x", 0, "test") == "test: column 'x' of row 0 of the group"
