"""The law of JSON lines: blocks of any size give the rows that were written, or an error that names the line."""

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.sources import json_files
from mlxfp.support.errors import ArgumentTypeError, DataError, MissingFileError, MlxfpError, SchemaError
from mlxfp.testing.laws import assert_reads, assert_repeatable, assert_resumable, assert_told_apart, assert_value
from tests.data.written import PACKINGS, blocked, write

SIZES = st.integers(1, 60)
TEXTS = st.text(max_size=5) | st.sampled_from(["2024-01-31", "\n", "null", "{", "\ufeff", "\U0001f600", ""])
TEXTS = TEXTS.filter(lambda text: text.isprintable() or text == "\n")
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "n": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "x": (pa.float64(), st.floats(allow_nan=False, width=32)),
    "yes": (pa.bool_(), st.booleans()),
    "t": (pa.string(), TEXTS),
    "items": (pa.list_(pa.string()), st.lists(TEXTS, max_size=3)),
    "at": (pa.struct({"é": pa.string(), "n": pa.int64()}), st.fixed_dictionaries({"é": TEXTS, "n": st.integers(0, 9) | st.none()})),
}
LINES = st.lists(st.fixed_dictionaries({}, optional={name: values | st.none() for name, (_, values) in KINDS.items()}), max_size=8)
SCHEMA = pa.schema([(name, kind) for name, (kind, _) in KINDS.items()])


def whole(line: dict[str, Any]) -> dict[str, Any]:
    return {name: line.get(name) for name in SCHEMA.names}


@given(
    LINES,
    SIZES,
    SIZES,
    st.sampled_from(sorted(PACKINGS)),
    st.sampled_from(["\n", "\r\n", "\n\n", "\n \t\n"]),
    st.booleans(),
    st.booleans(),
)
def test_blocks_of_any_size_give_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[dict[str, Any]],
    size: int,
    piece: int,
    packing: str,
    newline: str,
    ended: bool,
    escaped: bool,
):
    text = "\ufeff" * escaped + newline.join(json.dumps(line, ensure_ascii=escaped) for line in lines) + newline * ended
    path = write(tmp_path_factory.mktemp("lines") / f"a.jsonl{packing}", text)
    dataset = blocked(fp.read_jsonl(path, schema={field.name: field.type for field in SCHEMA}), size)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_files, "BLOCK", piece)  # of which each is parsed in a thread of its own
        assert [{name: row[name] for name in SCHEMA.names} for row in dataset] == [whole(line) for line in lines]
        assert_reads(dataset.source)


@given(LINES.filter(any), SIZES)
def test_types_do_not_depend_on_the_size_of_blocks(tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]], size: int):
    folder = tmp_path_factory.mktemp("several")
    for number in range(2):
        write(folder / f"{number}.jsonl", "\n".join(map(json.dumps, lines)))
    dataset = fp.read_jsonl(folder)
    rows = list(blocked(dataset, size))
    assert rows == list(dataset)
    assert [whole(row) for row in rows] == [whole(line) for line in lines] * 2
    assert fp.schema(blocked(dataset, size)) == fp.schema(dataset)
    assert_resumable(blocked(dataset, size))
    assert_repeatable(dataset)


def test_the_law_catches_cuts_inside_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "a.jsonl", '{"t": "a b"}\n' * 3)
    assert list(blocked(fp.read_jsonl(path), 1)) == [{"t": "a b"}] * 3
    monkeypatch.setattr("mlxfp.data.sources.line_files.LineSource.cut", lambda self, data: data.rfind(b" ") + 1)
    with pytest.raises(DataError):
        list(blocked(fp.read_jsonl(path), 1))


