"""Tables of other libraries, with the libraries themselves where they are installed, and with what they offer where they are not."""

import sqlite3
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.dataset as arrow_dataset
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError, CursorError, DataError, SchemaError
from mlxfp.testing import laws
from mlxfp.testing.laws.datasets import collect

pd = pytest.importorskip("pandas", reason="most of these tables are of pandas")
TABLE = pa.table({"x": [1, 2, None], "t": ["a", None, "c"]})


class Frame:
    """A table that any library may offer."""

    def __init__(self, table: pa.Table = TABLE) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


class Column:
    """A Series of polars, which is a stream of values and no table."""

    def __init__(self, values: pa.ChunkedArray, name: Any) -> None:
        self.values, self.name = values, name

    def __len__(self) -> int:
        return len(self.values)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.values.__arrow_c_stream__(requested_schema)


class Collected:
    """A LazyFrame."""

    columns = ("x", "t")

    def collect(self) -> Frame:
        return Frame()


class Converted:
    """A DataFrame of Daft, before it offered streams."""

    def to_arrow(self) -> pa.Table:
        return TABLE

    def collect(self) -> None:
        raise AssertionError


class Blocks:
    """A dataset of Ray."""

    def __init__(self, table: pa.Table = TABLE) -> None:
        self.table = table

    def map_batches(self) -> None: ...

    def iter_batches(self, *, batch_size: int | None, batch_format: str) -> Any:
        assert (batch_size, batch_format) == (None, "pyarrow")
        return iter([self.table.slice(0, 1), self.table.slice(1)] if self.table.num_rows else [])


@pytest.mark.parametrize(
    "table",
    [Frame(), Collected(), Converted(), Blocks(), arrow_dataset.dataset(TABLE), arrow_dataset.dataset(TABLE).scanner(), TABLE.to_reader()],
    ids=["stream", "lazy frame", "daft", "ray", "dataset in memory", "scanner", "reader"],
)
def test_what_offers_a_table_is_that_table(table: Any):
    laws.assert_same_items(fp.from_table(table), fp.from_table(TABLE))


def test_a_dataset_of_ray_may_be_empty():
    assert list(fp.from_table(Blocks(TABLE.slice(0, 0)))) == []


@pytest.mark.parametrize("values", [[1, 2, None], ["a", None], [[1], [2, 3]], [{"a": 1}]], ids=repr)
def test_a_series_is_a_column_with_its_name(values: list[Any]):
    column = pa.chunked_array([values[:1], values[1:]], pa.array(values).type)
    assert list(fp.from_table(Column(column, "x"))) == [{"x": value} for value in values]
    assert list(fp.from_table({"y": Column(column, None)})) == [{"y": value} for value in values]


def test_a_series_of_pandas_is_a_column_with_its_name():
    assert list(fp.from_table(pd.Series([1.5, np.nan], name="x"))) == [{"x": 1.5}, {"x": None}]
    assert list(fp.from_table(pd.Series(["a", "b"], name="t", dtype="category"))) == [{"t": "a"}, {"t": "b"}]
    assert list(fp.from_table(pd.Index([1, 2], name="n"))) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6)[None],
        np.arange(6).reshape(2, 3).T,
        np.arange(12).reshape(1, 4, 3)[:, ::2],
        np.arange(6).reshape(3, 2, 1).swapaxes(0, 1),
    ],
    ids=["a new axis", "turned", "every other", "swapped"],
)
def test_arrays_are_tensors_however_they_lie_in_memory(array):
    np.testing.assert_array_equal([row["x"] for row in fp.from_table({"x": array})], array)


def test_an_array_of_no_rows_has_the_type_of_its_tensors():
    empty = fp.from_table({"x": np.zeros((0, 3, 2), np.uint8)})
    assert list(empty) == []
    assert fp.schema(empty) == fp.schema(fp.from_table({"x": np.zeros((1, 3, 2), np.uint8)}))


def test_tensors_without_values_are_refused():
    with pytest.raises(SchemaError, match=r"Column 'x' cannot hold arrays of shape \(0, 3\)"):
        fp.from_table({"x": np.zeros((2, 0, 3))})


