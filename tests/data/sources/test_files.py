"""Files are found in a stable order, and blocks of any size put together are the file."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.data.sources import files
from mlxfp.data.sources.columns import check_names, check_same_names
from mlxfp.data.sources.files import as_paths, blocks, find_files, parse_position, position_in, show_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CursorError, DataError, MissingFileError, SchemaError
from mlxfp.support.file_formats import with_compressions
from tests.data.written import PACKINGS

if TYPE_CHECKING:
    from mlxfp.core.datasets import Dataset


def last_newline(data: bytes) -> int:
    return data.rfind(b"\n") + 1


@given(st.text(st.sampled_from("ab\n"), max_size=60).map(str.encode), st.integers(1, 40), st.sampled_from(sorted(PACKINGS)))
def test_blocks_of_any_size_are_whole_records_and_the_file(tmp_path_factory: pytest.TempPathFactory, data: bytes, size: int, packing: str):
    path = tmp_path_factory.mktemp("blocks") / f"a{packing}"
    path.write_bytes(PACKINGS[packing](data))
    read = list(blocks(str(path), 0, last_newline, size))
    assert b"".join(block for block, _ in read) == data
    assert all(block.endswith(b"\n") for block, _ in read[:-1])
    assert [end is None for _, end in read] == [False] * (len(read) - 1) + [True]
    for number, (_, end) in enumerate(read[:-1], 1):
        assert end is not None
        assert list(blocks(str(path), end, last_newline, size))[-1] == read[-1]
        assert b"".join(block for block, _ in blocks(str(path), end, last_newline, size)) == b"".join(block for block, _ in read[number:])


def test_a_long_record_is_read_in_few_steps(tmp_path: Path):
    tried = []

    def cut(data: bytes) -> int:
        tried.append(len(data))
        return last_newline(data)

    Path(tmp_path, "a").write_bytes(b"x" * 10_000 + b"\ny\n")
    assert [len(block) for block, _ in blocks(str(tmp_path / "a"), 0, cut, 16)] == [10_003]
    assert len(tried) < 15


def test_a_record_without_end_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(files, "LARGEST_RECORD", 1000)
    Path(tmp_path, "a").write_bytes(b"short\n" + b"x" * 5000)
    read = blocks(str(tmp_path / "a"), 0, last_newline, 16)
    next(read)
    with pytest.raises(DataError, match=r"A record is too long: got 1,\d+ bytes without a record end, after byte 6 of .*a\. Add the"):
        next(read)


@pytest.mark.parametrize("packing", [".gz", ".zst"])
def test_a_damaged_compressed_file_is_named(tmp_path: Path, packing: str):
    path = tmp_path / f"a{packing}"
    path.write_bytes(PACKINGS[packing](b"text\n" * 100)[:-4])
    with pytest.raises(DataError, match=rf"A compressed file is damaged: .*, in .*a\{packing}\. Compress or download the file again"):
        list(blocks(str(path), 0, last_newline, 16))


@pytest.mark.parametrize("read", [fp.read_csv, fp.read_jsonl, fp.read_text])
def test_a_file_that_is_not_compressed_as_its_name_says_is_named(tmp_path: Path, read: Callable[[Path], "Dataset[Any]"]):
    Path(tmp_path, "a.gz").write_text("text")
    with pytest.raises(DataError, match=r"A compressed file is damaged: .*, in .*a\.gz\. Compress"):
        list(read(tmp_path / "a.gz"))


def test_errors_of_the_system_stay_what_they_are(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        list(blocks(str(tmp_path / "gone"), 0, last_newline, 16))


class Broken:
    """A plain file on a disk that fails."""

    def read(self, size: int) -> bytes:
        raise OSError(5, "Input/output error")


def test_an_error_while_reading_a_plain_file_is_not_called_damage():
    with pytest.raises(DataError, match=r"The operating system cannot read a file: got 'Input/output error', for '.*a\.csv'"):
        files.read_bytes(Broken(), 1, "a.csv")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.csv.gz", "c.CSV", "d.csv.zst", "notes.txt", ".hidden.csv", "sub/e.csv", "sub/deep/f.csv", "odd[1].csv"):
        Path(tmp_path, name).parent.mkdir(parents=True, exist_ok=True)
        Path(tmp_path, name).write_text("x\n1\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("b.csv", ["b.csv"]),
        ("notes.txt", ["notes.txt"]),  # a file that is named is read, whatever its suffix
        ("odd[1].csv", ["odd[1].csv"]),  # a file is a file before it is a pattern
        ("", ["a.csv.gz", "b.csv", "c.CSV", "d.csv.zst", "odd[1].csv"]),
        ("sub", ["sub/e.csv"]),
        ("*.csv", ["b.csv", "odd[1].csv"]),
        ("**/*.csv", ["b.csv", "odd[1].csv", "sub/deep/f.csv", "sub/e.csv"]),
        ("s*", []),  # a pattern stands for files, not for folders
    ],
)
def test_paths_patterns_and_folders_stand_for_files(folder: Path, path: str, found: list[str]):
    if not found:
        with pytest.raises(MissingFileError):
            find_files((str(folder / path),), with_compressions(".csv"))
        return
    assert [str(Path(file.path).relative_to(folder)) for file in find_files((str(folder / path),), with_compressions(".csv"))] == found


def test_several_paths_keep_their_order(folder: Path):
    paths = tuple(str(folder / name) for name in ("sub", "b.csv", "*.txt"))
    assert [Path(file.path).name for file in find_files(paths, with_compressions(".csv"))] == ["e.csv", "b.csv", "notes.txt"]


def test_the_home_folder_is_looked_up_when_files_are_found(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(folder))
    assert [file.path for file in find_files(("~/b.csv",), ())] == [str(folder / "b.csv")]


def test_relative_paths_start_at_the_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    assert [file.path for file in find_files(("sub/*.csv",), ())] == ["sub/e.csv"]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("notes.tx", r"There is no file or folder '/.*notes\.tx'\. Did you mean 'notes\.txt'\? Check the path\. A relative path starts at"),
        ("nowhere/x.csv", r"There is no file or folder '/.*x\.csv'\. Check the path\. A relative path starts at the working folder\."),
        ("*.json", r"No file matches '.*\*\.json', searched from /.*\. Check the pattern\. \*\* matches any depth\."),
        ("sub/deep", r"No file in the folder '.*deep' ends in \.tsv, got 1 other files\. Select files by a pattern\."),
    ],
)
def test_what_stands_for_nothing_is_named(folder: Path, path: str, message: str):
    with pytest.raises(MissingFileError, match=message):
        find_files((str(folder / path),), (".tsv",))


@pytest.mark.parametrize(
    ("path", "paths"),
    [("a", ("a",)), (Path("a/b"), ("a/b",)), (["a", Path("b")], ("a", "b")), (("a",), ("a",))],
)
def test_one_path_or_several_become_a_tuple(path: Any, paths: tuple[str, ...]):
    assert as_paths(path) == paths


@pytest.mark.parametrize(
    ("path", "error", "message"),
    [
        (1, ArgumentTypeError, "path must be a path, a pattern, a folder or a sequence of these, got int: 1"),
        ({"a"}, ArgumentTypeError, "path must be a path, .* got set"),  # it has no order
        (b"a", ArgumentTypeError, "path must be a path, .* got bytes"),
        (["a", 1], ArgumentTypeError, "Every path must be a string or a Path, got int: 1"),
        ([], ArgumentError, r"path must name at least one file, got \[\]"),
        ("", ArgumentError, "path must name at least one file, got ''"),
    ],
)
def test_what_is_no_path_is_refused(path: Any, error: type[Exception], message: str):
    with pytest.raises(error, match=message):
        as_paths(path)


@pytest.mark.parametrize(
    ("call", "paths", "shown"),
    [
        ("read_csv()", ("a.csv",), "read_csv('a.csv')"),
        ("read_csv(delimiter=';')", ("a.csv", "b.csv"), "read_csv(['a.csv', 'b.csv'], delimiter=';')"),
        ("read_csv()", tuple(f"part-{n:05}.csv" for n in range(9)), "read_csv(['part-00000.csv', 'part-00001.csv', "),
    ],
)
def test_a_call_shows_its_paths_first(call: str, paths: tuple[str, ...], shown: str):
    assert show_call(call, paths).startswith(shown)
    assert len(show_call(call, paths)) < 160


def test_a_place_is_found_again_while_the_files_stay_the_same(tmp_path: Path):
    for name in ("a", "b"):
        Path(tmp_path, name).write_text("12345")
    paths = (str(tmp_path / "a"), str(tmp_path / "b"))
    before = find_files(paths, ())
    assert parse_position(before, None) == (0, 0, 0)
    assert parse_position(find_files(paths, ()), position_in(before, 1, 3, 4)) == (1, 3, 4)
    assert parse_position(before, position_in(before, 2, 0, 0)) == (2, 0, 0)
    with pytest.raises(
        CursorError, match=r"The files have changed since .* made: there were 2, now 1\. Restore the files, or start without a cursor\."
    ):
        parse_position(before[:1], position_in(before, 0, 3, 4))
    Path(tmp_path, "b").write_text("123456")
    with pytest.raises(
        CursorError, match=r"A file has changed since .* made: it had 5 bytes, now 6: .*b\. Restore the file, or start without a cursor\."
    ):
        parse_position(find_files(paths, ()), position_in(before, 1, 3, 4))


@pytest.mark.parametrize("position", [(), 3, "x", (0, 0, 0, 0), (0, -1, 0, 5, 1), (2, 0, 0, 0, 1), (0, 1.5, 0, 5, 1), ((), 0, 0, 5, 1)])
def test_a_position_that_no_file_made_is_refused(position: Any):
    with pytest.raises(CursorError, match="The cursor has no position in files"):
        parse_position((files.FileStamp("a", 5, 0),), position)


def test_columns_have_names_of_their_own():
    check_names(["a", "b"], "x.csv")
    with pytest.raises(SchemaError, match=r"Several columns have the same name: got 'a' more than once, in x\.csv\. Rename the columns\."):
        check_names(["a", "b", "a"], "x.csv")
    with pytest.raises(SchemaError, match=r"A column has a reserved name: got '__row__', in x\.csv\. Rename the column\."):
        check_names(["a", "__row__"], "x.csv")
    with pytest.raises(SchemaError, match=r"The table in the file x\.csv has no columns\. Remove the file\."):
        check_names([], "x.csv")


def test_files_are_told_apart_by_their_columns():
    check_same_names(["b", "a"], "y.csv", ["a", "b"], "x.csv")
    with pytest.raises(SchemaError, match=r"Two files have different columns: y\.csv lacks 'b' and adds nothing, compared with x\.csv\."):
        check_same_names(["a"], "y.csv", ["a", "b"], "x.csv")