BAD_LINES = [
    ('{"n": }', r"A line is not JSON \(Expecting value: line 1 column 7 \(char 6\)\): got '\{\"n\": \}'"),
    ('{"n": 1} {"n": 2}', r"A line is not JSON \(Extra data: .*\)"),
    ("[1, 2]", r"A line is a JSON array: got '\[1, 2\]'"),
    ("null", "A line is not a JSON object: got 'null'"),
    ('"text"', "A line is not a JSON object"),
    ('{"n": 1, "n": 2}', r"A line cannot be read \(.*specified twice.*\): got"),
    ('{"t": "\\ud83d"}', r"A text has half of a surrogate pair: got '\\\\ud83d'"),
    ('{"other": 1}', r"A key is not a column: got 'other', not one of \['n', 't', 'o'\]"),
    ('{"n": "x"}', "A value does not fit the column 'n' of int64: got 'x'"),
    ('{"n": 1.5}', "A value does not fit the column 'n' of int64: got 1.5"),
    ('{"n": true}', "A value does not fit the column 'n' of int64: got True"),
    ('{"t": 1}', "A value does not fit the column 't' of string: got 1"),
    ('{"o": {"x": 1, "y": 2}}', r"A value does not fit the column 'o' of struct<x: int64>: got \{'x': 1, 'y': 2\}"),
]


@given(
    st.sampled_from(BAD_LINES),
    st.lists(st.sampled_from(['{"n": 1}\n', "\n", '{"t": "a", "n": null}\r\n', "{}\n"]), max_size=9),
    SIZES,
    st.integers(16, 200),
)
def test_a_bad_line_is_named(tmp_path_factory: pytest.TempPathFactory, wrong: tuple[str, str], before: list[str], size: int, piece: int):
    bad, message = wrong
    path = tmp_path_factory.mktemp("bad") / "a.jsonl"
    write(path, '{"n": 1, "t": "", "o": {"x": 1}}\n' + "".join(before) + bad + "\n" + '{"n": 2}\n')
    declared = {"n": pa.int64(), "t": pa.string(), "o": pa.struct({"x": pa.int64()})}
    first = write(path.parent / "0.jsonl", '{"n": 1, "t": "", "o": {"x": 1}}\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_files, "BLOCK", piece)
        for dataset in (fp.read_jsonl([first, path]), fp.read_jsonl([first, path], schema=declared)):
            with pytest.raises(DataError, match=rf"{message}.*, in line {len(before) + 2} of .*a\.jsonl\. "):
                list(blocked(dataset, size))


@pytest.mark.parametrize(("bad", "message"), BAD_LINES)
def test_every_bad_line_is_named(tmp_path: Path, bad: str, message: str):
    paths = [write(tmp_path / "0.jsonl", '{"n": 1, "t": "", "o": {"x": 1}}'), write(tmp_path / "a.jsonl", f"{{}}\n{bad}\n")]
    with pytest.raises(DataError, match=rf"{message}.*, in line 2 of .*a\.jsonl\. "):
        list(fp.read_jsonl(paths))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"n": 1}', '{"n": "x"}'], "A value does not fit the column 'n' of int64: got 'x', in line 2 .* schema={'n': pa.json_\\(\\)}"),
        (['{"n": "x"}', '{"n": [1]}'], "A value does not fit the column 'n' of string: got "),
        (['{"n": [1, "x"]}'], r"A value has parts of several types \(.*number to string\): got \[1, 'x'\] in the column 'n', in line 1"),
        (["null", '{"n": 1}'], "A line is not a JSON object: got 'null', in line 1"),
        (["", " null", '{"n": 1}'], "A line is not a JSON object: got 'null', in line 2"),
        (['{"n":', "1}"], "A line is not JSON .* in line 1"),
        (["["] * 3, "A line is not JSON"),
        (["[" * 100_000], "A line is nested too deeply: got 100,000 levels, more than 64, in line 1 .* Flatten or remove the line"),
        (['{"n":{"a":' + "[" * 3_000], "A line is nested too deeply: got 3,002 levels"),
        (['{"n": 1e999}'], r"A line cannot be read \(.*too big.*\)"),
        ([b'{"n": "\xff"}'.decode("latin-1")], None),
    ],
)  # fmt: skip
def test_a_bad_line_in_the_first_block_is_named(tmp_path: Path, lines: list[str], message: str | None):
    dataset = fp.read_jsonl(write(tmp_path / "a.jsonl", "\n".join(lines)))
    if message is None:
        assert list(dataset) == [{"n": "ÿ"}]
        return
    with pytest.raises(DataError, match=message):
        fp.schema(dataset)


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        ('{"n": 1.5}', r"Declare the type with schema=\{'n': pa\.float64\(\)\}, or find types that fit all lines with schema=\"scan\"\."),
        ('{"o": {"y": "z"}}', r"Declare the type with schema=\{'o': pa\.struct\(\{'x': pa\.int64\(\), 'y': pa\.string\(\)\}\)\}, or"),
        ('{"l": ["a"]}', r"Convert the values to one type, or keep the column as JSON text with schema=\{'l': pa\.json_\(\)\}\."),
        (
            '{"new": {"a": [true]}}',
            r"Declare the column with schema=\{'new': pa\.struct\(\{'a': pa\.list_\(pa\.bool_\(\)\)\}\)\}, or drop unknown keys",
        ),
    ],
)
def test_the_cure_of_a_bad_line_works(tmp_path: Path, value: str, cure: str):
    paths = [write(tmp_path / "a.jsonl", '{"n": 1, "o": {"x": 1}, "l": [1]}'), write(tmp_path / "b.jsonl", value)]
    with pytest.raises(DataError, match=cure):
        list(fp.read_jsonl(paths))
    if "schema=" in cure:
        with pytest.raises(DataError) as raised:
            list(fp.read_jsonl(paths))
        declared = str(raised.value).partition("schema=")[2].partition(", or ")[0].removesuffix(".")
        row = list(fp.read_jsonl(paths, schema=eval(declared, {"pa": pa})))[-1]
        assert {name: row[name] for name in json.loads(value)} in (json.loads(value), {"o": {"x": None, "y": "z"}}, {"l": '["a"]'})


