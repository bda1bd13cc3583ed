"""Files whose content is of another kind than their name says: the error names the kind, and the command in the error works."""

import bz2
import gzip
import lzma
import struct
from pathlib import Path
from shutil import which
from subprocess import run
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import mlxfp as fp
from mlxfp.errors import DataError
from tests.properties.files.test_zip_and_encodings import zipped

CSV, JSONL = b"n,t\n" + b"1,a\n2,b\n" * 20, b'{"n": 1, "t": "a"}\n' * 20


def zstd(data: bytes) -> bytes:
    return pa.compress(data, codec="zstd", asbytes=True)  # type: ignore[no-any-return]


def lz4(data: bytes) -> bytes:
    return pa.compress(data, codec="lz4", asbytes=True)  # type: ignore[no-any-return]


PACKED = {"gzip": gzip.compress, "zstd": zstd, "bzip2": bz2.compress, "xz": lzma.compress, "lz4": lz4}
SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "bzip2": ".bz2", "xz": ".xz", "lz4": ".lz4"}


def message_of(dataset: Any) -> str:
    with pytest.raises(DataError) as caught:
        list(dataset)
    return str(caught.value)


def typed(message: str, folder: Path) -> Path:
    """Run the command at the end of a message, and return the new file. Return the expected name if a program is not installed."""
    command = message.partition(": ")[2].rpartition(": ")[2]
    target = Path(command.split()[-1])
    if all(which(part.split()[0]) for part in command.split(" | ")):
        run(command, shell=True, check=True, cwd=folder)
        assert target.is_file()
    return target


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize(
    ("suffix", "data", "reader"), [("csv", CSV, "read_csv"), ("jsonl", JSONL, "read_jsonl"), ("txt", CSV, "read_text")]
)
def test_a_compressed_file_without_its_suffix_is_named_with_a_command(tmp_path: Path, kind: str, suffix: str, data: bytes, reader: str):
    path, read = tmp_path / f"a.{suffix}", getattr(fp, reader)
    path.write_bytes(data)
    expected = list(read(path))
    path.write_bytes(PACKED[kind](data))
    message = message_of(read(path))
    assert message.startswith(f"A file is compressed with {kind}: got the bytes ")
    new = typed(message, tmp_path)
    assert new.name == (f"a.{suffix}{SUFFIXES[kind]}" if kind in ("gzip", "zstd") else f"a-converted.{suffix}")
    if new.is_file():
        assert list(read(new)) == expected


@pytest.mark.parametrize("kind", ["bzip2", "xz", "lz4"])
def test_an_unsupported_compression_is_named_although_the_suffix_is_right(tmp_path: Path, kind: str):
    path = tmp_path / f"a.csv{SUFFIXES[kind]}"
    path.write_bytes(PACKED[kind](CSV))
    message = message_of(fp.read_csv(path))
    assert message.startswith(f"A file is compressed with {kind}: ")
    assert typed(message, tmp_path) == tmp_path / "a.csv"


def test_a_file_that_is_compressed_twice_is_named(tmp_path: Path):
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(gzip.compress(CSV)))
    message = message_of(fp.read_csv(path))
    assert "The file is compressed twice. Decompress the file once: gzip -dc <" in message
    assert len(list(fp.read_csv(typed(message, tmp_path)))) == 40


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_a_compressed_table_is_named_with_a_command(tmp_path: Path, kind: str, suffix: str):
    plain, table = tmp_path / f"plain.{suffix}", pa.table({"n": [1, 2]})
    if suffix == "parquet":
        pq.write_table(table, plain)
    else:
        with pa.ipc.new_file(plain, table.schema) as writer:
            writer.write(table)
    read = fp.read_parquet if suffix == "parquet" else fp.read_arrow
    for name in (f"a.{suffix}{SUFFIXES[kind]}", f"b.{suffix}"):
        path = tmp_path / name
        path.write_bytes(PACKED[kind](plain.read_bytes()))
        message = message_of(read(path))
        assert message.startswith(f"A file is compressed with {kind}: ")
        new = typed(message, tmp_path)
        assert new.name == (f"a.{suffix}" if name.startswith("a") else f"b-converted.{suffix}")
        if new.is_file():
            assert list(read(new)) == [{"n": 1}, {"n": 2}]


def test_a_zip_archive_in_place_of_a_file_is_named(tmp_path: Path):
    archive = zipped(tmp_path / "a.zip", {"a.csv": CSV})
    path = tmp_path / "b.csv"
    path.write_bytes(archive.read_bytes())
    message = message_of(fp.read_csv(path))
    assert message.startswith("A file is compressed with zip: ")
    assert len(list(fp.read_csv(typed(message, tmp_path)))) == 40
    excel = tmp_path / "b.xlsx"
    excel.write_bytes(archive.read_bytes())
    assert message_of(fp.read_csv(excel)).endswith(f"Read the Excel file with fp.from_table(pandas.read_excel({str(excel)!r})).")


