"""Files that change while they are read: an error with the path, never an early end or a mixture of old and new rows."""

import os
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlxfp as fp
from mlxfp.support.errors import DataError

COUNT = 60_000


def write_lines(path: Path, line: str, header: str = "") -> Path:
    path.write_text(header + "".join(line.format(number) for number in range(COUNT)))
    return path


def write_parquet(path: Path) -> Path:
    pq.write_table(pa.table({"x": list(range(COUNT))}), path, row_group_size=COUNT // 4)
    return path


def write_arrow(path: Path) -> Path:
    with pa.ipc.new_file(path, pa.schema({"x": pa.int64()})) as writer:
        writer.write_table(pa.table({"x": list(range(COUNT))}), max_chunksize=COUNT // 4)
    return path


def write_tar(path: Path) -> Path:
    with tarfile.open(path, "w") as archive:
        for number in range(600):
            member = tarfile.TarInfo(f"{number:06}.txt")
            member.size = 5
            archive.addfile(member, BytesIO(b"hello"))
    return path


READERS: dict[str, tuple[Any, Any]] = {
    "csv": (lambda path: write_lines(path, "text {:0100}\n", "x\n"), fp.read_csv),
    "jsonl": (lambda path: write_lines(path, '{{"x": "{:0100}"}}\n'), fp.read_jsonl),
    "txt": (lambda path: write_lines(path, "line {:0100}\n"), fp.read_text),
    "parquet": (write_parquet, fp.read_parquet),
    "arrow": (write_arrow, fp.read_arrow),
    "tar": (write_tar, fp.read_tar),
}


@pytest.mark.parametrize("change", ["emptied", "shorter", "longer", "written again"])
@pytest.mark.parametrize("suffix", list(READERS))
def test_a_file_that_changes_during_an_epoch_is_an_error_with_the_path(tmp_path: Path, suffix: str, change: str):
    write_file, read = READERS[suffix]
    path = write_file(tmp_path / f"data.{suffix}")
    rows = iter(read(path))
    next(rows)
    content = path.read_bytes()
    if suffix == "arrow" and change != "longer":  # bytes of a mapped file that disappear end the process, so the file is replaced
        path.unlink()
    path.write_bytes({"emptied": b"", "shorter": content[: len(content) // 2], "longer": content * 2, "written again": content}[change])
    os.utime(path, (1, 1))
    with pytest.raises(DataError, match=f"data.{suffix}"):
        list(rows)


@pytest.mark.parametrize("suffix", list(READERS))
def test_a_file_that_does_not_change_is_read_whole_in_every_epoch(tmp_path: Path, suffix: str):
    write_file, read = READERS[suffix]
    dataset = read(write_file(tmp_path / f"data.{suffix}"))
    assert len(list(dataset)) == len(list(dataset)) == (fp.length(dataset) or COUNT)
