"""A dataset as an Arrow stream, and as a table: the rows that iterating gives, chunk by chunk, without the hidden columns."""

import threading
import time
from itertools import count
from operator import length_hint
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError, DataError, PipelineError, SchemaError
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies import sources

ROWS = fp.from_table({"x": range(10_000)})


def reader(dataset: Any) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_stream(dataset)


@given(sources())
def test_a_table_of_a_dataset_has_its_rows_and_its_schema(dataset: fp.Dataset[Any]):
    cut = any("\0" in name for name in fp.schema(dataset).names)  # by the stream
    for table in (fp.to_table(dataset), *(() if cut else (pa.table(dataset),))):
        assert table.schema.equals(fp.schema(dataset))
        assert_same(list(fp.from_table(table)), list(dataset), f"the table of {dataset!r} has its rows")


@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=3)), max_size=20), st.integers(1, 5))
def test_all_rows_are_read_however_they_are_chunked(rows: list[tuple[int, str | None]], size: int):
    table = pa.table({"x": pa.array([x for x, _ in rows], pa.int64()), "y": pa.array([y for _, y in rows], pa.string())})
    dataset = fp.pipe(fp.from_table(pa.Table.from_batches(table.to_batches(max_chunksize=size), schema=table.schema)), fp.filter(even))
    expected = [{"x": x, "y": y} for x, y in rows if x % 2 == 0]
    assert fp.to_table(dataset).to_pylist() == pa.table(dataset).to_pylist() == expected


@pytest.mark.parametrize("table", [pa.table({"a\0b": [1]}), pa.table({"a": [{"b\0c": 1}]})])
def test_a_name_that_a_stream_would_cut_is_refused(table: pa.Table):
    assert fp.to_table(fp.from_table(table)).equals(table)
    with pytest.raises(SchemaError, match=r"Arrow streams cut off a column name at a zero byte: got \['a.*Rename the column"):
        pa.table(fp.from_table(table))


def even(row: Any) -> bool:
    return row["x"] % 2 == 0


def test_rows_are_made_when_they_are_asked_for():
    log: list[int] = []
    chunks = [pa.record_batch({"x": [i]}) for i in range(100)]
    stream = reader(from_chunks(chunks, log=log))
    assert len(log) <= 1
    assert [stream.read_next_batch().column("x").to_pylist() for _ in range(3)] == [[0], [1], [2]]
    assert len(log) <= 4


def test_tensors_stay_tensors():
    images = fp.from_examples([{"image": np.full((2, 3), i, np.uint8)} for i in range(3)])
    table = pa.table(images)
    assert table.schema.field("image").type == pa.fixed_shape_tensor(pa.uint8(), (2, 3))
    assert table.column("image").combine_chunks().to_numpy_ndarray().tolist() == [np.full((2, 3), i).tolist() for i in range(3)]


def test_a_reader_may_ask_for_other_types():
    found = pa.RecordBatchReader.from_stream(fp.from_table({"x": [1, 2]}), schema=pa.schema({"x": pa.float32()})).read_all()
    assert found.equals(pa.table({"x": pa.array([1, 2], pa.float32())}))


def test_each_stream_begins_at_the_start():
    dataset = fp.pipe(ROWS, fp.shuffle(seed=3), fp.take(50))
    assert pa.table(dataset).equals(pa.table(dataset))
    assert pa.table(dataset).column("x").to_pylist() == [row["x"] for row in dataset]


def test_what_has_no_rows_to_read_is_refused():
    rows = fp.from_table({"x": [1, 2]})
    groups = fp.pipe(rows, fp.batch(2))
    for refused, level in ((groups, "groups from batch"), (fp.pipe(groups, fp.collate(dict)), "batches from collate")):  # type: ignore[arg-type]  # never run
        with pytest.raises(PipelineError, match=rf"An Arrow stream takes examples, got {level}.*Put this step before batch"):
            pa.table(refused)
        with pytest.raises(PipelineError, match=rf"to_table takes examples, got {level}.*Put this step before batch"):
            fp.to_table(refused)
    assert pa.table(fp.pipe(groups, fp.unbatch())).to_pydict() == {"x": [1, 2]}
    with pytest.raises(ArgumentTypeError, match="to_table works on a dataset, got list"):
        fp.to_table([1])  # type: ignore[arg-type]  # the mistake that is tested
    with pytest.raises(SchemaError, match="needs the column 'y'"):
        pa.table(fp.pipe(rows, fp.select_columns(["y"])))


def test_data_without_an_end_is_refused():
    endless = fp.pipe(fp.from_table({"x": [1, 2]}), fp.repeat(None))
    for read in (pa.table, reader, fp.to_table):
        with pytest.raises(PipelineError, match=r"needs finite data, but repeat\(epochs=None\) is endless.*Put take\(count\)"):
            read(endless)
    assert fp.to_table(fp.pipe(endless, fp.take(3))).to_pydict() == pa.table(fp.pipe(endless, fp.take(3))).to_pydict() == {"x": [1, 2, 1]}


def fails(row: Any) -> Any:
    if row["x"] == 5000:
        raise DataError("The value 5000 is not a price, in the column 'x'. Correct it.")
    return row


def test_an_error_in_a_stream_comes_out_with_its_text_and_the_row_and_in_a_table_as_it_is():
    broken = fp.pipe(ROWS, fp.map(fails, schema=pa.schema({"x": pa.int64()})))
    stream = reader(broken)
    assert sum(stream.read_next_batch().num_rows for _ in range(4)) == 4096
    with pytest.raises(pa.ArrowInvalid, match="The value 5000 is not a price") as caught:
        stream.read_next_batch()
    assert "DataError" in str(caught.value)
    assert "source row 5000" in str(caught.value)
    assert "while running map(" in str(caught.value)
    with pytest.raises(DataError, match=r"^The value 5000 is not a price") as ours:
        fp.to_table(broken)
    assert any("source row 5000" in note for note in ours.value.__notes__)


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mlxfp-prefetch"]


@pytest.mark.parametrize("leave", ["close", "let go"])
def test_threads_end_when_the_reader_stops_early(leave: str):
    stream = reader(fp.pipe(fp.from_iterable(lambda: ({"x": i} for i in count())), fp.prefetch(2)))
    stream.read_next_batch()
    assert len(workers()) == 1
    if leave == "close":
        stream.close()
    del stream
    until = time.monotonic() + 20
    while workers() and time.monotonic() < until:
        time.sleep(0.01)
    assert not workers()


def test_list_and_other_readers_of_a_length_work_where_it_is_not_known():
    filtered = fp.pipe(fp.from_table({"x": range(10)}), fp.filter(even))
    assert length_hint(filtered, 7) == 7
    assert [row["x"] for row in list(filtered)] == [0, 2, 4, 6, 8]
    with pytest.raises(ArgumentTypeError, match=r"len\(\) reads no data"):
        len(filtered)
    assert bool(filtered)
    assert bool(fp.from_table({"x": []}))


def test_a_bar_of_progress_shows_the_length_where_it_is_known():
    tqdm = pytest.importorskip("tqdm").tqdm
    known = fp.pipe(fp.from_table({"x": range(10)}), fp.batch(4))
    assert tqdm(known, disable=True).total == 3
    assert sum(len(group) for group in tqdm(known, disable=True)) == 10
    assert sum(1 for _ in tqdm(fp.pipe(known, fp.unbatch(), fp.filter(even)), disable=True)) == 5