@pytest.mark.parametrize("header", ["n,t", "имя,t", "列,t"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("reader", ["read_csv", "read_text", "read_jsonl"])
def test_utf_16_and_utf_32_are_named_with_a_command(tmp_path: Path, reader: str, encoding: str, header: str):
    text = f"{header}\n" + "1,a\n" * 30 if reader != "read_jsonl" else f'{{"{header}": 1}}\n' * 30
    suffix = {"read_csv": "csv", "read_text": "txt", "read_jsonl": "jsonl"}[reader]
    path, read = tmp_path / f"a.{suffix}", getattr(fp, reader)
    path.write_text(text, "utf-8")
    expected = list(read(path))
    path.write_bytes(text.encode(encoding))
    name = encoding.upper().replace("-LE", "LE").replace("-BE", "BE")
    message = message_of(read(path))
    assert message.startswith(f"Text is encoded in {name}: got ")
    assert list(read(typed(message, tmp_path))) == expected
    packed = tmp_path / f"b.{suffix}.gz"
    packed.write_bytes(gzip.compress(text.encode(encoding)))
    assert list(read(typed(message_of(read(packed)), tmp_path))) == expected


def test_nul_characters_in_cells_stay_and_in_a_header_are_named(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"n,t\n1,a\0b\n2,c\n")
    assert [row["t"] for row in fp.read_csv(path)] == ["a\0b", "c"]
    path.write_bytes(b"n\0,t\n1,a\n")
    message = message_of(fp.read_csv(path))
    assert message.startswith(r"The header has NUL characters: got 'n\x00,t")
    assert list(fp.read_csv(typed(message, tmp_path))) == [{"n": 1, "t": "a"}]
    lines = tmp_path / "a.jsonl"
    lines.write_bytes(b'{"t": "a\0b"}\n')
    assert message_of(fp.read_jsonl(lines)).endswith("in line 1 of " + str(lines) + ". Remove the character, or write \\u0000.")


@pytest.mark.parametrize(
    ("flag", "method", "problem"), [(1, 0, "is encrypted"), (1, 99, "is encrypted"), (0, 9, "uses a compression that")]
)
@pytest.mark.parametrize("inside", [False, True])
def test_archives_that_python_cannot_read_are_named(tmp_path: Path, flag: int, method: int, problem: str, *, inside: bool):
    path = zipped(tmp_path / "a.zip", {"a.csv": CSV})
    data = bytearray(path.read_bytes())
    for sign, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        struct.pack_into("<HH", data, data.find(sign) + offset, flag, method)
    path.write_bytes(data)
    message = message_of(fp.read_csv(path / "a.csv" if inside else path))
    assert message.startswith(f"A file in an archive {problem}")
    assert message.endswith(f"Read the unpacked file instead. To unpack the archive: 7z x {path}")


def test_an_archive_without_files_is_named(tmp_path: Path):
    path = zipped(tmp_path / "a.csv.zip", {})
    assert message_of(fp.read_csv(path)).startswith(f"An archive has no files: got 0 files, in {path}. ")


@pytest.mark.parametrize("reader", ["read_csv", "read_jsonl", "read_text", "read_parquet", "read_arrow"])
@pytest.mark.parametrize("kind", ["read_csv", "read_jsonl", "read_parquet", "read_arrow"])
def test_the_error_for_a_file_of_another_format_names_the_reader(tmp_path: Path, reader: str, kind: str):
    """The call at the end of the message reads the file. Text files are also valid input of `read_text`."""
    path, table = tmp_path / "train.dat", pa.table({"n": range(40), "t": ["a"] * 40})
    if kind == "read_parquet":
        pq.write_table(table, path)
    elif kind == "read_arrow":
        feather.write_feather(table, path)
    else:
        path.write_bytes(CSV if kind == "read_csv" else JSONL)
    if kind == reader or (reader == "read_text" and kind in ("read_csv", "read_jsonl")):
        assert len(list(getattr(fp, reader)(path))) >= 20
    elif (kind, reader) == ("read_csv", "read_jsonl"):
        assert message_of(fp.read_jsonl(path)).endswith("Write one JSON object per line, or read CSV with fp.read_csv.")
    else:
        message = message_of(getattr(fp, reader)(path))
        assert message.endswith(f"Read the file with fp.{kind}({str(path)!r}).")
        assert len(list(getattr(fp, kind)(path))) >= 20


def test_a_page_in_html_is_no_table(tmp_path: Path):
    """A saved page of a web site, with commas in its first line, stays a damaged file: another reader would not help."""
    path = tmp_path / "a.parquet"
    path.write_text("<!DOCTYPE html><html lang=en><title>Sign in, please</title></html>")
    assert message_of(fp.read_parquet(path)).endswith("Write or download the file again.")


def test_the_remedy_for_text_in_another_encoding_differs_from_the_encoding_in_use(tmp_path: Path):
    """The byte 0x81 is no character of cp1252. The remedy names latin-1, which has a character for every byte."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,\x81\n")
    assert "Give the encoding, for example encoding='latin-1'" in message_of(fp.read_csv(path, encoding="cp1252"))
    assert list(fp.read_csv(path, encoding="latin-1")) == [{"a": 1, "b": "\x81"}]
