"""Readers that are asked for less: fewer columns, and rows that meet conditions. What comes out is the same."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.datasets import Dataset, unoptimized
from mlxfp.support.errors import DataError, SchemaError
from mlxfp.testing.laws import assert_plans_agree, assert_reads
from mlxfp.testing.strategies import tables
from tests.data.written import blocked, in_chunks

KINDS = pa.schema(
    [
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("t", pa.string()),
        ("small", pa.int8()),
        ("word", pa.dictionary(pa.int32(), pa.string())),
        pa.field("image", pa.fixed_shape_tensor(pa.uint8(), (2,)), nullable=False),
    ]
)
VALUES = {
    "n": st.sampled_from([0, 1, -1, 2**62, -(2**63), 2**53 + 1]) | st.integers(-5, 5),
    "x": st.sampled_from([0.0, -0.0, float("inf"), float("nan"), 1e16]) | st.floats() | st.integers(-5, 5),
    "t": st.sampled_from(["", "a", "\0", "é", "\U0001f468"]) | st.text(st.characters(codec="utf-8"), max_size=2),
    "small": st.integers(-128, 127),
}
CONDITIONS = st.sampled_from(sorted(VALUES)).flatmap(
    lambda name: st.tuples(st.just(name), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), VALUES[name])
)


def written_parquet(folder: Path, parts: list[pa.Table], size: int) -> Dataset[Any]:
    for number, part in enumerate(parts):
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=size)
    return fp.read_parquet(folder)


def written_arrow(folder: Path, parts: list[pa.Table], size: int) -> Dataset[Any]:
    for number, part in enumerate(parts):
        options = pa.ipc.IpcWriteOptions(compression="lz4" if size == 1 else None)
        make = pa.ipc.new_stream if size == 2 else pa.ipc.new_file
        with make(folder / f"{number}.arrow", part.schema, options=options) as writer:
            writer.write_table(part, max_chunksize=size)
    return fp.read_arrow(folder)


@pytest.mark.parametrize("write", [written_parquet, written_arrow])
@given(data=st.data(), size=st.integers(1, 4))
def test_less_is_read_of_files_that_know_their_columns(write: Any, tmp_path_factory: Any, data: Any, size: int):
    parts = [data.draw(tables(KINDS, max_rows=5)) for _ in range(data.draw(st.integers(1, 2)))]
    rows = write(tmp_path_factory.mktemp("less"), parts, size)
    wanted = data.draw(st.lists(st.sampled_from(KINDS.names), min_size=1, unique=True))
    rows = in_chunks(rows, 2)
    dataset = fp.pipe(rows, fp.filter_by(data.draw(st.lists(CONDITIONS, min_size=1, max_size=2))), fp.select_columns(wanted))
    assert_plans_agree(dataset)
    assert_reads(fp.pipe(rows, fp.select_columns(wanted)).plan.source)
    if rows.indexable:
        assert_plans_agree(fp.pipe(rows, fp.shuffle(seed=0), fp.select_columns(wanted)))


@given(table=tables(KINDS), chosen=st.booleans(), wanted=st.lists(st.sampled_from(KINDS.names), min_size=1, unique=True))
def test_less_is_gathered_of_tables_of_other_packages(table: pa.Table, chosen: bool, wanted: list[str]):
    indices = pa.table({"indices": pa.array(range(1, table.num_rows), pa.uint64())}) if chosen and table.num_rows else None
    rows = fp.from_hf(SimpleNamespace(data=table, _indices=indices))
    assert_plans_agree(fp.pipe(rows, fp.shuffle(seed=0), fp.select_columns(wanted)))
    assert_reads(fp.pipe(rows, fp.select_columns(wanted)).plan.source)


LINES = pa.schema([("n", pa.int64()), ("t", pa.string()), ("yes", pa.bool_())])


@given(data=st.data(), size=st.integers(1, 60))
def test_less_is_read_of_csv_files(tmp_path_factory: Any, data: Any, size: int):
    folder = tmp_path_factory.mktemp("less")
    for number in range(data.draw(st.integers(1, 2))):
        drawn = data.draw(tables(LINES, min_rows=1, max_rows=5)).combine_chunks()  # Arrow 22 writes the header again after an empty chunk
        arrow_csv.write_csv(drawn, folder / f"{number}.csv")
    rows = fp.read_csv(folder, schema={"n": pa.int64(), "t": pa.string(), "yes": pa.bool_()})
    wanted = data.draw(st.lists(st.sampled_from(LINES.names), min_size=1, unique=True))
    dataset = fp.pipe(blocked(rows, size), fp.rename_columns({"n": "m"}), fp.rename_columns({"m": "n"}), fp.select_columns(wanted))
    assert_plans_agree(dataset)
    assert_reads(dataset.plan.source)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    table = pa.table({"n": range(10_000), "half": [n / 2 for n in range(10_000)], "t": [f"text {n:05}" for n in range(10_000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=1000, use_dictionary=False)
    return tmp_path / "a.parquet"


def spoil(path: Path, groups: range, column: int) -> None:
    """Overwrite the data of a column in some row groups, so that reading it fails."""
    with pq.ParquetFile(path) as opened:
        columns = [opened.metadata.row_group(group).column(column) for group in groups]
    data = bytearray(path.read_bytes())
    for each in columns:
        data[each.data_page_offset : each.data_page_offset + each.total_compressed_size] = bytes(each.total_compressed_size)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("conditions", "groups"),
    [
        ([("n", ">=", 3_000), ("n", "<", 3_500)], [3]),
        ([("half", "==", 1_500.5)], [3]),
        ([("t", "in", ["text 03001", "text 07001", "other"])], [3, 7]),
        ([("t", ">", "text 08999")], [9]),
        ([("n", "<=", 999)], [0]),
        ([("n", "<", 0)], []),
    ],
)
def test_row_groups_in_which_nothing_can_meet_the_conditions_are_not_read(path: Path, conditions: Any, groups: list[int]):
    dataset = fp.pipe(
        fp.read_parquet(path), fp.rename_columns({"n": "number"}), fp.rename_columns({"number": "n"}), fp.filter_by(conditions)
    )
    expected = list(unoptimized(dataset))
    for group in set(range(10)) - set(groups):
        spoil(path, range(group, group + 1), 2)
    assert list(dataset) == expected
    with pytest.raises(DataError):
        list(unoptimized(dataset))


@pytest.mark.parametrize("conditions", [[("n", "!=", 3)], [("half", "!=", 0.25)]])
def test_a_condition_that_the_ends_of_a_column_cannot_decide_reads_all(path: Path, conditions: Any):
    dataset = fp.pipe(fp.read_parquet(path), fp.filter_by(conditions))
    spoil(path, range(5, 6), 2)
    with pytest.raises(DataError):
        list(dataset)


def test_nan_is_no_matter_of_statistics(tmp_path: Path):
    pq.write_table(pa.table({"x": [5.0, float("nan"), 5.0]}), tmp_path / "a.parquet")
    assert len(list(fp.pipe(fp.read_parquet(tmp_path), fp.filter_by([("x", "!=", 5.0)])))) == 1
    assert list(fp.pipe(fp.read_parquet(tmp_path), fp.filter_by([("x", ">", 6.0)]))) == []


def test_columns_without_statistics_or_of_other_types_are_read(tmp_path: Path):
    table = pa.table({"n": [1, 2], "at": pa.array([1, 2], pa.timestamp("us")), "yes": [True, False]})
    pq.write_table(table, tmp_path / "a.parquet", write_statistics=["at", "yes"])
    assert len(list(fp.pipe(fp.read_parquet(tmp_path), fp.filter_by([("n", ">", 5)])))) == 0
    assert len(list(fp.pipe(fp.read_parquet(tmp_path), fp.filter_by([("yes", "==", True)])))) == 1


def test_columns_that_nothing_looks_at_are_not_read(path: Path):
    dataset = fp.pipe(fp.read_parquet(path), fp.select_columns(["n"]))
    spoil(path, range(10), 2)
    assert [row["n"] for row in dataset] == list(range(10_000))
    with pytest.raises(DataError):
        list(unoptimized(dataset))


def test_files_must_fit_in_columns_that_nothing_looks_at_too(tmp_path: Path):
    for number, name in enumerate(["t", "other"]):
        table = pa.table({"n": [1], name: ["a"]})
        pq.write_table(table, tmp_path / f"{number}.parquet")
        arrow_csv.write_csv(table, tmp_path / f"{number}.csv")
        with pa.ipc.new_file(tmp_path / f"{number}.arrow", table.schema) as writer:
            writer.write_table(table)
    for read, suffix in ((fp.read_parquet, "parquet"), (fp.read_csv, "csv"), (fp.read_arrow, "arrow")):
        with pytest.raises(SchemaError, match="Two files have different columns"):
            list(fp.pipe(read(tmp_path / f"*.{suffix}"), fp.select_columns(["n"])))


def test_a_record_with_a_field_too_few_is_an_error_whatever_is_looked_at(tmp_path: Path):
    (tmp_path / "a.csv").write_text("n,t\n1,a\n2\n")
    with pytest.raises(DataError, match=r"A record has 1 fields, but there are 2 columns: got '2\\n', in line 3 of .*a\.csv"):
        list(fp.pipe(fp.read_csv(tmp_path), fp.select_columns(["n"])))


def test_a_value_that_does_not_fit_is_named_among_those_that_are_looked_at(tmp_path: Path):
    first = f"1,2,{'a' * 10_000}\n" * 110  # 1 MB, in which every column is looked at, for its type
    (tmp_path / "a.csv").write_text(f"n,m,t\n{first}2,x,b\ny,4,c\n")
    rows = fp.read_csv(tmp_path)
    with pytest.raises(DataError, match=r"does not fit the column 'm' of int64: got 'x', in line 112"):
        list(rows)
    with pytest.raises(DataError, match=r"does not fit the column 'n' of int64: got 'y', in line 113"):
        list(fp.pipe(rows, fp.select_columns(["n", "t"])))
    assert [row["t"] for row in fp.pipe(rows, fp.select_columns(["t"]))][-2:] == ["b", "c"]


def test_explain_says_what_is_read(path: Path):
    text = fp.explain(fp.pipe(fp.read_parquet(path), fp.filter_by([("n", ">", 3), ("t", "in", ["a"])]), fp.select_columns(["n"])))
    assert "reads 2 of 3 columns: 'n', 't'" in text
    assert "skips row groups where no row meets n > 3 and t in ('a',)" in text
