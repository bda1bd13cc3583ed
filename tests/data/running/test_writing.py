"""write: the same bytes whatever runs it, however often it was killed; nothing else is overwritten; readers check what they read."""

import json
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp import runners
from mlxfp.core.describing import schema
from mlxfp.data.manifests import Manifest, read_manifest
from mlxfp.data.running.part_files import write_arrow
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, MissingFileError, PipelineError, UnknownNameError
from mlxfp.testing.comparing import same
from mlxfp.testing.laws import assert_resumable, assert_written_alike
from mlxfp.testing.probing import from_chunks

ROWS = fp.from_examples(
    [{"x": i, "text": None if i % 9 == 4 else f"row {i}" * (i % 5), "input_ids": list(range(i % 7)), "kept": i % 3 > 0} for i in range(500)]
)
READERS = {"arrow": fp.read_arrow, "parquet": fp.read_parquet, "jsonl": fp.read_jsonl}


def squared(row: Any) -> Any:
    return {**row, "square": row["x"] ** 2}


def drawn(row: Any, random: Any) -> Any:
    return {**row, "drawn": random.random()}


def is_kept(row: Any) -> bool:
    return bool(row["kept"])


def fails_at_77(row: Any) -> Any:
    if row["x"] == 77:
        raise ValueError("no square of 77")
    return row


@frozen(repr=False)
class Gaps(fp.Stage):
    """Adds the difference to the row before: it keeps a state that is empty at the start."""

    def step(self, state: Any, chunk: Any) -> Any:
        x = chunk.column("x").to_numpy()
        before = state[0] if state else 0
        return (int(x[-1]),), (chunk.append_column("gap", pa.array(np.diff(x, prepend=before))),)

    def schema(self, schema: Any) -> Any:
        return schema.append(pa.field("gap", pa.int64()))


def stream() -> Any:
    return fp.from_iterable(
        lambda: ({"x": i, "kept": i % 3 > 0} for i in range(500)), schema=pa.schema({"x": pa.int64(), "kept": pa.bool_()})
    )


PIPELINES: dict[str, fp.Dataset[Any]] = {
    "rows by number": fp.pipe(ROWS, fp.map(squared), fp.map(drawn, seed=0)),
    "fewer rows": fp.pipe(ROWS, fp.filter(is_kept)),
    "more rows": fp.pipe(ROWS, fp.flat_map(lambda row: [row] * (row["x"] % 3))),
    "shuffled": fp.pipe(ROWS, fp.map(squared), fp.shuffle(seed=1), fp.filter(is_kept)),
    "a stream": fp.pipe(stream(), fp.map(squared), fp.filter(is_kept)),
    "joined": fp.pipe(
        fp.concat([fp.pipe(ROWS, fp.map(squared)), fp.pipe(ROWS, fp.map(squared), fp.filter(is_kept))]), fp.map(drawn, seed=1)
    ),
    "mixed": fp.mix([fp.pipe(ROWS, fp.map(squared)), fp.pipe(ROWS, fp.map(squared))], [0.3, 0.7], stop="all"),
    "a buffer": fp.pipe(ROWS, fp.map(squared), fp.shuffle(seed=1, buffer=50)),
    "packed": fp.pipe(ROWS, fp.map(squared), fp.pack(16)),
    "groups": fp.pipe(ROWS, fp.map(squared), fp.batch(32)),
    "epochs": fp.pipe(ROWS, fp.map(squared), fp.repeat(2)),
    "a state that is empty at first": fp.pipe(ROWS, Gaps()),
    "nothing": fp.pipe(ROWS, fp.filter(lambda row: False)),
}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows_of(dataset: fp.Dataset[Any]) -> list[Any]:
    return [dict(row) for item in dataset for row in (item if dataset.level == "groups" else [item])]


@pytest.mark.parametrize("name", PIPELINES)
def test_what_is_written_is_what_comes_out_on_any_runner(name: str, tmp_path: Path):
    dataset = PIPELINES[name]
    manifest = fp.write(dataset, tmp_path / "alone", rows_per_file=70)
    assert fp.write(dataset, tmp_path / "threads", rows_per_file=70, on=runners.threads(2)) == manifest
    assert content(tmp_path / "alone") == content(tmp_path / "threads")
    read = fp.read_arrow(tmp_path / "alone")
    assert same(list(read), rows_of(dataset))
    assert schema(read) == schema(dataset)
    assert manifest.rows == len(list(read))


