"""CSV in encodings other than UTF-8, and files in zip archives."""

import csv
import io
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, CursorError, DataError, MissingFileError, MlxfpError
from mlxfp.testing.laws import assert_reads, assert_resumable, assert_told_apart, assert_value
from tests.data.written import blocked, write

FIELDS = st.text(st.sampled_from('aéü ,"\n\rß€'), max_size=5)
TEXT = {"ä": pa.string(), "b": pa.string()}


@given(st.lists(st.tuples(FIELDS, FIELDS), max_size=8), st.sampled_from(["cp1252", "latin-1", "iso8859-15"]), st.integers(1, 40))
def test_every_block_is_read_in_its_encoding(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], encoding: str, size: int
):
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("ä", "b"), *rows])
    data = text.getvalue().encode(encoding, "replace")
    path = write(tmp_path_factory.mktemp("encoded") / "a.csv", data)
    dataset = blocked(fp.read_csv(path, encoding=encoding, schema=TEXT, null_values=()), size)
    expected = list(csv.reader(io.StringIO(data.decode(encoding), newline="")))[1:]
    assert [list(row.values()) for row in dataset] == expected
    assert_reads(dataset.source)
    assert_resumable(dataset)


def test_bytes_of_another_encoding_are_named_and_the_encoding_is_suggested(tmp_path: Path):
    path = write(tmp_path / "a.csv", "n,t\n1,a\n2,café€s\n".encode("cp1252"))
    with pytest.raises(
        DataError,
        match=r"the byte 0xe9, in line 3 of .*a\.csv\. Give the encoding, for example encoding='cp1252' \(in a spec: encoding: 'cp1252'; "
        r"for mlxfp data infer: --encoding 'cp1252'\), or convert the file to UTF-8, for example with iconv\.",
    ):
        list(fp.read_csv(path))
    dataset = fp.read_csv(path, encoding="CP1252")
    assert list(dataset)[1] == {"n": 2, "t": "café€s"}
    assert repr(dataset.source) == f"read_csv({str(path)!r}, encoding='cp1252')"
    assert_value(dataset)
    assert_told_apart(dataset, fp.read_csv(path))
    assert fp.read_csv(path, encoding="utf8") == fp.read_csv(path)


def test_bytes_that_mean_nothing_in_the_encoding_are_named_or_skipped(tmp_path: Path):
    path = write(tmp_path / "a.csv", b"n,t\n1,a\n2,\x81\n3,b\n")
    with pytest.raises(DataError, match=r"Text is not cp1252: got the byte 0x81, in line 3 of .*a\.csv\."):
        list(fp.read_csv(path, encoding="cp1252"))
    assert [row["n"] for row in fp.pipe(fp.read_csv(path, encoding="cp1252"), fp.on_error("skip"))] == [1, 3]
    with pytest.raises(DataError, match=r"Text is not cp1252: got the byte 0x81, in line 1 of"):
        list(fp.read_csv(write(path, b"n,\x81\n1,a\n"), encoding="cp1252"))


@pytest.mark.parametrize("encoding", ["utf-16", "shift_jis", "iso2022_jp", "hz", "cp037", "utf-7", "nope", ""])
def test_encodings_whose_delimiters_are_not_bytes_are_refused(encoding: str):
    with pytest.raises(ArgumentError, match=r"encoding must be utf-8 or a single-byte extension of ASCII, got .* Use 'cp1252'"):
        fp.read_csv("a.csv", encoding=encoding)
    with pytest.raises(ArgumentTypeError):
        fp.read_csv("a.csv", encoding=8)  # type: ignore[arg-type]


def zipped(path: Path, files: dict[str, bytes], packing: int = ZIP_DEFLATED) -> Path:
    with ZipFile(path, "w", packing) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


TABLE = b"n,t\n" + b"".join(b"%d,text %d\n" % (n, n) for n in range(50))


