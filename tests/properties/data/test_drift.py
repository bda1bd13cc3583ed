"""Files whose columns and types change on the way: what one scan of all of them finds, and what is said without it."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.sources.csv_files import read_csv
from mlxfp.support.errors import ArgumentTypeError, DataError, MlxfpError, SchemaError, UnknownNameError
from mlxfp.testing.laws import assert_reads, assert_resumable, assert_told_apart, assert_value
from tests.data.written import blocked, write

SCALARS = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(allow_nan=False, width=32),
    "text": st.sampled_from(["a", "2024-01-31"]),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Draw values of a shape: a name of `SCALARS`, [shape], {key: shape}, or "int or float"; any part may be missing or null."""
    if isinstance(kind, list):
        return st.none() | st.lists(values_of(kind[0]), max_size=2)
    if isinstance(kind, dict):
        return st.none() | st.fixed_dictionaries({}, optional={key: values_of(each) for key, each in kind.items()})
    return st.none() | (st.integers(-9, 9) | SCALARS["float"] if kind == "int or float" else SCALARS[kind])


SHAPES = st.recursive(
    st.sampled_from(["int", "float", "text", "int or float"]),
    lambda inner: inner.map(lambda kind: [kind]) | st.dictionaries(st.sampled_from("xyé"), inner, min_size=1, max_size=2),
    max_leaves=4,
)


def fits(read: Any, written: Any) -> bool:
    """Whether a value that was read says what was written: keys may have come, all null, and an int may be a float."""
    if isinstance(written, dict) and isinstance(read, dict):
        return all(fits(value, written.get(key)) for key, value in read.items())
    if isinstance(written, list) and isinstance(read, list):
        return len(read) == len(written) and all(map(fits, read, written))
    return bool(read == written)


@given(st.dictionaries(st.sampled_from("abc"), SHAPES, min_size=1), st.data(), st.integers(1, 60))
def test_a_scan_finds_a_schema_that_reads_every_line(tmp_path_factory: pytest.TempPathFactory, shapes: Any, data: st.DataObject, size: int):
    lines = data.draw(
        st.lists(st.fixed_dictionaries({}, optional={name: values_of(kind) for name, kind in shapes.items()}), min_size=1, max_size=8)
    )
    lines.insert(0, dict.fromkeys(shapes))
    folder = tmp_path_factory.mktemp("scan")
    for number in range(2):
        write(folder / f"{number}.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines[number::2]))
    dataset = blocked(fp.read_jsonl(folder, schema="scan"), size)
    rows = list(dataset)
    assert all(map(fits, rows, lines[::2] + lines[1::2]))
    code = fp.explain(dataset).partition("give schema=")[2].partition("\n")[0]
    pasted = blocked(fp.read_jsonl(folder, schema=eval(code, {"pa": pa})), size)
    assert list(pasted) == rows
    assert fp.schema(pasted) == fp.schema(dataset)
    assert_reads(dataset.source)
    assert_resumable(dataset)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (['{"a": null}', '{"a": {"y": 1}}'], pa.struct({"y": pa.int64()})),
        (['{"a": null}', '{"a": [{"y": 1}]}'], pa.list_(pa.struct({"y": pa.int64()}))),
        (['{"a": []}', '{"a": [{"y": 1}]}'], pa.list_(pa.struct({"y": pa.int64()}))),
        (['{"a": {}}', '{"a": {"y": 1}}', '{"a": {"z": "t"}}'], pa.struct({"y": pa.int64(), "z": pa.string()})),
        (['{"a": 1}', '{"a": 1.5}'], pa.float64()),
        (['{"a": [1]}', '{"a": [1.5]}'], pa.list_(pa.float64())),
        (['{"a": "2024-01-31"}', '{"a": "soon"}'], pa.string()),
        (['{"b": 1}', '{"a": true}'], pa.bool_()),
        (['{"a": null}', "{}"], pa.string()),
        (['{"a": 1}', '{"a": 12345678901234567890}'], pa.string()),
    ],
)
def test_what_a_scan_finds(tmp_path: Path, lines: list[str], found: pa.DataType):
    paths = [write(tmp_path / f"{number}.jsonl", line) for number, line in enumerate(lines)]
    assert fp.schema(fp.read_jsonl(paths, schema="scan")).field("a").type == found
    assert len(list(fp.read_jsonl(paths, schema="scan"))) == len(lines)


