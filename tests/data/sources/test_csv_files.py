"""The law of CSV: blocks of any size give the rows that Python's csv module reads, or an error that names the line."""

import csv
import io
import pickle
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import (
    ArgumentError,
    ArgumentTypeError,
    CursorError,
    DataError,
    MissingFileError,
    MlxfpError,
    SchemaError,
    UnknownNameError,
)
from mlxfp.testing.laws import assert_reads, assert_repeatable, assert_resumable, assert_told_apart, assert_value
from tests.data.written import PACKINGS, blocked, write

PIECES = st.sampled_from(["a", "1", ",", ",", "\n", "\n", "\r\n", "\r", '"', '""', '",', ',"', '"\n', "é", "\ufeff", "\x00", " ", "NA"])
WILD = st.lists(PIECES, max_size=30).map("".join)
SIZES = st.integers(1, 50)
TEXT = {name: pa.string() for name in "abc"}


def python_rows(text: str, quote: str | None = '"') -> list[list[str]]:
    rules: Any = {"quoting": csv.QUOTE_NONE} if quote is None else {"quotechar": quote}
    return [row for row in csv.reader(io.StringIO(text, newline=""), **rules) if row]


def fields_end(text: str, quote: str | None) -> bool:
    """Whether no quote is left open: a newline at the end would be no text."""
    return not python_rows(text + "\nx", quote)[-1][-1].endswith("\nx")


def assert_reads_as_python(path: Path, text: str, size: int, quote: str | None) -> None:
    """Law: in blocks of any size, a file gives the rows that Python's csv module reads; if some have the wrong width, an error."""
    write(path, "a,b\n" + text)
    dataset = blocked(fp.read_csv(path, quote=quote, schema={"a": pa.string(), "b": pa.string()}, null_values=()), size)
    rows = python_rows(text, quote)
    if fields_end(text, quote) and all(len(row) == 2 for row in rows):
        assert list(dataset) == [{"a": a, "b": b} for a, b in rows]
    else:
        with pytest.raises(DataError):
            list(dataset)


@given(WILD, SIZES, st.sampled_from(['"', None]), st.sampled_from(sorted(PACKINGS)))
@example('x,"\n', 1, '"', "")
@example("\ufeffx,y\n\ufeffz,\n", 1, '"', "")
def test_blocks_of_any_size_give_what_python_reads(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int, quote: str | None, packing: str
):
    assert_reads_as_python(tmp_path_factory.mktemp("wild") / f"a.csv{packing}", text, size, quote)


@pytest.mark.parametrize("size", [3, 5, 14])
def test_the_law_catches_cuts_inside_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int):
    text = '1,"x\ny"\n' * 3
    assert_reads_as_python(tmp_path / "a.csv", text, size, '"')
    monkeypatch.setattr("mlxfp.data.sources.csv_files.last_record_end", lambda data, delimiter, quote: data.rfind(b"\n") + 1)
    with pytest.raises((AssertionError, DataError)):
        assert_reads_as_python(tmp_path / "a.csv", text, size, '"')


FIELDS = st.text(st.sampled_from('ab1 ,"\n\ré\ufeff'), max_size=6) | st.sampled_from(["NA", "", "-1", "1.5", "true"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]], str]:
    """Draw a header, rows of text, and how Python's csv module writes them."""
    names = draw(st.lists(st.text(st.sampled_from('ab,"\n '), min_size=1, max_size=4), min_size=1, max_size=4, unique=True))
    rows = draw(st.lists(st.lists(FIELDS, min_size=len(names), max_size=len(names)), max_size=8))
    return names, rows, draw(st.sampled_from(["\n", "\r\n", "\r"]))


def written(names: Sequence[str], rows: Sequence[Sequence[str]], newline: str = "\n", *, end: str | None = None) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=newline, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    return text.getvalue() if end is None else text.getvalue().removesuffix(newline) + end


