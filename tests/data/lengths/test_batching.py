"""Groups and back. The laws are in test_battery.py."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.testing import laws
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import rechunkings, tables


def numbers(count: int) -> Any:
    return fp.from_table({"x": range(count)})


@given(st.data(), st.integers(1, 5))
def test_flattening_groups_gives_the_rows_in_order(data: st.DataObject, size: int):
    rows = from_chunks(data.draw(rechunkings(data.draw(tables(min_columns=1)))))
    laws.assert_same_items(fp.pipe(rows, fp.batch(size), fp.unbatch()), rows)


@given(st.integers(0, 30), st.integers(1, 7), st.booleans())
def test_every_group_but_the_last_is_full(count: int, size: int, drop_last: bool):  # drawn
    dataset = fp.pipe(numbers(count), fp.batch(size, drop_last=drop_last))
    sizes = [len(group) for group in dataset]
    rest = [count % size] if count % size and not drop_last else []
    assert sizes == [size] * (count // size) + rest
    assert fp.length(dataset) == len(sizes)


def test_rows_that_a_filter_leaves_out_make_no_empty_group():
    nothing = fp.filter(lambda row: row["x"] > 90)
    assert list(fp.pipe(numbers(9), nothing, fp.batch(2))) == []
    chunks = [pa.record_batch({"x": [x]}) for x in (1, 99, 2, 98, 3)]
    assert [[row["x"] for row in group] for group in fp.pipe(from_chunks(chunks), nothing, fp.batch(1))] == [[99], [98]]


def test_a_group_within_one_chunk_is_a_view_of_it():
    table = pa.table({"x": range(100)})
    first, second, *_ = fp.pipe(fp.from_table(table), fp.batch(10))
    assert second.column("x").buffers()[1].address == first.column("x").buffers()[1].address


def test_batching_groups_anew_needs_unbatch():
    sizes = [len(group) for group in fp.pipe(numbers(7), fp.batch(3), fp.unbatch(), fp.batch(2))]
    assert sizes == [2, 2, 2, 1]
    with pytest.raises(TypeError, match=r"batch\(size=2\) takes examples, got groups"):
        fp.pipe(numbers(7), fp.batch(3), fp.batch(2))
