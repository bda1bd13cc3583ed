"""Rows of joined datasets are named by their place in their own source, in every message."""

from itertools import islice

import pytest

from mlxfp.core.errors import DataError
from mlxfp.core.pipelines import pipe
from mlxfp.core.row_names import row_name
from mlxfp.data.inspection.previews import preview
from mlxfp.data.lengths.augmenting import drop_tokens
from mlxfp.data.rows.map_filter import map
from mlxfp.data.rows.mixing import concat
from mlxfp.data.running.error_rows import on_error
from mlxfp.data.sources.in_memory import from_examples
from mlxfp.text.templates.templates import template


def test_a_row_of_a_single_source_has_its_number_alone():
    assert row_name(12) == "12"


def test_messages_and_previews_name_the_row_and_the_source_where_datasets_are_joined():
    good = from_examples([{"input_ids": [1], "x": 1}] * 3)
    bad = from_examples([{"input_ids": [1], "x": 1}, {"input_ids": None, "x": None}])
    joined = concat([good, bad])
    with pytest.raises(DataError, match="in column 'input_ids' of source row 1 of joined source 1 is missing"):
        list(pipe(joined, drop_tokens(0.5, seed=0)))
    with pytest.raises(DataError, match="which is missing in row 1 of joined source 1"):
        list(pipe(joined, template("{x}", policy="raise")))
    assert "example 4, source row 1 of joined source 1" in preview(joined, count=5)


def test_the_list_of_frequent_errors_names_the_row_too():
    rows = [from_examples([{"x": x}] * 40) for x in (1, 0)]
    failing = pipe(concat(rows), map(lambda row: {"y": 1 // row["x"]}), on_error("skip"))
    with pytest.raises(DataError, match="first for source row 0 of joined source 1"):
        list(islice(failing, 80))