@given(tables(), SIZES, st.booleans(), st.booleans())
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, table: tuple[list[str], list[list[str]], str], size: int, mark: bool, ended: bool
):
    names, rows, newline = table
    text = written(names, rows, newline, end=None if ended else "")
    path = write(tmp_path_factory.mktemp("tables") / "a.csv", "\ufeff" * mark + newline + text)
    dataset = blocked(fp.read_csv(path, schema=dict.fromkeys(names, pa.string()), null_values=["NA"]), size)
    assert list(dataset) == [dict(zip(names, [None if field == "NA" else field for field in row], strict=True)) for row in rows]
    assert_reads(dataset.source)


@given(tables(), SIZES, st.randoms(use_true_random=False))
def test_several_files_are_read_as_one_whatever_the_order_of_their_columns(
    tmp_path_factory: pytest.TempPathFactory, table: tuple[list[str], list[list[str]], str], size: int, random: Any
):
    names, rows, newline = table
    folder = tmp_path_factory.mktemp("several")
    for number in range(3):
        order = names if number == 0 else random.sample(names, len(names))
        part = [[row[names.index(name)] for name in order] for row in rows[number::3]]
        write(folder / f"{number}.csv{random.choice(sorted(PACKINGS))}", written(order, part, newline))
    dataset = blocked(fp.read_csv(folder, schema=dict.fromkeys(names, pa.string()), null_values=()), size)
    assert list(dataset) == [dict(zip(names, row, strict=True)) for number in range(3) for row in rows[number::3]]
    assert_reads(dataset.source)
    assert_resumable(dataset)
    assert_repeatable(dataset)


@given(tables(), SIZES, st.integers(0, 8), st.sampled_from([["1"] * 9, ["x\r\ny", *["2"] * 8]]))
def test_a_record_of_the_wrong_width_is_named_by_its_line(
    tmp_path_factory: pytest.TempPathFactory, table: tuple[list[str], list[list[str]], str], size: int, place: int, wrong: list[str]
):
    names, rows, newline = table
    before, after = rows[:place], rows[place:]
    path = write(tmp_path_factory.mktemp("ragged") / "a.csv", written(names, [*before, wrong, *after], newline))
    line = len(io.StringIO(written(names, before, newline), newline="").readlines()) + 1
    with pytest.raises(
        DataError, match=rf"A record has 9 fields, but there are {len(names)} columns: got .*, in line {line} of .*a\.csv\. "
    ):
        list(blocked(fp.read_csv(path, schema=dict.fromkeys(names, pa.string())), size))


@given(st.lists(st.sampled_from(["1,a\n", '2,"x\ny"\n', "\n", ",\n"]), max_size=12), SIZES)
def test_a_value_that_does_not_fit_is_named_by_its_line_and_column(tmp_path_factory: pytest.TempPathFactory, records: list[str], size: int):
    before = "a,b\n" + "".join(records)
    path = write(tmp_path_factory.mktemp("misfit") / "a.csv", f"{before}1.5,z\n7,w\n")
    with pytest.raises(DataError) as raised:
        list(blocked(fp.read_csv(path, schema={"a": pa.int64()}), size))
    assert str(raised.value) == (
        f"A value does not fit the column 'a' of int64: got '1.5', in line {before.count(chr(10)) + 1} of {path}. "
        "Declare another type with schema={'a': pa.float64()}, or correct the value."
    )


def test_types_found_in_the_first_block_hold_for_the_later_ones(tmp_path: Path):
    path = write(tmp_path / "a.csv", "n,t\n" + "12345,some text\n" * 100_000 + "x,y\n")
    assert path.stat().st_size > 1 << 20
    rows = iter(fp.read_csv(path))
    assert next(rows) == {"n": 12345, "t": "some text"}
    with pytest.raises(
        DataError, match=r"does not fit the column 'n' of int64: got 'x', in line 100002 of .*schema=\{'n': pa\.string\(\)\}"
    ):
        list(rows)
    assert list(fp.read_csv(path, schema={"n": pa.string()}))[-1] == {"n": "x", "t": "y"}


