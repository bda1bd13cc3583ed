"""No reader and no stage changes a value in silence: declared types, inferred types, and values that pass through Python rows."""

import datetime as dt
import json
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from subprocess import run
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

import mlxfp as fp
from mlxfp.core.arrow.exact_casts import cast_exactly
from mlxfp.errors import DataError, SchemaError

NOON, DAY = dt.datetime(2024, 1, 1, 12), dt.date(2024, 1, 1)
UTC, BERLIN = dt.UTC, "Europe/Berlin"
US, NS = pa.timestamp("us"), pa.timestamp("ns")

CHANGED: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([NOON]), pa.date32()),
    (pa.array([NOON]), pa.date64()),
    (pa.array([NOON]), pa.time64("us")),
    (pa.array([dt.datetime(2024, 1, 1, 23, tzinfo=UTC)]), pa.date32()),
    (pa.array([NOON.replace(microsecond=5)]), pa.timestamp("s")),
    (pa.array([NOON]), pa.timestamp("us", BERLIN)),
    (pa.array([NOON], pa.timestamp("us", BERLIN)), US),
    (pa.array([DAY]), pa.timestamp("s", BERLIN)),
    (pa.array([dt.datetime(2500, 1, 1)]), NS),
    (pa.array([10**12], pa.timestamp("s")), pa.string()),
    (pa.array([7]), pa.bool_()),
    (pa.array([0.5]), pa.bool_()),
    (pa.array([1.5]), pa.int64()),
    (pa.array([1.5]), pa.decimal128(5, 0)),
    (pa.array([Decimal("1.25")]), pa.decimal128(5, 1)),
    (pa.array([Decimal("1.25")]), pa.int64()),
    (pa.array([2**53 + 1]), pa.float64()),
    (pa.array([-1], pa.int32()), pa.time32("s")),
    (pa.array([7]), pa.date64()),
    (pa.array([dt.time(1, 2, 3, 4)]), pa.time32("s")),
    (pa.array([dt.timedelta(microseconds=5)]), pa.duration("s")),
    (pa.array([300]), pa.int8()),
]
KEPT: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([dt.datetime(2024, 1, 1), None]), pa.date32()),
    (pa.array([dt.datetime(2023, 12, 31, 23)], pa.timestamp("us", BERLIN)), pa.date32()),
    (pa.array([NOON]), pa.timestamp("us", "UTC")),
    (pa.array([NOON]), pa.timestamp("s")),
    (pa.array([NOON], pa.timestamp("us", "UTC")), pa.timestamp("us", BERLIN)),
    (pa.array([DAY]), US),
    (pa.array([1, 0, None]), pa.bool_()),
    (pa.array([2.0]), pa.int64()),
    (pa.array([0.1, 1.5]), pa.decimal128(5, 1)),
    (pa.array(["a", None]), pa.dictionary(pa.int8(), pa.string())),
    (pa.array([7], pa.int32()), pa.time32("s")),
]


def nested_as(shape: str, column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, pa.DataType]:
    """Return a column and a declared type inside lists, structs, maps or dictionaries."""
    count = len(column)
    if shape == "lists":
        return pa.ListArray.from_arrays(pa.array([0, count]), column), pa.list_(kind)
    if shape == "structs":
        return pa.StructArray.from_arrays([column], ["y"]), pa.struct({"y": kind})
    if shape == "maps":
        keys = pa.array([str(index) for index in range(count)])
        return pa.MapArray.from_arrays(pa.array([0, count], pa.int32()), keys, column), pa.map_(pa.string(), kind)
    return (column.dictionary_encode() if shape == "dictionaries" else column), kind


@pytest.mark.parametrize("shape", ["plain", "lists", "structs", "maps", "dictionaries"])
@pytest.mark.parametrize(("column", "kind"), CHANGED)
def test_a_cast_that_changes_a_value_is_an_error(column: pa.Array, kind: pa.DataType, shape: str):
    given, wanted = nested_as(shape, column, kind)
    with pytest.raises((pa.ArrowInvalid, pa.ArrowNotImplementedError)):
        cast_exactly(given, wanted)


@pytest.mark.parametrize("shape", ["plain", "lists", "structs", "maps"])
@pytest.mark.parametrize(("column", "kind"), KEPT)
def test_a_cast_that_keeps_values_is_the_cast_of_arrow(column: pa.Array, kind: pa.DataType, shape: str):
    given, wanted = nested_as(shape, column, kind)
    try:
        expected = given.cast(wanted)
    except pa.ArrowNotImplementedError:
        return
    assert cast_exactly(given, wanted).equals(expected)


