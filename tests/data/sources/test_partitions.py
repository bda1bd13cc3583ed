"""Names of folders such as `year=2024` become columns, as pyarrow reads them, whatever the format of the files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.dataset as arrow_dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.sources.partitions import partition_of, partition_types
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.testing import laws
from mlxfp.testing.laws.datasets import collect

if TYPE_CHECKING:
    from mlxfp.core.datasets import Dataset

NULL = "__HIVE_DEFAULT_PARTITION__"


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=2)


def write_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_compressed(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table, max_chunksize=2)


def write_csv(table: pa.Table, path: Path) -> None:
    arrow_csv.write_csv(table, path)


def write_jsonl(table: pa.Table, path: Path) -> None:
    path.write_text("".join(f'{{"x": {row["x"]}}}\n' for row in table.to_pylist()))


FORMATS = {
    "parquet": (fp.read_parquet, ".parquet", write_parquet, "parquet"),
    "arrow": (fp.read_arrow, ".arrow", write_arrow, "arrow"),
    "compressed arrow": (fp.read_arrow, ".arrow", write_compressed, "arrow"),
    "csv": (fp.read_csv, ".csv", write_csv, "csv"),
    "jsonl": (fp.read_jsonl, ".jsonl", write_jsonl, "json"),
}
VALUES = st.one_of(
    st.integers(-5, 2**31).map(str),
    st.sampled_from(["01", "", " 1", "1F", "1.5", "2024-01-02", "São Paulo", "a/b", "x=y", "%41", "a+b", "."]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3),
)


def folder_name(name: str, value: str | None) -> str:
    return f"{quote(name, safe='')}={NULL if value is None else quote(value, safe='')}"


def rows(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


@pytest.mark.parametrize("kind", FORMATS)
@settings(max_examples=6)
@given(
    places=st.lists(st.tuples(VALUES | st.none(), VALUES | st.none()), min_size=1, max_size=3, unique=True),
    counts=st.lists(st.integers(1, 4), min_size=3, max_size=3),
    data=st.data(),
)
def test_rows_are_those_that_pyarrow_reads(kind: str, tmp_path_factory: Any, places: Any, counts: list[int], data: st.DataObject):
    read, suffix, write, name = FORMATS[kind]
    root = tmp_path_factory.mktemp("hive")
    for number, (first, second) in enumerate(places):
        folder = root / folder_name("a", first) / folder_name("b ü", second)
        folder.mkdir(parents=True)
        write(pa.table({"x": pa.array(range(10 * number, 10 * number + counts[number]))}), folder / f"part{suffix}")
    found = read(root)
    laws.assert_reads(found.source)
    laws.assert_value(found)
    laws.assert_resumable(found)
    laws.assert_same_items(read(root / "**" / f"*{suffix}"), found)
    types = dict(partition_types(tuple(file.partition for file in found.source.files())))
    if all(any(place[number] is not None for place in places) for number in (0, 1)):  # pyarrow refuses columns of nothing but nulls
        expected = arrow_dataset.dataset(root, format=name, partitioning="hive")
        assert found.source.schema().equals(expected.schema)
        assert rows(collect(found).select(expected.schema.names)) == rows(expected.to_table())
    else:
        assert pa.string() in types.values()
    wanted = data.draw(st.lists(st.sampled_from(["x", "a", "b ü"]), min_size=1, unique=True))
    laws.assert_plans_agree(fp.pipe(found, fp.select_columns(wanted)))
    laws.assert_reads(fp.pipe(found, fp.select_columns(wanted)).plan.source)
    assert sorted(fp.pipe(found, fp.select_columns(wanted)).plan.source.schema().names) == (
        sorted(wanted) if kind != "jsonl" else ["a", "b ü", "x"]
    )
    value = next((row["a"] for row in found if row["a"] is not None), None)
    if value is not None:
        laws.assert_plans_agree(fp.pipe(found, fp.filter_by([("a", data.draw(st.sampled_from(["==", "!=", "<", ">="])), value)])))
    if found.indexable:
        count = fp.length(found)
        laws.assert_random_access(found, np.array(data.draw(st.lists(st.integers(0, count - 1), max_size=9)), np.int64))
        laws.assert_plans_agree(fp.pipe(found, fp.shuffle(seed=0), fp.select_columns(wanted)))


@pytest.fixture
def hive(tmp_path: Path) -> Path:
    for year, month in ((2023, 12), (2024, 1), (2024, 2)):
        folder = tmp_path / "hive" / f"year={year}" / f"month={month}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"x": [year, month]}), folder / "a.parquet")
    return tmp_path / "hive"


@pytest.mark.parametrize(
    ("path", "names", "count"),
    [
        ("", ["x", "year", "month"], 6),
        ("**/*.parquet", ["x", "year", "month"], 6),
        ("*/month=1/a.parquet", ["x", "year", "month"], 2),
        ("year=2024", ["x", "month"], 4),  # what is named is known
        ("year=2024/*/*.parquet", ["x", "month"], 4),
        ("year=2024/month=1", ["x"], 2),
        ("year=2024/month=1/a.parquet", ["x"], 2),
    ],
)
def test_folders_that_are_found_make_columns_and_those_that_are_named_do_not(hive: Path, path: str, names: list[str], count: int):
    found = fp.read_parquet(hive / path)
    assert found.source.schema().names == names
    assert len(list(found)) == count


def test_folders_are_found_at_remote_addresses_too(hive: Path):
    system = fsspec.filesystem("memory")
    for path in hive.rglob("*.parquet"):
        system.pipe(f"/hive/{path.relative_to(hive).as_posix()}", path.read_bytes())
    try:
        expected = list(fp.read_parquet(hive))
        assert list(fp.read_parquet("memory://hive")) == expected
        assert list(fp.read_parquet("memory://hive/*/*/*.parquet")) == expected
        assert fp.read_parquet("memory://hive/year=2024").source.schema().names == ["x", "month"]
        assert fp.read_parquet("memory://hive/year=2024/month=1/a.parquet").source.schema().names == ["x"]
    finally:
        system.rm("/hive", recursive=True)


def test_text_gets_the_columns_of_its_folders(tmp_path: Path):
    for author, text in (("Woolf", "a\nb\n"), ("Carroll", "c\n")):
        Path(tmp_path, f"author={author}").mkdir()
        Path(tmp_path, f"author={author}", "1.txt").write_text(text)
    assert list(fp.read_text(tmp_path)) == [
        {"text": "c", "author": "Carroll"},
        {"text": "a", "author": "Woolf"},
        {"text": "b", "author": "Woolf"},
    ]


def test_other_folders_are_not_searched_and_hidden_files_are_not_read(hive: Path):
    for name in ("other/b.parquet", ".hidden/c.parquet", "year=2024/month=1/.d.parquet", "year=2024/.month=1/e.parquet", "a=b"):
        Path(hive, name).parent.mkdir(exist_ok=True)
        Path(hive, name).write_bytes(b"no Parquet")
    assert len(list(fp.read_parquet(hive))) == 6


def test_columns_can_be_chosen_and_their_types_declared(hive: Path):
    chosen = fp.read_parquet(hive, columns=["month", "x"])
    assert next(iter(chosen)) == {"month": 12, "x": 2023}
    assert next(iter(fp.read_parquet(hive, columns=["year"]))) == {"year": 2023}
    declared = fp.read_parquet(hive, schema={"month": pa.string(), "year": pa.int64()})
    assert declared.source.schema() == pa.schema({"x": pa.int64(), "year": pa.int64(), "month": pa.string()})
    assert list(declared)[-1] == {"x": 2, "year": 2024, "month": "2"}
    with pytest.raises(SchemaError, match=r"A folder name does not fit the column 'year' of date32.*: got '2023', in .*a\.parquet\. Dec"):
        list(fp.read_parquet(hive, schema={"year": pa.date32()}))


def test_types_are_declared_for_files_of_lines_too(tmp_path: Path):
    for year, text in (("2023", "n,x\n1,2\n"), ("2024", "n,x\n3,4\n")):
        Path(tmp_path, f"year={year}").mkdir()
        Path(tmp_path, f"year={year}", "a.csv").write_text(text)
        Path(tmp_path, f"year={year}", "a.jsonl").write_text('{"n": 1}\n')
    schema = {"year": pa.string(), "n": pa.float64()}
    assert next(iter(fp.read_csv(tmp_path, schema=schema))) == {"n": 1.0, "x": 2, "year": "2023"}
    assert list(fp.read_jsonl(tmp_path, schema=schema))[1] == {"n": 1.0, "year": "2024"}
    assert list(fp.read_csv(tmp_path, schema="scan"))[1] == {"n": 3, "x": 4, "year": 2024}
    Path(tmp_path, "year=2024", "a.csv").write_text("n,x\n3,4\n5\n")
    marked = fp.pipe(fp.read_csv(tmp_path), fp.on_error("skip"))
    assert [row["year"] for row in marked] == [2023, 2024]


def test_folders_that_do_not_meet_the_conditions_are_not_read(hive: Path):
    path = hive / "year=2023" / "month=12" / "a.parquet"
    data = bytearray(path.read_bytes())
    data[4:20] = b"\xff" * 16  # the values; how many there are is at the end
    path.write_bytes(data)
    with pytest.raises(DataError, match="not Parquet"):
        list(fp.read_parquet(hive))
    assert [row["x"] for row in fp.pipe(fp.read_parquet(hive), fp.filter_by([("year", "==", 2024)]))] == [2024, 1, 2024, 2]
    assert [row["month"] for row in fp.pipe(fp.read_parquet(hive), fp.select_columns(["month"]))] == [12, 12, 1, 1, 2, 2]


def test_a_column_in_the_file_and_in_the_name_of_its_folder_must_agree(tmp_path: Path):
    folder = tmp_path / "year=2024"
    folder.mkdir()
    pq.write_table(pa.table({"year": pa.array([2024, None], pa.int64()), "x": [1, 2]}), folder / "a.parquet")
    found = fp.read_parquet(tmp_path)
    assert list(found) == [{"year": 2024, "x": 1}, {"year": None, "x": 2}]
    laws.assert_plans_agree(fp.pipe(found, fp.filter_by([("x", ">", 1)])))
    pq.write_table(pa.table({"year": [2024, 2023], "x": [1, 2]}), folder / "b.parquet")
    with pytest.raises(
        DataError, match=r"A file contradicts its folder name: .* 'year' has the value 2023, but the folder name has '2024', in .*b\.parq"
    ):
        list(found)
    assert list(fp.pipe(fp.read_parquet(tmp_path), fp.select_columns(["x"]))) == [{"x": 1}, {"x": 2}, {"x": 1}, {"x": 2}]
    missing = tmp_path / f"year={NULL}"
    missing.mkdir()
    (folder / "a.parquet").rename(missing / "a.parquet")
    with pytest.raises(DataError, match=r"has the value 2024, but the folder name has None"):
        list(fp.read_parquet(tmp_path / "*" / "a.parquet"))


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_files_in_folders_of_other_names_or_depth_are_named(tmp_path: Path, kind: str):
    read, suffix, write, _ = FORMATS[kind]
    for name in ("year=2023", "year=2024/month=1"):
        Path(tmp_path, name).mkdir(parents=True)
        write(pa.table({"x": [1]}), Path(tmp_path, name, f"a{suffix}"))
    with pytest.raises(
        SchemaError, match=r"Two files have different columns: .*month=1/a.* lacks nothing and adds 'month', compared with .*2023"
    ):
        list(read(tmp_path))
    write(pa.table({"x": [1]}), Path(tmp_path, f"a{suffix}"))
    with pytest.raises(SchemaError, match=r"Two files have different columns: .*year=2023/a.* adds 'year', compared with .*"):
        list(read(tmp_path))


def test_a_scan_gives_nulls_where_a_folder_is_missing(tmp_path: Path):
    for name in ("year=2023", "year=2024/month=1"):
        Path(tmp_path, name).mkdir(parents=True)
        pq.write_table(pa.table({"x": [1]}), Path(tmp_path, name, "a.parquet"))
    assert [row["month"] for row in fp.read_parquet(tmp_path, schema="scan")] == [None, 1]
    assert [row["month"] for row in fp.read_parquet(tmp_path, schema={"month": pa.int32()})] == [None, 1]


@pytest.mark.parametrize(
    ("name", "message"), [("y=1/y=2", "Several columns have the same name: got 'y'"), ("__row__=1", "reserved name: got '__row__'")]
)
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_names_of_folders_are_names_of_columns(tmp_path: Path, kind: str, name: str, message: str):
    read, suffix, write, _ = FORMATS[kind]
    Path(tmp_path, name).mkdir(parents=True)
    write(pa.table({"x": [1]}), Path(tmp_path, name, f"a{suffix}"))
    with pytest.raises(SchemaError, match=message):
        list(read(tmp_path))


def test_a_cursor_goes_on_in_the_middle_of_a_folder(hive: Path):
    found = fp.read_parquet(hive)
    items = list(fp.iterate(found))
    for place, (_, cursor) in enumerate(items):
        assert [row for row, _ in fp.iterate(found, cursor)] == [row for row, _ in items[place + 1 :]]


def test_random_access_holds_a_column_of_folders_once(tmp_path: Path):
    folder = tmp_path / "split=train"
    folder.mkdir()
    write_arrow(pa.table({"x": np.arange(64)}), folder / "a.arrow")
    found: Dataset[Any] = fp.read_arrow(tmp_path)
    chunks = [chunk() for chunk in found.source.index.chunks]
    assert found.source.index.in_memory
    assert len({chunk.column("split").buffers()[2].address for chunk in chunks}) == 1


def test_explain_says_which_folders_make_columns(hive: Path):
    assert "columns from folder names: year, month" in str(fp.explain(fp.read_parquet(hive)))
    named = str(fp.explain(fp.read_parquet(hive / "year=2024" / "month=1" / "a.parquet")))
    assert "the folder 'year=2024' is part of the path and makes no column; give its parent folder as path" in named
    assert fp.read_parquet(hive / "*.parquet").source.traits.notes() == ()


def test_what_no_percent_sign_encodes_is_text():
    assert partition_of(["100%=50%ff", "=1", "plain", "a=1=2"]) == (("100%", "50%ff"), ("a", "1=2"))


def test_a_hexadecimal_folder_name_stays_text():
    """A dataset of pyarrow reads 0x10 as 16, and 0xFFFFFFFF as -1."""
    assert partition_types(((("key", "0x10"),), (("key", "12"),))) == (("key", pa.string()),)