@pytest.mark.parametrize(
    ("values", "kind", "found"),
    [
        ("1 -2 7", pa.int64(), [1, -2, 7]),
        ("1 -2 007", pa.string(), ["1", "-2", "007"]),
        ("1 2.5 1e3", pa.float64(), [1.0, 2.5, 1000.0]),
        ("true False TRUE", pa.bool_(), [True, False, True]),
        ("0 1", pa.int64(), [0, 1]),
        ("1 a", pa.string(), ["1", "a"]),
        ("2024-01-31 2024-02-01", pa.date32(), [date(2024, 1, 31), date(2024, 2, 1)]),
        ("12:30 12:31", pa.string(), ["12:30", "12:31"]),
        ("NA NA", pa.string(), [None, None]),  # a column that was always null may be anything later: text holds it
        ("1 NA nan 2", pa.int64(), [1, None, None, 2]),
        ("NaN None x <NA>", pa.string(), [None, None, "x", None]),
    ],
)
def test_types_are_inferred(tmp_path: Path, values: str, kind: pa.DataType, found: list[Any]):
    dataset = fp.read_csv(write(tmp_path / "a.csv", "x,y\n" + "".join(f"{value},1\n" for value in values.split())))
    assert fp.schema(dataset).field("x").type == kind
    assert [row["x"] for row in dataset] == found


def test_types_can_be_declared(tmp_path: Path):
    path = write(tmp_path / "a.csv", "id,on,when,flag\n007,2024-01-31,2024-01-31 10:00:00,1\n")
    kinds = {"id": pa.string(), "on": pa.date32(), "when": pa.timestamp("s"), "flag": pa.bool_()}
    [row] = fp.read_csv(path, schema=kinds)
    assert (row["id"], row["on"].isoformat(), row["when"].isoformat(), row["flag"]) == ("007", "2024-01-31", "2024-01-31T10:00:00", True)


def test_null_values_are_null_quoted_or_not(tmp_path: Path):
    path = write(tmp_path / "a.csv", 'x,y\n"NA","",\n'.replace('"",', '""') + "-,?\n")
    assert list(fp.read_csv(path)) == [{"x": None, "y": None}, {"x": "-", "y": "?"}]
    assert list(fp.read_csv(path, null_values=["-", "?"])) == [{"x": "NA", "y": ""}, {"x": None, "y": None}]


@pytest.mark.filterwarnings("ignore:There is no row to read")
@pytest.mark.parametrize(
    ("text", "names", "rows"),
    [
        ("a,b\n", ["a", "b"], []),
        ("a,b", ["a", "b"], []),
        ("\ufeff\r\n\r\na,b\r\n1,2", ["a", "b"], [(1, 2)]),
        (",b,\n1,2,3\n", ["column_1", "b", "column_3"], [(1, 2, 3)]),
        ('"a\nx",b\n1,2\n', ["a\nx", "b"], [(1, 2)]),
        ("a\n1\n\n2\n", ["a"], [(1,), (2,)]),
        ("é,日本\nü,漢字\n", ["é", "日本"], [("ü", "漢字")]),
    ],
)
def test_headers(tmp_path: Path, text: str, names: list[str], rows: list[tuple[Any, ...]]):
    dataset = fp.read_csv(write(tmp_path / "a.csv", text))
    assert fp.schema(dataset).names == names
    assert [tuple(row.values()) for row in dataset] == rows


def test_a_file_with_a_header_and_no_row_is_told(tmp_path: Path):
    empty, full = write(tmp_path / "a.csv", "a,b\n"), write(tmp_path / "b.csv", "a,b\n1,2\n")
    with pytest.warns(
        RuntimeWarning, match=r"There is no row to read: got a file without records, starting with .*a\.csv\. .* Check the path"
    ):
        assert list(fp.read_csv(empty)) == []
    assert list(fp.read_csv(empty, schema={"a": pa.int64(), "b": pa.int64()})) == []
    assert list(fp.read_csv([empty, full])) == [{"a": 1, "b": 2}]