def in_parquet(folder: Path, column: pa.Array, kind: pa.DataType) -> Any:
    pq.write_table(pa.table({"x": column}), folder / "a.parquet")
    return fp.read_parquet(folder / "a.parquet", schema={"x": kind})


def in_a_dataset(folder: Path, column: pa.Array, kind: pa.DataType) -> Any:
    pq.write_table(pa.table({"x": column}), folder / "a.parquet")
    return fp.from_table(pyarrow.dataset.dataset(folder, schema=pa.schema({"x": kind})))


def in_examples(folder: Path, column: pa.Array, kind: pa.DataType) -> Any:
    return fp.from_examples(list(fp.from_table(pa.table({"x": column}))), schema=pa.schema({"x": kind}))


def in_map(folder: Path, column: pa.Array, kind: pa.DataType) -> Any:
    return fp.pipe(fp.from_table(pa.table({"x": column})), fp.map(lambda row: row, schema=pa.schema({"x": kind})))


@pytest.mark.parametrize("read", [in_parquet, in_a_dataset])
@pytest.mark.parametrize(("column", "kind"), CHANGED)
def test_no_reader_changes_a_value_to_fit_a_declared_type(tmp_path: Path, read: Callable[..., Any], column: pa.Array, kind: pa.DataType):
    with pytest.raises((DataError, SchemaError), match="'x'"):
        list(read(tmp_path, column, kind))


@pytest.mark.parametrize("read", [in_examples, in_map])
@pytest.mark.parametrize(("column", "kind"), CHANGED)
def test_no_python_value_changes_to_fit_a_declared_type(tmp_path: Path, read: Callable[..., Any], column: pa.Array, kind: pa.DataType):
    with pytest.raises((DataError, SchemaError), match="'x'"):
        list(read(tmp_path, column, kind))


def test_the_error_of_a_declared_date_names_column_value_file_and_a_type_that_works(tmp_path: Path):
    column = pa.array([dt.datetime(2024, 1, 1), NOON])
    message = (
        r"does not fit the column 'x' of date32\[day\]: the value 2024-01-01 12:00:00\.000000 does not fit the type date32\[day\], in "
        r".*a\.parquet\. Declare another type, such as schema=\{'x': pa\.timestamp\('us'\)\}, or"
    )
    with pytest.raises(DataError, match=message):
        list(in_parquet(tmp_path, column, pa.date32()))
    assert [row["x"] for row in in_parquet(tmp_path, column, US)] == column.to_pylist()


def test_a_field_that_a_declared_struct_lacks_is_an_error(tmp_path: Path):
    """Arrow drops the field without an error."""
    column = pa.array([{"a": 1, "b": 2}])
    for read in (in_parquet, in_a_dataset, in_examples):
        with pytest.raises((DataError, SchemaError), match="'b'"):
            list(read(tmp_path, column, pa.struct({"a": pa.int64()})))


LATER: list[tuple[Any, Any]] = [
    (1, 1.5),
    ([1], [1.5]),
    ({"a": 1}, {"a": 1, "b": 2}),
    ([{"a": 1}], [{"a": 1, "b": 2}]),
    (DAY, NOON),
    ([DAY], [NOON]),
    (NOON, NOON.replace(tzinfo=UTC)),
    (NOON.replace(tzinfo=UTC), NOON),
    (dt.time(1), dt.time(1, tzinfo=UTC)),
    (np.array([1]), np.array([1.5])),
]


@pytest.mark.parametrize(("first", "later"), LATER)
def test_a_later_value_of_another_type_is_an_error_and_never_changes(first: Any, later: Any):
    """Types are inferred from the first 128 rows."""
    values = [first] * 200 + [later]
    made = fp.pipe(fp.from_examples([{"i": index} for index in range(201)]), fp.map(lambda row: {"x": values[row["i"]]}))
    for dataset in (made, fp.from_iterable([{"x": value} for value in values])):
        with pytest.raises(SchemaError, match="Column 'x' of row 200: "):
            list(dataset)


@pytest.mark.parametrize(("one", "other"), [(DAY, NOON), (NOON, NOON.replace(tzinfo=UTC)), (NOON.replace(tzinfo=UTC), NOON)])
def test_columns_with_dates_and_times_or_with_and_without_zones_are_refused(one: Any, other: Any):
    makers: list[Callable[[list[Any]], Any]] = [
        lambda values: fp.from_examples([{"x": value} for value in values]),
        lambda values: fp.from_table({"x": values}),
        lambda values: fp.from_table({"x": np.array(values, object)}),
        lambda values: fp.from_table({"x": pd.Series(values, dtype=object)}),
        lambda values: fp.from_table(pd.DataFrame({"x": pd.Series(values, dtype=object)})),
    ]
    for make in makers:
        with pytest.raises(SchemaError, match="'x'"):
            make([one, other])


