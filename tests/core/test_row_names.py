"""Rows of joined datasets are named by their place in their own source, in every message."""

from itertools import islice

import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.core.chunks import LEAF_BITS
from mlxfp.core.row_names import row_at, row_name
from mlxfp.support.errors import DataError


def test_a_row_of_a_single_source_has_its_number_alone():
    assert row_name(12) == "12"


def test_a_row_without_a_source_is_named_by_its_place():
    chunk = pa.record_batch({"x": [1, 2, 3]})
    assert (row_at(chunk, 2), row_at(chunk, 0, of="group")) == ("row 2 of the chunk", "row 0 of the group")
    numbered = chunk.append_column("__row__", pa.array([5, -1, (1 << LEAF_BITS) + 2]))
    assert [row_at(numbered, place) for place in range(3)] == ["source row 5", "row 1 of the chunk", "source row 2 of joined source 1"]


def test_messages_and_previews_name_the_row_and_the_source_where_datasets_are_joined():
    good = fp.from_examples([{"input_ids": [1], "x": 1}] * 3)
    bad = fp.from_examples([{"input_ids": [1], "x": 1}, {"input_ids": None, "x": None}])
    joined = fp.concat([good, bad])
    with pytest.raises(DataError, match="column 'input_ids' of source row 1 of joined source 1 is null"):
        list(fp.pipe(joined, fp.drop_tokens(0.5, seed=0)))
    with pytest.raises(DataError, match="which is missing in source row 1 of joined source 1"):
        list(fp.pipe(joined, fp.template("{x}", policy="raise")))
    assert "example 4, source row 1 of joined source 1" in fp.inspect.preview(joined, count=5)


def test_the_list_of_frequent_errors_names_the_row_too():
    rows = [fp.from_examples([{"x": x}] * 40) for x in (1, 0)]
    failing = fp.pipe(fp.concat(rows), fp.map(lambda row: {"y": 1 // row["x"]}), fp.on_error("skip"))
    with pytest.raises(DataError, match="first for source row 0 of joined source 1"):
        list(islice(failing, 80))
