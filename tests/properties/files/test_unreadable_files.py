"""Files that the operating system does not read: each reader names the path and something to type, and skips nothing in silence."""

import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import run
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import mlxfp as fp
from mlxfp.errors import DataError, MissingFileError
from tests.properties.files.test_zip_and_encodings import zipped

READERS: dict[str, Callable[[Any], Any]] = {
    "a.csv": fp.read_csv,
    "a.csv.gz": fp.read_csv,
    "a.csv.zip": fp.read_csv,
    "a.jsonl": fp.read_jsonl,
    "a.parquet": fp.read_parquet,
    "a.arrow": fp.read_arrow,
    "a.txt": fp.read_text,
    "a.tar": fp.read_tar,
}


def make(folder: Path, name: str) -> Path:
    """Write a file of one row."""
    path, table = folder / name, pa.table({"x": ["a"]})
    if name.endswith((".csv", ".jsonl", ".txt")):
        path.write_text("x\na\n" if name.endswith(".csv") else '{"x": "a"}\n')
    elif name.endswith(".gz"):
        with pa.output_stream(path) as out:
            out.write(b"x\na\n")
    elif name.endswith(".zip"):
        zipped(path, {"a.csv": b"x\na\n"})
    elif name.endswith(".parquet"):
        pq.write_table(table, path)
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write(table)
    elif name.endswith(".tar"):
        (folder / "row.text").write_text("a")
        with tarfile.open(path, "w") as archive:
            archive.add(folder / "row.text", "row.text")
    return path


# A child process, because root may read everything: the child gives up its rights, if it has them, before it reads.
CHILD = """
import sys
import mlxfp as fp
from pathlib import Path
reader, path = getattr(fp, sys.argv[1]), sys.argv[2]
list(fp.pipe(fp.from_examples([{"x": 1}]), fp.map(lambda row: row)))  # modules that are imported late may be unreadable afterwards
(list(reader(sys.argv[3])))
import os
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    print(list(reader(path)))
except Exception as error:
    print(type(error).__name__, error)
"""


def read_without_rights(reader: str, path: Path, readable: Path) -> str:
    """Return the output of a reader in a process without rights to other users' files."""
    done = run([sys.executable, "-c", CHILD, reader, str(path), str(readable)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Folder that every user may enter. The folder of `tmp_path` is closed to other users."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("name", READERS)
def test_a_file_without_permission_is_named_with_a_command(open_folder: Path, name: str):
    (open_folder / "copy").mkdir(mode=0o755)
    path, copy = make(open_folder, name), make(open_folder / "copy", name)
    path.chmod(0)
    expected = f"DataError There is no permission to read a file or folder: got 'Permission denied', for {str(path)!r}. "
    assert read_without_rights(READERS[name].__name__, path, copy) == f"{expected}Ask the owner to type: chmod a+r {path}"


@pytest.mark.parametrize("pattern", ["closed", "closed/a.csv", "closed/*.csv", "*/a.csv", "**/a.csv", ""])
def test_a_folder_without_permission_is_never_skipped(open_folder: Path, pattern: str):
    """A pattern reads several folders, and a folder reads its partitions."""
    closed = open_folder / ("closed" if pattern else "year=2024")
    for folder in (closed, open_folder / "open"):
        folder.mkdir(mode=0o755)
        make(folder, "a.csv")
    closed.chmod(0)
    text = read_without_rights("read_csv", open_folder / pattern, open_folder / "open")
    closed.chmod(0o755)
    assert text.startswith("DataError There is no permission to read a file or folder: got 'Permission denied', for ")
    assert text.endswith(f"Ask the owner to type: chmod a+rx {closed}")


def test_images_in_a_folder_without_permission_are_never_skipped(open_folder: Path):
    for name in ("cat", "dog"):
        (open_folder / "all" / name).mkdir(parents=True)
        Image.new("RGB", (2, 2)).save(open_folder / "all" / name / "a.png")
    (open_folder / "all").chmod(0o755)
    (open_folder / "all" / "dog").chmod(0o755)
    (open_folder / "all" / "cat").chmod(0)
    text = read_without_rights("read_images", open_folder / "all", open_folder / "all" / "dog")
    (open_folder / "all" / "cat").chmod(0o755)
    assert text.endswith(f"Ask the owner to type: chmod a+rx {open_folder / 'all' / 'cat'}")


@pytest.mark.parametrize("name", READERS)
def test_other_paths_that_cannot_be_read_are_named(tmp_path: Path, name: str):
    path, read = make(tmp_path, name), READERS[name]
    with pytest.raises(
        DataError, match=r"The operating system cannot read a file: got 'File name too long', for .*\. Find the cause: ls -l"
    ):
        list(read(tmp_path / ("x" * 300)))
    with pytest.raises(MissingFileError, match=r"below|There is no file or folder|is named 'below'"):
        list(read(path / "below"))
    (tmp_path / "folder").mkdir()
    with pytest.raises(MissingFileError, match=r"No file in the folder '.*folder' ends in "):
        list(read(tmp_path / "folder"))
    link = tmp_path / f"link.{name.partition('.')[2]}"
    link.symlink_to("gone")
    with pytest.raises(MissingFileError, match=r"A link has no target: .* leads to 'gone'\. Restore the target, or remove the link: rm "):
        list(read(link))


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_vanishes_before_it_is_opened_is_named(tmp_path: Path, name: str):
    first = make(tmp_path, f"1{name}")
    second = make(tmp_path, f"2{name}")
    rows = iter(READERS[name]([first, second]))
    next(rows)
    second.unlink()
    with pytest.raises((MissingFileError, DataError), match=r"There is no file or folder '.*2a"):
        list(rows)


def test_an_image_that_vanishes_is_named(tmp_path: Path):
    for index in range(2):
        Image.new("RGB", (2, 2)).save(tmp_path / f"{index}.png")
    dataset = fp.read_images(tmp_path)
    assert len(dataset) == 2
    (tmp_path / "1.png").unlink()
    with pytest.raises(MissingFileError, match=r"There is no file or folder '.*1\.png'"):
        dataset[1]