def test_objects_of_pandas_with_missing_values_stay_values():
    table = pd.DataFrame({"x": pd.Series([1, None, 2], dtype=object), "y": pd.Series(["a", pd.NA, np.nan], dtype=object)})
    assert list(fp.from_table(table)) == [{"x": 1, "y": "a"}, {"x": None, "y": None}, {"x": 2, "y": None}]


EXACT = [
    pa.array([1_704_112_200_000_000_007, -5, None], NS),
    pa.array([1_704_112_200_000_000_007], pa.timestamp("ns", BERLIN)),
    pa.array([10**9 + 7, -1], pa.duration("ns")),
    pa.array([[7], None, []], pa.list_(NS)),
    pa.array([{"a": 7}], pa.struct({"a": pa.duration("ns")})),
    pa.array([1_729_989_000, 1_729_992_600], pa.timestamp("s", BERLIN)),  # the hour that a clock shows twice
    pa.array([2**53 + 1, -(2**63)], pa.int64()),
    pa.array([Decimal("0.1"), Decimal("12345678901234567890.25")]),
    pa.array([np.float16(0.1), np.float16(65504)], pa.float16()),
    pa.array([b"", b"\x00\xff" * 9], pa.large_binary()),
    pa.array([{"a": [{"b": dt.time(1, 2, 3, 4)}]}]),
    pa.array([dt.date.min, dt.date.max]),
    pa.array([dt.datetime.min, dt.datetime.max]),
    pa.array([dt.timedelta(days=-9)], pa.duration("s")),
]


@pytest.mark.parametrize("column", EXACT)
def test_values_that_pass_through_python_rows_stay_equal(column: pa.Array):
    table = fp.from_table(pa.table({"x": column}))
    changed = [fp.pipe(table, fp.map(lambda row: row)), fp.pipe(table, fp.flat_map(lambda row: [row])), fp.from_examples(list(table))]
    for dataset in changed:
        result = pa.concat_arrays([chunk.column("x") for chunk in fp.parts.read_all(dataset)])
        assert cast_exactly(result, column.type).equals(column)


UNREADABLE = [
    (pa.array([3_600_000_000_007], pa.time64("ns")), pa.array([dt.time(1)])),
    (pa.array([[3_600_000_000_007]], pa.list_(pa.time64("ns"))), pa.array([[dt.time(1)]])),
    (pa.array([{"a": 3_600_000_000_007}], pa.struct({"a": pa.time64("ns")})), pa.array([{"a": dt.time(1)}])),
    (pa.array([10**12], pa.timestamp("s")), pa.array([10**12])),
    (pa.array([10**7], pa.date32()), pa.array([10**7], pa.int32())),
    (pa.array([10**17], pa.duration("s")), pa.array([10**17])),
    (pa.array([5], pa.timestamp("us", "Mars/Base")), pa.array([5], pa.timestamp("us", "UTC"))),
]


@pytest.mark.parametrize(("column", "expected"), UNREADABLE)
def test_a_value_that_python_cannot_hold_is_an_error_with_a_call_that_works(column: pa.Array, expected: pa.Array):
    dataset = fp.from_table(pa.table({"y": [0, 1], "x": pa.concat_arrays([pa.nulls(1, column.type), column])}))
    for stages in ((), (fp.map(lambda row: row),), (fp.filter(lambda row: True),), (fp.flat_map(lambda row: [row]),)):
        with pytest.raises(DataError, match=r"got .*, in the column 'x' of row 1\. Convert the column before this stage: ") as caught:
            list(fp.pipe(dataset, *stages))
    remedy = eval(str(caught.value).partition("before this stage: ")[2].rstrip("."), {"fp": fp, "pa": pa})
    assert list(fp.pipe(dataset, remedy))[1]["x"] == expected[0].as_py()


