"""Joining types: values of both are kept as they are, or there is no joined type, or converting a value is an error."""

from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.sources.columns import joined_type
from mlxfp.support.errors import DataError, SchemaError, UnknownNameError
from mlxfp.testing.laws import assert_reads, assert_resumable, assert_told_apart, assert_value

TEXTS = st.text("ab", max_size=2)
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint16(), st.integers(0, 2**16 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), st.floats(width=32, allow_nan=False)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.decimal128(7, 3), st.integers(-(10**7) + 1, 10**7 - 1).map(lambda n: Decimal(n).scaleb(-3))),
    (pa.decimal128(38, 10), st.integers(0, 10**38 - 1).map(lambda n: Decimal((0, tuple(map(int, str(n))), -10)))),
    (pa.string(), TEXTS),
    (pa.large_string(), TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), TEXTS),
    (pa.binary(), TEXTS.map(str.encode)),
    (pa.binary(2), st.sampled_from([b"ab", b"ba"])),
    (pa.date32(), st.dates()),
    (pa.timestamp("s"), st.integers(0, 10**12)),
    (pa.timestamp("ns"), st.integers(0, 10**12)),
]


def _nested(inner: st.SearchStrategy[tuple[pa.DataType, Any]]) -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    lists = inner.map(lambda pair: (pa.list_(pair[0]), st.lists(pair[1], max_size=2)))
    large = inner.map(lambda pair: (pa.large_list(pair[0]), st.lists(pair[1], max_size=2)))
    fixed = inner.map(lambda pair: (pa.list_(pair[0], 2), st.lists(pair[1], min_size=2, max_size=2)))
    structs = st.dictionaries(st.sampled_from("xyz"), inner, max_size=2).map(
        lambda fields: (
            pa.struct({name: kind for name, (kind, _) in fields.items()}),
            st.fixed_dictionaries({name: values for name, (_, values) in fields.items()}),
        )
    )
    return lists | large | fixed | structs


COLUMNS = st.recursive(st.sampled_from(LEAVES), _nested, max_leaves=3)


def same(before: Any, after: Any) -> bool:
    """Whether a value is the same in a wider type: an object may have more keys, all null."""
    if isinstance(before, dict):
        return all(same(before.get(key), value) for key, value in after.items())
    if isinstance(before, list):
        return len(before) == len(after) and all(map(same, before, after))
    return bool(before == after)


@given(COLUMNS, COLUMNS, st.data())
def test_a_joined_type_holds_the_values_of_both_or_conversion_is_an_error(
    one: tuple[pa.DataType, Any], other: tuple[pa.DataType, Any], data: st.DataObject
):
    both = joined_type(one[0], other[0])
    swapped = joined_type(other[0], one[0])
    assert (both is None) == (swapped is None)
    if both is None:
        assert one[0] != other[0]
        return
    assert joined_type(both, one[0]) == both
    for kind, values in (one, other):
        column = pa.array(data.draw(st.lists(values | st.none(), max_size=3)), kind)
        if kind == both:  # nothing is cast; Arrow damages lists of lists of nulls when it casts them to their own type
            continue
        with suppress(pa.ArrowInvalid):
            assert all(map(same, column.to_pylist(), column.cast(both).to_pylist()))
        assert not len(column) or column.null_count < len(column) or column.cast(both).null_count == len(column)


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int64(), pa.float32(), pa.float64()),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.decimal128(7, 5), pa.decimal128(8, 5), pa.decimal128(8, 5)),
        (pa.decimal128(7, 5), pa.float64(), None),
        (pa.decimal256(76, 0), pa.decimal256(76, 70), None),
        (pa.timestamp("ns"), pa.timestamp("us"), pa.timestamp("ns")),
        (pa.timestamp("ns"), pa.timestamp("ns", "UTC"), None),
        (pa.string(), pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.string(), pa.large_string(), pa.large_string()),
        (pa.string(), pa.int64(), None),
        (pa.string(), pa.binary(), None),
        (pa.bool_(), pa.int8(), None),
        (pa.null(), pa.struct({"a": pa.int8()}), pa.struct({"a": pa.int8()})),
        (pa.list_(pa.null()), pa.list_(pa.struct({"a": pa.int8()})), pa.list_(pa.struct({"a": pa.int8()}))),
        (pa.list_(pa.int8(), 2), pa.list_(pa.int16(), 2), pa.list_(pa.int16(), 2)),
        (pa.list_(pa.int8()), pa.list_(pa.string()), None),
        (pa.struct({"a": pa.int8()}), pa.struct({"a": pa.string()}), None),
        (pa.json_(), pa.int8(), pa.json_()),
    ],
)
def test_what_types_join_to(one: pa.DataType, other: pa.DataType, both: pa.DataType | None):
    assert joined_type(one, other) == both
    assert joined_type(other, one) == both


def columns_in(folder: Path, *columns: pa.Array) -> Path:
    for number, column in enumerate(columns):
        pq.write_table(pa.table({"n": column}), folder / f"{number}.parquet")
    return folder


