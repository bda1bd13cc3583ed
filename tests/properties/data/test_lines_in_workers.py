"""CSV and JSON lines are parsed where a worker runs: the records are counted before, and must become as many rows."""

from pathlib import Path
from time import sleep
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.sources import ChunkTask
from mlxfp.data.sources.records.line_blocks import Block, Opening
from mlxfp.data.sources.records.parsing import Lines
from mlxfp.support.errors import DataError
from mlxfp.testing.laws import assert_runners_agree
from tests.data.written import blocked, write

TWO = fp.prefetch(3, workers=2)
CSV = st.lists(
    st.sampled_from(["a", "1", ",", ",", "\n", "\n", "\r\n", "\r", '"', '""', '",', ',"', '"\n', "é", "\ufeff", "\x00", " "]), max_size=40
).map("".join)
OBJECTS = ['{"a": 1}', '{"a": 2, "b": "x\\ny"}', '{"b": "}\\r{"}', '{"a": null}', "{}"]
OTHERS = [" {}", "", " ", "\r", "null", "{}{}", "[1]", '{"a":']
LINES = st.lists(st.sampled_from(OBJECTS) | st.sampled_from([*OBJECTS, *OTHERS]), max_size=12)
SIZES = st.integers(1, 60)


def tasks_of(dataset: Any) -> list[Any]:
    return [task for task, _ in dataset.source.tasks(0, None)]


def assert_counts(dataset: Any, data: bytes, schema: pa.Schema) -> None:
    """Law: data that can be parsed have as many rows as records were counted, and so have the parts that they are cut into."""
    block = Block(data, Opening(0, names=tuple(schema.names)), "a file", line=1, next_line=0, end=None)
    task = Lines(dataset.source, block, schema, schema, ())
    ends = dataset.source.filled_ends(data)
    try:
        whole = task.read()
    except DataError:
        return
    if ends is not None:
        assert whole.num_rows == len(ends)
        counted = attrs.evolve(task, rows=len(ends), ends=ends)
        middle = counted.rows // 2
        cuts = [(first, stop) for first, stop in ((0, middle), (middle, counted.rows)) if first < stop]
        parts = [counted.part(*cut).sent_to("threads") for cut in cuts]
        assert [row for part in parts for row in part.read().to_pylist()] == whole.to_pylist()
        assert all(part.part(0, part.rows) is None for part in parts)  # what was sent no more knows where it could be cut


@settings(max_examples=60)
@given(text=CSV, quote=st.sampled_from(['"', None]), width=st.sampled_from(["a", "ab"]))
@example(text='x\n"\n\n"y\n\r\n \n', quote='"', width="a")
@example(text='a"b\n"c\nd"\n', quote='"', width="a")
def test_records_of_csv_become_as_many_rows_as_are_counted(text: str, quote: Any, width: str):
    assert_counts(fp.read_csv("a.csv", quote=quote, columns=list(width)), text.encode(), pa.schema([(name, pa.string()) for name in width]))


@settings(max_examples=40)
@given(lines=LINES, newline=st.sampled_from(["\n", "\r\n"]), end=st.booleans())
def test_lines_of_json_become_as_many_rows_as_are_counted(lines: list[str], newline: str, end: Any):
    data = (newline.join(lines) + newline * end).encode()
    assert_counts(fp.read_jsonl("a.jsonl"), data, pa.schema({"a": pa.int64(), "b": pa.string()}))


@settings(max_examples=15)
@given(text=CSV, size=SIZES)
def test_csv_gives_the_same_with_workers(tmp_path_factory: Any, text: str, size: int):
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", text)
    assert_runners_agree(blocked(fp.read_csv(path, columns=["a", "b"], schema={"a": pa.string()}), size), TWO)


@settings(max_examples=15)
@given(lines=LINES, size=SIZES)
def test_json_lines_give_the_same_with_workers(tmp_path_factory: Any, lines: list[str], size: int):
    path = write(tmp_path_factory.mktemp("json") / "a.jsonl", "\n".join(lines))
    dataset = blocked(fp.read_jsonl(path, schema={"a": pa.int64(), "b": pa.string()}), size)
    assert_runners_agree(fp.pipe(dataset, fp.map(dict), fp.batch(2)), TWO)


def numbered(folder: Path, count: int, bad: int = -1) -> Path:
    return write(folder / "a.csv", "n,t\n" + "".join(f'{"x" if n == bad else n},"row\n""{n}"""\n' for n in range(count)))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_long_records_in_many_blocks_give_the_same(tmp_path: Path, kind: Any):
    rows = blocked(fp.read_csv(numbered(tmp_path, 400)), 500)
    line = fp.prefetch(3, workers=2 if kind == "threads" else 1, kind=kind)
    assert "2 threads share read_csv(" in fp.explain(TWO(rows))
    assert_runners_agree(fp.pipe(rows, fp.batch(7)), line)


def test_a_bad_record_is_the_same_error_and_is_skipped_alike(tmp_path: Path):
    rows = blocked(fp.read_csv(numbered(tmp_path, 90, bad=71), schema={"n": pa.int64()}), 300)
    assert_runners_agree(fp.pipe(rows, fp.batch(4)), TWO)
    with pytest.raises(DataError, match=rf"column 'n' of int64: got 'x', in line {2 + 2 * 71} of .*a.csv"):
        list(TWO(rows))
    kept = fp.pipe(rows, fp.map(dict), fp.on_error("skip", max_rate=1.0), fp.batch(4))
    assert_runners_agree(kept, TWO)
    *_, (_, cursor) = fp.iterate(TWO(kept))
    assert len([*fp.inspect.skipped_rows(TWO(kept), cursor)]) == 1


def slowly(row: Any) -> Any:
    sleep(0.01)
    return row


def test_rows_of_a_block_are_shared_where_they_are_slow(tmp_path: Path):
    assert_runners_agree(fp.pipe(fp.read_csv(numbered(tmp_path, 30)), fp.map(slowly), fp.batch(4)), TWO)


def test_columns_of_folders_are_there(tmp_path: Path):
    for year in (2023, 2024):
        folder = tmp_path / f"year={year}"
        folder.mkdir()
        numbered(folder, 5)
    assert_runners_agree(fp.pipe(fp.read_csv(tmp_path), fp.batch(4)), TWO)
    assert np.unique(fp.to_table(TWO(fp.read_csv(tmp_path)))["year"].to_numpy()).tolist() == [2023, 2024]


def test_text_is_read_in_one_thread(tmp_path: Path):
    path = write(tmp_path / "a.txt", "a\n\nb\n")
    assert all(isinstance(task, ChunkTask) for task in tasks_of(fp.read_text(path)))
    assert_runners_agree(fp.read_text(path), TWO)


def test_rows_that_are_not_as_many_as_records_are_an_error(tmp_path: Path):
    (task,) = tasks_of(fp.read_csv(numbered(tmp_path, 3)))
    import attrs

    with pytest.raises(DataError, match=r"The parser made 3 rows, but the record counter found 5 records, from line 2 of .*a.csv on"):
        attrs.evolve(task, rows=5).read()