WITHOUT_PANDAS = """
import sys


class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name == "pandas":
            raise ModuleNotFoundError(name)


sys.meta_path.insert(0, NoPandas())
import pyarrow as pa
import mlxfp as fp
kind = {kind}
dataset = fp.from_table(pa.table({{"x": pa.array([5000, 5007], kind)}}))
print([str(row["x"]) for row in fp.take(1)(dataset)])
try:
    list(fp.pipe(dataset, fp.map(lambda row: row)))
except fp.errors.DataError as error:
    print(str(error).partition(" Convert ")[0])
    remedy = eval(str(error).partition("before this stage: ")[2].rstrip("."))
    print([str(row["x"]) for row in fp.pipe(dataset, remedy, fp.map(lambda row: row))])
"""


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        ('pa.timestamp("ns")', ("1970-01-01 00:00:00.000005", "1970-01-01 00:00:00.000005007")),
        ('pa.duration("ns")', ("0:00:00.000005", "5007")),
        ('pa.time64("ns")', ("00:00:00.000005", "00:00:00.000005007")),
    ],
)
def test_nanoseconds_without_pandas_are_an_error_with_a_call_that_works(kind: str, texts: tuple[str, str]):
    """Arrow needs pandas for Python values with nanoseconds."""
    done = run([sys.executable, "-c", WITHOUT_PANDAS.format(kind=kind)], capture_output=True, text=True, check=True)
    first, error, converted = done.stdout.splitlines()
    assert first == f"['{texts[0]}']"
    assert error.startswith("Python has no ")
    assert f"got {texts[1]}, in the column 'x' of row 1." in error
    assert converted == f"['{texts[0]}', '{texts[0]}']"


def test_large_unsigned_integers_need_a_declared_type_and_the_error_says_so():
    dataset = fp.from_table(pa.table({"x": pa.array([1, 2**63 + 5], pa.uint64())}))
    with pytest.raises(
        SchemaError, match=r"Column 'x' of row 1: 9223372036854775813 .*Declare the column as pa\.uint64\(\) with schema=\."
    ):
        list(fp.pipe(dataset, fp.map(lambda row: row)))
    declared = fp.map(lambda row: row, schema=pa.schema({"x": pa.uint64()}))
    assert [row["x"] for row in fp.pipe(dataset, declared)] == [1, 2**63 + 5]


ZONED, NAIVE = ["2024-01-01T12:30:00Z", "2024-01-01 12:30:00+02:00", "2024-01-01T12:30-0500"], ["2024-01-01T12:30:00", "2024-01-01"]


def in_csv(folder: Path, text: str, kind: pa.DataType) -> Any:
    (folder / "a.csv").write_text(f"y,x\n1,{text}\n")
    return fp.read_csv(folder / "a.csv", schema={"x": kind})


def in_jsonl(folder: Path, text: str, kind: pa.DataType) -> Any:
    (folder / "a.jsonl").write_text(json.dumps({"y": 1, "x": text}))
    return fp.read_jsonl(folder / "a.jsonl", schema={"x": kind})


def in_nested_jsonl(folder: Path, text: str, kind: pa.DataType) -> Any:
    (folder / "a.jsonl").write_text(json.dumps({"y": 1, "x": [{"z": None}, {"z": text}]}))
    return fp.read_jsonl(folder / "a.jsonl", schema={"x": pa.list_(pa.struct({"z": kind}))})


@pytest.mark.parametrize("read", [in_csv, in_jsonl, in_nested_jsonl])
@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_times_with_a_zone_need_a_type_with_a_zone_in_csv_and_json(tmp_path: Path, read: Callable[..., Any], unit: str):
    for texts, kind, other in ((ZONED, pa.timestamp(unit), pa.timestamp(unit, BERLIN)), (NAIVE, pa.timestamp(unit, "UTC"), US)):
        for text in texts:
            with pytest.raises(DataError, match=r"A value does not fit the column 'x' of .*, in line \d of .*a\.(csv|jsonl)\. Declare"):
                list(read(tmp_path, text, kind))
            assert len(list(read(tmp_path, text, other))) == 1


@pytest.mark.parametrize("read", [in_csv, in_jsonl])
def test_the_error_of_a_time_with_a_zone_declares_a_type_that_works(tmp_path: Path, read: Callable[..., Any]):
    with pytest.raises(DataError, match=r"schema=\{'x': pa\.string\(\)\}"):
        list(read(tmp_path, ZONED[1], US))
    assert [row["x"] for row in read(tmp_path, ZONED[1], pa.string())] == [ZONED[1]]
    assert [row["x"] for row in read(tmp_path, ZONED[1], pa.timestamp("us", "UTC"))] == [dt.datetime(2024, 1, 1, 10, 30, tzinfo=UTC)]


def test_numbers_outside_a_day_are_no_times_of_day_in_json(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"x": 86399}\n{"x": 86400}\n')
    with pytest.raises(DataError, match=r"'x' of time32\[s\]: got 86400, in line 2 of"):
        list(fp.read_jsonl(tmp_path / "a.jsonl", schema={"x": pa.time32("s")}))