def test_other_processes_write_the_same_bytes(tmp_path: Path):
    some = ["a stream", "a buffer"]
    for name in some:
        fp.write(PIPELINES[name], tmp_path / name / "alone", rows_per_file=70)
        fp.write(PIPELINES[name], tmp_path / name / "processes", rows_per_file=70, on=runners.processes(2))
        assert content(tmp_path / name / "alone") == content(tmp_path / name / "processes")


@pytest.mark.parametrize("format", READERS)
def test_every_format_is_read_back_in_order_with_what_the_manifest_says(format: Any, tmp_path: Path):
    dataset = PIPELINES["rows by number"]
    manifest = fp.write(dataset, tmp_path, format=format, rows_per_file=128)
    read = READERS[format](tmp_path)
    assert same(list(read), list(dataset))
    assert [each.rows for each in manifest.files] == [128, 128, 128, 116]
    assert manifest == read_manifest(tmp_path)
    assert manifest.damaged() == ()
    assert repr(manifest) == f"Manifest(500 rows in 4 files, format={format!r}, folder={str(tmp_path)!r})"
    assert_resumable(fp.pipe(read, fp.take(20)))


@given(st.lists(st.integers(0, 500), max_size=9), st.integers(0, 2**32))
def test_the_bytes_of_a_file_depend_on_its_rows_only(cuts: list[int], garbage: int):
    valid = np.arange(500) % 3 > 0
    hidden = np.where(valid, np.arange(500), garbage)  # what lies under a null
    bits = pa.py_buffer(np.packbits(valid, bitorder="little"))
    numbers = pa.Array.from_buffers(pa.int64(), 500, [bits, pa.py_buffer(hidden)])
    texts = pa.array([str(i) * (i % 4) for i in range(500)])
    whole = pa.record_batch({"x": numbers, "text": texts, "even": pa.array(np.arange(500) % 2 == 0)})
    ends = sorted({0, 500, *cuts})
    with TemporaryDirectory() as folder:
        one, other = Path(folder, "one"), Path(folder, "other")
        plain = pa.record_batch(
            {"x": pa.array([i if i % 3 > 0 else None for i in range(500)]), "text": texts, "even": whole.column("even")}
        )
        write_arrow(one, whole.schema, [plain])
        write_arrow(other, whole.schema, [whole.slice(a, b - a) for a, b in pairwise(ends)])
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("name", PIPELINES)
def test_a_call_that_was_interrupted_after_any_file_goes_on(name: str):
    assert_written_alike(PIPELINES[name], runners.threads(2), rows_per_file=150)


def test_what_is_not_finished_is_not_read(tmp_path: Path):
    with pytest.raises(ZeroDivisionError):
        fp.write(fp.pipe(ROWS, fp.map(lambda row: {"x": 1 // (row["x"] - 400)})), tmp_path, rows_per_file=50)
    with pytest.raises(DataError, match=r"An earlier write was interrupted: there is no manifest.json.*Call write again"):
        list(fp.read_arrow(tmp_path))


def test_large_rows_are_written_in_chunks_that_do_not_depend_on_how_they_came(tmp_path: Path):
    tensors = pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(5_000_000.0)), 10_000)})  # 40 MB
    for cuts in ([0, 500], [0, 3, 419, 420, 500], range(0, 501, 5)):
        path = tmp_path / str(len(cuts))
        write_arrow(path, tensors.schema, [tensors.slice(a, b - a) for a, b in pairwise(cuts)])
        file = pa.ipc.open_file(str(path))
        assert [file.get_batch(i).num_rows for i in range(file.num_record_batches)] == [419, 81]  # 32 MB, and the rest
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_what_is_written_in_order_goes_on_at_the_file_that_is_missing(tmp_path: Path):
    calls: list[int] = []

    def counted(row: Any) -> Any:
        calls.append(row["x"])
        if len(calls) == 300:
            raise KeyboardInterrupt
        return row

    counted.__fingerprint__ = "1"  # type: ignore[attr-defined]
    chunks = [pa.record_batch({"x": range(first, first + 10)}) for first in range(0, 500, 10)]
    dataset = fp.pipe(from_chunks(chunks), fp.map(counted), fp.shuffle(seed=1, buffer=20))
    with pytest.raises(KeyboardInterrupt):
        fp.write(dataset, tmp_path / "parts", rows_per_file=40)
    before = len(calls)
    fp.write(dataset, tmp_path / "parts", rows_per_file=40)
    assert len(calls) - before < 400  # not all 500 again, and the first rows for the schema
    fp.write(dataset, tmp_path / "whole", rows_per_file=40)
    assert content(tmp_path / "whole") == content(tmp_path / "parts")


