"""Rows by number: the same as Arrow's own take of the joined table."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.arrow import gathering as taking
from mlxfp.core.arrow.gathering import rows_in, rows_of
from mlxfp.core.chunks import one_chunk
from mlxfp.support.errors import DataError
from mlxfp.testing.comparing import same
from mlxfp.testing.strategies import tables

KINDS = {
    "int32": pa.int32(),
    "uint64": pa.uint64(),
    "float16": pa.float16(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "text": pa.string(),
    "large text": pa.large_string(),
    "bytes": pa.binary(),
    "large bytes": pa.large_binary(),
    "tokens": pa.list_(pa.int32()),
    "tokens, named": pa.list_(pa.field("element", pa.int32())),
    "bytes in lists": pa.list_(pa.uint8()),
    "long lists": pa.large_list(pa.int64()),
    "lists of text": pa.list_(pa.string()),
    "lists of booleans": pa.list_(pa.bool_()),
    "lists of lists": pa.list_(pa.list_(pa.int32())),
    "three of each": pa.list_(pa.float32(), 3),
    "tensor": pa.fixed_shape_tensor(pa.uint8(), (2, 3)),
    "none of each": pa.list_(pa.float32(), 0),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "struct": pa.struct([("x", pa.int32()), ("y", pa.list_(pa.int16()))]),
    "null": pa.null(),
}


def column(kind, count, *, nulls):
    rng = np.random.default_rng(count)
    plain = kind.storage_type if isinstance(kind, pa.FixedShapeTensorType) else kind

    def value(kind, place):
        if nulls and rng.random() < 0.2:
            return None
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return [value(kind.value_type, place) for _ in range(int(rng.choice([0, 1, 2, 3, 4, 12, 13, 40])))]
        if pa.types.is_fixed_size_list(kind):
            return [value(kind.value_type, place) for _ in range(kind.list_size)]
        if pa.types.is_struct(kind):
            return {field.name: value(field.type, place) for field in kind}
        if pa.types.is_boolean(kind):
            return bool(rng.integers(2))
        if pa.types.is_null(kind):
            return None
        number = int(rng.integers(100))
        text = "é" * number if number % 3 else "short"
        if pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return text
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return text.encode()
        return np.float16(number) if pa.types.is_float16(kind) else number

    values = pa.array([value(plain, place) for place in range(count)], plain)
    return pa.ExtensionArray.from_storage(kind, values) if isinstance(kind, pa.FixedShapeTensorType) else values


@st.composite
def numbers(draw, count):
    """Draw row numbers, in runs and in any order, few and so many that rows of a chunk are not taken one by one."""
    few = draw(st.lists(st.integers(0, max(count - 1, 0)), max_size=20 if count else 0))
    many = np.random.default_rng(draw(st.integers(0, 99))).integers(0, max(count, 1), draw(st.sampled_from([0, 0, 200])) if count else 0)
    return np.array([*few, *many], np.int64)


def taken_by_arrow(table, indices):
    return one_chunk(table.combine_chunks().take(pa.array(indices, pa.int64())))


@pytest.mark.parametrize("nulls", [False, True], ids=["without nulls", "with nulls"])
@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_rows_of_any_type_are_those_that_arrow_takes(name, nulls, data):
    kind = KINDS[name]
    if nulls and isinstance(kind, pa.FixedShapeTensorType):
        nulls = False
    sizes = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=4).filter(sum))
    pieces = [column(kind, size + 3, nulls=nulls).slice(data.draw(st.integers(0, 3)), size) for size in sizes]
    table = pa.Table.from_batches([pa.record_batch([piece, pa.array(range(len(piece)), pa.int64())], ["x", "place"]) for piece in pieces])
    indices = data.draw(numbers(table.num_rows))
    found = rows_of(table).take(indices)
    found.validate(full=True)
    assert found.schema == table.schema
    assert same(found.to_pylist(), taken_by_arrow(table, indices).to_pylist())  # which of equal dictionaries it has is Arrow's choice


@pytest.mark.parametrize("limit", [taking.LAST_BYTE, 400])
@pytest.mark.parametrize("kind", ["tokens", "tokens, named", "bytes in lists", "long lists", "lists of booleans"])
@given(data=st.data())
def test_lists_of_one_length_are_those_that_arrow_takes(kind, limit, data):
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=3) | st.integers(1, 4).map(lambda length: 3 * [length]))
    null, convert = data.draw(st.sampled_from([None, None, 5])), bool if kind == "lists of booleans" else int
    pieces = [
        pa.array([[None if row == null else convert(row % 2)] * length for row in range(9)], KINDS[kind]).slice(
            data.draw(st.integers(0, 3)), data.draw(st.integers(1, 6))
        )
        for length in lengths
    ]
    table = pa.Table.from_batches([pa.record_batch({"x": piece}) for piece in pieces])
    indices = data.draw(numbers(table.num_rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(taking, "LAST_BYTE", limit)
        found = rows_of(table).take(indices)
    found.validate(full=True)
    assert found.equals(taken_by_arrow(table, indices))


@given(tables(min_columns=1, max_rows=40), st.data())
def test_rows_of_any_table_are_those_that_arrow_takes(table, data):
    size = data.draw(st.integers(1, 9))
    held = rows_in(table.schema, table.to_batches(max_chunksize=size))
    indices = data.draw(numbers(table.num_rows))
    assert same(held.take(indices).to_pylist(), taken_by_arrow(table, indices).to_pylist())


def test_taking_rows_touches_no_other_chunk():
    touched = []

    def chunk(number):
        touched.append(number)
        return pa.record_batch({"x": [number * 10 + place for place in range(10)]})

    held = taking.Rows(pa.schema({"x": pa.int64()}), np.arange(0, 60, 10), tuple(lambda n=n: chunk(n) for n in range(5)), in_memory=False)
    assert held.take(np.array([41, 3, 47, 0])).column("x").to_pylist() == [41, 3, 47, 0]
    assert set(touched) == {0, 4}


def test_rows_too_far_into_a_chunk_for_views_are_taken_by_arrow(monkeypatch):
    monkeypatch.setattr(taking, "LAST_BYTE", 400)
    table = pa.table({"x": [list(range(place % 7)) for place in range(100)], "y": [f"{place}" * 20 for place in range(100)]})
    indices = np.arange(99, -1, -3)
    assert rows_of(table).take(indices).equals(taken_by_arrow(table, indices))


def test_a_result_too_large_for_its_offsets_is_left_to_arrow(monkeypatch):
    table = pa.table({"x": pa.array(["a" * 13] * 20)})
    monkeypatch.setattr(taking, "LAST_BYTE", 13 * 20)
    indices = np.array([19, 0] * 20)
    assert rows_of(table).take(indices).equals(taken_by_arrow(table, indices))


@pytest.mark.parametrize("ends", [[0, 2, 4_000_000, 6, 6], [0, 4_000_000, 8_000_000, 12_000_000, 6]])
def test_a_damaged_column_is_an_error_and_not_a_crash(ends):
    offsets = np.array(ends, np.int32)
    damaged = pa.Array.from_buffers(pa.list_(pa.int32()), 4, [None, pa.py_buffer(offsets)], children=[pa.array(range(6), pa.int32())])
    held = rows_in(pa.schema({"x": damaged.type}), [pa.record_batch({"x": damaged}).slice(0, 3)])  # Arrow compares the last offset only
    with pytest.raises(DataError, match="is damaged"):
        held.take(np.array([1, 0, 1] * 40))


def test_small_chunks_are_joined_to_large_ones(monkeypatch):
    monkeypatch.setattr(taking, "LARGE", 1000)
    chunks = [pa.record_batch({"x": np.full(10, place)}) for place in range(39)]
    joined = list(taking.large_chunks(chunks))
    assert 1 < len(joined) < 10
    assert pa.Table.from_batches(joined).equals(pa.Table.from_batches(chunks))
