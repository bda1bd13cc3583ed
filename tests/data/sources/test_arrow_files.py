"""The laws of Arrow files: what was written is read, mapped and not copied, and rows are taken in any order."""

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.arrow.gathering import Rows
from mlxfp.support.errors import CursorError, DataError, MissingFileError, SchemaError
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws import assert_random_access, assert_reads, assert_repeatable, assert_resumable, assert_told_apart, assert_value
from mlxfp.testing.laws.datasets import collect
from mlxfp.testing.strategies import tables
from tests.data.written import SCHEMAS, in_chunks, plain

if TYPE_CHECKING:
    from mlxfp.core.datasets import Dataset


def write_arrow(path: Path, batches: list[pa.RecordBatch], kinds: pa.Schema, *, stream: bool = False, packing: str | None = None) -> Path:
    options = pa.ipc.IpcWriteOptions(compression=packing, unify_dictionaries=not stream)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(path, kinds, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


@given(st.data(), SCHEMAS, st.booleans(), st.sampled_from([None, "lz4", "zstd"]))
def test_what_was_written_is_read_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kinds: pa.Schema, stream: bool, packing: str | None
):
    folder = tmp_path_factory.mktemp("arrow")
    parts = [data.draw(tables(kinds, max_rows=5)) for _ in range(data.draw(st.integers(1, 3)))]
    for number, part in enumerate(parts):
        batches = part.combine_chunks().to_batches(max_chunksize=data.draw(st.integers(1, 3)))
        write_arrow(folder / f"{number}.arrow", [*batches, *batches[:0]], part.schema, stream=stream, packing=packing)
    whole = plain(pa.concat_tables(parts))
    dataset = in_chunks(fp.read_arrow(folder), 2)
    assert_same(collect(dataset).drop_columns(["__row__", "__key__"]), whole, "reading gives what was written")
    assert_reads(dataset.source)
    assert_resumable(dataset)
    assert_repeatable(dataset)
    if whole.num_rows:
        rows = data.draw(st.lists(st.integers(0, whole.num_rows - 1), max_size=12))
        assert_random_access(dataset, np.array(rows, np.int64))
    assert_random_access(dataset, np.arange(whole.num_rows))
    assert fp.length(dataset) == whole.num_rows


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = pa.table({"n": range(10_000), "t": [f"text {n}" for n in range(10_000)]})
    return write_arrow(tmp_path / "a.arrow", table.to_batches(max_chunksize=100), table.schema)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("packing", [None, "zstd"])
@given(
    st.lists(st.integers(0, 9_999), max_size=40)
    | st.permutations(range(3_000))
    | st.builds(range, st.integers(0, 99), st.integers(100, 9_999))
)
def test_however_many_rows_are_taken(tmp_path_factory: pytest.TempPathFactory, stream: bool, packing: str | None, rows: Any):
    folder = tmp_path_factory.getbasetemp() / f"taken-{stream}-{packing}"
    if not folder.is_dir():
        folder.mkdir()
        table = pa.table({"n": range(10_000), "t": [str(n) for n in range(10_000)]})
        write_arrow(folder / "a.arrow", table.to_batches(max_chunksize=100), table.schema, stream=stream, packing=packing)
    taken = fp.read_arrow(folder).source.take(0, np.array(rows, np.int64))
    assert taken.to_pydict() == {"n": list(rows), "t": [str(n) for n in rows]}


def test_the_law_catches_rows_in_the_order_of_the_file(path: Path, monkeypatch: pytest.MonkeyPatch):
    dataset, rows = fp.read_arrow(path), np.random.default_rng(0).permutation(10_000)[:2_000]
    assert_random_access(dataset, rows)
    right = Rows.take
    monkeypatch.setattr(Rows, "take", lambda held, wanted: right(held, np.sort(wanted)))
    with pytest.raises(AssertionError, match="taking the rows"):
        assert_random_access(dataset, rows)