@pytest.mark.parametrize("name", ["rows by number", "a stream", "a buffer"])
def test_damaged_files_are_made_again(name: str, tmp_path: Path):
    manifest = fp.write(PIPELINES[name], tmp_path, rows_per_file=100)
    before = content(tmp_path)
    first, second, *_ = (tmp_path / each.name for each in manifest.files)
    first.unlink()
    data = bytearray(second.read_bytes())
    data[200] ^= 1
    second.write_bytes(data)
    assert manifest.damaged() == (first.name, second.name)
    with pytest.raises(DataError, match=r"part-00000.arrow should have [\d,]+ bytes, but the file is missing.*Call write again"):
        list(fp.read_arrow(tmp_path))
    assert fp.write(PIPELINES[name], tmp_path, rows_per_file=100) == manifest
    assert content(tmp_path) == before


@pytest.mark.parametrize("workers", [None, runners.threads(2)])
def test_files_that_were_damaged_before_a_call_goes_on_are_made_again(workers: Any, tmp_path: Path):
    stopped: list[bool] = []

    def stopping(row: Any) -> Any:
        if row["x"] == 400 and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt
        return row

    stopping.__fingerprint__ = "1"  # type: ignore[attr-defined]
    dataset = fp.pipe(fp.from_examples([{"x": i} for i in range(500)]), fp.map(stopping))
    with pytest.raises(KeyboardInterrupt):
        fp.write(dataset, tmp_path / "parts", rows_per_file=40)
    first, second, third, *_ = sorted((tmp_path / "parts").glob("part-*"))
    first.unlink()
    third.write_bytes(second.read_bytes())
    manifest = fp.write(dataset, tmp_path / "parts", rows_per_file=40, on=workers)
    assert manifest.damaged() == ()
    fp.write(dataset, tmp_path / "whole", rows_per_file=40)
    assert content(tmp_path / "whole") == content(tmp_path / "parts")


KILLED = """
import sys, time
import mlxfp as fp
def slow(row):
    time.sleep(0.0005)
    return {"x": row["x"], "text": str(row["x"]) * 3}
def main(folder, workers, stateful):
    rows = fp.from_examples([{"x": i} for i in range(800)])
    made = fp.pipe(rows, fp.map(slow), *([fp.shuffle(seed=0, buffer=64)] if stateful else []))
    on = fp.runners.processes(workers) if workers else None
    print(fp.write(made, folder, rows_per_file=60, on=on).rows, flush=True)
main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "True")
"""


