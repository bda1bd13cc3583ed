"""The law of windows: one stream of tokens, all of it, cut at even places."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch
from mlxfp.core.execution import run as chunks_of
from mlxfp.core.execution import start
from mlxfp.data.lengths import windowing
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError
from mlxfp.testing import laws
from mlxfp.testing.laws.datasets import collect
from mlxfp.testing.probing import from_chunks
from tests.data.token_rows import Chunks, assert_obeys, chunkings, numbered, rows_of, run


def expected(rows: list[list[int]], length: int, stride: int, separator: int | None, *, drop_last: bool) -> list[list[int]]:
    """Cut windows one by one, as long as one holds a token that those before it lack."""
    stream = [token for row in rows for token in (row if separator is None else [*row, separator])]
    found: list[list[int]] = []
    covered = start = 0
    while covered < len(stream):
        window = stream[start : start + length]
        if len(window) == length or not drop_last:
            found.append(window)
        covered, start = start + len(window), start + stride
    return found


def settings() -> st.SearchStrategy[dict[str, Any]]:
    """Make arguments of `windows`."""
    choices = {"separator": st.none() | st.integers(1000, 1001), "drop_last": st.booleans()}
    return st.integers(1, 9).flatmap(
        lambda length: st.fixed_dictionaries({"length": st.just(length), "stride": st.none() | st.integers(1, length), **choices})
    )


@given(chunkings(), settings())
def test_windows_are_those_that_a_loop_cuts(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_cuts_as_a_loop(cut[0], asked)


def assert_cuts_as_a_loop(chunks: Chunks, asked: dict[str, Any]) -> None:
    found = [row["input_ids"] for row in fp.pipe(from_chunks(chunks), fp.windows(**asked))]
    stride = asked["stride"] or asked["length"]
    assert found == expected(rows_of(chunks), asked["length"], stride, asked["separator"], drop_last=asked["drop_last"])


@given(chunkings(), settings())
def test_windows_obey_the_laws_of_stages(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_obeys(fp.windows(**asked), *cut)


@given(chunkings(), settings())
def test_windows_come_out_as_soon_as_they_are_full(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    laws.assert_lazy(fp.windows(**asked), cut[0], ahead=12)  # rows that end a window: at most as many as it has tokens, and empty ones


@given(chunkings(), settings())
def test_windows_name_the_document_they_start_in_and_have_keys_of_their_own(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    rows = rows_of(cut[0])
    owner = {token: place for place, row in enumerate(rows) for token in row}
    table = collect(fp.windows(**asked)(from_chunks(cut[0])), epoch=2)
    for window, row in zip(table["input_ids"].to_pylist(), table["__row__"].to_pylist(), strict=True):
        assert owner.get(window[0], row) == row
    assert len(set(table["__key__"].to_pylist())) == table.num_rows


def _last_lost(self: Any, state: Any) -> Any:
    return ()


def _size_of_rows(stream: RecordBatch) -> Any:
    return stream.num_rows


@pytest.mark.parametrize(
    ("name", "broken"),
    [("_Windows.finish", _last_lost), ("_after", lambda stream, place: stream.slice(0, 0)), ("_size", _size_of_rows)],
)
def test_the_law_catches_windows_that_lose_tokens(monkeypatch: pytest.MonkeyPatch, name: str, broken: Any):
    chunks = tuple(numbered([3, 2, 4]).to_batches(max_chunksize=1))
    asked = {"length": 4, "stride": 3, "separator": None, "drop_last": False}
    assert_cuts_as_a_loop(chunks, asked)
    monkeypatch.setattr(f"mlxfp.data.lengths.windowing.{name}", broken)
    with pytest.raises(AssertionError):
        assert_cuts_as_a_loop(chunks, asked)


def test_the_law_catches_a_window_of_nothing_new(monkeypatch: pytest.MonkeyPatch):
    chunks = tuple(numbered([5]).to_batches())
    asked = {"length": 5, "stride": 2, "separator": None, "drop_last": False}
    assert_cuts_as_a_loop(chunks, asked)
    finish = windowing._Windows.finish
    monkeypatch.setattr(windowing._Windows, "finish", lambda self, state: finish(self, (state[0], 0)))
    with pytest.raises(AssertionError):
        assert_cuts_as_a_loop(chunks, asked)


def test_the_law_catches_a_state_that_forgets_the_chunk_before(monkeypatch: pytest.MonkeyPatch):
    table = numbered([3, 3])
    asked = {"length": 4, "stride": None, "separator": None, "drop_last": False}
    laws.assert_chunks_do_not_matter(fp.windows(4), table.to_batches(), table.to_batches(max_chunksize=1))
    monkeypatch.setattr(windowing, "concat_chunks", lambda chunks: chunks[-1])
    with pytest.raises(AssertionError):
        laws.assert_chunks_do_not_matter(fp.windows(4), table.to_batches(), table.to_batches(max_chunksize=1))
    with pytest.raises(AssertionError):
        assert_cuts_as_a_loop(tuple(table.to_batches(max_chunksize=1)), asked)


def test_windows_without_overlap_are_the_stream_and_a_separator_ends_each_document():
    assert [row["input_ids"] for row in run(fp.windows(4), [3, 0, 6])] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert [row["input_ids"] for row in run(fp.windows(4, separator=99), [3, 0, 2])] == [[0, 1, 2, 99], [99, 3, 4, 99]]


def test_one_token_more_than_the_stride_gives_a_language_model_every_prediction_once():
    found = [row["input_ids"] for row in run(fp.windows(4, stride=3), [10])]
    assert found == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    predictions = [pair for row in found for pair in pairwise(row)]
    assert predictions == [(token, token + 1) for token in range(9)]


def test_only_the_tokens_come_out():
    (row, *_) = run(fp.windows(3), [5])
    assert row == {"input_ids": [0, 1, 2]}
    rows = fp.pipe(fp.from_table(numbered([5]).rename_columns(["ids", "mask"])), fp.windows(3, column="ids"))
    assert [list(row) for row in rows] == [["ids"], ["ids"]]


def test_windows_that_overlap_much_come_out_in_chunks_of_bounded_size():
    stage: Any = fp.windows(3000, stride=1)
    source = fp.from_table(numbered([6000]))
    assert [chunk.num_rows for chunk, _ in chunks_of(fp.pipe(source, stage), start(0, None))] == [349] * 8 + [209]  # of a million tokens


def test_what_is_held_is_less_than_a_window():
    stage: Any = fp.windows(50, stride=10)
    state = stage.start(0)
    for chunk, _ in chunks_of(fp.from_table(numbered([7, 300, 0, 45, 5] * 40)), start(0, None)):
        state, _ = stage.step(state, chunk)
        assert sum(map(len, state[0]["tokens"].to_pylist())) < 50
    assert "holds fewer than 50 tokens" in stage.traits.notes()


def test_windows_print_as_they_are_called_and_the_length_is_the_stride_by_default():
    assert repr(fp.windows(8)) == "windows(length=8)"
    assert fp.windows(8, stride=8) == fp.windows(8)
    stage: Any = fp.windows(8, stride=4, separator=0, drop_last=True, column="ids")
    assert repr(stage) == "windows(length=8, stride=4, separator=0, drop_last=True, column='ids')"
    laws.assert_prints(stage, {"windows": fp.windows})


def test_arguments_that_cannot_work_are_refused_at_once():
    with pytest.raises(ArgumentError, match="length must be at least 1"):
        fp.windows(0)
    with pytest.raises(ArgumentError, match=r"stride=5 would skip tokens between windows of length=4\. Use a stride of at most length"):
        fp.windows(4, stride=5)
    with pytest.raises(ArgumentError, match="stride must be at least 1"):
        fp.windows(4, stride=0)
    with pytest.raises(ArgumentError, match="separator must be at least 0"):
        fp.windows(4, separator=-1)
    with pytest.raises(ArgumentError, match=r"separator is a token id \(int32\) and must be below 2147483648, got separator=2147483648"):
        fp.windows(4, separator=2**31)
    with pytest.raises(ArgumentTypeError, match="column must be a string"):
        fp.windows(4, column=1)  # type: ignore[arg-type]  # the mistake under test


def test_columns_are_checked_before_any_row():
    with pytest.raises(
        SchemaError, match=r"windows needs lists of integers in column 'input_ids', got string\. Use tokenize first to turn"
    ):
        _ = fp.pipe(fp.from_examples([{"input_ids": "a b"}]), fp.windows(4)).resolved
    with pytest.raises(SchemaError, match=r"windows needs lists of integers in column 'x', got list<item: double>"):
        _ = fp.pipe(fp.from_examples([{"x": [0.5]}]), fp.windows(4, column="x")).resolved
    with pytest.raises(SchemaError, match=r"windows needs the column 'input_ids', which is missing\. Columns: 'text'"):
        _ = fp.pipe(fp.from_examples([{"text": "a"}]), fp.windows(4)).resolved


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [[1], None],
            r"windows: column 'input_ids' of source row 1 is null\. Call fp\.map to replace the null, or fp\.filter to remove",
        ),
        ([[1], [], [2, None]], r"windows: column 'input_ids' of source row 2 holds a null in its list\. Call fp\.map to replace"),
        ([[1, 2], [3, 2**31]], r"windows: column 'input_ids' of source row 1 holds 2147483648, beyond 32-bit integers"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(rows: Any, message: str):
    with pytest.raises(DataError, match=message):
        list(fp.pipe(fp.from_table({"input_ids": pa.array(rows, pa.list_(pa.int64()))}), fp.windows(2)))


def test_lists_of_a_fixed_size_are_lists_too():
    ids = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(8)), 4)
    assert [row["input_ids"] for row in fp.pipe(fp.from_table({"input_ids": ids}), fp.windows(3))] == [[0, 1, 2], [3, 4, 5], [6, 7]]
