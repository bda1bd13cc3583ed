"""Files that change while they are read: an error with the path, never an early end or a mixture of old and new rows."""

import os
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as arrow_dataset
import pyarrow.parquet as pq
import pytest

import mlxfp as fp
from mlxfp.support.errors import CursorError, DataError

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
def test_case_e8_a_file_that_changes_during_an_epoch_is_an_error_with_the_path(tmp_path: Path, suffix: str, change: str):
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


STAGES: dict[str, list[Any]] = {
    "none": [],
    "batch": [fp.batch(2)],
    "shuffle": [fp.shuffle(seed=0), fp.batch(2)],
    "buffer": [fp.shuffle(seed=0, buffer=5)],
    "repeat": [fp.repeat(2)],
    "load": [fp.load(), fp.batch(2)],
    "prefetch": [fp.batch(2), fp.prefetch(2)],
    "concat": [lambda rows: fp.concat([fp.from_examples([{"x": "a"}]), rows])],
}


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "txt"])
@pytest.mark.parametrize("stages", STAGES)
def test_a_cursor_of_a_small_file_is_refused_after_a_change(tmp_path: Path, stages: str, suffix: str):
    path = tmp_path / f"a.{suffix}"
    lines = {"csv": "x\na\nb\nc\nd\n", "jsonl": '{"x": "a"}\n' * 4, "txt": "a\nb\nc\nd\n"}[suffix]
    names = [fp.rename_columns({"text": "x"})] if suffix == "txt" else []

    def pipeline() -> fp.Dataset[Any]:
        return fp.pipe(READERS[suffix][1](path), *names, *STAGES[stages])

    path.write_text(lines)
    items = list(fp.iterate(pipeline()))
    cursor = fp.Cursor.from_bytes(items[0][1].to_bytes())
    assert len(list(fp.iterate(pipeline(), cursor))) == len(items) - 1
    path.write_text(lines + lines.splitlines(keepends=True)[-1])
    with pytest.raises(CursorError) as caught:
        fp.iterate(pipeline(), fp.Cursor.from_bytes(cursor.to_bytes()))
    before, now = len(lines), path.stat().st_size
    assert str(caught.value) == (
        f"The files have changed since the cursor was made. Before: 1 file with {before} bytes. Now: 1 file with {now} bytes. "
        f"Pipeline: {pipeline()!r}. Restore the files, or start without a cursor."
    )


def test_files_removed_after_loading_do_not_stop_a_run(tmp_path: Path):
    path = tmp_path / "a.csv"
    path.write_text("x\n1\n2\n3\n")
    dataset = fp.pipe(fp.read_csv(path), fp.load())
    assert len(list(dataset)) == 3
    path.unlink()
    (_, cursor), *_ = fp.iterate(dataset)
    assert [row for row, _ in fp.iterate(dataset, fp.Cursor.from_bytes(cursor.to_bytes()))] == [{"x": 2}, {"x": 3}]


def test_a_cursor_of_a_pyarrow_dataset_is_refused_after_a_change(tmp_path: Path):
    path = write_parquet(tmp_path / "a.parquet")

    def pipeline() -> fp.Dataset[Any]:
        return fp.pipe(fp.from_table(arrow_dataset.dataset(tmp_path)), fp.shuffle(seed=0, buffer=9))

    (_, cursor), *_ = fp.iterate(fp.pipe(pipeline(), fp.take(2)))
    before = cursor.to_bytes()
    pq.write_table(pa.table({"x": list(range(9))}), path)
    with pytest.raises(CursorError, match=r"The files have changed since the cursor was made\. Before: 1 file with [0-9,]+ bytes"):
        fp.iterate(fp.pipe(pipeline(), fp.take(2)), fp.Cursor.from_bytes(before))
