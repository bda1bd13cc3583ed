"""Arrays of shape [T, F] with different T are lists of vectors, and are padded into batches."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp

LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=6).filter(lambda lengths: len(set(lengths)) > 1)


def arrays_of(lengths, size, dtype):
    return [(np.arange(length * size).reshape(length, size) + index).astype(dtype) for index, length in enumerate(lengths)]


SOURCES = {
    "from_examples": lambda arrays: fp.from_examples([{"x": array} for array in arrays]),
    "from_iterable": lambda arrays: fp.from_iterable(lambda: ({"x": array} for array in arrays)),
    "map": lambda arrays: fp.pipe(fp.from_table({"i": list(range(len(arrays)))}), fp.map(lambda row: {"x": arrays[row["i"]]})),
}


@pytest.mark.parametrize("source", SOURCES)
@given(LENGTHS, st.integers(1, 3), st.sampled_from([np.float32, np.float64, np.int32, np.uint8]))
def test_case_a17_rows_of_different_length_are_padded_and_nothing_is_lost(source, lengths, size, dtype):
    arrays = arrays_of(lengths, size, dtype)
    rows = SOURCES[source](arrays)
    (batch,) = fp.pipe(rows, fp.batch(len(arrays)), fp.collate(fp.collators.default(pad_id=-1)))
    values, mask = np.array(batch["x"]), np.array(batch["x_mask"])
    assert values.shape == (len(arrays), max(lengths), size)
    for index, array in enumerate(arrays):
        assert mask[index].tolist() == [1] * len(array) + [0] * (max(lengths) - len(array))
        np.testing.assert_array_equal(values[index, : len(array)], array)
        assert (values[index, len(array) :] == -1).all()


def test_a_missing_array_is_null():
    rows = fp.from_examples([{"x": np.ones((2, 3))}, {"x": None}, {"x": np.zeros((1, 3))}])
    assert [row["x"] for row in rows] == [[[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]], None, [[0.0, 0.0, 0.0]]]


def test_a_late_change_of_length_names_a_schema_that_works():
    arrays = [np.zeros((2 if index < 3000 else 5, 3), np.float32) for index in range(4000)]
    with pytest.raises(fp.errors.SchemaError, match=r"row 3000 .*pa\.schema\(\{'x': pa\.list_\(pa\.list_\(pa\.float32\(\)\)\)\}\)"):
        list(SOURCES["from_iterable"](arrays))
    schema = pa.schema({"x": pa.list_(pa.list_(pa.float32()))})
    rows = fp.from_iterable(lambda: ({"x": array} for array in arrays), schema=schema)
    shapes = [batch["x"].shape for batch in fp.pipe(rows, fp.batch(2000), fp.collate(fp.collators.default()))]
    assert shapes == [(2000, 2, 3), (2000, 5, 3)]


@pytest.mark.parametrize("other", [np.zeros((2, 4)), np.zeros(3), np.zeros((1, 2, 3))])
def test_arrays_that_differ_otherwise_are_refused(other):
    with pytest.raises(fp.errors.SchemaError, match="row 1"):
        list(fp.from_examples([{"x": np.zeros((2, 3))}, {"x": other}]))
