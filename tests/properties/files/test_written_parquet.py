"""Each file that `write` makes can be read: a Parquet file that Arrow could not read back is refused before rows are lost."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.errors import ArgumentError

PAIR = pa.list_(pa.int32(), 2)
UNREADABLE = [
    pa.array([[1, 2], None, [3, 4]], PAIR),
    pa.array([None, None], PAIR),
    pa.array([[[1, 2], None], []], pa.list_(PAIR)),
    pa.array([[[1, 2], None]], pa.large_list(PAIR)),
    pa.array([{"a": [1, 2]}, {"a": None}], pa.struct({"a": PAIR})),
    pa.array([{"a": [1, 2]}, None], pa.struct({"a": PAIR})),
    pa.array([[[1, 2], [3, 4]], None], pa.list_(PAIR, 2)),
    pa.array([[("a", [1, 2]), ("b", None)]], pa.map_(pa.string(), PAIR)),
    pa.array([[], []], pa.list_(pa.int32(), 0)),
]
READABLE = [
    pa.array([[1, 2], [3, None]], PAIR),
    pa.array([], PAIR),
    pa.array([[[1, 2]], [], None], pa.list_(PAIR)),
    pa.array([{"a": [1, 2]}], pa.struct({"a": PAIR})),
]


def rows_of(column: pa.Array) -> fp.Dataset[Any]:
    return fp.from_table(pa.table({"y": range(len(column)), "x": column}))


@pytest.mark.parametrize("column", UNREADABLE)
def test_a_null_among_lists_of_fixed_length_is_refused_with_a_call_that_works(tmp_path: Path, column: pa.Array):
    dataset = rows_of(column)
    with pytest.raises(
        ArgumentError, match=r"in the column 'x' of .*, in row \d of the file\. Write the data with format='arrow', or"
    ) as error:
        fp.write(dataset, tmp_path / "refused", format="parquet")
    remedy = eval(str(error.value).partition("convert the column: ")[2].rstrip("."), {"fp": fp, "pa": pa})
    fp.write(fp.pipe(dataset, remedy), tmp_path / "lists", format="parquet")
    fp.write(dataset, tmp_path / "arrow", format="arrow")
    assert list(fp.read_parquet(tmp_path / "lists")) == list(fp.read_arrow(tmp_path / "arrow")) == list(dataset)


@pytest.mark.parametrize("column", READABLE)
def test_other_lists_of_fixed_length_are_written_and_read(tmp_path: Path, column: pa.Array):
    dataset = rows_of(column)
    fp.write(dataset, tmp_path / "out", format="parquet")
    assert list(fp.read_parquet(tmp_path / "out")) == list(dataset)


def test_a_time_that_parquet_cannot_hold_is_named(tmp_path: Path):
    dataset = rows_of(pa.array([10**17], pa.timestamp("s")))
    with pytest.raises(
        ArgumentError, match=r"Parquet cannot hold a value: .* from row 0 of the file on\. Write the data with format='arrow'"
    ):
        fp.write(dataset, tmp_path / "out", format="parquet")


def test_a_missing_value_among_categories_is_named(tmp_path: Path):
    categories = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    with pytest.raises(ArgumentError, match=r"Parquet cannot hold a value: .* null .* Write the data with format='arrow'"):
        fp.write(rows_of(categories), tmp_path / "out", format="parquet")