@pytest.mark.parametrize("stream", [False, True])
def test_reading_copies_nothing(tmp_path: Path, stream: bool):
    table = pa.table({"n": range(1_000_000)})
    path = write_arrow(tmp_path / "a.arrow", table.to_batches(max_chunksize=100_000), table.schema, stream=stream)
    del table
    before = pa.total_allocated_bytes()
    chunks = [chunk for chunk, _ in fp.read_arrow(path).source.read(0, None)]
    fp.read_arrow(path).source.take(0, np.arange(300_000, 350_000))
    assert sum(chunk.num_rows for chunk in chunks) == 1_000_000
    assert pa.total_allocated_bytes() - before < 10_000


def test_compressed_files_are_decompressed_a_batch_at_a_time(tmp_path: Path):
    table = pa.table({"n": range(1_000_000)})
    path = write_arrow(tmp_path / "a.arrow", table.to_batches(max_chunksize=100_000), table.schema, packing="zstd")
    del table
    dataset = fp.read_arrow(path)
    before = pa.total_allocated_bytes()
    for _ in dataset.source.read(0, None):
        assert pa.total_allocated_bytes() - before < 2_000_000
    assert dataset.source.take(0, np.array([999_999, 0])).column("n").to_pylist() == [999_999, 0]
    assert pa.total_allocated_bytes() - before < 2_000_000


def test_a_whole_shuffle_needs_no_copy_of_the_file(path: Path):
    shuffled = fp.pipe(fp.read_arrow(path), fp.shuffle(seed=0))
    order = [row["n"] for row in shuffled]
    assert sorted(order) == list(range(10_000))
    assert order != sorted(order)


def test_resuming_reads_nothing_that_stands_before(path: Path):
    items = list(fp.iterate(fp.read_arrow(path)))
    cursor = fp.Cursor.from_bytes(items[5_050][1].to_bytes())
    data = bytearray(path.read_bytes())
    data[2_000:40_000] = b"\xff" * 38_000
    path.write_bytes(bytes(data))
    assert [row for row, _ in fp.iterate(fp.read_arrow(path), cursor)] == [row for row, _ in items[5_051:]]
    with pytest.raises(
        DataError, match=r"A file is not Arrow IPC, or it is damaged: .*, in .*a\.arrow\. Write or download the file again\."
    ):
        list(fp.read_arrow(path).source.read(0, None))


@pytest.mark.parametrize("content", [b"", b"text", b"ARROW1\0\0" + b"\0" * 50, b"\xff\xff\xff\xff\0\0\0\0"])
def test_what_is_not_arrow_is_named(tmp_path: Path, content: bytes):
    Path(tmp_path, "a.arrow").write_bytes(content)
    with pytest.raises(DataError, match=r"A file is not Arrow IPC, or it is damaged: .*, in .*a\.arrow\."):
        list(fp.read_arrow(tmp_path))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_short_is_named(tmp_path: Path, stream: bool, share: float):
    table = pa.table({"n": range(1000), "t": [str(n) for n in range(1000)]})
    path = write_arrow(tmp_path / "a.arrow", table.to_batches(max_chunksize=500), table.schema, stream=stream)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(DataError, match="A file is not Arrow IPC, or it is damaged"):
        list(fp.read_arrow(path))


def test_columns_in_another_order_are_put_right_and_other_ones_are_named(path: Path):
    other = pa.record_batch({"t": ["x"], "n": [-1]})
    write_arrow(path.with_name("b.arrow"), [other], other.schema)
    both = fp.read_arrow([path, path.with_name("b.arrow")])
    assert list(both)[-1] == {"n": -1, "t": "x"}
    assert both.source.take(0, np.array([10_000, 3])).to_pydict() == {"n": [-1, 3], "t": ["x", "text 3"]}
    third = pa.record_batch({"n": [1.5], "t": ["x"]})
    write_arrow(path.with_name("c.arrow"), [third], third.schema)
    for use in (list, lambda dataset: dataset.source.take(0, np.array([0]))):
        with pytest.raises(
            SchemaError, match=r"Two files have different types: column 'n' is double in .*c\.arrow and int64 in .*a\.arrow\."
        ):
            use(fp.read_arrow(path.parent))


