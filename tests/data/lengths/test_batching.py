"""Groups and back. The laws are in test_battery.py."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.describing import length
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch, unbatch
from mlxfp.data.rows.map_filter import filter
from mlxfp.data.sources.in_memory import from_table
from mlxfp.testing import laws
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import rechunkings, tables


def numbers(count: int) -> Any:
    return from_table({"x": range(count)})


@given(st.data(), st.integers(1, 5))
def test_flattening_groups_gives_the_rows_in_order(data: st.DataObject, size: int):
    rows = from_chunks(data.draw(rechunkings(data.draw(tables(min_columns=1)))))
    laws.assert_same_items(pipe(rows, batch(size), unbatch()), rows)


@given(st.integers(0, 30), st.integers(1, 7), st.booleans())
def test_every_group_but_the_last_is_full(count: int, size: int, drop_last: bool):  # drawn
    dataset = pipe(numbers(count), batch(size, drop_last=drop_last))
    sizes = [len(group) for group in dataset]
    rest = [count % size] if count % size and not drop_last else []
    assert sizes == [size] * (count // size) + rest
    assert length(dataset) == len(sizes)


def test_rows_that_a_filter_leaves_out_make_no_empty_group():
    nothing = filter(lambda row: row["x"] > 90)
    assert list(pipe(numbers(9), nothing, batch(2))) == []
    chunks = [pa.record_batch({"x": [x]}) for x in (1, 99, 2, 98, 3)]
    assert [[row["x"] for row in group] for group in pipe(from_chunks(chunks), nothing, batch(1))] == [[99], [98]]


def test_a_group_within_one_chunk_is_a_view_of_it():
    table = pa.table({"x": range(100)})
    first, second, *_ = pipe(from_table(table), batch(10))
    assert second.column("x").buffers()[1].address == first.column("x").buffers()[1].address


def test_batching_groups_anew_needs_unbatch():
    sizes = [len(group) for group in pipe(numbers(7), batch(3), unbatch(), batch(2))]
    assert sizes == [2, 2, 2, 1]
    with pytest.raises(TypeError, match=r"batch\(size=2\) takes examples, got groups"):
        pipe(numbers(7), batch(3), batch(2))
