"""Archives of WebDataset: rows are the files of one key, read by number or in order, and damage is named."""

import gzip
import importlib
import io
import lzma
import tarfile
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, CursorError, DataError, MissingFileError, SchemaError
from mlxfp.testing import laws

Files = list[tuple[str, bytes]]


def archive(files: Files, *, form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def save(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def files_of(rows: list[tuple[str, dict[str, bytes]]]) -> Files:
    return [(f"{key}.{extension}", data) for key, row in rows for extension, data in row.items()]


NAMES = st.text("aB0_é漢 ", min_size=1, max_size=5)
ROWS = st.dictionaries(
    st.one_of(NAMES, st.builds("{}/{}".format, NAMES, NAMES)),
    st.dictionaries(st.sampled_from(["jpg", "cls", "seg.png", "json"]), st.binary(max_size=600), min_size=1),
    min_size=1,
    max_size=9,
).map(lambda rows: list(rows.items()))
every_suffix = pytest.mark.parametrize("suffix", [".tar", ".tar.gz"])
TWO = [("a", {"txt": b"1", "cls": b"x"}), ("b", {"txt": b"2", "cls": b""})]


@every_suffix
@given(shards=st.lists(ROWS, min_size=1, max_size=3), form=st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))
def test_the_files_of_a_key_are_a_row(suffix: str, shards: list[Any], form: int):
    with TemporaryDirectory() as folder:
        for number, rows in enumerate(shards):
            save(Path(folder, f"{number}{suffix}"), archive(files_of(rows), form=form))
        dataset = fp.read_tar(folder, columns=["jpg", "cls", "seg.png", "json"])
        empty = dict.fromkeys(("jpg", "cls", "seg.png", "json"))
        expected = [{"key": key, **empty, **row} for rows in shards for key, row in rows]
        assert list(dataset) == expected
        laws.assert_reads(dataset.source)
        laws.assert_value(dataset)
        laws.assert_described(dataset)
        laws.assert_resumable(dataset)
        assert dataset.indexable == (suffix == ".tar")
        if dataset.indexable:
            laws.assert_random_access(dataset, np.array([0, len(expected) - 1, 0]))
            assert sorted(map(str, fp.pipe(dataset, fp.shuffle(seed=0)))) == sorted(map(str, expected))


@every_suffix
def test_columns_are_those_of_the_first_rows(tmp_path: Path, suffix: str):
    path = save(tmp_path / f"a{suffix}", archive(files_of([*TWO, ("c", {"cls": b"y", "JSON": b"{}"})])))
    dataset = fp.read_tar(path)
    assert dataset.source.schema() == pa.schema({"key": pa.string(), "txt": pa.binary(), "cls": pa.binary(), "json": pa.binary()})
    assert list(dataset)[2] == {"key": "c", "txt": None, "cls": b"y", "json": b"{}"}
    assert repr(dataset) == f"pipe(read_tar({str(path)!r}))"
    assert list(fp.pipe(dataset, fp.select_columns(["txt"])))[:2] == [{"txt": b"1"}, {"txt": b"2"}]
    assert list(fp.pipe(dataset, fp.select_columns(["key"]))) == [{"key": "a"}, {"key": "b"}, {"key": "c"}]
    assert list(fp.read_tar(path, columns=["cls"])) == [{"key": "a", "cls": b"x"}, {"key": "b", "cls": b""}, {"key": "c", "cls": b"y"}]


@every_suffix
def test_an_extension_that_comes_later_is_an_error_that_shows_what_to_declare(tmp_path: Path, suffix: str):
    rows = [(f"{number:04}", {"txt": b"1"}) for number in range(200)]
    path = save(tmp_path / f"a{suffix}", archive(files_of([*rows, ("new", {"text": b"2"})])))
    with pytest.raises(SchemaError) as caught:
        list(fp.read_tar(path))
    assert str(caught.value) == (
        f"A file has an extension missing from the first rows: got 'new.text', but the columns are txt, in {path}. Did you mean "
        "'txt'? Declare the needed extensions with columns=['txt', 'text']. Other extensions are then dropped."
    )
    assert len(list(fp.read_tar(path, columns=["txt", "text"]))) == 201


@every_suffix
def test_what_belongs_to_no_row_is_left_out(tmp_path: Path, suffix: str):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        folder = tarfile.TarInfo("data.v1")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name in ("README", "data.v1/.hidden.txt", "data.v1/a.txt", "data.v1/a.", "data.v1/a.cls"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    path = save(tmp_path / f"a{suffix}", out.getvalue())
    assert list(fp.read_tar(path)) == [{"key": "data.v1/a", "txt": b"", "cls": b""}]


def test_long_names_and_large_numbers_are_read_in_every_form(tmp_path: Path):
    name = "folder/" * 40 + "a" * 120
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT):
        path = save(tmp_path / "a.tar", archive([(f"{name}.txt", b"1"), (f"{name}.cls", b"2")], form=form))
        assert list(fp.read_tar(path)) == [{"key": name, "txt": b"1", "cls": b"2"}]


def sparse_archive() -> bytes:
    """An archive in GNU's old format of files with holes: 512 bytes at 4096, and an end."""
    member = tarfile.TarInfo("a.bin")
    member.size = 512
    head = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    head[156:157] = tarfile.GNUTYPE_SPARSE
    for place, number in ((386, 4096), (398, 512), (410, 10_000), (422, 0), (483, 10_000)):
        head[place : place + 12] = b"%011o\0" % number
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + b"x" * 512 + bytes(1024)


@every_suffix
def test_a_sparse_file_is_refused(tmp_path: Path, suffix: str):
    path = save(tmp_path / f"a{suffix}", sparse_archive())
    with pytest.raises(DataError, match=r"'a\.bin' is a sparse file, in .*a\.tar.*without --sparse\."):
        list(fp.read_tar(path))


@every_suffix
@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, suffix: str, kind: bytes):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
        member = tarfile.TarInfo("b.txt")
        member.type, member.linkname = kind, "a.txt"
        tar.addfile(member)
    what = "not a file" if kind == tarfile.FIFOTYPE else "a link"
    with pytest.raises(DataError, match=rf"'b\.txt' is {what}, in .*a\.tar.*\. Write the archive again with tar"):
        list(fp.read_tar(save(tmp_path / f"a{suffix}", out.getvalue())))