def test_a_header_may_be_longer_than_a_block(tmp_path: Path):
    names = [f"a column with the number {n}" for n in range(9_000)]
    path = write(tmp_path / "a.csv", "\n" * 70_000 + ",".join(names) + "\n" + ",".join(["1"] * 9_000) + "\n1\n")
    with pytest.raises(DataError, match=r"A record has 1 fields, but there are 9000 columns: got '1\\n', in line 70003 of"):
        list(fp.read_csv(path))


@pytest.mark.filterwarnings("ignore:There is no row to read")
def test_columns_name_the_fields_of_files_without_a_header(tmp_path: Path):
    for name, text in (("a.tsv", 'a "nice\t1\n'), ("b.tsv", ""), ("c.tsv", 'film"\t0\n')):
        write(tmp_path / name, text)
    dataset = fp.read_csv(tmp_path, delimiter="\t", quote=None, columns=["text", "label"])
    assert list(dataset) == [{"text": 'a "nice', "label": 1}, {"text": 'film"', "label": 0}]
    assert fp.schema(fp.read_csv(tmp_path / "b.tsv", columns=["x"])) == pa.schema({"x": pa.string()})


def test_a_header_alone_takes_its_types_from_the_next_file(tmp_path: Path):
    paths = [write(tmp_path / "a.csv", "x,y\n"), write(tmp_path / "b.csv", "y,x\n1,t\n")]
    assert list(fp.read_csv(paths)) == [{"y": 1, "x": "t"}]


@pytest.mark.filterwarnings("ignore:There is no row to read")
@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", DataError, r"A file has no header: got 0 bytes without a record, in .*a\.csv\. Name the columns with columns="),
        ("\n\r\n", DataError, r"A file has no header: got 3 bytes without a record"),
        ("a,b,a\n1,2,3\n", SchemaError, r"Several columns have the same name: got 'a' more than once, in .*a\.csv\. Rename the columns\."),
        ("a,column_1,\n", None, ""),
        (",column_1\n", SchemaError, "got 'column_1' more than once"),
        ("__row__,b\n1,2\n", SchemaError, r"A column has a reserved name: got '__row__', in .*a\.csv\."),
        ('a,b\n1,2\n3,"x\n4,5\n', DataError, r"A quote is never closed: got '\"x.*', in line 3 of .* Close the quote, or read quotes"),
        ('"a,b\n1,2\n', DataError, r"A quote is never closed: got .*, in line 1 of"),
        (b"a,b\n1,x\n2,\xff\n", DataError, r"Text is not UTF-8: got the byte 0xff, in line 3 of .* convert the file to UTF-8"),
        (b"a,\xe9\n1,2\n", DataError, r"Text is not UTF-8: got the byte 0xe9, in line 1 of"),
        ("a,b\n1,2\n\n1\n", DataError, r"A record has 1 fields, but there are 2 columns: got .*, in line 4 .* Quote fields that hold ','"),
        ("a;b;c\n1;2,5;3\n", DataError, r"several: got 'a;b;c', in line 1 of .*a\.csv\. Give delimiter=';', or rename the column\."),
        ("a|b\n", DataError, r"got 'a\|b', in line 1 of .* Give delimiter='\|'"),
        ("\na\tb\n\n1\t2\n", DataError, r"got 'a\\tb', in line 2 of .* Give delimiter='\\t'"),
        ("a;b\nx\n", None, ""),
        ("a,b\n1,2,\n3,4,\n", DataError, r"Records end with ',' and the header does not: 3 fields .* line 2 .* Write ',' after the header"),
        ('"a;b"\nx;y\n', None, ""),
        ("a,b\n1," + "x" * 99 + ",3\n", DataError, r"has 3 fields, but there are 2 columns: got '1,x{70,75}\.\.\., in line 2"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path: Path, text: str | bytes, error: type[MlxfpError] | None, message: str):
    dataset = fp.read_csv(write(tmp_path / "a.csv", text))
    if error is None:
        list(dataset)
        return
    for size in (1, 7, 1000):
        with pytest.raises(error, match=message):
            list(blocked(dataset, size))