def test_a_file_without_columns_is_refused(tmp_path: Path):
    write_arrow(tmp_path / "a.arrow", [], pa.schema([]))
    with pytest.raises(SchemaError, match=r"The table in the file .*a\.arrow has no columns"):
        fp.schema(fp.read_arrow(tmp_path))


def test_a_dataset_is_a_value_also_after_its_file_was_mapped(path: Path):
    dataset = fp.read_arrow(path)
    dataset.source.take(0, np.array([3]))
    assert repr(dataset.source) == f"read_arrow('{path}')"
    assert_value(dataset)
    assert len(pickle.dumps(dataset)) < 1_000
    copy: Dataset[Any] = pickle.loads(pickle.dumps(dataset))
    assert copy.source.take(0, np.array([3])).to_pylist() == [{"n": 3, "t": "text 3"}]
    assert_told_apart(dataset, fp.read_arrow(path.parent))


def test_building_reads_nothing():
    dataset = fp.read_arrow("none.arrow")
    assert dataset.indexable
    with pytest.raises(MissingFileError):
        dataset.source.take(0, np.array([0]))


def test_what_is_known_before_reading(path: Path):
    assert "10,000 examples: n int64, t string; random access" in fp.explain(fp.read_arrow(path))
    assert fp.read_arrow(path).source.version() == ((str(path), path.stat().st_size, path.stat().st_mtime_ns),)


def test_a_changed_file_is_mapped_again(path: Path):
    _, position = next(fp.read_arrow(path).source.read(0, None))
    assert fp.read_arrow(path).source.take(0, np.array([0])).to_pylist() == [{"n": 0, "t": "text 0"}]
    new = path.with_name("new")
    batch = pa.record_batch({"n": [7], "t": ["new"]})
    write_arrow(new, [batch], batch.schema).replace(path)
    assert fp.read_arrow(path).source.take(0, np.array([0])).to_pylist() == [{"n": 7, "t": "new"}]
    with pytest.raises(CursorError, match="A file has changed since the cursor was made"):
        next(fp.read_arrow(path).source.read(0, position))


@pytest.mark.parametrize("suffix", ["arrow", "parquet"])
def test_views_of_text_as_polars_writes_them_can_be_moved_about(tmp_path: Path, suffix: str):
    columns = {
        "text": pa.array(["a longer text", None, "b"] * 9, pa.string_view()),
        "bytes": pa.array([b"a", b"bb", None] * 9, pa.binary_view()),
        "list": pa.array([["a"], [], None] * 9, pa.large_list(pa.string_view())),
        "pair": pa.array([["a", "b"]] * 27, pa.list_(pa.string_view(), 2)),
    }
    table = pa.table({**columns, "i": range(27)})
    if suffix == "arrow":
        path, read = write_arrow(tmp_path / "a.arrow", table.to_batches(max_chunksize=5), table.schema), fp.read_arrow
    else:
        path, read = tmp_path / "a.parquet", fp.read_parquet
        pq.write_table(table, path)
    rows = table.to_pylist()
    assert list(read(path)) == rows
    assert fp.schema(read(path)).field("text").type == pa.large_string()
    kept = fp.pipe(read(path), fp.filter_by([("text", "!=", "b")]), fp.shuffle(seed=0, buffer=4))
    assert sorted(kept, key=lambda row: row["i"]) == [row for row in rows if row["text"] not in (None, "b")]
    assert sorted(fp.pipe(read(path), fp.shuffle(seed=0)), key=lambda row: row["i"]) == rows
    assert_resumable(fp.pipe(read(path), fp.shuffle(seed=0, buffer=4)))
    pq.write_table(table.set_column(0, "text", table["text"].cast(pa.large_string())), tmp_path / "b.parquet")
    if suffix == "parquet":
        assert len(list(read(tmp_path))) == 54