class NoTable:
    def collect(self) -> list[int]:
        return [1]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            pd.Series([1]),
            r"needs a name for the column, got a Series with the name None\. Give a name with from_table\(\{'x': column\}\)",
        ),
        (pd.Series([1], name=0), r"got a Series with the name 0\."),
        (pa.array([1]), r"needs a name for the column, got a Int64Array with the name None"),
        (pa.chunked_array([[1]]), r"got a ChunkedArray with the name None"),
        (np.array([1]), r"got ndarray\. Name the column with from_table\(\{'x': array\}\)\."),
        (
            sqlite3.connect(":memory:"),
            r"got Connection\. A connection is not a table\. Pass the result of a query, in DuckDB from_table\(connection\.s",
        ),
        ("a.parquet", r"got str\. Use read_parquet, read_csv"),
        (Path("a.parquet"), r"got PosixPath\. Use read_parquet"),
        ([{"x": 1}], r"got list\. Use from_examples for a list of dicts"),
        (NoTable(), r"from_table needs a table, got list from NoTable\.collect\(\)\. Convert the result to an Arrow table"),
        ({"x": 3}, r"must be a sequence or an array with an axis of rows, got int for 'x': 3\. Give a value for each row"),
        ({"x": np.array(3)}, r"got ndarray for 'x'"),
        (UserDict({"x": None}), r"got NoneType for 'x'"),
    ],
)
def test_anything_else_is_refused_with_what_to_do(table: Any, message: str):
    with pytest.raises(ArgumentTypeError, match=message):
        fp.from_table(table)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for year in (2023, 2024):
        Path(tmp_path, f"year={year}").mkdir()
        pq.write_table(pa.table({"x": range(year, year + 5), "t": ["a"] * 5}), tmp_path / f"year={year}" / "a.parquet", row_group_size=2)
    return tmp_path


@settings(max_examples=15)
@given(
    counts=st.lists(st.integers(0, 5), min_size=1, max_size=3),
    size=st.integers(1, 3),
    kind=st.sampled_from(["parquet", "csv", "feather"]),
    least=st.none() | st.integers(0, 6),
    wanted=st.lists(st.sampled_from(["x", "t", "part"]), min_size=1, unique=True),
)
def test_the_files_of_a_dataset_are_read_lazily(
    tmp_path_factory: Any, counts: list[int], size: int, kind: str, least: int | None, wanted: list[str]
):
    root = tmp_path_factory.mktemp("dataset")
    for number, count in enumerate(counts):
        Path(root, f"part={number}").mkdir()
        table = pa.table({"x": pa.array(range(count), pa.int64()), "t": pa.array(["a"] * count)})
        path = root / f"part={number}" / "a"
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=size)
        elif kind == "csv":
            arrow_csv.write_csv(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table, max_chunksize=size)
    stated = pa.schema({"x": pa.int64(), "t": pa.string(), "part": pa.int32()})
    dataset = arrow_dataset.dataset(root, stated, format=kind, partitioning="hive")
    dataset = dataset if least is None else dataset.filter(arrow_dataset.field("x") >= least)
    found = fp.from_table(dataset)
    expected = dataset.to_table()
    laws.assert_reads(found.source)
    laws.assert_value(found)
    laws.assert_resumable(found)
    assert collect(found).select(expected.schema.names).to_pylist() == expected.to_pylist()
    laws.assert_plans_agree(fp.pipe(found, fp.select_columns(wanted)))
    assert found.source.length() == (None if least is not None or kind != "parquet" else sum(counts))


def test_a_dataset_is_known_by_its_files_and_its_filter(folder: Path):
    whole = arrow_dataset.dataset(folder, partitioning="hive")
    some = whole.filter(arrow_dataset.field("year") == 2024)
    laws.assert_told_apart(fp.from_table(whole), fp.from_table(some))
    assert fp.inspect.fingerprint(fp.from_table(whole)) == fp.inspect.fingerprint(
        fp.from_table(arrow_dataset.dataset(folder, partitioning="hive"))
    )
    assert [row["x"] for row in fp.from_table(some)] == [2024, 2025, 2026, 2027, 2028]
    assert repr(fp.from_table(whole)) == "pipe(from_table(a pyarrow dataset of 2 files))"
    laws.assert_same_items(fp.from_table(whole), fp.read_parquet(folder))
    before = fp.from_table(whole).source.version()
    _, position = next(iter(fp.from_table(whole).source.read(0, None)))
    assert fp.from_table(whole).source.file_of(position).endswith("year=2023/a.parquet")
    (folder / "year=2023" / "a.parquet").write_bytes(b"other")
    assert fp.from_table(whole).source.version() != before
    with pytest.raises(CursorError, match="A file has changed since the cursor was made"):
        list(fp.from_table(whole).source.read(0, position))
    with pytest.raises(DataError, match="A file is not of the format of its dataset, or it is damaged"):
        list(fp.from_table(whole))


