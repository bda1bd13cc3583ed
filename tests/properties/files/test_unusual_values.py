"""Repeated names, halves of surrogate pairs, JSON arrays and values that are no rows raise errors of mlxfp that name the problem."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
import pytest

import mlxfp as fp
from mlxfp.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError

DOUBLED = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
NESTED = pa.ListArray.from_arrays([0, 1], DOUBLED)
TWICE = pa.schema([("a", pa.int64()), ("a", pa.int64())])
ROWS = fp.from_examples([{"x": 1}])


@pytest.mark.parametrize("column", [DOUBLED, NESTED])
def test_case_e17_a_struct_with_two_fields_of_one_name_is_named(tmp_path: Path, column: pa.Array):
    table = pa.table({"s": column})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write(table)
    declared = pa.schema({"s": column.type})
    for read in (
        lambda: fp.from_table(table),
        lambda: fp.read_parquet(tmp_path / "a.parquet"),
        lambda: fp.read_arrow(tmp_path / "a.arrow"),
        lambda: fp.from_table(pa.dataset.dataset(tmp_path / "a.parquet")),
        lambda: fp.read_jsonl("a.jsonl", schema={"s": column.type}),
        lambda: fp.from_examples([{"s": None}], schema=declared),
        lambda: fp.pipe(ROWS, fp.map(dict, schema=declared)),
        lambda: fp.pipe(ROWS, fp.map_chunks(lambda chunk: pa.record_batch({"s": column}))),
    ):
        with pytest.raises(
            SchemaError, match=r"Several fields have the same name: got 'a' more than once, in the column 's' of .*\. Rename the fields"
        ):
            list(read())


def test_run_end_encoded_columns_are_refused_with_the_call_that_decodes(tmp_path: Path):
    """Arrow cannot select rows of such columns, so most stages would fail later."""
    table = pa.table({"x": pa.compute.run_end_encode(pa.array([1, 1, 2]))})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write(table)
    for read in (lambda: fp.from_table(table), lambda: fp.read_arrow(tmp_path / "a.arrow")):
        with pytest.raises(SchemaError, match=r"run-end-encoded column: got 'x' of .*, in .*run_end_decode\(table\['x'\]\)"):
            list(read())


@pytest.mark.parametrize("kind", [pa.month_day_nano_interval(), pa.dense_union([pa.field("a", pa.int64())])])
def test_types_without_a_form_in_parquet_are_named(tmp_path: Path, kind: pa.DataType):
    rows = fp.from_table(pa.table({"a": [1], "x": pa.nulls(1, kind)}))
    with pytest.raises(ArgumentError, match=r"Parquet has no type for .*, in column 'x'\. Write the data with format='arrow'"):
        fp.write(rows, tmp_path / "out", format="parquet")
    fp.write(rows, tmp_path / "arrow", format="arrow")
    assert list(fp.read_arrow(tmp_path / "arrow")) == [{"a": 1, "x": None}]


def test_case_e17_map_chunks_with_two_columns_of_one_name_is_named():
    def doubled(chunk: Any) -> Any:
        return pa.RecordBatch.from_arrays([chunk["x"], chunk["x"]], names=["a", "a"])

    for stage in (lambda: fp.map_chunks(doubled), lambda: fp.map_chunks(doubled, schema=TWICE), lambda: fp.map(dict, schema=TWICE)):
        with pytest.raises(SchemaError, match="Several columns have the same name: got 'a' more than once, in "):
            list(fp.pipe(ROWS, stage()))


@pytest.mark.parametrize("half", [r"\ud800", r"\uDFFF", r"\uD83D\u0041", r"\ud83d\ude00 \udc00", r"\ude00\ud83d"])
def test_case_e17_half_of_a_surrogate_pair_is_named(tmp_path: Path, half: str):
    (tmp_path / "a.jsonl").write_text(f'{{"a": "\\ud83d\\ude00"}}\n{{"a": "x {half} y"}}\n')
    with pytest.raises(
        DataError, match=r"A text has half of a surrogate pair: got '\\\\u[dD].*, in line 2 of .*a\.jsonl\. Write \\ufffd in its place"
    ):
        list(fp.read_jsonl(tmp_path / "a.jsonl"))
    rows = fp.pipe(fp.read_jsonl(tmp_path / "a.jsonl"), fp.on_error("skip"))
    assert list(rows) == [{"a": "\N{GRINNING FACE}"}]


def test_half_of_a_surrogate_pair_in_python_values_is_named():
    for rows in (lambda: fp.from_examples([{"a": "\ud800"}]), lambda: fp.pipe(ROWS, fp.map(lambda row: {"a": "\udfff"}))):
        with pytest.raises(SchemaError, match="is not Unicode text: it has half of a surrogate pair"):
            list(rows())
    with pytest.raises(SchemaError, match=r"A column name is not Unicode text: got '\\ud800'"):
        fp.from_examples([{"\ud800": 1}])


@pytest.mark.parametrize("value", [5, None, 3.5, object()])
def test_case_e17_a_value_that_is_no_list_is_named(value: Any):
    with pytest.raises(ArgumentTypeError, match=rf"from_examples takes a list of mappings, got {type(value).__name__}"):
        fp.from_examples(value)
    with pytest.raises(
        ArgumentTypeError, match=rf"must return an iterable of mappings, got {type(value).__name__}: .* Did you forget return"
    ):
        list(fp.from_iterable(lambda: value))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('[{"a": 1}, {"a": 2}]', "array"),
        ('[\n {"a": 1},\n {"a": 2}\n]\n', "array"),
        ("\n\n[\n]\n", "array"),
        ('{\n "a": 1\n}\n', "object over several lines"),
    ],
)
def test_case_e19_a_json_file_of_one_array_is_named(tmp_path: Path, text: str, kind: str):
    (tmp_path / "a.json").write_text(text)
    for options in ({}, {"schema": {"a": pa.int64()}}, {"schema": "scan"}, {"json_columns": ["a"]}):
        with pytest.raises(
            DataError, match=rf"The file is a JSON {kind}, instead of one object per line: got .*a\.json\. Convert the file with jq"
        ):
            list(fp.read_jsonl(tmp_path / "a.json", **options))


def test_a_line_with_an_array_of_numbers_is_still_a_bad_line(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n[1, 2]\n')
    with pytest.raises(DataError, match=r"A line is a JSON array: got '\[1, 2\]', in line 2"):
        list(fp.read_jsonl(tmp_path / "a.jsonl"))
