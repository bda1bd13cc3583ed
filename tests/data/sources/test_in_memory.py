"""Sources in memory: examples, tables of other libraries, Python iterables. The laws are in test_battery.py."""

from collections.abc import Iterator, Mapping
from itertools import count, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.testing import laws
from mlxfp.testing.comparing import difference, same
from mlxfp.testing.strategies import examples, schemas, tables


@given(st.data())
def test_examples_come_out_as_they_went_in(data: st.DataObject):
    kinds = data.draw(schemas())
    rows = data.draw(examples(kinds))
    found = tuple(fp.from_examples(rows, schema=kinds))
    assert same(found, rows), difference(found, rows)


def _copied(table: pa.Table) -> pa.Table:
    """Leave out what pyarrow's own C stream does not carry: names with a NUL, empty slices."""
    named = table.rename_columns([name.replace("\0", "NUL") for name in table.column_names])
    return pa.Table.from_batches([fp.parts.one_chunk(named.take(pa.array(range(table.num_rows), pa.int64())))])


@given(tables(min_columns=1).map(_copied).filter(lambda table: len(set(table.column_names)) == table.num_columns))
def test_a_table_and_its_arrow_stream_are_the_same_dataset(table: pa.Table):
    class Foreign:
        """A table of another library."""

        def __arrow_c_stream__(self, requested: object = None) -> object:
            return table.__arrow_c_stream__(requested)

    laws.assert_same_items(fp.from_table(Foreign()), fp.from_table(table))
    assert fp.from_table(Foreign()) == fp.from_table(table)


@given(st.data(), st.booleans())
def test_an_iterable_gives_what_its_rows_give(data: st.DataObject, made: bool):  # drawn
    kinds = data.draw(schemas(min_columns=1))
    rows = data.draw(examples(kinds))
    iterable = (lambda: iter(rows)) if made else rows
    laws.assert_same_items(fp.from_iterable(iterable, schema=kinds), fp.from_examples(rows, schema=kinds))


def test_types_are_inferred_from_all_examples():
    assert fp.schema(fp.from_examples([{"x": None}, {"x": 1.5}, {"y": ["a"]}])) == pa.schema(
        {"x": pa.float64(), "y": pa.list_(pa.string())}
    )
    assert fp.schema(fp.from_examples([])) == pa.schema([])


def test_a_mapping_of_columns_is_a_table():
    dataset = fp.from_table(
        {"x": [1, 2], "y": np.array([0.5, 1.5]), "z": np.zeros((2, 3, 1), np.uint8), "w": pa.chunked_array([["a"], ["b"]])}
    )
    assert same(dataset[1], {"x": 2, "y": 1.5, "z": np.zeros((3, 1), np.uint8), "w": "b"})
    assert same([row["z"].shape for row in fp.pipe(dataset, fp.filter(lambda row: row["x"] > 1), fp.shuffle(seed=0))], [(3, 1)])


def test_a_record_batch_is_a_table():
    assert fp.from_table(pa.record_batch({"x": [1, 2]})) == fp.from_table(pa.table({"x": [1, 2]}))


def test_views_of_text_as_polars_hands_out_can_be_moved_about():
    columns = {
        "text": pa.array(["a", "bb", None], pa.string_view()),
        "bytes": pa.array([b"a", b"bb", None], pa.binary_view()),
        "list": pa.array([["a"], [], None], pa.large_list(pa.string_view())),
        "short": pa.array([["a"], [], None], pa.list_(pa.string_view())),
        "struct": pa.array([{"t": "a"}, {"t": None}, None], pa.struct({"t": pa.string_view()})),
    }
    table = pa.table(columns)
    rows = next(iter(fp.pipe(fp.from_table(table), fp.filter(lambda row: row["text"] is not None), fp.shuffle(seed=0), fp.batch(2))))
    assert sorted(map(repr, map(dict, rows))) == sorted(map(repr, table.slice(0, 2).to_pylist()))
    laws.assert_random_access(fp.from_table(table), np.array([2, 0, 1]))


def test_chunks_of_a_table_are_not_copied():
    table = pa.table({"x": range(10_000)})
    address = table["x"].chunk(0).buffers()[1].address
    chunk, position = next(fp.from_table(table).source.read(0, None))
    assert chunk.column(0).buffers()[1].address == address
    assert (chunk.num_rows, position) == (64, 64)  # the first ones are short, so that the first rows come soon


def test_an_iterable_is_pulled_as_it_is_needed():
    pulled: list[int] = []

    def rows() -> Iterator[Mapping[str, Any]]:
        for x in count():
            pulled.append(x)
            yield {"x": x}

    numbers = fp.from_iterable(rows, schema=pa.schema({"x": pa.int64()}))
    assert pulled == []
    assert [row["x"] for row in islice(numbers, 3)] == [0, 1, 2]
    assert len(pulled) == 256
    pulled.clear()
    assert fp.schema(fp.from_iterable(rows)) == pa.schema({"x": pa.int64()})
    assert len(pulled) == 128


def test_an_iterable_says_that_resuming_costs():
    dataset = fp.from_iterable([{"x": 1}])
    assert "resuming reads the examples before the cursor again, and drops them" in fp.explain(dataset)
    assert fp.length(dataset) is None
    assert not dataset.indexable


def test_datasets_of_equal_rows_are_equal_and_of_others_are_not():
    nan = float("nan")
    laws.assert_same_value(fp.from_examples([{"x": nan}]), fp.from_examples([{"x": nan}]))
    laws.assert_same_value(fp.from_iterable([{"x": nan}]), fp.from_iterable([{"x": float("nan")}]))
    laws.assert_told_apart(fp.from_examples([{"x": 0.0}]), fp.from_examples([{"x": -0.0}]))
    laws.assert_told_apart(fp.from_table({"x": [1]}), fp.from_examples([{"x": 1}]))
    laws.assert_told_apart(
        fp.from_table(pa.table({"x": pa.array(["a"]).dictionary_encode()})),
        fp.from_table(pa.table({"x": pa.array(["b"]).dictionary_encode()})),
    )
    handle = iter
    assert fp.from_iterable(lambda: [{"x": handle}]) != fp.from_iterable([{"x": 1}])


def test_what_is_kept_in_memory_prints_by_its_size():
    assert repr(fp.from_examples([{"x": 1}] * 1234)) == "pipe(from_examples(1,234 rows))"
    with pytest.raises(TypeError, match=r"missing 1 required positional argument"):
        fp.from_table()  # type: ignore[call-arg]  # the mistake


def test_chunks_are_long_where_rows_are_small():
    small, large = fp.from_table({"x": range(50_000)}), fp.from_table({"x": ["x" * 600] * 50_000})
    for dataset, most in ((small, 16_384), (large, 4_096)):
        source: Any = dataset.source
        sizes = [chunk.num_rows for chunk, _ in source.read(0, None)]
        assert (sizes[0], max(sizes), sum(sizes)) == (64, most, 50_000)
        assert [chunk.num_rows for chunk, _ in source.read(0, sum(sizes[:4]))] == sizes[4:]