def test_views_of_text_in_a_dataset_become_text(tmp_path: Path):
    table = pa.table({"t": pa.array(["a", "bc"]).cast(pa.string_view())})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    found = fp.from_table(arrow_dataset.dataset(tmp_path, format="arrow"))
    assert found.source.schema() == pa.schema({"t": pa.large_string()})
    assert list(found) == [{"t": "a"}, {"t": "bc"}]


def test_tables_of_polars():
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(TABLE)
    laws.assert_same_items(fp.from_table(frame.lazy()), fp.from_table(frame))
    assert list(fp.from_table(frame["x"])) == [{"x": 1}, {"x": 2}, {"x": None}]
    assert list(fp.from_table({"y": frame["t"]})) == [{"y": "a"}, {"y": None}, {"y": "c"}]
    nested = polars.Series("s", [[1], [2, 3]])
    assert list(fp.from_table({"s": nested, "c": polars.Series(["a", "b"], dtype=polars.Categorical)})) == [
        {"s": [1], "c": "a"},
        {"s": [2, 3], "c": "b"},
    ]


def test_tables_of_duckdb():
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.execute("CREATE TABLE numbers AS SELECT range AS n FROM range(3)")
    assert list(fp.from_table(connection.sql("SELECT * FROM numbers ORDER BY n"))) == [{"n": 0}, {"n": 1}, {"n": 2}]
    with pytest.raises(ArgumentTypeError, match=r"A connection is not a table\. Pass the result of a query"):
        fp.from_table(connection)


def test_tables_of_daft():
    daft = pytest.importorskip("daft")
    assert list(fp.from_table(daft.from_pydict({"a": [1, 2]}))) == [{"a": 1}, {"a": 2}]


@pytest.mark.filterwarnings("ignore:.*is deprecated")  # Ray 2.60 says so of its own settings
def test_datasets_of_ray():
    data = pytest.importorskip("ray.data")
    assert sorted(row["id"] for row in fp.from_table(data.range(10))) == list(range(10))


def test_a_frame_that_does_not_become_a_table_of_arrow_says_which_column():
    mixed = pd.DataFrame({"x": [1, 2], "mixed": ["a", 1]})
    with pytest.raises(SchemaError, match=r"got a pandas.DataFrame, and .*column mixed with type object\. Give every column"):
        fp.from_table(mixed)
    with pytest.raises(SchemaError, match="Duplicate column names"):
        fp.from_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    sparse = pd.DataFrame({"s": pd.arrays.SparseArray([0, 1])})
    with pytest.raises(SchemaError, match=r"Sparse pandas data \(column s\) not supported"):
        fp.from_table(sparse)


def test_an_error_of_what_makes_the_rows_of_a_reader_is_its_own():
    def batches():
        yield from TABLE.to_batches()
        raise TypeError("no more")

    def fails(row):
        raise TypeError("no more")

    for rows in (
        pa.RecordBatchReader.from_batches(TABLE.schema, batches()),
        fp.pipe(fp.from_table(TABLE), fp.map(fails, schema=TABLE.schema)),
    ):
        with pytest.raises(pa.ArrowException, match="no more"):
            fp.from_table(rows)


def test_objects_of_polars_are_refused():
    polars = pytest.importorskip("polars", reason="its stream gives the addresses of objects as bytes")
    frame = polars.DataFrame({"x": [1], "o": polars.Series([object()], dtype=polars.Object)})
    for table in (frame, frame.lazy()):
        with pytest.raises(SchemaError, match=r"Python objects have no Arrow type, got objects in the columns \['o'\]"):
            fp.from_table(table)
    assert fp.from_table(frame.drop("o"))[0] == {"x": 1}


@pytest.mark.parametrize("array", [np.array([[True, False], [True, True]]), np.array([["a", "b"], ["c", ""]])])
def test_an_array_of_truth_values_or_texts_becomes_lists(array: np.ndarray):
    """Arrow tensors hold numbers only."""
    assert [row["a"] for row in fp.from_table({"a": array})] == array.tolist()
    with pytest.raises(SchemaError, match=r"Column 'a' cannot hold arrays of shape \(2, 1\) .* Cast the arrays, or convert them to lists"):
        fp.from_table({"a": array[..., None]})