@given(
    st.integers(1, 90) | st.sampled_from([1_000, 3_000, 20_000]),
    st.sampled_from(["[", '{"a":', '[{"a":[],"b":', "[\n"]),
    st.sampled_from(["1", '"' + "[" * 99 + '"', r'"\\\"[["']),
    st.integers(0, 2_000),
    SIZES,
    st.booleans(),
)
def test_lines_of_any_depth_are_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, count: int, opens: str, value: str, padding: int, size: int, declared: bool
):
    closes = "".join({"[": "]", "{": "}"}[mark] for mark in reversed(opens.replace("[]", "")) if mark in "[{")
    text = f'{{"a": {opens * count}{value}{closes * count}, "b": "{"x" * padding}"}}\n'
    path = write(tmp_path_factory.mktemp("deep") / "a.jsonl", '{"b": "first"}\n' + text + '{"b": "last"}\n')
    dataset = blocked(fp.read_jsonl(path, schema={"a": pa.int64(), "b": pa.string()} if declared else None), size)
    levels = 1 + count * len(closes) + ("[]" in opens)
    if "\n" in opens:
        message = "A line is not JSON"
    elif levels > 64:
        message = f"A line is nested too deeply: got {levels:,} levels, more than 64"
    elif declared:
        message = "A value does not fit the column 'a' of int64"
    else:
        assert [row["b"] for row in dataset] == ["first", "x" * padding, "last"]
        return
    with pytest.raises(DataError, match=rf"{message}.*, in line 2 of .*a\.jsonl\. "):
        list(dataset)


def test_brackets_in_text_are_no_levels(tmp_path: Path):
    lines = [{"t": "[" * 5_000}, {"t": '"' + "{" * 70}, {"t": '\\"' * 70 + "[" * 2_000}, {"n": [[]] * 3_000}]
    assert list(fp.read_jsonl(write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, lines)))))[2] == {**lines[2], "n": None}


