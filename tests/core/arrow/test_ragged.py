"""Laws of list columns: reading gives the values end to end and the ends, writing gives the column back, errors name the row."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.arrow.ragged import (
    Ragged,
    check_same_lengths,
    check_values,
    column_without_nulls,
    ends_of,
    places_within,
    read_lists,
    row_of,
    to_lists,
)
from mlxfp.support.errors import DataError

ROWS = st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5), max_size=8)
LAYOUTS = {"list": pa.list_(pa.int32()), "large list": pa.large_list(pa.int64()), "named": pa.list_(pa.field("element", pa.int32()))}


def assert_reads(column: pa.Array, rows: list[list[int]]) -> None:
    """Law: row i is `values[ends[i]:ends[i + 1]]`, no value is left over, and writing what was read gives the rows back."""
    values, ends = read_lists(column)
    assert (ends.dtype, ends[0], ends[-1]) == (np.int64, 0, len(values))
    assert [values[first:last].to_pylist() for first, last in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)] == rows
    assert to_lists(values, ends).to_pylist() == rows
    assert to_lists(values.to_numpy(zero_copy_only=False), ends).to_pylist() == rows


@pytest.mark.parametrize("kind", LAYOUTS.values(), ids=LAYOUTS)
@given(rows=ROWS, data=st.data())
def test_lists_of_any_layout_and_any_slice_are_read(kind: pa.DataType, rows: list[list[int]], data: Any):
    first = data.draw(st.integers(0, len(rows)))
    size = data.draw(st.integers(0, len(rows) - first))
    assert_reads(pa.array(rows, kind).slice(first, size), rows[first : first + size])


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), max_size=6), st.integers(0, 6))
def test_lists_of_one_length_and_tensors_are_read(rows: list[list[int]], first: int):
    lists = pa.array(rows, pa.list_(pa.int32(), 3))
    assert_reads(lists.slice(first), rows[first:])
    assert_reads(pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), (3,)), lists).slice(first), rows[first:])


def test_the_law_catches_a_reader_that_forgets_the_slice(monkeypatch: pytest.MonkeyPatch):
    column = pa.array([[1], [2, 3], [4]]).slice(1)
    assert_reads(column, [[2, 3], [4]])
    monkeypatch.setitem(globals(), "read_lists", lambda column: (column.values, column.offsets.to_numpy().astype(np.int64)))
    with pytest.raises(AssertionError):
        assert_reads(column, [[2, 3], [4]])


@given(st.lists(st.integers(0, 5), max_size=8))
def test_ends_places_and_rows_agree(lengths: list[int]):
    ends = ends_of(np.array(lengths, np.int64))
    rows = [row for row, length in enumerate(lengths) for _ in range(length)]
    assert ends.tolist() == [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    assert places_within(np.array(lengths, np.int64)).tolist() == [place for length in lengths for place in range(length)]
    assert [row_of(ends, place) for place in range(len(rows))] == rows


def test_rows_of_a_ragged_lie_anywhere():
    rows = Ragged(np.arange(6), np.array([4, 0]), np.array([2, 5]))
    assert [rows.values[a : a + b].tolist() for a, b in zip(rows.starts, rows.lengths, strict=True)] == [[4, 5], [0, 1, 2, 3, 4]]


def test_a_column_of_too_many_values_is_refused():
    with pytest.raises(DataError, match=r"fewer than 2\*\*31 values in a chunk, got 4294967296\. Read fewer rows at a time"):
        to_lists(np.empty(0, np.int32), ends_of(np.array([2**31, 2**31])))


def test_errors_name_the_row():
    chunk = pa.record_batch({"x": [[1], None, [2, None]], "y": [[1], [2], [3]], "__row__": [7, 8, 9]})
    with pytest.raises(DataError) as missing:
        column_without_nulls(chunk, "x", "pack")
    remedy = "Call fp.map to replace the null, or fp.filter to remove the row."
    assert str(missing.value) == f"pack: column 'x' of source row 8 is null. {remedy}"
    whole = chunk.take(pa.array([0, 2]))
    found = read_lists(column_without_nulls(whole, "x", "pack"))
    with pytest.raises(DataError) as inside:
        check_values(found, whole, "x", "pack")
    assert str(inside.value) == "pack: column 'x' of source row 9 holds a null in its list. Call fp.map to replace the null."
    ends = (("x", found[1]), ("y", read_lists(whole.column("y"))[1]))
    check_same_lengths(ends[0], ends[0], whole, "pack")
    with pytest.raises(DataError) as differing:
        check_same_lengths(*ends, whole.drop_columns(["__row__"]), "pack", of="group")
    assert str(differing.value) == (
        "pack: row 1 of the group has lists of different lengths: 2 in column 'x' and 1 in column 'y'. Both columns need one "
        "value per token."
    )
