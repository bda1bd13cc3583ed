"""The law of packing: every token once, whole documents where they fit, and rows that no chunk boundary decides."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.core.execution import run as chunks_of
from mlxfp.core.execution import start
from mlxfp.data.lengths import packing
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError, UnknownNameError
from mlxfp.testing import laws
from mlxfp.testing.laws.datasets import collect
from mlxfp.testing.probing import from_chunks
from tests.data.token_rows import Chunks, assert_obeys, chunkings, numbered, row_lengths, rows_of, run

Document = list[int]


def settings() -> st.SearchStrategy[dict[str, Any]]:
    """Make arguments of `pack`."""
    fitting = st.fixed_dictionaries({"method": st.just("best_fit"), "open_rows": st.none() | st.integers(1, 4)})
    method = fitting | st.just({"method": "split", "open_rows": None})
    one = st.tuples(st.integers(1, 9), method).map(lambda pair: {"length": pair[0], **pair[1]})
    several = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True).map(sorted)
    return one | st.tuples(several, fitting).map(lambda pair: {"length": pair[0], **pair[1]})


def longest(asked: dict[str, Any]) -> int:
    return max(np.atleast_1d(asked["length"]).tolist())


def expected(documents: list[Document], asked: dict[str, Any]) -> list[list[Document]]:
    """Pack documents one by one: the rows, each a list of pieces, in the order in which they are closed."""
    lengths, most = np.atleast_1d(asked["length"]).tolist(), asked["open_rows"] or packing.OPEN_ROWS
    length = lengths[-1]
    closed: list[list[Document]] = []
    rows: list[list[Document]] = []  # open, the oldest first

    def limit(piece: Document) -> int:
        return next(length for length in lengths if length >= len(piece))

    def room(row: list[Document]) -> Any:
        return (length if asked["method"] == "split" or not row else limit(row[0])) - sum(map(len, row))

    def of_one_length(piece: Document) -> list[list[Document]]:
        return [row for row in rows if asked["method"] == "split" or limit(row[0]) == limit(piece)]

    def close(row: list[Document]) -> None:
        rows[:] = [other for other in rows if other is not row]
        closed.append(row)

    def put(piece: Document, row: list[Document]) -> None:
        if not any(other is row for other in rows):
            rows.append(row)
        row.append(piece)
        if not room(row):
            close(row)
        elif len(open_rows := of_one_length(piece)) > most:
            close(min(open_rows, key=room))

    for document in documents:
        if asked["method"] == "split":
            rest = document
            while rest:
                row = rows[0] if rows else []
                rest, piece = rest[room(row) :], rest[: room(row)]
                put(piece, row)
            continue
        for first in range(0, len(document), length):
            piece = document[first : first + length]
            fitting = [row for row in of_one_length(piece) if room(row) >= len(piece)] or [[]]
            put(piece, min(fitting, key=room))
    return closed + rows


def pieces_of(row: Any) -> list[Document]:
    """Cut a row where its segments change."""
    segments = row["segment_ids"]
    places = [0, *(place for place in range(1, len(segments)) if segments[place] != segments[place - 1]), len(segments)]
    return [row["input_ids"][first:last] for first, last in pairwise(places)]


def assert_packs_as_a_loop(chunks: Chunks, asked: dict[str, Any]) -> None:
    found = [pieces_of(row) for row in fp.pipe(from_chunks(chunks), fp.pack(**asked))]
    assert found == expected([row for row in rows_of(chunks) if row], asked)


def assert_packed(chunks: Chunks, asked: dict[str, Any]) -> None:
    """Law: every token comes out once; documents are whole unless too long; segments count from 1, positions from 0."""
    rows = list(fp.pipe(from_chunks(chunks), fp.pack(**asked, aligned=["mask"])))
    length, documents = longest(asked), [row for row in rows_of(chunks) if row]
    pieces = [piece for row in rows for piece in pieces_of(row)]
    assert sorted(token for piece in pieces for token in piece) == sorted(token for row in documents for token in row)
    if asked["method"] == "split":
        assert all(len(row["input_ids"]) == length for row in rows[:-1])
        assert [token for piece in pieces for token in piece] == [token for row in documents for token in row]
    else:
        cut = [row[first : first + length] for row in documents for first in range(0, len(row), length)]
        assert sorted(pieces) == sorted(cut)
    for row in rows:
        own = pieces_of(row)
        assert 1 <= len(row["input_ids"]) <= length
        assert row["segment_ids"] == [number for number, piece in enumerate(own, 1) for _ in piece]
        assert row["positions"] == [place for piece in own for place in range(len(piece))]
        assert row["mask"] == [token % 3 == 0 for token in row["input_ids"]]


@given(chunkings(longest=15), settings())
def test_rows_are_those_that_a_loop_packs(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_packs_as_a_loop(cut[0], asked)


@given(chunkings(longest=15), settings())
def test_every_token_comes_out_once_with_its_segment_and_position(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_packed(cut[0], asked)


@given(chunkings(longest=15), settings())
def test_packing_obeys_the_laws_of_stages(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    assert_obeys(fp.pack(**asked, aligned=["mask"]), *cut)


@given(chunkings(longest=15), settings())
def test_a_packed_row_names_its_first_document_and_has_a_key_of_its_own(cut: tuple[Chunks, Chunks], asked: dict[str, Any]):
    owner = {token: place for place, row in enumerate(rows_of(cut[0])) for token in row}
    table = collect(fp.pack(**asked)(from_chunks(cut[0])), epoch=2)
    assert table["__row__"].to_pylist() == [owner[tokens[0]] for tokens in table["input_ids"].to_pylist()]
    assert len(set(table["__key__"].to_pylist())) == table.num_rows


@given(row_lengths(longest=8, max_rows=30).filter(len), st.integers(1, 5))
def test_no_more_rows_are_open_than_asked_for(lengths: list[int], open_rows: int):
    stage: Any = fp.pack(8, open_rows=open_rows)
    state = stage.start(0)
    for chunk, _ in chunks_of(from_chunks(numbered(lengths).to_batches(max_chunksize=3)), start(0, None)):
        state, _ = stage.step(state, chunk)
        assert len(set(state[1].tolist())) <= open_rows


@given(row_lengths(longest=16, max_rows=40), st.integers(16, 20))
def test_with_enough_open_rows_fewer_than_two_are_less_than_half_full(lengths: list[int], length: int):
    rows = run(fp.pack(length, open_rows=1000), lengths)
    assert sum(2 * len(row["input_ids"]) < length for row in rows) <= 1


BEST_FIT = packing._best_fit
CASE = {"length": 6, "method": "best_fit", "open_rows": 2}


def _one_row(sizes: Any, left: Any, length: int, open_rows: int) -> Any:
    return [0] * len(sizes), {}


def _without_the_open_rows(sizes: Any, left: Any, length: int, open_rows: int) -> Any:
    placed, closed = BEST_FIT(sizes, [], length, open_rows)
    return [row + len(left) for row in placed], {row + len(left): document for row, document in closed.items()}


def _worst_fit(sizes: Any, left: Any, length: int, open_rows: int) -> Any:
    rooms, placed = list(left), []
    for size in sizes:
        if not rooms or max(rooms) < size:
            rooms.append(length)
        placed.append(rooms.index(max(rooms)))
        rooms[placed[-1]] -= size
    return placed, {}


@pytest.mark.parametrize("broken", [_one_row, _without_the_open_rows, _worst_fit])
def test_the_law_catches_documents_in_wrong_rows(monkeypatch: pytest.MonkeyPatch, broken: Any):
    chunks = tuple(numbered([4, 3, 2, 5, 1, 3, 9]).to_batches(max_chunksize=2))
    assert_packs_as_a_loop(chunks, CASE)
    monkeypatch.setattr(packing, "_best_fit", broken)
    with pytest.raises(AssertionError):
        assert_packs_as_a_loop(chunks, CASE)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("places_within", lambda lengths, dtype=np.int64: np.arange(int(lengths.sum()), dtype=dtype)),  # positions and segments that run on
        ("read_lists", lambda lists: (pa.array(np.arange(len(lists.flatten()), dtype=np.int32)), None)),  # tokens in the order of arrival
        ("_Pack.finish", lambda self, state: ()),  # the open rows are lost
    ],
)
def test_the_law_catches_rows_that_are_put_together_wrongly(monkeypatch: pytest.MonkeyPatch, name: str, broken: Any):
    chunks = tuple(numbered([4, 3, 2, 5, 1, 2]).to_batches(max_chunksize=2))
    assert_packed(chunks, CASE)
    monkeypatch.setattr(f"mlxfp.data.lengths.packing.{name}", broken)
    with pytest.raises(AssertionError):
        assert_packed(chunks, CASE)


def test_the_law_catches_rows_that_depend_on_chunks(monkeypatch: pytest.MonkeyPatch):
    table = numbered([4, 3, 2, 5, 1, 3])
    laws.assert_chunks_do_not_matter(fp.pack(6), table.to_batches(), table.to_batches(max_chunksize=2))

    def longest_first(sizes: Any, left: Any, length: int, open_rows: int) -> Any:
        order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
        placed, closed = BEST_FIT([sizes[place] for place in order], left, length, open_rows)
        return [placed[order.index(place)] for place in range(len(sizes))], closed

    monkeypatch.setattr(packing, "_best_fit", longest_first)  # packs better, but a chunk decides what is longest
    with pytest.raises(AssertionError):
        laws.assert_chunks_do_not_matter(fp.pack(6), table.to_batches(), table.to_batches(max_chunksize=2))


def test_documents_share_rows_and_are_numbered_in_them():
    assert run(fp.pack(4), [3, 3, 1]) == [
        {"input_ids": [0, 1, 2, 6], "segment_ids": [1, 1, 1, 2], "positions": [0, 1, 2, 0]},
        {"input_ids": [3, 4, 5], "segment_ids": [1, 1, 1], "positions": [0, 1, 2]},
    ]


def test_a_document_goes_where_it_leaves_the_least_room():
    assert [pieces_of(row) for row in run(fp.pack(8), [3, 6, 2])] == [[[3, 4, 5, 6, 7, 8], [9, 10]], [[0, 1, 2]]]


def test_the_fullest_row_is_closed_first():
    assert next(pieces_of(row) for row in run(fp.pack(8, open_rows=2), [3, 6, 7])) == [[9, 10, 11, 12, 13, 14, 15]]


def test_a_document_that_is_too_long_is_cut_into_documents_of_their_own():
    rows = run(fp.pack(4), [9])
    assert [row["input_ids"] for row in rows] == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert [row["positions"] for row in rows] == [[0, 1, 2, 3], [0, 1, 2, 3], [0]]


def test_split_fills_every_row_and_cuts_the_document_that_crosses_its_end():
    rows = run(fp.pack(4, method="split"), [3, 3, 0, 4])
    assert [pieces_of(row) for row in rows] == [[[0, 1, 2], [3]], [[4, 5], [6, 7]], [[8, 9]]]
    assert [row["positions"] for row in rows] == [[0, 1, 2, 0], [0, 1, 0, 1], [0, 1]]


def test_aligned_columns_go_with_their_tokens_and_others_are_left_out():
    rows = fp.from_table(numbered([3, 3, 1]).append_column("label", pa.array([1, 2, 3])))
    assert [list(row) for row in fp.pipe(rows, fp.pack(4, aligned=["mask"]))] == [["input_ids", "mask", "segment_ids", "positions"]] * 2
    assert [row["mask"] for row in fp.pipe(rows, fp.pack(4, aligned=["mask"]))] == [[True, False, False, True], [True, False, False]]


def test_real_documents_fill_rows_better_than_nearly_all(data_folder: Any):
    lines = (data_folder / "wikitext2/valid.txt").read_text("utf-8").splitlines()
    rows = run(fp.pack(512), [len(line.split()) for line in lines])
    assert sum(len(row["input_ids"]) for row in rows) / (512 * len(rows)) > 0.99


def test_stages_print_as_they_are_called():
    assert repr(fp.pack(8)) == "pack(length=8)"
    assert repr(fp.pack([8, 16])) == "pack(length=(8, 16))"
    assert fp.pack(8, open_rows=packing.OPEN_ROWS) == fp.pack(8)
    stage: Any = fp.pack(8, open_rows=3, column="ids", aligned=["mask"])
    assert repr(stage) == "pack(length=8, open_rows=3, column='ids', aligned=('mask',))"
    laws.assert_prints(stage, {"pack": fp.pack})
    assert "holds at most 3 open rows of 8 tokens" in stage.traits.notes()
    split: Any = fp.pack(8, method="split")
    assert "holds at most 1 open rows of 8 tokens" in split.traits.notes()


def test_arguments_that_cannot_work_are_refused_at_once():
    with pytest.raises(ArgumentError, match="length must be at least 1"):
        fp.pack(0)
    with pytest.raises(UnknownNameError, match=r"No method is named 'best'\. Did you mean 'best_fit'\?"):
        fp.pack(4, method="best")  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(ArgumentError, match="open_rows must be at least 1"):
        fp.pack(4, open_rows=0)
    with pytest.raises(
        ArgumentError,
        match=r'method="split" fills one row after the other and takes no open_rows, got open_rows=4\. Remove open_rows',
    ):
        fp.pack(4, method="split", open_rows=4)
    with pytest.raises(ArgumentTypeError, match=r"aligned must be a list of strings, got the string 'mask'\. Write \['mask'\]"):
        fp.pack(4, aligned="mask")
    with pytest.raises(ArgumentError, match="column and aligned repeats 'positions'; each name may appear once"):
        fp.pack(4, aligned=["positions"])


def test_columns_are_checked_before_any_row():
    rows = fp.from_examples([{"input_ids": [1], "label": 1}])
    with pytest.raises(SchemaError, match="pack needs the column 'mask', which is missing"):
        _ = fp.pipe(rows, fp.pack(4, aligned=["mask"])).resolved
    with pytest.raises(SchemaError, match="pack needs lists with one value per token in column 'label', got int64"):
        _ = fp.pipe(rows, fp.pack(4, aligned=["label"])).resolved
    with pytest.raises(SchemaError, match="pack needs lists of integers in column 'label', got int64"):
        _ = fp.pipe(rows, fp.pack(4, column="label")).resolved


def test_lists_that_are_not_aligned_are_named_with_their_row():
    rows = fp.from_examples([{"input_ids": [1, 2], "mask": [1, 0]}, {"input_ids": [3], "mask": [1, 1]}])
    with pytest.raises(
        DataError, match=r"pack: source row 1 has lists of different lengths: 1 in column 'input_ids' and 2 in column 'mask'"
    ):
        list(fp.pipe(rows, fp.pack(4, aligned=["mask"])))