def test_text_that_is_not_utf8_is_named(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", b'{"t": "x"}\n\n{"t": "\xe9"}\n')
    for size in (1, 1000):
        with pytest.raises(DataError, match=r"Text is not UTF-8: got the byte 0xe9, in line 3 of .*a\.jsonl\."):
            list(blocked(fp.read_jsonl(path), size))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1}', pa.schema({"a": pa.int64()})),
        ('{"b": 1.5, "a": null}\n{"c": true}', pa.schema({"b": pa.float64(), "a": pa.string(), "c": pa.bool_()})),
        ('{"a": 1}\n{"a": 1.5}', pa.schema({"a": pa.float64()})),
        ('{"a": "2024-01-31T10:00:00"}', pa.schema({"a": pa.string()})),
        ('{"a": ["2024-01-31"], "b": []}', pa.schema({"a": pa.list_(pa.string()), "b": pa.list_(pa.string())})),
        ('{"a": {"b": {"c": null}}}', pa.schema({"a": pa.struct({"b": pa.struct({"c": pa.string()})})})),
        ('{"a": NaN}', pa.schema({"a": pa.float64()})),
    ],
)
def test_types_are_inferred(tmp_path: Path, text: str, expected: pa.Schema):
    assert fp.schema(fp.read_jsonl(write(tmp_path / "a.jsonl", text))) == expected