def test_an_empty_file_among_others_is_named_too(tmp_path: Path):
    paths = [write(tmp_path / "a.csv", "x\n1\n"), write(tmp_path / "b.csv", "")]
    with pytest.raises(DataError, match=r"A file has no header: got 0 bytes without a record, in .*b\.csv"):
        list(fp.read_csv(paths))


def test_files_with_different_columns_are_both_named(tmp_path: Path):
    paths = [write(tmp_path / "a.csv", "x,y\n1,2\n"), write(tmp_path / "b.csv", "x,z\n1,2\n")]
    with pytest.raises(SchemaError, match=r"Two files have different columns: .*b\.csv lacks 'y' and adds 'z', compared with .*a\.csv\."):
        list(fp.read_csv(paths))


def test_declared_columns_must_be_there(tmp_path: Path):
    path = write(tmp_path / "a.csv", "Age,Sex\n1,m\n")
    with pytest.raises(UnknownNameError, match=r"No column of .*a\.csv is named 'Agee'\. Did you mean 'Age'\? Known: Age, Sex\."):
        fp.schema(fp.read_csv(path, schema={"Agee": pa.float64()}))
    with pytest.raises(
        SchemaError, match=r"The reader does not support a declared type: CSV conversion to list<item: int64> is not supported, in read_csv"
    ):
        fp.schema(fp.read_csv(path, schema={"Age": pa.list_(pa.int64())}))


def test_a_missing_file_is_named_when_it_is_read_and_not_before(tmp_path: Path):
    dataset = fp.read_csv(tmp_path / "none.csv")
    with pytest.raises(MissingFileError, match=r"There is no file or folder '.*none\.csv'"):
        next(iter(dataset))
    with pytest.raises(MissingFileError):
        fp.schema(dataset)
    assert "schema not known (There is no file or folder" in fp.explain(dataset)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"delimiter": "ab"}, ArgumentError, r"delimiter must be one ASCII character other than a newline, got delimiter='ab'\."),
        ({"delimiter": ""}, ArgumentError, "delimiter must be one ASCII character"),
        ({"delimiter": "§"}, ArgumentError, "delimiter must be one ASCII character"),
        ({"quote": "\n"}, ArgumentError, "quote must be one ASCII character other than a newline"),
        ({"delimiter": '"'}, ArgumentError, "delimiter and quote must differ, got '\"' for both"),
        ({"delimiter": 3}, ArgumentTypeError, "delimiter must be a string"),
        ({"quote": 3}, ArgumentTypeError, "quote must be str or NoneType, got int"),
        ({"columns": ["a", "a"]}, ArgumentError, "columns repeats 'a'"),
        ({"columns": []}, ArgumentError, "columns must name at least one column, got none"),
        ({"columns": ["__key__"]}, SchemaError, "reserved name: got '__key__', in columns="),
        ({"columns": "ab"}, ArgumentTypeError, "columns must be a list of strings"),
        ({"null_values": "NA"}, ArgumentTypeError, "null_values must be a list of strings"),
        ({"schema": [("a", pa.int64())]}, ArgumentTypeError, r"schema must map column names to Arrow types, or be \"scan\", got list"),
        ({"schema": {"a": int}}, ArgumentTypeError, r"for example \{'age': pa\.float64\(\)\}, got \{'a': <class 'int'>\}"),
    ],
)
def test_arguments_are_checked_when_the_dataset_is_built(arguments: dict[str, Any], error: type[MlxfpError], message: str):
    with pytest.raises(error, match=message):
        fp.read_csv("a.csv", **arguments)


