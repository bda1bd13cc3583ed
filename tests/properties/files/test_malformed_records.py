"""Malformed records of files are left out by `on_error`: the others come as without them, and the list names file, line and reason."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.sources.csv_files import read_csv
from mlxfp.support.errors import DataError
from mlxfp.testing.laws import assert_repeatable, assert_resumable
from tests.data.written import PACKINGS, blocked, write

KINDS = {"n": pa.int64(), "t": pa.string()}
ALL = fp.on_error("skip", max_rate=1.0)

# Records, each with what it says or None, and how many lines it has.
JSON_RECORDS: list[tuple[bytes, dict[str, Any] | None]] = [
    (b'{"n": 1, "t": "a"}\n', {"n": 1, "t": "a"}),
    (b'{"n": 2}\r\n', {"n": 2, "t": None}),
    (b'{"n": \n', None),
    (b'{"n": 1} {"n": 2}\n', None),
    (b"[1]\n", None),
    (b"null\n", None),
    (b'{"n": "x"}\n', None),
    (b'{"t": "\xff"}\n', None),
    (b'{"t": "open\n', None),
    (b'{"n": ' + b"[" * 2_000 + b"\n", None),
    (b"}{\n", None),
]
CSV_RECORDS: list[tuple[bytes, dict[str, Any] | None]] = [
    (b"1,a\n", {"n": 1, "t": "a"}),
    (b'2,"b\r\nc"\r\n', {"n": 2, "t": "b\r\nc"}),
    (b"3\n", None),
    (b"4,a,b\n", None),
    (b"x,a\n", None),
    (b"5,\xff\n", None),
    (b'"6"7,"a\nb"c,d\n', None),
    (b'1.5,"a"\n', None),
]
SIZES = st.integers(1, 80)


def listed(dataset: Any, cursor: fp.Cursor) -> list[tuple[int, str]]:
    return [(each.origin.row, each.reason.rpartition(", in ")[2]) for each in fp.inspect.skipped_rows(dataset, cursor)]


@given(st.data(), SIZES, st.sampled_from(sorted(PACKINGS)), st.booleans())
@pytest.mark.parametrize("read", [read_csv, fp.read_jsonl])
def test_the_list_of_malformed_records_is_exact(
    tmp_path_factory: pytest.TempPathFactory, read: Any, data: st.DataObject, size: int, packing: str, unended: bool
):
    known, header = (CSV_RECORDS, b"n,t\n") if read is read_csv else (JSON_RECORDS, b"")
    folder = tmp_path_factory.mktemp("damaged")
    rows, places, bad, paths = list[Any](), list[int](), list[tuple[int, str]](), []
    for number in range(2):
        drawn = data.draw(st.lists(st.sampled_from(known) | st.just((b"\n", {})), max_size=8))
        path = folder / f"{number}.{'csv' if read is read_csv else 'jsonl'}{packing}"
        text = header
        for record, says in drawn:
            line = text.count(b"\n") + 1
            text += record
            if says is None:
                bad.append((len(rows) + len(bad), f"line {line} of {path}"))
            elif says:
                places.append(len(rows) + len(bad))
                rows.append(says)
        if unended and read is read_csv:
            line = text.count(b"\n") + 1
            bad.append((len(rows) + len(bad), f"line {line} of {path}"))
            text += b'9,"never closed\n1,a\n'
        path.write_bytes(PACKINGS[packing](text))
        paths.append(path)
    dataset = fp.pipe(blocked(read(paths, schema=KINDS), size), ALL)
    items = list(fp.iterate(dataset))
    assert [row for row, _ in items] == rows
    assert_resumable(dataset)
    assert_repeatable(dataset)
    for place in {data.draw(st.integers(0, len(items) - 1)), len(items) - 1} if items else ():
        found = listed(dataset, items[place][1])
        assert found == bad[: len(found)]
        assert len(found) >= sum(row < places[place] for row, _ in bad)
        *_, last = [items[place], *fp.iterate(dataset, fp.Cursor.from_bytes(items[place][1].to_bytes()))]
        assert listed(dataset, last[1]) == listed(dataset, items[-1][1])


@given(st.lists(st.sampled_from(JSON_RECORDS), max_size=12), SIZES)
def test_types_are_inferred_from_the_records_that_are_well(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[bytes, dict[str, Any] | None]], size: int
):
    path = tmp_path_factory.mktemp("first") / "a.jsonl"
    path.write_bytes(b'{"n": 1, "t": "a"}\n' + b"".join(record for record, _ in records))
    dataset = fp.pipe(blocked(fp.read_jsonl(path), size), ALL)
    assert next(iter(dataset)) == {"n": 1, "t": "a"}
    assert len(list(dataset)) <= 1 + len(records)


@pytest.mark.parametrize("count", [3, 40])
def test_a_file_that_begins_with_malformed_lines_has_types(tmp_path: Path, count: int):
    path = write(tmp_path / "a.jsonl", '{"n": 1}\n' + "{\n" * count + '{"n": 2}\n')
    assert list(fp.pipe(fp.read_jsonl(path), ALL)) == [{"n": 1}, {"n": 2}]
    path = write(tmp_path / "b.jsonl", "{\n" * count + '{"n": 2}\n')
    if count > 16:
        with pytest.raises(DataError, match=r"A line is not JSON .*, in line 1 of"):
            fp.schema(fp.pipe(fp.read_jsonl(path), ALL))
    else:
        assert list(fp.pipe(fp.read_jsonl(path), ALL)) == [{"n": 2}]


def test_the_reason_says_what_is_wrong_and_where(tmp_path: Path):
    path = write(tmp_path / "a.csv", "n,t\n1,a\nx,b\n2,c\n3\n4,d\n")
    dataset = fp.pipe(read_csv(path, schema=KINDS), ALL)
    *_, (_, cursor) = fp.iterate(dataset)
    found = fp.inspect.skipped_rows(dataset, cursor)
    assert [(each.origin.row, each.reason) for each in found] == [
        (1, f"DataError: A value does not fit the column 'n' of int64: got 'x', in line 3 of {path}"),
        (3, f"DataError: A record has 1 fields, but there are 2 columns: got '3\\n', in line 5 of {path}"),
    ]
    assert {each.stage for each in found} == {repr(read_csv(path, schema=KINDS).source)}


def test_lines_that_are_not_utf8_are_left_out_of_text(tmp_path: Path):
    path = write(tmp_path / "a.txt", b"one\n\xfftwo\nthree")
    assert [row["text"] for row in fp.pipe(fp.read_text(path), ALL)] == ["one", "three"]
    assert list(fp.pipe(fp.read_text(path, by="file"), ALL)) == []


def test_too_many_malformed_lines_stop_the_run(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", '{"n": 1}\n' * 100 + "{\n" * 11)
    with pytest.raises(DataError, match=r"Too many rows fail: 11 of the first 111 .* A line is not JSON .* in line 101 of .*a\.jsonl"):
        list(fp.pipe(fp.read_jsonl(path), fp.on_error("skip")))


@pytest.mark.parametrize("between", [fp.shuffle(seed=0), fp.shuffle(seed=0, buffer=3), fp.compose(fp.map(dict, schema=pa.schema(KINDS)))])
def test_malformed_lines_pass_through_shuffles_and_joins(tmp_path: Path, between: Any):
    lines = [b'{"n": %d}\n' % number if number % 3 else b"{\n" for number in range(20)]
    path = write(tmp_path / "a.jsonl", b"".join(lines))
    part = blocked(fp.read_jsonl(path, schema=KINDS), 40)
    dataset = fp.pipe(fp.concat([part, part]), between, ALL)
    items = list(fp.iterate(dataset))
    assert sorted(row["n"] for row, _ in items) == sorted([number for number in range(20) if number % 3] * 2)
    assert_resumable(dataset)
    assert sum(len(group) for group in fp.pipe(dataset, fp.batch(4))) == len(items)


def test_records_behind_what_cannot_be_read_are_not_known():
    def broken() -> Any:
        yield {"n": 1}
        raise OSError("the wire is cut")

    dataset = fp.pipe(fp.from_iterable(broken, schema=pa.schema({"n": pa.int64()})), fp.map(dict, schema=pa.schema({"n": pa.int64()})), ALL)
    with pytest.raises(OSError, match="the wire is cut") as caught:
        list(dataset)
    assert any("on_error cannot skip this error: without random access" in note for note in caught.value.__notes__)


def test_without_on_error_the_first_malformed_line_is_an_error(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", json.dumps({"n": 1}) + "\n{\n")
    with pytest.raises(DataError, match="in line 2 of"):
        list(fp.read_jsonl(path, schema={"n": pa.int64()}))
