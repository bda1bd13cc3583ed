"""The law of Parquet: what was written is read, from any place on."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CursorError, DataError, MissingFileError, SchemaError, UnknownNameError
from mlxfp.testing.comparing import assert_same
from mlxfp.testing.laws import assert_reads, assert_repeatable, assert_resumable, assert_told_apart, assert_value
from mlxfp.testing.laws.datasets import collect
from mlxfp.testing.strategies import tables
from tests.data.written import SCHEMAS, in_chunks, plain

# A tensor that is null cannot be read back: "Expected all lists to be of size=6 but index 1 had size=0" (Arrow 25).
WRITABLE = SCHEMAS.map(lambda kinds: pa.schema([each.with_nullable(each.nullable and each.name != "image") for each in kinds]))


def rows_of(dataset: Any) -> pa.Table:
    return collect(dataset).drop_columns(["__row__", "__key__"])


@given(st.data(), WRITABLE, st.integers(1, 3), st.integers(1, 5))
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, kinds: pa.Schema, files: int, group_size: int
):
    folder = tmp_path_factory.mktemp("parquet")
    parts = [data.draw(tables(kinds, max_rows=5)) for _ in range(files)]
    for number, part in enumerate(parts):
        order = data.draw(st.permutations(kinds.names)) if number else kinds.names
        pq.write_table(part.select(order), folder / f"{number}.parquet", row_group_size=group_size)
    dataset = in_chunks(fp.read_parquet(folder), 2)
    assert_same(rows_of(dataset), plain(pa.concat_tables(parts)), "reading gives what was written")
    assert_reads(dataset.source)
    assert_resumable(dataset)
    assert_repeatable(dataset)
    some = data.draw(st.permutations(kinds.names))[: data.draw(st.integers(1, len(kinds)))]
    chosen = in_chunks(fp.read_parquet(folder, columns=some), 2)
    assert_same(rows_of(chosen), plain(pa.concat_tables(parts).select(some)), "and some of it")
    assert_reads(chosen.source)
    assert fp.length(dataset) == sum(part.num_rows for part in parts)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(
        pa.table({"n": range(10_000), "t": [f"text {n}" for n in range(10_000)]}),
        tmp_path / "a.parquet",
        row_group_size=1000,
        use_dictionary=False,
    )
    return tmp_path / "a.parquet"


def test_resuming_starts_at_the_row_group(path: Path):
    items = list(fp.iterate(fp.read_parquet(path)))
    cursor = fp.Cursor.from_bytes(items[5_500][1].to_bytes())
    with pq.ParquetFile(path) as opened:
        first, last = (opened.metadata.row_group(group).column(0).data_page_offset for group in (0, 5))
    data = bytearray(path.read_bytes())
    data[first:last] = b"\0" * (last - first)
    path.write_bytes(bytes(data))
    assert [row for row, _ in fp.iterate(fp.read_parquet(path), cursor)] == [row for row, _ in items[5_501:]]
    with pytest.raises(
        DataError, match=r"A file is not Parquet, or it is damaged: .*, in .*a\.parquet\. Write or download the file again\."
    ):
        list(fp.read_parquet(path))


def test_a_large_row_group_is_read_in_chunks(path: Path):
    pq.write_table(pa.table({"n": range(10_000)}), path)
    assert [chunk.num_rows for chunk, _ in fp.read_parquet(path).source.read(0, None)] == [4096, 4096, 1808]


def test_what_a_file_says_of_its_columns_but_their_types_does_not_matter(tmp_path: Path):
    named = pa.field("n", pa.int64(), nullable=False, metadata={"a": "b"})
    pq.write_table(pa.table({"n": [1]}, schema=pa.schema([named], metadata={"x": "y"})), tmp_path / "a.parquet")
    pq.write_table(pa.table({"n": [2, None]}), tmp_path / "b.parquet")
    assert [row["n"] for row in fp.read_parquet(tmp_path)] == [1, 2, None]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (pa.table({"n": ["x"], "t": ["y"]}), r"Two files have different types: column 'n' is string in .*b\.parquet and int64 in .*a\."),
        (pa.table({"n": [1]}), r"Two files have different columns: .*b\.parquet lacks 't' and adds nothing, compared with .*a\.parquet\."),
        (pa.table({"n": [1], "t": ["x"], "z": [1]}), r"b\.parquet lacks nothing and adds 'z'"),
    ],
)  # fmt: skip
def test_files_that_differ_are_both_named(path: Path, other: pa.Table, message: str):
    pq.write_table(other, path.with_name("b.parquet"))
    with pytest.raises(SchemaError, match=message):
        list(fp.read_parquet(path.parent))


def test_columns_are_checked(path: Path):
    with pytest.raises(UnknownNameError, match=r"No column of .*a\.parquet is named 'm'\. Known: n, t\."):
        fp.schema(fp.read_parquet(path, columns=["m"]))
    with pytest.raises(ArgumentError, match="columns repeats 'n'"):
        fp.read_parquet(path, columns=["n", "n"])
    with pytest.raises(ArgumentTypeError, match="columns must be a list of strings"):
        fp.read_parquet(path, columns="n")
    with pytest.raises(ArgumentError, match="columns must name at least one column, got none"):
        fp.read_parquet(path, columns=[])
    pq.write_table(pa.table({"__key__": [1]}), path)
    with pytest.raises(SchemaError, match="reserved name: got '__key__'"):
        fp.schema(fp.read_parquet(path))


@pytest.mark.parametrize("content", [b"", b"text", b"PAR1" + b"\0" * 20 + b"PAR1"])
def test_what_is_not_parquet_is_named(tmp_path: Path, content: bytes):
    Path(tmp_path, "a.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"A file is not Parquet, or it is damaged: .*, in .*a\.parquet\."):
        list(fp.read_parquet(tmp_path))


def test_a_cursor_is_refused_when_its_file_has_changed(path: Path):
    dataset = fp.read_parquet(path)
    _, position = next(dataset.source.read(0, None))
    pq.write_table(pa.table({"n": [1], "t": ["x"]}), path)
    with pytest.raises(CursorError, match=r"A file has changed since the cursor was made: it had .* bytes, now .*: .*a\.parquet\."):
        next(dataset.source.read(0, position))


def test_a_dataset_is_a_value_and_building_it_reads_nothing(tmp_path: Path):
    dataset = fp.read_parquet("none.parquet", columns=["a"])
    assert repr(dataset.source) == "read_parquet('none.parquet', columns=('a',))"
    assert_value(dataset)
    assert_told_apart(dataset, fp.read_parquet("none.parquet"))
    with pytest.raises(MissingFileError):
        fp.schema(dataset)


def test_the_length_is_known_before_reading(path: Path):
    assert "10,000 examples: n int64, t string" in fp.explain(fp.read_parquet(path))
    assert fp.read_parquet(path).source.version() == ((str(path), path.stat().st_size, path.stat().st_mtime_ns),)


def test_explain_names_the_index_that_pandas_wrote(tmp_path: Path):
    """A filtered table of pandas keeps its index, and pandas writes the index as a column. The note can be copied into a program."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": [1, 2], "__index_level_0__": [3, 5]}), path)
    assert "pandas wrote its index into the file; to drop the index, add fp.drop_columns(['__index_level_0__'])" in fp.explain(
        fp.read_parquet(path)
    )