def test_building_reads_nothing_and_a_dataset_is_a_value(tmp_path: Path):
    dataset = fp.read_csv(tmp_path / "none.csv", schema={"Age": pa.float64(), "on": pa.timestamp("s")}, delimiter=";")
    assert repr(dataset) == f"read_csv('{tmp_path}/none.csv', delimiter=';', schema={{'Age': pa.float64(), 'on': pa.timestamp('s')}})".join(
        ("pipe(", ")") if repr(dataset).startswith("pipe(") else ("", "")
    )
    assert_value(dataset)
    assert_told_apart(dataset, fp.read_csv(tmp_path / "none.csv", delimiter=";"))
    assert_told_apart(fp.read_csv("a.csv"), fp.read_csv("b.csv"))
    assert repr(fp.read_csv(["a.csv", "b.csv"]).source) == "read_csv(['a.csv', 'b.csv'])"


def test_a_dataset_works_after_pickling(tmp_path: Path):
    dataset = fp.read_csv(write(tmp_path / "a.csv", "x\n1\n"))
    assert list(pickle.loads(pickle.dumps(dataset))) == list(dataset)


def test_resuming_reads_nothing_that_stands_before(tmp_path: Path):
    lines = [f"{n},text {n}\n" for n in range(200_000)]
    path = write(tmp_path / "a.csv", "n,t\n" + "".join(lines))
    items = list(fp.iterate(fp.read_csv(path)))
    cursor = fp.Cursor.from_bytes(items[150_000][1].to_bytes())
    data = bytearray(path.read_bytes())
    data[1_100_000:1_500_000] = b"," * 400_000  # after the block that types are inferred from, before the one of the cursor
    write(path, bytes(data))
    assert [row for row, _ in fp.iterate(fp.read_csv(path), cursor)] == [row for row, _ in items[150_001:]]
    with pytest.raises(DataError):
        list(fp.read_csv(path))


def test_a_cursor_is_refused_when_its_file_has_changed(tmp_path: Path):
    path = write(tmp_path / "a.csv", "x\n1\n2\n")
    dataset = blocked(fp.read_csv(path), 1)
    cursors = [cursor for _, cursor in fp.iterate(dataset)]
    write(path, "x\n1\n2\n3\n")
    with pytest.raises(CursorError, match=r"A file has changed since the cursor was made: it had 6 bytes, now 8: .*a\.csv"):
        list(fp.iterate(dataset, cursors[1]))
    assert list(dataset) == [{"x": 1}, {"x": 2}, {"x": 3}]  # and its schema was not kept from the old file


def test_what_resuming_costs_is_said(tmp_path: Path):
    assert "decompresses" not in fp.explain(fp.read_csv(write(tmp_path / "a.csv", "x\n1\n")))
    assert "resuming inside a compressed file decompresses everything before the cursor" in fp.explain(
        fp.read_csv(write(tmp_path / "a.csv.gz", "x\n1\n"))
    )
    assert fp.length(fp.read_csv(tmp_path / "a.csv")) is None


@pytest.mark.filterwarnings("ignore:There is no row to read")
@given(
    st.binary(max_size=40) | WILD.map(str.encode), SIZES, st.sampled_from([None, {"a": pa.int64()}, {"b": pa.bool_(), "a": pa.float32()}])
)
def test_whatever_is_in_a_file_gives_rows_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, size: int, kinds: dict[str, pa.DataType] | None
):
    path = write(tmp_path_factory.mktemp("any") / "a.csv", b"a,b\n" + data)
    with suppress(MlxfpError):
        rows = list(blocked(fp.read_csv(path, schema=kinds), size))
        assert rows == list(fp.read_csv(path, schema=kinds))
        assert all(row.keys() == {"a", "b"} for row in rows)