@every_suffix
@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([("a.txt", b"1"), ("a.txt", b"2")], r"A tar archive has a duplicate file: 'a\.txt', in"),
        ([("a.txt", b"1"), ("a.TXT", b"2")], r"A tar archive has a duplicate file: 'a\.txt', in"),
        ([("a.txt", b"1"), ("b.txt", b"2"), ("a.cls", b"3")], r"are not neighbours in a tar archive: got 'a\.cls' after"),
        ([("\udcff.txt", b"1")], r"A name in a tar archive is not UTF-8: got '\\udcff\.txt', in"),
    ],
)
def test_rows_that_cannot_be_are_named(tmp_path: Path, suffix: str, files: Files, message: str):
    with pytest.raises(DataError, match=message):
        list(fp.read_tar(save(tmp_path / f"a{suffix}", archive(files, form=tarfile.GNU_FORMAT))))


@every_suffix
def test_an_extension_that_no_column_can_have_is_named(tmp_path: Path, suffix: str):
    path = save(tmp_path / f"a{suffix}", archive([("a.key", b"1"), ("a.txt", b"2")]))
    with pytest.raises(
        SchemaError, match=r"A file extension is a reserved column name: got 'key', in .* Choose other extensions with columns="
    ):
        list(fp.read_tar(path))
    assert list(fp.read_tar(path, columns=["txt"])) == [{"key": "a", "txt": b"2"}]