def test_a_scan_goes_through_all_blocks_of_a_file(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", '{"a": null, "t": "some text"}\n' * 100_000 + '{"a": {"y": [1]}, "b": 1}\n')
    assert fp.schema(fp.read_jsonl(path, schema="scan")) == pa.schema(
        {"a": pa.struct({"y": pa.list_(pa.int64())}), "t": pa.string(), "b": pa.int64()}
    )


CONFLICTS = [
    (['{"a": 1}', '{"b": 1}\n{"a": null}\n{"a": "x"}'], r"column 'a' is int64 in line 1 of .*0\.jsonl and string in line 3 of .*1\.jsonl"),
    (['{"b": 1}\n\n{"a": 1}\n{"a": "x"}'], r"column 'a' is int64 in line 3 of .*0\.jsonl and string in line 4 of .*0\.jsonl"),
    (['{"a": {"y": [1]}, "b": 1}', '{"a": {"y": ["x"]}}'], r"is struct<y: list<.*int64>> in line 1 of .* in line 1 of .*1\.jsonl"),
    (['{"b": 1}', '{"a": [1, "x"]}'], r"A value has parts of several types \(.*\): got \[1, 'x'\] in the column 'a', in line 1 of"),
    (['{"a": []}\n{"a": {}}\n{"b": 1}'], r"is list<.*> in line 1 of .*0\.jsonl and struct<> in line 2 of"),
    (['{"a": {"n": 12345678901234567890}, "b": 1}'], r"An integer is too long for float64: got \{'n'"),
    (['{"a": 9007199254740993, "b": 1}', '{"a": 1.5}'], r"'a' is int64 in line 1 of .*0\.jsonl and double in line 1 of .*1\.jsonl"),
]  # fmt: skip


@pytest.mark.parametrize(("texts", "message"), CONFLICTS)
def test_values_that_no_type_holds_are_named_and_the_schema_to_paste_works(tmp_path: Path, texts: list[str], message: str):
    paths = [write(tmp_path / f"{number}.jsonl", text + "\n") for number, text in enumerate(texts)]
    with pytest.raises(SchemaError, match=message) as raised:
        fp.schema(fp.read_jsonl(paths, schema="scan"))
    code = str(raised.value).partition("or keep the column as JSON text: schema=")[2]
    rows = list(fp.read_jsonl(paths, schema=eval(code, {"pa": pa})))
    lines = [json.loads(line) for text in texts for line in text.split("\n") if line]
    assert [None if row["a"] is None else json.loads(row["a"]) for row in rows] == [line.get("a") for line in lines]
    assert [row["b"] for row in rows] == [line.get("b") for line in lines]


def test_a_malformed_line_is_named_by_a_scan(tmp_path: Path):
    with pytest.raises(DataError, match=r"A line is not JSON .*, in line 2 of .*a\.jsonl"):
        fp.schema(fp.read_jsonl(write(tmp_path / "a.jsonl", '{"a": 1}\n{"a": \n'), schema="scan"))


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.sampled_from('a"\\é\n{}[]'), max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", 'b"', "é", "\\"]), inner, max_size=2),
    max_leaves=6,
)


@given(
    st.lists(st.fixed_dictionaries({"n": st.integers(0, 9)}, optional={"free": JSON_VALUES}), max_size=8), st.integers(1, 60), st.booleans()
)
def test_a_column_of_json_gives_back_what_the_line_says(
    tmp_path_factory: pytest.TempPathFactory, lines: list[dict[str, Any]], size: int, escaped: bool
):
    texts = [json.dumps(line, ensure_ascii=escaped) for line in lines]
    path = write(tmp_path_factory.mktemp("free") / "a.jsonl", "\r\n".join(texts))
    dataset = blocked(fp.read_jsonl(path, schema={"n": pa.int64(), "free": pa.json_()}), size)
    assert fp.schema(dataset).field("free").type == pa.string()
    for row, line in zip(dataset, lines, strict=True):
        assert row["free"] == (None if line.get("free") is None else json.dumps(line["free"], ensure_ascii=escaped))
    assert_reads(dataset.source)