@pytest.mark.parametrize(("workers", "stateful"), [(0, False), (2, True)])
def test_a_process_that_is_killed_again_and_again_writes_the_same_bytes(workers: int, stateful: bool, tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script)]
    random = np.random.default_rng(workers + stateful)
    for _ in range(2):
        process = subprocess.Popen([*command, str(tmp_path / "killed"), str(workers), str(stateful)], stdout=subprocess.DEVNULL)
        seen, deadline = len(list((tmp_path / "killed").glob("part-*"))), time.monotonic() + 30
        while process.poll() is None and len(list((tmp_path / "killed").glob("part-*"))) <= seen and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(random.random() * 0.1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    for folder in ("killed", "whole"):
        subprocess.run([*command, str(tmp_path / folder), "0", str(stateful)], check=True, stdout=subprocess.DEVNULL)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_the_lock_of_a_process_that_was_killed_when_all_was_written_is_removed(tmp_path: Path):
    for _ in range(2):
        manifest = fp.write(ROWS, tmp_path / "out")
        assert ".lock" not in content(tmp_path / "out")
        (tmp_path / "out" / ".lock").touch()
    assert fp.write(ROWS, tmp_path / "out") == manifest
    assert ".lock" not in content(tmp_path / "out")


ENDED = """
import os, sys
import mlxfp as fp
from mlxfp.support import atomic_files
sync, left = atomic_files._sync, 0
def ending(path):
    global left
    left -= 1
    if left < 0:
        os._exit(9)
    sync(path)
atomic_files._sync = ending
for count in range(100):
    folder, child = f"{sys.argv[1]}/{count}", os.fork()
    if not child:
        left = count
        fp.write(fp.from_examples([{"x": i} for i in range(100)]), folder, rows_per_file=40)
        os._exit(0)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
        break
print(count)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork on Windows")
def test_a_process_that_ends_wherever_a_file_is_given_its_name_leaves_nothing_behind(tmp_path: Path):
    """Every file is synced before it has its name, and its folder after it: 3 parts, what is known of each, and 2 more files."""
    ended = subprocess.run([sys.executable, "-c", ENDED, str(tmp_path)], check=True, capture_output=True, text=True)
    count = int(ended.stdout)
    assert count == 2 * (3 + 3 + 2)
    contents = []
    for place in range(count + 1):
        fp.write(fp.from_examples([{"x": i} for i in range(100)]), tmp_path / str(place), rows_per_file=40)
        contents.append(content(tmp_path / str(place)))
        contents[-1].pop(".lock", None)  # of a process that was killed: it holds nothing
    assert all(each == contents[-1] for each in contents)


def test_files_of_something_else_are_never_overwritten(tmp_path: Path):
    (tmp_path / "part-00000.arrow").write_text("mine")
    with pytest.raises(ArgumentError, match=r"write needs a new or empty folder, got .* with other files: part-00000.arrow"):
        fp.write(ROWS, tmp_path)
    fp.write(ROWS, tmp_path / "data")
    for other in (fp.pipe(ROWS, fp.map(squared)), fp.pipe(ROWS, fp.filter(is_kept))):
        with pytest.raises(ArgumentError, match=r"has data of another pipeline.*got pipe\(from_examples\(500 rows\)\)"):
            fp.write(other, tmp_path / "data")
    with pytest.raises(ArgumentError, match="other arguments"):
        fp.write(ROWS, tmp_path / "data", rows_per_file=3)


def test_files_that_have_changed_are_noticed(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text("x\n1\n")
    fp.write(fp.read_csv(file), tmp_path / "data")
    file.write_text("x\n1\n2\n")
    with pytest.raises(ArgumentError, match="of changed source files"):
        fp.write(fp.read_csv(file), tmp_path / "data")


@pytest.mark.parametrize("on", [None, runners.threads(2), runners.processes(2)], ids=repr)
def test_an_error_is_that_of_the_function_and_nothing_is_lost(on: Any, tmp_path: Path):
    with pytest.raises(ValueError, match="no square of 77") as raised:
        fp.write(fp.pipe(ROWS, fp.map(fails_at_77)), tmp_path, rows_per_file=50, on=on)
    assert any("on source row 77" in note for note in raised.value.__notes__)
    manifest = fp.write(fp.pipe(ROWS, fp.map(fails_at_77), fp.on_error("skip")), tmp_path / "skipped", rows_per_file=50, on=on)
    assert (manifest.rows, manifest.skipped) == (
        499,
        (("from_examples(500 rows)", 77, "map(function=fails_at_77)", "ValueError: no square of 77"),),
    )
    assert "1 rows left out" in repr(manifest)
    assert [row["x"] for row in fp.read_arrow(tmp_path / "skipped")] == [x for x in range(500) if x != 77]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "an unmounted disk")
    for folder in ("link", "link/data"):
        with pytest.raises(OSError, match=r"File exists|Not a directory"):
            fp.write(ROWS, tmp_path / folder)


SKIPPING = fp.pipe(ROWS, fp.map(fails_at_77), fp.on_error("skip"))


@pytest.mark.parametrize("after", [fp.prefetch(2), fp.take(400), fp.shuffle(seed=0, buffer=9)], ids=repr)
def test_rows_left_out_in_a_dataset_that_the_source_holds_are_listed(after: Any, tmp_path: Path):
    manifest = fp.write(fp.pipe(SKIPPING, after), tmp_path, rows_per_file=50, on=runners.threads(2))
    assert [row for _, row, _, _ in manifest.skipped] == [77]


def test_no_row_of_a_dataset_that_the_source_holds(tmp_path: Path):
    none = fp.pipe(SKIPPING, fp.filter(lambda row: False), fp.repeat(2))
    assert (fp.write(none, tmp_path).rows, schema(fp.read_arrow(tmp_path))) == (0, schema(ROWS))


@pytest.mark.parametrize(
    "dataset",
    [
        fp.pipe(SKIPPING, fp.load()),
        fp.pipe(SKIPPING, fp.shuffle(seed=0), fp.batch(3)),
        fp.concat([SKIPPING, ROWS]),
        fp.mix([SKIPPING, ROWS], [1, 1], stop="all"),
    ],
    ids=["load", "shuffle", "concat", "mix"],
)
def test_rows_left_out_that_nothing_lists_are_refused_before_anything_is_written(dataset: Any, tmp_path: Path):
    with pytest.raises(PipelineError, match=r"write lists the rows skipped by on_error.* Put on_error after these stages"):
        fp.write(dataset, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_values_that_json_does_not_have_are_named(tmp_path: Path):
    for value, well in ((float("nan"), 1.0), (b"bytes", None)):
        with pytest.raises(ArgumentError, match=r"JSON has no value for .* in 'y'.*in row 1 of the file.*Write the data with format="):
            fp.write(fp.from_examples([{"x": 1, "y": well}, {"x": 1, "y": value}]), tmp_path / str(type(value)), format="jsonl")
    tensors = fp.from_examples([{"x": np.ones((2, 2), np.float32)}])
    fp.write(tensors, tmp_path / "tensors", format="jsonl")
    assert list(fp.read_jsonl(tmp_path / "tensors")) == [{"x": [[1.0, 1.0], [1.0, 1.0]]}]


def test_mistakes_in_the_call_are_named(tmp_path: Path):
    with pytest.raises(UnknownNameError, match="format"):
        fp.write(ROWS, tmp_path, format="csv")
    with pytest.raises(ArgumentTypeError, match="on must be Runner"):
        fp.write(ROWS, tmp_path, on=2)
    with pytest.raises(PipelineError, match=r"write takes rows, got batches from collate.*Put collate after read_arrow"):
        fp.write(fp.pipe(ROWS, fp.batch(2), fp.collate(lambda group: {})), tmp_path)
    with pytest.raises(PipelineError, match="write needs finite data"):
        fp.write(fp.pipe(ROWS, fp.repeat(None)), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"manifest": 1}', '{"manifest": 99}', '{"manifest": 1, "files": [{}], "skipped": [], "pipeline": []}']
)
def test_a_manifest_that_cannot_be_read_is_named(text: str, tmp_path: Path):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(DataError, match=r"manifest.*manifest\.json"):
        list(fp.read_arrow(tmp_path))


def test_a_manifest_is_json_for_other_programs(tmp_path: Path):
    fp.write(from_chunks([pa.record_batch({"x": [1, 2]})]), tmp_path)
    said = json.loads((tmp_path / "manifest.json").read_text())
    assert (said["rows"], said["schema"], [each["name"] for each in said["files"]]) == (2, {"x": "int64"}, ["part-00000.arrow"])
    assert isinstance(read_manifest(tmp_path), Manifest)
    assert read_manifest(tmp_path / "nothing") is None


def test_a_manifest_of_many_files_shows_some_in_a_notebook(tmp_path: Path):
    manifest = fp.write(ROWS, tmp_path, rows_per_file=7)
    assert "more files" in manifest._repr_html_()
    with pytest.raises(MissingFileError, match=r"No file in the folder .* ends in \.parquet"):
        list(fp.read_parquet(tmp_path))


@pytest.mark.parametrize("name", ["file", "file/folder/deep"])
def test_a_folder_with_the_name_of_a_file_is_refused(tmp_path: Path, name: str):
    """The file keeps its content."""
    file = tmp_path / "file"
    file.write_text("text")
    rows = fp.from_examples([{"x": 1}])
    with pytest.raises(ArgumentError) as error:
        fp.write(rows, tmp_path / name)
    assert str(error.value) == f"The folder {tmp_path / name} cannot be created, because {file} is a file. Name another folder."
    with pytest.raises(ArgumentError, match=f"cannot be created, because {re.escape(str(file))} is a file. Name another folder."):
        list(fp.pipe(rows, fp.cache(tmp_path / name)))
    assert file.read_text() == "text"
