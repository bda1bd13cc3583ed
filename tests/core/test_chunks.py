"""Chunks: record batches with hidden columns, and rows to and from them."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.chunks import (
    KEY,
    ROW,
    concat_chunks,
    from_rows,
    no_rows,
    number_as,
    number_joined,
    number_rows,
    one_chunk,
    row_keys,
    set_column,
    set_field,
    source_rows,
    to_rows,
    visible,
    with_hidden_of,
)
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.support.randomness import fold_in
from mlxfp.testing.comparing import difference, same
from mlxfp.testing.strategies import examples, rechunkings, schemas, tables

TENSOR = pa.fixed_shape_tensor(pa.float32(), (2, 1))


@given(st.data())
def test_rows_of_any_type_become_the_same_chunk_again(data: st.DataObject):
    schema = data.draw(schemas())
    rows = data.draw(examples(schema))
    chunk = from_rows(rows, schema, range(len(rows)))
    assert chunk.schema.equals(schema)
    assert same(tuple(to_rows(chunk)), rows), difference(tuple(to_rows(chunk)), rows)


@given(st.data())
def test_rows_are_the_same_however_the_chunks_are_cut(data: st.DataObject):
    table = data.draw(tables())
    cut = [row for chunk in data.draw(rechunkings(table)) for row in to_rows(chunk)]
    assert same(cut, to_rows(one_chunk(table))), difference(cut, to_rows(one_chunk(table)))


@given(tables(min_columns=1), st.integers(0, 5), st.integers(0, 2**40))
def test_numbering_rows_in_parts_is_numbering_them_at_once(table: pa.Table, epoch: int, first: int):
    whole = number_rows(one_chunk(table), epoch, first)
    cut = whole.num_rows // 2
    parts = [number_rows(one_chunk(table.slice(0, cut)), epoch, first), number_rows(one_chunk(table.slice(cut)), epoch, first + cut)]
    assert same(concat_chunks(parts), whole)
    assert source_rows(whole).tolist() == list(range(first, first + table.num_rows))
    assert row_keys(whole).tolist() == [fold_in(0, epoch, row) for row in source_rows(whole).tolist()]
    assert same(visible(whole), one_chunk(table))


def test_a_chunk_that_has_hidden_columns_keeps_them():
    chunk = number_as(pa.record_batch({"x": [1, 2]}), 3, np.array([7, 5]))
    assert number_rows(chunk, 4, 0) is chunk
    assert number_as(chunk, 4, np.arange(2)) is chunk
    assert source_rows(chunk).tolist() == [7, 5]


def test_source_rows_are_not_known_without_hidden_columns():
    chunk = pa.record_batch({"x": [1, 2]})
    assert source_rows(chunk).tolist() == [-1, -1]
    assert visible(chunk) is chunk
    assert with_hidden_of(chunk, chunk) is chunk


def test_hidden_columns_stay_beside_other_columns():
    chunk = number_rows(pa.record_batch({"x": [1, 2]}), 0, 5)
    made = with_hidden_of(pa.record_batch({"y": ["a", "b"]}), chunk)
    assert made.schema.names == ["y", ROW, KEY]
    assert made.column(ROW).equals(chunk.column(ROW))


def test_joined_datasets_have_rows_and_keys_of_their_own():
    chunk = number_rows(pa.record_batch({"x": [1, 2]}), 0, 0)
    first, second = number_joined(chunk, 0, 0), number_joined(chunk, 1, 1)
    assert source_rows(first).tolist() == [0, 1]
    assert source_rows(second).tolist() == [2**44, 2**44 + 1]
    assert len({*row_keys(chunk).tolist(), *row_keys(first).tolist(), *row_keys(second).tolist()}) == 6


def test_columns_and_fields_are_replaced_in_place_or_added():
    chunk, schema = pa.record_batch({"x": [1], "y": [2]}), pa.schema({"x": pa.int64(), "y": pa.int64()})
    assert set_column(chunk, "x", pa.array(["a"])).to_pylist() == [{"x": "a", "y": 2}]
    assert set_column(chunk, "z", pa.array(["a"])).schema.names == ["x", "y", "z"]
    assert set_field(schema, "x", pa.string()) == pa.schema({"x": pa.string(), "y": pa.int64()})
    assert set_field(schema, "z", pa.string()).names == ["x", "y", "z"]


@given(schemas())
def test_a_table_without_rows_is_one_chunk_without_rows(schema: pa.Schema):
    assert same(one_chunk(pa.Table.from_batches([], schema)), no_rows(schema))
    assert no_rows(schema).num_rows == 0


def test_chunks_without_columns_keep_their_number_of_rows():
    chunk = from_rows([{}, {}, {}], None, range(3))
    assert chunk.num_rows == 3
    assert to_rows(number_rows(chunk, 0, 0)) == [{}, {}, {}]
    assert visible(number_rows(chunk, 0, 0)).num_rows == 3


def test_missing_columns_are_null():
    assert from_rows([{"x": 1}, {"y": "a"}], None, range(2)).to_pylist() == [{"x": 1, "y": None}, {"x": None, "y": "a"}]


def test_numpy_values_keep_their_types():
    row = {
        "a": np.float32(1.5),
        "b": np.bool_(True),  # a value
        "c": np.str_("x"),
        "d": np.datetime64("2020-01-01T00:00:00.000000001"),
        "e": np.arange(3),
    }
    chunk = from_rows([row, {}], None, range(2))
    assert chunk.schema.types == [pa.float64(), pa.bool_(), pa.string(), pa.timestamp("ns"), pa.list_(pa.int64())]


def test_arrays_of_one_shape_are_tensors():
    arrays = [np.zeros((2, 1), np.float32), np.ones((2, 1), np.float16)]
    chunk = from_rows([{"x": array} for array in arrays], None, range(2))
    assert chunk.schema.types == [TENSOR]
    assert same([row["x"] for row in to_rows(chunk)], [array.astype(np.float32) for array in arrays])
    assert from_rows([], pa.schema({"x": TENSOR}), []).num_rows == 0


def test_a_null_tensor_is_none_and_its_neighbours_keep_their_dtype():
    storage = pa.array([[1, 2], None], TENSOR.storage_type)
    rows = to_rows(pa.record_batch({"x": pa.ExtensionArray.from_storage(TENSOR, storage), "y": [1, 2]}))
    assert same(rows, [{"x": np.array([[1], [2]], np.float32), "y": 1}, {"x": None, "y": 2}])


@pytest.mark.parametrize(
    ("rows", "schema", "words"),
    [
        ([{"x": 1}, {"x": 2}, {"x": "a"}], None, r"Column 'x' of row 12: 'a' does not fit the type int64 of the rows before it. Make"),
        ([{"x": 1}, {"x": 2**70}], None, r"Column 'x' of row 11: 1180591620717411303424 does not fit the type int64 of the rows before"),
        ([{"x": object}], None, r"Column 'x' of row 10: <class 'object'> does not fit the type of any Arrow column. Make it a number of"),
        ([{"x": "\ud800"}], None, r"Column 'x' of row 10: '\\ud800' is not Unicode text: it has half of a surrogate pair"),
        ([{"x": 1}, {"x": 300}], pa.schema({"x": pa.int8()}), r"Column 'x' of row 11: 300 does not fit the type int8. Make"),
        ([{"x": 1, "y": 2, "z": 3}], pa.schema({"x": pa.int8()}), r"Row 10 has the column 'y', 'z', which the schema lacks. Columns: 'x'."),
        ([{"__row__": 1}], None, r"A column has a reserved name: got '__row__' among '__row__'\. Return .* such as 'row'\."),
        ([{"x": 1, 2: 3}], None, r"Column names are strings, got 2 among 'x', 2."),
        (
            [{"x": np.zeros((2, 1))}, {"x": np.zeros((1, 2))}],
            None,
            r"'x' of row 11 has shape \(1, 2\) and dtype float64, not \(2, 1\) and f",
        ),
        (
            [{"x": np.zeros((2, 1), np.float32)}, {"x": np.zeros((2, 1))}],
            None,
            r"row 11 has shape .* and dtype float64, not .* float32. Make",
        ),
        ([{"x": [[1], [2, 3]]}], pa.schema({"x": TENSOR}), r"row 10 has shape \(2,\) and dtype object, not \(2, 1\) and float32"),
        (
            [{"x": np.zeros((0, 2))}],
            None,
            r"'x' cannot hold arrays of shape \(0, 2\) and dtype float64: Arrow tensors hold integers or",
        ),
        ([{"x": np.zeros((2, 2), bool)}], None, r"'x' cannot hold arrays of shape \(2, 2\) and dtype bool: .* convert them to lists"),
    ],
)
def test_what_does_not_fit_names_row_and_column(rows: list[Any], schema: pa.Schema | None, words: str):
    with pytest.raises(SchemaError, match=words):
        from_rows(rows, schema, range(10, 10 + len(rows)))


def test_a_null_among_tensors_names_the_row():
    with pytest.raises(DataError, match=r"Column 'x' of row 1 is null, and a column of fixed-shape tensors \(2, 1\) cannot hold nulls."):
        from_rows([{"x": np.zeros((2, 1))}, {"x": None}], None, range(2))


@pytest.mark.parametrize("kind", [pa.dictionary(pa.int8(), pa.timestamp("s")), pa.uuid(), pa.list_(pa.uuid()), pa.string_view()], ids=str)
def test_a_chunk_without_rows_has_any_type(kind: pa.DataType):
    """`no_rows` also supports types whose values `pyarrow.array` cannot convert."""
    chunk = no_rows(pa.schema({"x": kind}))
    chunk.validate(full=True)
    assert (chunk.num_rows, chunk.schema.field("x").type) == (0, kind)
