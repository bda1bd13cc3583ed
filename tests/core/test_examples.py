"""A view of a group, and the rows that it gives."""

import copy
import pickle

import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.core.chunks import number_rows, row_keys
from mlxfp.core.examples import Examples, Row
from mlxfp.support.errors import UnknownNameError

PLAIN = pa.record_batch({"x": [1, 2, 3]})
NUMBERED = number_rows(PLAIN, 4, 10)


def test_rows_equal_plain_dicts_and_remember_where_they_come_from():
    view = Examples(NUMBERED)
    assert list(view) == [{"x": 1}, {"x": 2}, {"x": 3}]
    assert [row.number for row in view] == [10, 11, 12]
    assert [row.key for row in view] == row_keys(NUMBERED).tolist()
    assert all(row.schema.equals(PLAIN.schema) for row in view)
    assert (view[1].number, view[-1].number, view[1].key) == (11, 12, list(view)[1].key)


def test_rows_of_a_chunk_without_hidden_columns_have_no_key():
    assert [(row.number, row.key) for row in Examples(PLAIN)] == [(-1, None)] * 3


def test_rows_keep_what_they_know_through_pickle_and_copies_but_not_through_changes():
    row = Examples(NUMBERED)[1]
    for same in (pickle.loads(pickle.dumps(row)), copy.copy(row), copy.deepcopy(row)):
        assert isinstance(same, Row)
        assert same == row
        assert (same.number, same.key, same.schema) == (row.number, row.key, row.schema)
    assert type({**row, "y": 1}) is dict
    assert type(row | {"y": 1}) is dict


def test_a_slice_is_a_view_and_a_wrong_index_an_error():
    view = Examples(NUMBERED)
    assert view[1:] == Examples(PLAIN)[1:]
    assert [row.number for row in view[::-1]] == [12, 11, 10]
    with pytest.raises(IndexError, match=r"got \[3\] for 3 examples, in Examples\(3 x .*\)\. Use an index from -3 to 2\."):
        view[np.int64(3)]
    with pytest.raises(UnknownNameError, match="No column is named 'y'"):
        view.column("y")
    with pytest.raises(UnknownNameError, match="No column is named '__row'"):
        view.column("__row")


def test_groups_of_a_pipeline_give_such_rows():
    (group,) = fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), fp.batch(2))
    assert [row.number for row in group] == [0, 1]
    assert len({row.key for row in group}) == 2
    assert hash(group) == hash(Examples(group.chunk))
    assert group != [dict(row) for row in group]
    assert (len(group), group.names, repr(group)) == (2, ("x",), "Examples(2 x x)")
