import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import SchemaError


@given(st.lists(st.none() | st.text(max_size=3), max_size=20), st.integers(1, 5))
def test_all_values_of_a_column_are_read_however_they_are_chunked(values: list[str | None], size: int):
    table = pa.table({"x": pa.array(range(len(values)), pa.int64()), "y": pa.array(values, pa.string())})
    pieces = pa.Table.from_batches(table.to_batches(max_chunksize=size), schema=table.schema)
    assert fp.kaggle.column_values(fp.from_table(pieces), "y").tolist() == values


@given(st.lists(st.none() | st.sampled_from("uvw"), max_size=20), st.integers(1, 5))
def test_case_e5_a_missing_category_is_none(values: list[str | None], size: int):
    table = pa.table({"x": range(len(values)), "c": pa.array(values, pa.string()).dictionary_encode()})
    pieces = pa.Table.from_batches(table.to_batches(max_chunksize=size), schema=table.schema)
    assert fp.kaggle.column_values(fp.from_table(pieces), "c").tolist() == values


def test_missing_numbers_are_nan():
    assert np.isnan(fp.kaggle.column_values(fp.from_table({"x": [None, 1]}), "x")).tolist() == [True, False]


def test_a_column_that_is_not_there_is_named():
    with pytest.raises(SchemaError, match=r"^column_values needs the column 'y'"):
        fp.kaggle.column_values(fp.from_table({"x": [1]}), "y")
