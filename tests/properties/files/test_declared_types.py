"""Declared types lose no value, in all readers and stages: no infinity, no rounded integer. Decimals are rounded."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import mlxfp as fp
from mlxfp.errors import DataError, SchemaError

SINGLE, DOUBLE = pa.float32(), pa.float64()
TOO_LARGE = [(1e39, SINGLE), (-1e39, SINGLE), (2**24 + 1, SINGLE), (2**24 + 2, SINGLE), (2**53 + 1, DOUBLE), (-(2**53) - 1, DOUBLE)]
FITTING = [(0.1, SINGLE), (2**24, SINGLE), (16777217.5, SINGLE), (2**53, DOUBLE), (1e308, DOUBLE)]


def in_csv(folder: Path, value: Any, kind: pa.DataType) -> Any:
    (folder / "a.csv").write_text(f"x\n0.5\n{value!r}\n")
    return fp.read_csv(folder / "a.csv", schema={"x": kind})


def in_jsonl(folder: Path, value: Any, kind: pa.DataType) -> Any:
    (folder / "a.jsonl").write_text(f'{{"x": 0.5}}\n{json.dumps({"x": value})}\n')
    return fp.read_jsonl(folder / "a.jsonl", schema={"x": kind})


def in_lists_of_jsonl(folder: Path, value: Any, kind: pa.DataType) -> Any:
    (folder / "a.jsonl").write_text(f'{{"x": [{{"y": 0.5}}]}}\n{json.dumps({"x": [{"y": value}]})}\n')
    return fp.read_jsonl(folder / "a.jsonl", schema={"x": pa.list_(pa.struct({"y": kind}))})


def in_parquet(folder: Path, value: Any, kind: pa.DataType) -> Any:
    pa.parquet.write_table(pa.table({"x": [value]}), folder / "a.parquet")
    return fp.read_parquet(folder / "a.parquet", schema={"x": kind})


def in_the_second_arrow_file(folder: Path, value: Any, kind: pa.DataType) -> Any:
    for name, column in (("a", pa.array([0.5], kind)), ("b", pa.array([value]))):
        with pa.ipc.new_file(folder / f"{name}.arrow", pa.schema({"x": column.type})) as writer:
            writer.write(pa.record_batch({"x": column}))
    return fp.read_arrow(folder)


def in_a_dataset_of_pyarrow(folder: Path, value: Any, kind: pa.DataType) -> Any:
    pa.parquet.write_table(pa.table({"x": [value]}), folder / "a.parquet")
    return fp.from_table(pa.dataset.dataset(folder, schema=pa.schema({"x": kind})))


def in_a_folder_name(folder: Path, value: Any, kind: pa.DataType) -> Any:
    (folder / f"x={value!r}").mkdir()
    (folder / f"x={value!r}" / "a.csv").write_text("y\n1\n")
    return fp.read_csv(folder, schema={"x": kind})


def in_examples(folder: Path, value: Any, kind: pa.DataType) -> Any:
    return fp.from_examples([{"x": 0.5}, {"x": value}], schema=pa.schema({"x": kind}))


def in_numpy_scalars(folder: Path, value: Any, kind: pa.DataType) -> Any:
    return fp.from_examples([{"x": np.array(value)[()]}], schema=pa.schema({"x": kind}))


def in_numpy_lists(folder: Path, value: Any, kind: pa.DataType) -> Any:
    return fp.from_iterable(lambda: [{"x": np.array([value])}], schema=pa.schema({"x": pa.list_(kind)}))


def in_tensors(folder: Path, value: Any, kind: pa.DataType) -> Any:
    return fp.from_examples([{"x": np.array([[value]])}], schema=pa.schema({"x": pa.fixed_shape_tensor(kind, (1, 1))}))


def in_an_iterable(folder: Path, value: Any, kind: pa.DataType) -> Any:
    return fp.from_iterable(lambda: [{"x": value}], schema=pa.schema({"x": kind}))


def in_map(folder: Path, value: Any, kind: pa.DataType) -> Any:
    return fp.pipe(fp.from_examples([{"y": 1}]), fp.map(lambda row: {"x": value}, schema=pa.schema({"x": kind})))


def in_flat_map(folder: Path, value: Any, kind: pa.DataType) -> Any:
    return fp.pipe(fp.from_examples([{"y": 1}]), fp.flat_map(lambda row: [{"x": value}], schema=pa.schema({"x": kind})))


LOCATIONS: list[Callable[[Path, Any, pa.DataType], Any]] = [
    in_csv,
    in_jsonl,
    in_lists_of_jsonl,
    in_parquet,
    in_the_second_arrow_file,
    in_a_dataset_of_pyarrow,
    in_a_folder_name,
    in_examples,
    in_numpy_scalars,
    in_numpy_lists,
    in_tensors,
    in_an_iterable,
    in_map,
    in_flat_map,
]


@pytest.mark.parametrize(("value", "kind"), TOO_LARGE)
@pytest.mark.parametrize("read", LOCATIONS)
def test_case_a11_a_number_that_the_declared_type_loses_is_an_error(tmp_path: Path, read: Any, value: Any, kind: pa.DataType):
    with pytest.raises((DataError, SchemaError)):
        list(read(tmp_path, value, kind))


@pytest.mark.parametrize(("value", "kind"), FITTING)
@pytest.mark.parametrize("read", [read for read in LOCATIONS if read not in (in_the_second_arrow_file, in_tensors)])
def test_decimals_are_rounded_to_the_declared_type(tmp_path: Path, read: Any, value: Any, kind: pa.DataType):
    row = list(read(tmp_path, value, kind))[-1]["x"]
    while isinstance(row, list | dict):
        row = row[0] if isinstance(row, list) else row["y"]
    assert row == pa.scalar(float(value), kind).as_py()


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "Infinity"])
def test_infinities_that_a_file_holds_stay(tmp_path: Path, text: str):
    (tmp_path / "a.csv").write_text(f"x\n0.5\n{text}\n")
    rows = list(fp.read_csv(tmp_path / "a.csv", schema={"x": SINGLE}, null_values=()))
    assert str(rows[1]["x"]) == str(float(text))


def test_an_inferred_column_with_a_number_beyond_float64_stays_text(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x\n0.5\n1e400\n")
    assert [row["x"] for row in fp.read_csv(tmp_path / "a.csv")] == ["0.5", "1e400"]


def test_the_error_names_the_line_and_a_wider_type(tmp_path: Path):
    with pytest.raises(DataError, match=r"column 'x' of float: got '1e\+39', in line 3 of .*a\.csv\. .*schema=\{'x': pa\.float64\(\)\}"):
        list(in_csv(tmp_path, 1e39, SINGLE))
    with pytest.raises(DataError, match=r"column 'x' of float: got 16777217, in line 2 of .*a\.jsonl\. .*schema=\{'x': pa\.float64\(\)\}"):
        list(in_jsonl(tmp_path, 2**24 + 1, SINGLE))
    with pytest.raises(DataError, match=r"column 'x' of float: the number 1e\+39 does not fit the type float, in .*a\.parquet"):
        list(in_parquet(tmp_path, 1e39, SINGLE))


def test_a_row_with_a_lost_number_is_skipped_alone(tmp_path: Path):
    (tmp_path / "a.csv").write_text("x\n0.5\n1e39\n0.25\n16777217\n")
    rows = fp.pipe(fp.read_csv(tmp_path / "a.csv", schema={"x": SINGLE}), fp.on_error("skip", max_rate=1.0))
    assert [row["x"] for row in rows] == [0.5, 0.25]