PAIRS = [
    (pa.array([1], pa.int32()), pa.array([2**40]), pa.int64()),
    (pa.array([1.5]), pa.array([2]), pa.float64()),
    (pa.array([Decimal("1.5")], pa.decimal128(7, 5)), pa.array([Decimal("100.5")], pa.decimal128(8, 5)), pa.decimal128(8, 5)),
    (pa.array(["a"]), pa.array(["b"]).dictionary_encode(), pa.string()),
    (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.large_string()),
    (pa.nulls(1), pa.array([[{"y": 1}]]), pa.list_(pa.struct({"y": pa.int64()}))),
    (pa.array([0], pa.timestamp("us")), pa.array([1000], pa.timestamp("ns")), pa.timestamp("ns")),
]


@pytest.mark.parametrize(("one", "other", "both"), PAIRS)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_scan_reads_parquet_files_of_several_types(tmp_path: Path, one: pa.Array, other: pa.Array, both: pa.DataType, swapped: bool):
    parts = [other, one] if swapped else [one, other]
    dataset = fp.read_parquet(columns_in(tmp_path, *parts), schema="scan")
    assert fp.schema(dataset).field("n").type == both
    assert [row["n"] for row in dataset] == [part.cast(both)[0].as_py() for part in parts]
    assert_reads(dataset.source)
    assert_resumable(dataset)
    assert_value(dataset)
    assert_told_apart(dataset, fp.read_parquet(tmp_path))
    assert list(fp.read_parquet(tmp_path, schema={"n": both})) == list(dataset)


def test_the_types_of_the_first_file_hold_those_of_later_ones(tmp_path: Path):
    assert [row["n"] for row in fp.read_parquet(columns_in(tmp_path, pa.array([2**40]), pa.array([2], pa.int32())))] == [2**40, 2]
    with pytest.raises(
        SchemaError,
        match=r"column 'n' is int64 in .*1\.parquet and int32 in .*0\.parquet\. Give schema=\{'n': pa\.int64\(\)\}, or schema=\"scan\"",
    ):
        list(fp.read_parquet(columns_in(tmp_path, pa.array([2], pa.int32()), pa.array([2**40]))))


@pytest.mark.parametrize("scan", [None, "scan"])
def test_types_that_cannot_be_joined_are_named_with_both_files(tmp_path: Path, scan: Any):
    dataset = fp.read_parquet(columns_in(tmp_path, pa.array([1]), pa.array(["x"])), schema=scan)
    with pytest.raises(SchemaError, match=r"'n' is string in .*1\.parquet and int64 in .*0\.parquet\. Declare a type .* pa\.string\(\)\}"):
        list(dataset)
    assert [row["n"] for row in fp.read_parquet(tmp_path, schema={"n": pa.string()})] == ["1", "x"]


def test_a_value_that_a_joined_type_cannot_hold_is_an_error(tmp_path: Path):
    with pytest.raises(
        DataError, match=r"does not fit the column 'n' of double: Integer value 9007199254740993 not in range.*, in .*1\.parquet"
    ):
        list(fp.read_parquet(columns_in(tmp_path, pa.array([1.5]), pa.array([2**53 + 1])), schema="scan"))
    with pytest.raises(SchemaError, match=r"Column 'n' of double cannot be read as list<item: int64>: .*, in .*0\.parquet"):
        list(fp.read_parquet(tmp_path, schema={"n": pa.list_(pa.int64())}))


def test_columns_that_some_files_lack_are_null_where_they_are_scanned_or_declared(tmp_path: Path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"b": ["x"], "a": [2]}), tmp_path / "1.parquet")
    expected = [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    assert list(fp.read_parquet(tmp_path, schema="scan")) == expected
    assert list(fp.read_parquet(tmp_path, schema={"b": pa.string()})) == expected
    assert list(fp.read_parquet(tmp_path, columns=["b"], schema="scan")) == [{"b": None}, {"b": "x"}]
    assert list(fp.pipe(fp.read_parquet(tmp_path, schema="scan"), fp.filter_by([("b", "==", "x")]))) == expected[1:]
    with pytest.raises(SchemaError, match="lacks nothing and adds 'b'"):
        list(fp.read_parquet(tmp_path))
    with pytest.raises(UnknownNameError, match=r"No column of .*0\.parquet is named 'bb'"):
        fp.schema(fp.read_parquet(tmp_path, schema={"bb": pa.string()}))


def test_conditions_are_not_compared_with_statistics_of_another_type(tmp_path: Path):
    columns_in(tmp_path, pa.array([Decimal("1.5")], pa.decimal128(7, 5)), pa.array([Decimal("2.5")], pa.decimal128(7, 5)))
    assert [row["n"] for row in fp.pipe(fp.read_parquet(tmp_path, schema={"n": pa.float64()}), fp.filter_by([("n", ">", 2.0)]))] == [2.5]


def test_arrow_files_take_the_types_of_the_first(tmp_path: Path):
    for number, kind in enumerate((pa.int64(), pa.int32())):
        with pa.ipc.new_file(tmp_path / f"{number}.arrow", pa.schema({"n": kind})) as writer:
            writer.write(pa.record_batch({"n": pa.array([number], kind)}))
    assert list(fp.read_arrow(tmp_path)) == [{"n": 0}, {"n": 1}]
    assert fp.read_arrow(tmp_path)[1] == {"n": 1}