def test_tools_of_chats_keep_their_keys(tmp_path: Path):
    calls = [{"name": "f", "arguments": {"time": "now"}}, {"name": "g", "arguments": {"time": 3, "x": [1, "two"]}}]
    lines = [{"messages": [{"role": "user", "content": "?"}], "tools": calls[: number % 3]} for number in range(5_000)]
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(DataError, match=r"schema=\{'tools': pa\.json_\(\)\}"):
        list(fp.read_jsonl(path))
    for dataset in (
        fp.read_jsonl(path, schema={"tools": pa.json_()}),
        fp.read_jsonl(path, json_columns=["tools"]),
        fp.read_jsonl(path, schema="scan", json_columns=["tools"]),
    ):
        assert [json.loads(row["tools"]) for row in dataset] == [line["tools"] for line in lines]
        assert eval(repr(dataset.source), {"read_jsonl": fp.read_jsonl, "pa": pa}) == dataset
    with pytest.raises(ArgumentTypeError, match="json_columns must be a list of strings, got the string"):
        fp.read_jsonl(path, json_columns="tools")


def test_keys_that_are_no_columns_are_left_out_on_request(tmp_path: Path):
    lines = [{"t": "x", "o": {"x": 1}}] * 50_000
    lines += [{"t": "y", "link": "z", "o": {"x": 2, "new": [1]}}, {"o": {}}]
    path = write(tmp_path / "a.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(
        DataError, match=r"A key is not a column: got 'link', .*, in line 50001 of .* drop unknown keys .* unknown=\"ignore\"\."
    ):
        list(fp.read_jsonl(path))
    dataset = fp.read_jsonl(path, unknown="ignore")
    assert list(dataset)[-2:] == [{"t": "y", "o": {"x": 2}}, {"t": None, "o": {"x": None}}]
    assert_value(dataset)
    assert_told_apart(dataset, fp.read_jsonl(path))
    assert repr(dataset.source) == f"read_jsonl({str(path)!r}, unknown='ignore')"
    with pytest.raises(UnknownNameError, match=r"Did you mean 'ignore'\? Known: ignore, raise"):
        fp.read_jsonl(path, unknown="ignored")  # type: ignore[arg-type]


LONG = ["9223372036854775808", "12345678901234567890", "00012345678901234567890", "-9223372036854775809"]


@pytest.mark.parametrize("value", LONG)
@pytest.mark.parametrize("read", [read_csv, fp.read_jsonl])
@pytest.mark.parametrize("before", [[], ["1"], ["1.5"]])
@pytest.mark.parametrize("scan", [None, "scan"])
def test_long_identifiers_stay_text_or_are_an_error(tmp_path: Path, read: Any, value: str, before: list[str], scan: Any):
    if read is fp.read_jsonl and value.startswith("0"):
        value = value.lstrip("0")
    for number, values in enumerate([before, [value]] if before else [[value, "7"]]):
        text = "id\n" + "\n".join(values) if read is read_csv else "\n".join(f'{{"id": {each}}}' for each in values)
        write(tmp_path / f"{number}.{'csv' if read is read_csv else 'jsonl'}", text + "\n")
    dataset = read(tmp_path, schema=scan)
    if before and scan is None:
        with pytest.raises(DataError, match=rf"{value}.*, in line \d of .*1\.\w+\. .*schema=\{{'id': pa\.\w+\(\)\}}"):
            list(dataset)
    else:
        assert [row["id"] for row in dataset] == [*before, value, *["7"] * (not before)]


