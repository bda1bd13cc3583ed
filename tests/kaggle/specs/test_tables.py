import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.errors import ArgumentTypeError, PipelineError, SchemaError
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.rows.map_filter import filter as keep
from mlxfp.data.sources.in_memory import from_table
from mlxfp.kaggle.specs.tables import column_values, to_table


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=3)), max_size=20), st.integers(1, 5))
def test_all_rows_are_read_however_they_are_chunked(rows: list[tuple[int, str | None]], size: int):
    table = pa.table({"x": pa.array([x for x, _ in rows], pa.int64()), "y": pa.array([y for _, y in rows], pa.string())})
    pieces = pa.Table.from_batches(table.to_batches(max_chunksize=size), schema=table.schema)
    assert to_table(from_table(pieces)).equals(table)
    assert column_values(from_table(pieces), "y").tolist() == [y for _, y in rows]
    even = pipe(from_table(pieces), keep(lambda row: row["x"] % 2 == 0))
    assert to_table(even).to_pylist() == [{"x": x, "y": y} for x, y in rows if x % 2 == 0]


def test_missing_numbers_are_nan():
    assert np.isnan(column_values(from_table({"x": [None, 1]}), "x")).tolist() == [True, False]


def test_what_has_no_rows_to_read_is_refused():
    rows = from_table({"x": [1]})
    with pytest.raises(PipelineError, match=r"to_table takes examples, got groups from batch\(size=2\)\. Use it before batch"):
        to_table(pipe(rows, batch(2)))
    with pytest.raises(ArgumentTypeError, match="to_table works on a dataset, got list"):
        to_table([1])
    with pytest.raises(SchemaError, match="needs the column 'y'"):
        column_values(rows, "y")