def test_many_fields_over_many_lines_are_cut_right(tmp_path: Path):
    record = '1,"' + 'one ""line""\n' * 500 + '"\n'
    path = write(tmp_path / "a.csv", "n,t\n" + record * 100)
    assert [len(row["t"]) for row in blocked(fp.read_csv(path), 10_000)] == [500 * len('one "line"\n')] * 100


def test_the_version_of_a_dataset_changes_with_its_files(tmp_path: Path):
    path = write(tmp_path / "a.csv", "x\n1\n")
    assert fp.read_csv(path).source.version() == ((str(path), 4, path.stat().st_mtime_ns),)


def test_a_record_that_another_delimiter_would_split_right_says_so(tmp_path: Path):
    path = write(tmp_path / "a.csv", "1\t2\t3\n4\t5\t6\n")
    with pytest.raises(
        DataError, match=r"has 1 fields, but there are 3 columns: .* Give delimiter='\\t', which makes 3 fields, or correct the record\."
    ):
        list(fp.read_csv(path, columns=["a", "b", "c"]))


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_case_a8_the_first_line_of_excel_is_not_the_header(tmp_path, ending):
    path = tmp_path / "a.csv"
    path.write_bytes(ending.join(["SEP=;", "a;b", "1;2", ""]).encode())
    assert list(fp.read_csv(path, delimiter=";")) == [{"a": 1, "b": 2}]
    path.write_bytes(ending.join(["sep=;", "a;b", "1;2", ""]).encode())
    assert list(fp.read_csv(path, delimiter=";")) == [{"a": 1, "b": 2}]
    assert list(fp.read_csv(path, delimiter=";", schema="scan")) == [{"a": 1, "b": 2}]
    with pytest.raises(DataError, match=r"got 'sep=;', in line 1 of .*a\.csv\. Give delimiter=';'"):
        list(fp.read_csv(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Report of 2020\n\na,b,c\n1,2,3\n4,5,6\n", r"in line 3 of .*If this line is the header, remove the lines above it"),
        ("# made by x, on monday\na,b,c\n1,2,3\n4,5,6\n", r"in line 2 of .*If this line is the header, remove the lines above it"),
        ("# made by x\na,b,c\n1,2,3\n4,5,6\n", r"in line 2 of .*If this line is the header, remove the lines above it"),
        ("Title\nmore\nstill more\na,b\n1,2\n4,5\n", r"in line 4 of .*If this line is the header"),
        ("a,b\nr1,1,2\nr2,3,4\n", r"one field more than the header, .*in line 2 of .*row\.names = FALSE"),
        ("a;b;c\n1,2,3\n4,5,6\n", r"The header has ';' between names, .*Write the header with ','"),
    ],
)
def test_case_a8_a_header_that_fits_no_record_is_named(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        list(fp.read_csv(path))


@pytest.mark.parametrize(
    ("text", "line", "header"),
    [
        ("# made by x, y\nid,price\n1,2.5\n2,\n", 2, "id,price"),
        ("# made by x, y\r\n\r\nid,price\r\n1,2.5\r\n", 3, "id,price"),
        ("# made by x, y\n# on monday\n\n# too\nid,price\n1,2.5\n", 5, "id,price"),
        ("# made by x\nid\n1\n", 2, "id"),
        ("# made by x, y\nname,count\nann,1", 2, "name,count"),
    ],
)
def test_a_comment_with_as_many_fields_as_the_table_is_no_header(tmp_path: Path, text: str, line: int, header: str):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode())
    comment = text.splitlines()[0]
    with pytest.raises(DataError) as caught:
        list(fp.read_csv(path))
    assert str(caught.value) == (
        f"The first line is probably a comment: got {comment!r}, in line 1 of {path}. Line {line} looks like the header: {header!r}. "
        f"Remove the lines above line {line}: tail -n +{line} {path} > {tmp_path / 'converted.csv'}. If line 1 is the header, remove the "
        "'#'."
    )
    subprocess.run(str(caught.value).partition(": tail")[2].partition(". If")[0].join(["tail", ""]), shell=True, check=True)
    assert fp.schema(fp.read_csv(tmp_path / "converted.csv")).names == header.split(",")