def test_declared_floats_round_decimals_and_refuse_longer_integers(tmp_path: Path):
    decimals = write(tmp_path / "a.csv", "x\n0.1\n9007199254740993.0\n")
    assert [row["x"] for row in read_csv(decimals, schema={"x": pa.float64()})] == [0.1, 2.0**53]
    integers = write(tmp_path / "b.csv", "x\n1.5\n9007199254740993\n")
    with pytest.raises(DataError, match="does not fit the column 'x' of double: got '9007199254740993', in line 3"):
        list(read_csv(integers, schema={"x": pa.float64()}))
    with pytest.raises(DataError, match="9007199254740993"):
        list(fp.read_jsonl(write(tmp_path / "c.jsonl", '{"x": 9007199254740993}\n'), schema={"x": pa.float64()}))


@pytest.mark.parametrize("value", ["1e300", "-1e20", "inf", "nan", "9007199254740993.0"])
def test_large_floats_are_no_identifiers(tmp_path: Path, value: str):
    text = f"x,t\n1.5,1234567890123456789012\n{value},a\n"
    assert next(iter(read_csv(write(tmp_path / "a.csv", text), null_values=())))["x"] == 1.5
    if value not in ("inf", "nan"):
        lines = f'{{"x": 1.5, "t": "12345678901234567890"}}\n{{"x": {value}, "t": "a"}}\n'
        assert [row["x"] for row in fp.read_jsonl(write(tmp_path / "a.jsonl", lines))] == [1.5, float(value)]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2"], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["10.5", "11.0.1"], pa.string()),
        (["1", "12_000"], pa.string()),
        (["1", "TRUE"], pa.string()),
        (["1", "1e400"], pa.string()),
        (["", "x"], pa.string()),
        (["", "2"], pa.int64()),
        (["2024-01-31", "soon"], pa.string()),
        (["9007199254740993", "1.5"], pa.string()),
    ],
)
def test_a_scan_of_csv_finds_types_that_fit_all_rows(tmp_path: Path, values: list[str], kind: pa.DataType):
    path = write(tmp_path / "a.csv", "x,y\n" + f"{values[0]},{'a' * 10_000}\n" * 110 + f"{values[1]},b\n")
    dataset = read_csv(path, schema="scan")
    assert fp.schema(dataset) == pa.schema({"x": kind, "y": pa.string()})
    assert repr(dataset.source) == f"read_csv({str(path)!r}, schema='scan')"
    last = list(dataset)[-1]["x"]
    assert last == (values[1] if kind == pa.string() else float(values[1]))


def test_a_scan_of_csv_names_files_that_differ(tmp_path: Path):
    paths = [write(tmp_path / "a.csv", "x,y\n1,2\n"), write(tmp_path / "b.csv", "x,z\n1,2\n")]
    with pytest.raises(SchemaError, match=r"Two files have different columns: .*b\.csv lacks 'y' and adds 'z', compared with .*a\.csv"):
        fp.schema(read_csv(paths, schema="scan"))


PIECES = ["{", "}", "[", "]", '"a"', '"b"', ":", ",", "1", "1.5", "null", "true", "\n", "\n", '{"a": 1}\n', '{"a": "x"}\n', '{"a": [1]}\n']
PIECES += ['{"a": {"b": null}}\n', '{"b": 12345678901234567890}\n', '"', "\\", " ", "\r", "é", "\x00", "NaN", "1e999", "-", "{}\n", "[]\n"]
WILD = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


@given(
    WILD.map(str.encode) | st.binary(max_size=30), st.sampled_from([None, "scan", {"a": pa.int64()}, {"a": pa.json_()}]), st.integers(1, 40)
)
def test_whatever_is_in_a_file_gives_rows_or_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, data: bytes, kinds: Any, size: int):
    path = write(tmp_path_factory.mktemp("any") / "a.jsonl", b'{"a": 1, "b": 2}\n' + data)
    for unknown in ("raise", "ignore"):
        dataset: Any = blocked(fp.read_jsonl(path, schema=kinds, unknown=unknown), size)  # type: ignore[arg-type]
        with suppress(MlxfpError):
            rows = list(dataset)
            assert rows == list(fp.read_jsonl(path, schema=kinds, unknown=unknown))  # type: ignore[arg-type]
        with suppress(MlxfpError):
            list(fp.pipe(dataset, fp.on_error("skip", max_rate=1.0)))