@every_suffix
@pytest.mark.parametrize("cut", [3, 400, 600, 1300, 1700])
def test_an_archive_that_ends_early_is_named(tmp_path: Path, suffix: str, cut: int):
    data = archive([("a.txt", b"x" * 700), ("b.txt", b"y" * 700)])[: cut + 512 * (cut > 1000)]
    with pytest.raises(DataError, match=r"A tar archive is damaged or ends early: .+, in .*a\.tar.*\. Copy or write the archive again\."):
        list(fp.read_tar(save(tmp_path / f"a{suffix}", data), columns=["txt"]))


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_compressed_archive_without_its_suffix_is_refused(tmp_path: Path, compress: Any):
    (tmp_path / "a.tar").write_bytes(compress(archive([("a.txt", b"1")])))
    with pytest.raises(DataError, match=r"damaged.*a\.tar\. .*The name of a compressed archive must end in \.tar\.gz or \.tar\.zst\."):
        list(fp.read_tar(tmp_path / "a.tar"))


@every_suffix
def test_a_damaged_header_in_the_middle_is_no_end(tmp_path: Path, suffix: str):
    data = bytearray(archive([("a.txt", b"1"), ("b.txt", b"2"), ("c.txt", b"3")]))
    data[1024 + 150] ^= 0x11
    with pytest.raises(DataError, match=r"damaged or ends early: .*header.*, after the file 'a\.txt', in"):
        list(fp.read_tar(save(tmp_path / f"a{suffix}", bytes(data)), columns=["txt"]))


def test_a_compressed_archive_that_ends_early_is_named(tmp_path: Path):
    whole = gzip.compress(archive([("a.txt", np.random.default_rng(0).bytes(5000)), ("b.txt", b"2")]))
    (tmp_path / "a.tar.gz").write_bytes(whole[:3000])
    with pytest.raises(DataError, match=r"damaged.*a\.tar\.gz"):
        list(fp.read_tar(tmp_path / "a.tar.gz", columns=["txt"]))


@given(st.data())
def test_any_damage_is_read_or_named(data: Any):
    whole = bytearray(archive([("a.txt", b"1"), ("b.txt", b"2" * 600), ("long" * 40 + ".txt", b"3")]))
    for place, byte in data.draw(st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=4)):
        whole[place] = byte
    with TemporaryDirectory() as folder:
        for name in ("a.tar", "a.tar.gz"):
            path = save(Path(folder, name), bytes(whole[: data.draw(st.integers(0, len(whole)))]))
            try:
                rows = list(fp.read_tar(path, columns=["txt"]))
            except DataError as error:
                assert name in str(error)  # noqa: PT017  # either is right
            else:
                assert all(isinstance(row["key"], str) for row in rows)


def test_only_the_rows_that_are_taken_are_read(tmp_path: Path):
    path = save(tmp_path / "a.tar", archive(files_of([(str(number), {"txt": b"%d" % number}) for number in range(300)])))
    dataset = fp.read_tar(path)
    assert dataset[250] == {"key": "250", "txt": b"250"}
    assert len(dataset) == 300
    with pytest.raises(IndexError, match=r"An index is out of range: got \[300\] for 300 examples"):
        _ = dataset[300]


def test_rows_that_cannot_be_read_are_skipped(tmp_path: Path):
    path = save(tmp_path / "a.tar", archive(files_of(TWO)))
    dataset = fp.pipe(fp.read_tar(path), fp.on_error("skip"))
    assert len(list(dataset)) == 2


def test_a_change_of_the_archive_is_noticed(tmp_path: Path):
    path = save(tmp_path / "a.tar", archive(files_of([(str(number), {"txt": b"1"}) for number in range(100)])))
    cursor = [cursor for _, cursor in fp.iterate(fp.read_tar(path))][70]
    save(path, archive(files_of([(str(number), {"txt": b"1"}) for number in range(90)])))
    with pytest.raises(CursorError, match="A file has changed since the cursor was made"):
        list(fp.iterate(fp.read_tar(path), cursor))