@pytest.mark.parametrize("packing", [ZIP_DEFLATED, ZIP_STORED])
def test_the_only_file_of_an_archive_is_read_as_it_is(tmp_path: Path, packing: int):
    plain = fp.read_csv(write(tmp_path / "train.csv", TABLE))
    added = {"__MACOSX/._train.csv": b"junk", ".DS_Store": b"", "folder/": b""}
    path = zipped(tmp_path / "train.csv.zip", {"train.csv": TABLE, **added}, packing)
    dataset = blocked(fp.read_csv(path), 100)
    assert list(dataset) == list(plain)
    assert_reads(dataset.source)
    assert_resumable(dataset)
    assert [row["n"] for row in fp.read_csv(tmp_path)] == [*range(50), *range(50)]  # in a folder, both are read


def test_files_of_an_archive_are_named_as_if_it_were_a_folder(tmp_path: Path):
    path = zipped(tmp_path / "all.zip", {"train.csv": TABLE, "in/test.csv": TABLE, "a.jsonl": b'{"n": 5}\n', "b.txt": b"one\ntwo\n"})
    assert len(list(fp.read_csv(path / "train.csv"))) == len(list(fp.read_csv(path / "in" / "test.csv"))) == 50
    assert len(list(fp.read_csv(path / "**.csv"))) == 100
    assert list(fp.read_jsonl(path / "a.jsonl")) == [{"n": 5}]
    assert [row["text"] for row in fp.read_text(path / "b.txt")] == ["one", "two"]
    assert_resumable(blocked(fp.read_csv(path / "*.csv"), 100))
    with pytest.raises(
        MissingFileError, match=r"in the archive '.*all\.zip' is named 'tran\.csv'\. Did you mean 'train\.csv'\? Files in the archive:"
    ):
        list(fp.read_csv(path / "tran.csv"))
    with pytest.raises(ArgumentError, match=r"must name one file, got train\.csv, in/test\.csv, .* Write '.*all\.zip/train\.csv'"):
        list(fp.read_csv(path))
    with pytest.raises(DataError, match=r"An archive has no files: got 0 files, in .*empty\.zip\. Make the archive again"):
        list(fp.read_csv(zipped(tmp_path / "empty.zip", {})))


def test_a_cursor_is_refused_when_the_archive_has_changed(tmp_path: Path):
    path = zipped(tmp_path / "all.zip", {"train.csv": TABLE, "b": b""})
    cursor = list(fp.iterate(blocked(fp.read_csv(path / "train.csv"), 50)))[20][1]
    zipped(path, {"train.csv": TABLE + b"50,more\n", "b": b""})
    with pytest.raises(CursorError, match="A file has changed since the cursor was made"):
        list(fp.iterate(blocked(fp.read_csv(path / "train.csv"), 50), cursor))


@pytest.mark.parametrize("place", [0, 35, 60, -30, -8])
def test_a_damaged_archive_is_named(tmp_path: Path, place: int):
    path = zipped(tmp_path / "train.csv.zip", {"train.csv": os.urandom(200).hex().encode() + b"\n" + TABLE})
    data = bytearray(path.read_bytes())
    data[place] ^= 0xFF
    path.write_bytes(bytes(data))
    with suppress(MlxfpError):  # or it is read: not every byte matters
        list(fp.read_csv(path))
    path.write_bytes(bytes(data[:-40]))
    with pytest.raises(DataError, match=r"A compressed file is damaged: .*, in .*train\.csv\.zip\. Compress or download the file again\."):
        list(fp.read_csv(path))


def test_an_archive_that_unfolds_to_much_takes_little_memory(tmp_path: Path):
    path = zipped(tmp_path / "a.txt.zip", {"a.txt": (b"x" * 99 + b"\n") * 1_000_000})
    assert path.stat().st_size < 1_000_000
    source: Any = fp.read_text(path).source
    largest = 0
    for chunk, _ in source.read(0, None):
        largest = max(largest, chunk.nbytes)
    assert largest < 8_000_000


def test_members_cannot_leave_their_archive(tmp_path: Path):
    write(tmp_path / "secret.csv", "n\n1\n")
    path = zipped(tmp_path / "all.zip", {"../secret.csv": b"n\n2\n", "a.csv": b"n\n3\n"})
    assert [row["n"] for row in fp.read_csv(path / "a.csv")] == [3]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["all.zip", "secret.csv"]