@pytest.mark.parametrize(
    "text",
    [
        "#chrom,pos\nchr1,100\nchr2,200\n",
        "#name,city\nann,rome\nbob,paris\n",  # no number
        "#chrom,pos\nchr1,?\nchr1,200\n",  # the first text occurs again
        "#chrom,pos\nchr1,NA\nchr2,200\n",
        "#chrom,pos\nx,x\nchr2,200\n",
        "#chrom,pos\n",
    ],
)
def test_a_header_may_begin_with_a_number_sign(tmp_path: Path, text: str):
    path = tmp_path / "a.csv"
    path.write_text(text)
    names = text.partition("\n")[0].split(",")
    assert fp.schema(fp.read_csv(path, schema=dict.fromkeys(names, pa.string()))).names == names


@pytest.mark.parametrize("kind", [pa.float64(), pa.int64(), pa.date32(), pa.decimal128(9, 2)])
def test_a_text_without_digits_in_a_declared_column_may_be_a_missing_value(tmp_path: Path, kind: pa.DataType):
    """The list in the message makes the text null and keeps all other null values. A second text joins the list of the first text."""
    path = write(tmp_path / "a.csv", "id,t\n1,\n2,k.A.\n3,-\n")
    with pytest.raises(
        DataError,
        match=r"got 'k\.A\.', in line 3 of .*If the value is missing, give null_values=\['', .*'NA', .*'k\.A\.'\] \(in a spec, the same "
        r"list under null_values\)\. Declare",
    ):
        list(fp.read_csv(path, schema={"t": kind}))
    with pytest.raises(DataError, match=r"got '-', in line 4 of .*give null_values=\['', 'k\.A\.', '-'\] \(in"):
        list(fp.read_csv(path, schema={"t": kind}, null_values=["", "k.A."]))
    assert [row["t"] for row in fp.read_csv(path, schema={"t": kind}, null_values=["", "k.A.", "-"])] == [None] * 3
    with pytest.raises(DataError, match=r"got '1x', in line 2 of .*b\.csv\. Declare another type"):
        list(fp.read_csv(write(tmp_path / "b.csv", "t\n1x\n"), schema={"t": kind}))


def test_the_hint_for_na_values_of_pandas_names_the_difference(tmp_path: Path):
    """pandas adds values to its defaults. The argument of mlxfp replaces the defaults."""
    with pytest.raises(TypeError, match="null_values replaces the default values, and na_values of pandas adds values"):
        fp.read_csv(tmp_path, na_values=["-"])


@pytest.mark.parametrize("text", ["0xFFFFFFFFFFFFFFFF", "0x0a", "0X1F", "+0x1"])
def test_hexadecimal_numbers_stay_text(tmp_path: Path, text: str):
    """Arrow reads the first number as -1."""
    path = write(tmp_path / "a.csv", f"a,b\n{text},1\n12,2\n")
    assert list(fp.read_csv(path)) == [{"a": text, "b": 1}, {"a": "12", "b": 2}]
    with pytest.raises(
        DataError, match=r"A value does not fit the column 'a' of int64: got '.*', in line 2 .* schema=\{'a': pa\.string\(\)\}"
    ):
        list(fp.read_csv(path, schema={"a": pa.int64()}))


def test_a_hexadecimal_number_in_a_later_block_is_named(tmp_path: Path):
    path = write(tmp_path / "a.csv", "a\n" + "12\n7\n" * 400_000 + "0xFF\n")
    with pytest.raises(DataError, match=r"does not fit the column 'a' of int64: got '0xFF', in line 800002 of"):
        list(fp.read_csv(path))
    assert fp.schema(fp.read_csv(path, schema="scan")) == pa.schema({"a": pa.string()})