def test_mistakes_are_named_at_once(tmp_path: Path):
    with pytest.raises(ArgumentError, match="columns must be file extensions, got the reserved name 'key'"):
        fp.read_tar(tmp_path, columns=["key"])
    with pytest.raises(ArgumentError, match="columns must name at least one column"):
        fp.read_tar(tmp_path, columns=[])
    with pytest.raises(MissingFileError, match=r"No file in the folder .* ends in \.tar, \.tar\.gz"):
        list(fp.read_tar(tmp_path))


def test_an_archive_without_rows_has_none(tmp_path: Path):
    assert list(fp.read_tar(save(tmp_path / "a.tar", archive([])))) == []
    save(tmp_path / "b.tar", archive(files_of(TWO)))
    assert len(list(fp.read_tar(tmp_path))) == 2


@given(ROWS)
def test_rows_are_those_of_the_package_webdataset(rows: list[Any]):
    expander = pytest.importorskip("webdataset.tariterators", reason="the reference is not installed: pip install webdataset")
    assert importlib.import_module("webdataset")
    files = [(name.lower().replace("\n", " "), data) for name, data in files_of(rows)]
    merged = {key: list(group) for key, group in groupby(sorted(files), key=lambda pair: pair[0].rpartition("/")[2].partition(".")[0])}
    data = archive([pair for group in merged.values() for pair in sorted(group)])
    with TemporaryDirectory() as folder:
        path = save(Path(folder, "a.tar"), data)
        try:
            found = list(fp.read_tar(path))
        except DataError:
            return  # keys that come back, which WebDataset makes rows of their own
        stream = expander.tar_file_expander([{"url": str(path), "stream": path.open("rb")}])
        theirs = [
            {name: value for name, value in row.items() if not name.startswith("__") or name == "__key__"}
            for row in expander.group_by_keys(stream)
        ]
    assert [{"key" if name == "__key__" else name: value for name, value in row.items()} for row in theirs] == [
        {name: value for name, value in row.items() if value is not None} for row in found
    ]


@every_suffix
@pytest.mark.parametrize("kept", [2, 3, 4])
def test_an_archive_cut_between_two_files_is_an_error(tmp_path: Path, suffix: str, kept: int):
    """The header of a next file is missing as a whole, so only the missing zeros at the end show the cut."""
    whole = archive(files_of(TWO))
    path = save(tmp_path / f"a{suffix}", whole[: 512 * 2 * kept - (512 if kept == 4 else 0)])
    for rows in (fp.read_tar(path), fp.read_tar(path, columns=["txt"])):
        with pytest.raises(DataError, match=r"the zeros at the end are missing .*after the file '.\.(txt|cls)', in .*a\.tar"):
            list(rows)
    path = save(tmp_path / f"b{suffix}", whole[: 512 * 7] + bytes(1024))
    assert len(list(fp.read_tar(path))) == 2
    path = save(tmp_path / f"c{suffix}", whole[: 512 * 7] + bytes(512))  # some writers end an archive with one block
    assert len(list(fp.read_tar(path))) == 2


@every_suffix
def test_archives_joined_by_cat_are_an_error(tmp_path: Path, suffix: str):
    """Readers stop at the end of the first archive, so the rows of the second archive would be lost in silence."""
    joined = save(tmp_path / f"a{suffix}", archive(files_of(TWO)) + archive([("c.txt", b"3")]))
    with pytest.raises(DataError, match=r"followed by another archive in the same file.*in .*a\.tar.*tar --concatenate"):
        list(fp.read_tar(joined))
    padded = save(tmp_path / f"b{suffix}", archive(files_of(TWO)) + bytes(20480))
    assert len(list(fp.read_tar(padded))) == 2
