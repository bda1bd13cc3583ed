"""The law of text: blocks of any size give the lines of the file."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import DataError, MissingFileError, UnknownNameError
from mlxfp.testing.laws import assert_reads, assert_repeatable, assert_resumable, assert_told_apart, assert_value
from tests.data.written import PACKINGS, blocked, write

WILD = st.lists(st.sampled_from(["a", "é", "\n", "\n", "\r\n", "\r", "\U0001f600", "\ufeff", "\x00", " ", "\u2028"]), max_size=20).map(
    "".join
)
SIZES = st.integers(1, 40)


def lines(text: str) -> list[str]:
    """Return what read_text should: only \n and \r\n end lines, and the last newline begins none."""
    return text.replace("\r\n", "\n").removesuffix("\n").split("\n") if text else []


def assert_reads_lines(path: Path, texts: list[str], size: int) -> None:
    """Law: in blocks of any size, files give their lines in order."""
    paths = [write(path.with_stem(f"{number}"), text) for number, text in enumerate(texts)]
    dataset = blocked(fp.read_text(paths), size)
    assert [row["text"] for row in dataset] == [line for text in texts for line in lines(text.removeprefix("\ufeff"))]
    assert_reads(dataset.source)


@given(st.lists(WILD, min_size=1, max_size=3), SIZES, st.sampled_from(sorted(PACKINGS)))
def test_blocks_of_any_size_give_the_lines(tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int, packing: str):
    assert_reads_lines(tmp_path_factory.mktemp("text") / f"a{packing}", texts, size)


def test_the_law_catches_lines_cut_in_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert_reads_lines(tmp_path / "a", ["a b\nc\n"], 3)
    monkeypatch.setattr("mlxfp.data.sources.text_files._ReadText.cut", lambda self, data: len(data))
    with pytest.raises(AssertionError):
        assert_reads_lines(tmp_path / "a", ["a b\nc\n"], 3)


@example(texts=["aa\x00a\x00aaa"], size=1)  # two NUL characters make no UTF-16
@given(st.lists(WILD, min_size=1, max_size=4), SIZES)
def test_by_file_a_row_is_a_file_as_it_is(tmp_path_factory: pytest.TempPathFactory, texts: list[str], size: int):
    folder = tmp_path_factory.mktemp("files")
    for number, text in enumerate(texts):
        write(folder / f"{number}.txt", text)
    dataset = blocked(fp.read_text(folder, by="file"), size)
    assert [row["text"] for row in dataset] == [text.removeprefix("\ufeff") for text in texts]
    assert_reads(dataset.source)
    assert fp.length(dataset) == len(texts)


@given(WILD, SIZES)
def test_a_run_can_stop_after_every_line(tmp_path_factory: pytest.TempPathFactory, text: str, size: int):
    dataset = blocked(fp.read_text(write(tmp_path_factory.mktemp("stop") / "a.txt", text)), size)
    assert_resumable(dataset)
    assert_repeatable(dataset)


def test_blank_lines_are_rows_and_the_last_newline_is_none(tmp_path: Path):
    assert [row["text"] for row in fp.read_text(write(tmp_path / "a.txt", "\ufeffone\r\n\r\n two \n"))] == ["one", "", " two "]


def test_text_that_is_not_utf8_is_named(tmp_path: Path):
    path = write(tmp_path / "a.txt", b"one\ntwo\n\xfcber\n")
    for size in (1, 1000):
        with pytest.raises(
            DataError,
            match=r"Text is not UTF-8: got the byte 0xfc, in line 3 of .*a\.txt\. Convert the file to UTF-8, for example with iconv",
        ):
            list(blocked(fp.read_text(path), size))
    with pytest.raises(DataError, match="in line 3"):
        list(fp.read_text(path, by="file"))
    plain = write(tmp_path / "b.txt", PACKINGS[".gz"](b"text"))
    with pytest.raises(DataError, match=r"A file is compressed with gzip: .* Add the suffix: mv "):
        list(fp.read_text(plain))


def test_a_dataset_is_a_value_and_building_it_reads_nothing():
    dataset = fp.read_text("none.txt", by="file")
    assert repr(dataset.source) == "read_text('none.txt', by='file')"
    assert repr(fp.read_text("none.txt").source) == "read_text('none.txt')"
    assert_value(dataset)
    assert_told_apart(dataset, fp.read_text("none.txt"))
    with pytest.raises(MissingFileError):
        next(iter(dataset))
    with pytest.raises(UnknownNameError, match="No by is named 'word'"):
        fp.read_text("a.txt", by="word")  # type: ignore[arg-type]  # what is tested


def test_resuming_reads_nothing_that_stands_before(tmp_path: Path):
    path = write(tmp_path / "a.txt", "".join(f"line {n}\n" for n in range(200_000)))
    items = list(fp.iterate(fp.read_text(path)))
    cursor = fp.Cursor.from_bytes(items[150_000][1].to_bytes())
    data = bytearray(path.read_bytes())
    data[:1_000_000] = b"\xff" * 1_000_000
    write(path, bytes(data))
    assert [row for row, _ in fp.iterate(fp.read_text(path), cursor)] == [row for row, _ in items[150_001:]]
    with pytest.raises(DataError):
        next(iter(fp.read_text(path)))


def test_what_is_known_before_reading(tmp_path: Path):
    write(tmp_path / "a.txt.zst", "x")
    assert "\n    resuming inside a compressed file decompresses everything before the cursor" in fp.explain(
        fp.read_text(tmp_path, by="file")
    )
    assert fp.length(fp.read_text(tmp_path)) is None
    assert fp.schema(fp.read_text(tmp_path)) == pa.schema({"text": pa.string()})