def test_declared_types_keep_the_order_of_the_keys_and_add_columns(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", '{"text": "a", "on": "2024-01-31T00:00:00"}\n')
    dataset = fp.read_jsonl(path, schema={"label": pa.int8(), "on": pa.timestamp("s")})
    assert fp.schema(dataset) == pa.schema({"text": pa.string(), "on": pa.timestamp("s"), "label": pa.int8()})
    assert [row["label"] for row in dataset] == [None]


@pytest.mark.parametrize("text", ["", "\n\n", "{}\n{}\n", "\ufeff"])
def test_a_file_without_keys_needs_declared_columns(tmp_path: Path, text: str):
    path = write(tmp_path / "a.jsonl", text)
    with pytest.raises(
        DataError,
        match=r"Columns cannot be inferred, because no JSON object in .*a\.jsonl or a later file has a key\. Declare the columns",
    ):
        list(fp.read_jsonl(path))
    assert list(fp.read_jsonl(path, schema={"a": pa.int64()})) == [{"a": None}] * text.count("{")
    assert list(fp.read_jsonl([path, write(tmp_path / "b.jsonl", '{"a": 1}')]))[-1] == {"a": 1} if "{" not in text else True


def test_reserved_names_and_types_that_cannot_be_read_are_refused(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", '{"__key__": 1}')
    with pytest.raises(SchemaError, match=r"A column has a reserved name: got '__key__', in .*a\.jsonl\."):
        fp.schema(fp.read_jsonl(path))
    with pytest.raises(SchemaError, match="The reader does not support a declared type: JSON conversion to dictionary"):
        fp.schema(fp.read_jsonl(path, schema={"__key__": pa.dictionary(pa.int8(), pa.string())}))


@pytest.mark.parametrize(("declared", "error"), [(3, ArgumentTypeError), ({"a": "int"}, ArgumentTypeError), ("scam", ArgumentTypeError)])
def test_arguments_are_checked_when_the_dataset_is_built(declared: Any, error: type[MlxfpError]):
    with pytest.raises(error, match="schema must map column names to Arrow types"):
        fp.read_jsonl("a.jsonl", schema=declared)


def test_a_dataset_is_a_value_and_building_it_reads_nothing():
    dataset = fp.read_jsonl(["none.jsonl", "*.jsonl"], schema={"x": pa.list_(pa.float32())})
    assert repr(dataset.source) == "read_jsonl(['none.jsonl', '*.jsonl'], schema={'x': pa.list_(pa.float32())})"
    assert_value(dataset)
    assert_told_apart(dataset, fp.read_jsonl(["none.jsonl", "*.jsonl"]))
    with pytest.raises(MissingFileError):
        next(iter(dataset))


def test_resuming_reads_nothing_that_stands_before(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", "".join(f'{{"n": {n}, "t": "text {n}"}}\n' for n in range(100_000)))
    items = list(fp.iterate(fp.read_jsonl(path)))
    cursor = fp.Cursor.from_bytes(items[80_000][1].to_bytes())
    data = bytearray(path.read_bytes())
    data[1_100_000:1_500_000] = b"," * 400_000  # after the block that types are inferred from, before the one of the cursor
    write(path, bytes(data))
    assert [row for row, _ in fp.iterate(fp.read_jsonl(path), cursor)] == [row for row, _ in items[80_001:]]
    with pytest.raises(DataError):
        list(fp.read_jsonl(path))


@pytest.mark.parametrize(("nothing", "value", "kind"), [("null", 3, "pa.int64()"), ("[]", [3], "pa.list_(pa.int64())")])
def test_a_column_that_was_only_null_is_to_be_declared(tmp_path: Path, nothing: str, value: Any, kind: str):
    paths = [write(tmp_path / "a.jsonl", f'{{"n": {nothing}}}'), write(tmp_path / "b.jsonl", json.dumps({"n": value}))]
    with pytest.raises(
        DataError, match=rf"Declare the type with schema={{'n': {re.escape(kind)}}} if all earlier values are null, or find"
    ):
        list(fp.read_jsonl(paths))
    assert list(fp.read_jsonl(paths, schema={"n": eval(kind, {"pa": pa})}))[-1] == {"n": value}


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ('"2024-03-05"', pa.date32(), dt.date(2024, 3, 5)),
        ('["2024-03-05", null]', pa.list_(pa.date32()), [dt.date(2024, 3, 5), None]),
        ('{"on": "2024-03-05T01:00:00Z"}', pa.struct({"on": pa.timestamp("s", "UTC")}), {"on": dt.datetime(2024, 3, 5, 1, tzinfo=dt.UTC)}),
        ('"2024-03-05T01:00:00.000001"', pa.timestamp("us"), dt.datetime(2024, 3, 5, 1, 0, 0, 1)),
    ],
)
def test_declared_dates_and_times_are_read_from_text(tmp_path: Path, value: str, kind: pa.DataType, expected: Any):
    path = write(tmp_path / "a.jsonl", f'{{"b": 1, "a": {value}}}\n{{"a": null}}\n')
    assert list(fp.read_jsonl(path, schema={"a": kind})) == [{"b": 1, "a": expected}, {"b": None, "a": None}]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("20240305", pa.date32()),
        ("5", pa.timestamp("s")),
        ('"2024-03-05T01:00:00"', pa.date32()),
        ('"2024-03-05"', pa.timestamp("s", "UTC")),
    ],
)
def test_a_value_that_is_no_text_of_a_declared_date_or_time_is_named(tmp_path: Path, value: str, kind: pa.DataType):
    """Arrow itself reads 20240305 as a count of days."""
    path = write(tmp_path / "a.jsonl", f'{{"a": null}}\n{{"a": {value}}}\n')
    with pytest.raises(DataError, match=r"A value does not fit the column 'a' of .*: got .*, in line 2 of"):
        list(fp.read_jsonl(path, schema={"a": kind}))


def test_declared_structs_with_times_may_have_ignored_keys(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"x": {"a": 1, "t": "2024-01-01T00:00:00", "q": 2}}\n')
    schema = {"x": pa.struct({"a": pa.int64(), "t": pa.timestamp("s")})}
    assert list(fp.read_jsonl(tmp_path / "rows.jsonl", schema=schema, unknown="ignore")) == [{"x": {"a": 1, "t": dt.datetime(2024, 1, 1)}}]


def test_declared_lists_without_times_keep_their_item_field(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"x": [1, 2]}\n')
    schema = {"x": pa.list_(pa.field("item", pa.int64(), nullable=False))}
    assert list(fp.read_jsonl(tmp_path / "rows.jsonl", schema=schema)) == [{"x": [1, 2]}]
