import datetime as dt
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import mlxfp as fp
from mlxfp.errors import DataError

US, NS = pa.timestamp("us"), pa.timestamp("ns")
YEARS = [dt.datetime(year, 1, 2, 5, 0, 0, 7) for year in (1, 1500, 1676, 1969, 2024, 2263, 2300, 9999)]


def int96(path: Path, column: pa.Array) -> Path:
    """Write one column as Spark and Hive do."""
    pq.write_table(pa.table({"x": column, "y": pa.nulls(len(column), pa.int8())}), path, use_deprecated_int96_timestamps=True)
    return path


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_timestamps_of_any_year_are_read_exactly(tmp_path: Path, size: int):
    """Arrow reads nanoseconds, which wrap around outside the years 1677 to 2262."""
    values = [*YEARS, None] * (size // 2 + 1)
    path = int96(tmp_path / "a.parquet", pa.array(values, US))
    assert [row["x"] for row in fp.read_parquet(path)] == values
    nested = int96(tmp_path / "b.parquet", pa.array([[value] for value in values], pa.list_(US)))
    assert [row["x"] for row in fp.read_parquet(nested)] == [[value] for value in values]
    assert [row["y"] for row in fp.read_parquet(path, columns=["y"])] == [None] * len(values)


def test_nanoseconds_need_a_declared_type_and_then_stay(tmp_path: Path):
    column = pa.array([-5, 5_000, None, 1_704_067_200_000_000_007], NS)
    path = int96(tmp_path / "a.parquet", column)
    message = (
        r"INT96 does not fit timestamp\[us\]: got 1969-12-31 23:59:59\.999999995 in the column 'x' of .*a\.parquet\. Declare the type with "
        r"schema=\{'x': pa\.timestamp\('ns'\)\}"
    )
    with pytest.raises(DataError, match=message):
        list(fp.read_parquet(path))
    [chunk] = fp.parts.read_all(fp.read_parquet(path, schema={"x": NS}))
    assert chunk.column("x").equals(column)


@pytest.mark.parametrize("year", [1500, 2300])
def test_years_that_nanoseconds_lack_are_refused_for_a_declared_type(tmp_path: Path, year: int):
    path = int96(tmp_path / "a.parquet", pa.array([dt.datetime(year, 1, 1)], US))
    with pytest.raises(DataError, match=r"INT96 does not fit timestamp\[ns\]: .*schema=\{'x': pa\.timestamp\('us'\)\}"):
        list(fp.read_parquet(path, schema={"x": NS}))
    with pytest.raises(DataError, match=r"INT96 does not fit nanoseconds: .* the column 'x' of .*a\.parquet\. Read .* fp\.read_parquet"):
        list(fp.from_table(pyarrow.dataset.dataset(path)))


def test_a_dataset_of_pyarrow_with_other_years_is_read(tmp_path: Path):
    path = int96(tmp_path / "a.parquet", pa.array([dt.datetime(2024, 1, 1)], US))
    assert [row["x"] for row in fp.from_table(pyarrow.dataset.dataset(path))] == [dt.datetime(2024, 1, 1)]


DAY_OF_1970 = 2_440_588


@pytest.mark.parametrize("day", [DAY_OF_1970 + 106_751_992, DAY_OF_1970 + 213_503_982, (1 << 32) - 1])
def test_years_that_microseconds_lack_are_refused(tmp_path: Path, day: int):
    """Arrow wraps such times around: the second day is read as 1969-12-31 15:58:10."""
    column = pa.array([1000], NS)
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": column}), path, use_deprecated_int96_timestamps=True, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(struct.pack("<qI", 1000, DAY_OF_1970), struct.pack("<qI", 0, day)))
    for schema in (None, {"x": NS}):
        with pytest.raises(
            DataError, match=r"does not fit timestamp\[us\]: got a year after 294247 in the column 'x' of .*a\.parquet\. Read "
        ):
            list(fp.read_parquet(path, schema=schema))
    with pytest.raises(DataError, match=r"does not fit nanoseconds: got a year before 1677 or after 2262"):
        list(fp.from_table(pyarrow.dataset.dataset(path)))
