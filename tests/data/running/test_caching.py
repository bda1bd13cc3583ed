"""load and cache: the same rows, kept; a cache is whole or not there, and never another pipeline's."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.core.chunks import KEY
from mlxfp.data.running import part_files, writing
from mlxfp.data.running.written_folders import WrittenFolder
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, FingerprintError, SchemaError
from mlxfp.testing import laws
from mlxfp.testing.comparing import same
from mlxfp.testing.probing import from_chunks

ROWS = fp.from_examples([{"x": i, "text": f"row {i}"} for i in range(50)])


def odd(row) -> bool:
    return row["x"] % 2 == 1


def never(row) -> bool:
    return False


def file_of(folder: Path) -> Path:
    """Return the first file of the one cache in a folder."""
    (cached,) = folder.iterdir()
    return cached / "part-00000.arrow"


def keys(dataset, epoch: int) -> list[int]:
    return [key for group, _ in fp.iterate(fp.pipe(dataset, fp.batch(99)), epoch=epoch) for key in group.chunk.column(KEY).to_pylist()]


@pytest.mark.parametrize("keep", [lambda folder: fp.load(), fp.cache], ids=["load", "cache"])
def test_what_is_kept_is_what_came_before_with_random_access(keep, tmp_path: Path):
    kept = fp.pipe(ROWS, fp.filter(odd), keep(tmp_path))
    assert "random access" in fp.explain(kept)
    assert list(kept) == list(fp.pipe(ROWS, fp.filter(odd)))
    assert kept[3] == {"x": 7, "text": "row 7"}
    assert kept[-1]["x"] == 49
    assert fp.length(kept) == 25
    assert keys(kept, 0) == keys(fp.pipe(ROWS, fp.filter(odd)), 0)


@pytest.mark.parametrize("keep", [lambda folder: fp.load(), fp.cache], ids=["load", "cache"])
def test_every_epoch_has_its_own_keys_and_no_two_rows_share_one(keep, tmp_path: Path):
    kept = fp.pipe(ROWS, fp.flat_map(lambda row: (row, row)), keep(tmp_path))
    epochs = [keys(kept, epoch) for epoch in range(3)]
    assert len({key for epoch in epochs for key in epoch}) == 300


def test_building_reads_and_writes_nothing(tmp_path: Path):
    dataset = fp.pipe(ROWS, fp.map(lambda row: {"x": 1 // 0}), fp.cache(tmp_path / "folder"))
    fp.explain(fp.pipe(ROWS, fp.filter(odd), fp.cache(tmp_path / "folder")))
    assert repr(dataset).endswith("folder'))")
    assert not (tmp_path / "folder").exists()


def test_a_cache_is_made_once_and_a_changed_stage_makes_another(tmp_path: Path):
    calls = tmp_path / "calls"

    def noted(row):
        with calls.open("a") as out:
            out.write(".")
        return {"y": row["x"]}

    noted.__fingerprint__ = "noted, version 1"
    list(fp.pipe(ROWS, fp.map(noted), fp.cache(tmp_path / "kept")))
    first = len(calls.read_text())
    list(fp.pipe(ROWS, fp.map(noted), fp.cache(tmp_path / "kept")))
    assert len(calls.read_text()) == first
    noted.__fingerprint__ = "noted, version 2"
    list(fp.pipe(ROWS, fp.map(noted), fp.cache(tmp_path / "kept")))
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_a_changed_file_makes_another_cache(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text("x\n1\n2\n")
    assert [row["x"] for row in fp.pipe(fp.read_csv(file), fp.cache(tmp_path / "kept"))] == [1, 2]
    file.write_text("x\n1\n2\n3\n")
    assert [row["x"] for row in fp.pipe(fp.read_csv(file), fp.cache(tmp_path / "kept"))] == [1, 2, 3]


def test_a_failed_pipeline_leaves_nothing_behind(tmp_path: Path):
    with pytest.raises(ZeroDivisionError):
        list(fp.pipe(ROWS, fp.map(lambda row: {"y": 1 // (row["x"] - 49)}), fp.cache(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_a_pipeline_that_fails_in_the_middle_leaves_nothing_behind(tmp_path: Path):
    fails_late = fp.pipe(ROWS, fp.map(lambda row: {"x": 1 // (row["x"] - 49)}, schema=pa.schema({"x": pa.int64()})), fp.cache(tmp_path))
    with pytest.raises(ZeroDivisionError):
        list(fails_late)
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_is_there_is_all_that_later_runs_need(tmp_path: Path):
    first = fp.pipe(ROWS, fp.filter(odd), fp.cache(tmp_path))
    assert next(iter(fp.pipe(first, fp.map(lambda row: {"y": row["x"]})))) == {"y": 1}
    later = fp.pipe(ROWS, fp.filter(odd), fp.cache(tmp_path), fp.map(lambda row: {"z": row["text"]}))
    assert fp.schema(later) == pa.schema({"z": pa.string()})
    assert len(list(later)) == 25


def test_large_caches_are_written_in_several_files_that_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(part_files, "_BYTES", 1000)
    monkeypatch.setattr(writing, "_BYTES", 3000)
    chunks = [pa.record_batch({"x": [place] * 10, "text": [f"row {place}"] * 10}) for place in range(39)]
    kept = fp.pipe(from_chunks(chunks), fp.cache(tmp_path))
    assert list(kept) == list(from_chunks(chunks))
    files = sorted(file_of(tmp_path).parent.glob("*.arrow"))
    assert len(files) == 3
    assert pa.ipc.open_file(str(files[0])).num_record_batches > 1
    laws.assert_random_access(kept, np.array([389, 0, 17, 17]))
    laws.assert_reads(kept.source, epoch=1)


def test_a_killed_writer_leaves_nothing_that_is_taken_for_whole(tmp_path: Path):
    code = """
import sys, time
import mlxfp as fp
def slow(row):
    time.sleep(0.002)
    return row
slow.__fingerprint__ = "slow"
list(fp.pipe(fp.from_iterable(lambda: ({"x": i} for i in range(600))), fp.map(slow), fp.cache(sys.argv[1])))
"""
    writer = subprocess.Popen([sys.executable, "-c", code.replace("lambda: (", "lambda: ("), str(tmp_path)])
    while not list(tmp_path.glob("*/.writing/.*.partial*")) and writer.poll() is None:
        time.sleep(0.01)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert not list(tmp_path.glob("*/*.arrow"))
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 0
    assert [path.name for path in sorted(next(tmp_path.iterdir()).iterdir())] == ["manifest.json", "part-00000.arrow"]


def make_cache(folder: str) -> int:
    return sum(row["x"] for row in fp.pipe(ROWS, fp.filter(odd), fp.cache(folder)))


def test_two_processes_may_make_one_cache_at_once(tmp_path: Path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(make_cache, [str(tmp_path)] * 4) == [sum(range(1, 50, 2))] * 4
    assert [path.name for path in sorted(next(tmp_path.iterdir()).iterdir())] == ["manifest.json", "part-00000.arrow"]


def test_threads_that_make_one_cache_at_once_all_get_it_or_all_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def failing(row: Any) -> Any:
        return {"x": 1 // (row["x"] - 49)}

    made: list[int] = []
    finish = WrittenFolder.finish
    monkeypatch.setattr(WrittenFolder, "finish", lambda *arguments: made.append(1) or finish(*arguments))
    kept = fp.pipe(ROWS, fp.filter(odd), fp.cache(tmp_path / "kept"))
    never = fp.pipe(ROWS, fp.map(failing, schema=pa.schema({"x": pa.int64()})), fp.cache(tmp_path / "never"))

    def read(place: int) -> list[Any] | str:
        try:
            return list(never if place % 2 else kept)
        except ZeroDivisionError as error:
            return str(error)

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(read, range(16)))
    assert found[::2] == [list(fp.pipe(ROWS, fp.filter(odd)))] * 8
    assert all("by zero" in error for error in found[1::2])
    assert made == [1]
    assert list((tmp_path / "never").iterdir()) == []


def test_a_cache_that_was_interrupted_goes_on_at_the_file_that_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(writing, "_BYTES", 80)
    calls: list[int] = []

    def counted(row: Any) -> Any:
        calls.append(row["x"])
        if len(calls) == 60:
            raise KeyboardInterrupt
        return row

    counted.__fingerprint__ = "1"
    rows = from_chunks([pa.record_batch({"x": range(first, first + 10)}) for first in range(0, 100, 10)])
    with pytest.raises(KeyboardInterrupt):
        list(fp.pipe(rows, fp.map(counted, schema=pa.schema({"x": pa.int64()})), fp.cache(tmp_path)))
    assert len(list(fp.pipe(rows, fp.map(counted, schema=pa.schema({"x": pa.int64()})), fp.cache(tmp_path)))) == 100
    assert len(calls) < 130


def test_a_damaged_cache_is_named(tmp_path: Path):
    list(fp.pipe(ROWS, fp.cache(tmp_path)))
    os.truncate(file_of(tmp_path), 100)
    with pytest.raises(DataError, match=r"cannot be read: part-00000.arrow has 100 bytes instead of .* Delete this folder; the next run"):
        list(fp.pipe(ROWS, fp.cache(tmp_path)))


def test_a_function_without_stable_content_is_named_with_what_to_do(tmp_path: Path):
    counter = np.random.default_rng(0)

    def draw(row):
        return {"x": int(counter.integers(9))}

    with pytest.raises(FingerprintError, match="A value of type Generator has no fingerprint") as caught:
        list(fp.pipe(ROWS, fp.map(draw), fp.cache(tmp_path)))
    assert any("__fingerprint__ = 'v1'" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    "between", [(), (fp.select_columns(["x"]),), (fp.shuffle(seed=0, buffer=3), fp.drop_columns(["z"]), fp.filter_by([("x", ">", 0)]))]
)
def test_a_cache_before_on_error_is_the_same_once_it_is_written(tmp_path: Path, between: Any):
    rows = fp.pipe(fp.from_examples([{"x": i, "z": "a"} for i in range(6)]), fp.cache(tmp_path), *between)
    parts = [fp.map(lambda row: {"y": 1 / (row["x"] - 3)}), fp.on_error("skip", max_rate=0.9), fp.shuffle(seed=0)]
    first = list(fp.pipe(rows, *parts))
    assert len(first) == 5 - (len(between) == 3)
    assert list(fp.pipe(rows, *parts)) == first
    assert sum(1 for _ in rows) == 6 - (len(between) == 3)


def test_a_cache_before_on_error_has_one_schema_before_and_after_it_is_written(tmp_path: Path):
    kept = fp.pipe(fp.from_examples([{"x": i} for i in range(6)]), fp.cache(tmp_path))
    more = fp.from_examples([{"x": i} for i in range(3)])

    def inverses():
        return fp.pipe(
            fp.concat([kept, more]), fp.map(lambda row: {"y": 1 / (row["x"] - 1)}), fp.on_error("skip", max_rate=0.9), fp.take(9)
        )

    first = list(inverses())
    assert len(list(tmp_path.iterdir())) == 1
    assert fp.schema(inverses()) == pa.schema({"y": pa.float64()})
    assert list(inverses()) == first
    assert len(first) == 7
    assert fp.inspect.trace_row(inverses(), 2).steps[-1].items == ({"y": 1.0},)


# Groups and batches

TOKENS = fp.from_examples(
    [{"x": i, "text": f"row {i}", "input_ids": [i] * (i % 5 + 1), "tensor": np.full((2, 1), i, np.float32)} for i in range(50)]
)


def draw(row, random):
    return {**row, "drawn": random.random()}


def to_batch(examples) -> dict[str, Any]:
    return {"x": mx.array([row["x"] for row in examples]), "half": mx.ones(3, mx.bfloat16), "text": tuple(row["text"] for row in examples)}


GROUPS = {
    "batch": fp.batch(7),
    "drop_last": fp.batch(7, drop_last=True),
    "buckets": fp.bucket_by_length([2, 5], size=4),
    "shuffled": fp.compose(fp.shuffle(seed=0), fp.batch(7)),
    "of a stream": fp.compose(fp.filter(odd), fp.batch(4)),
    "one": fp.batch(100),
    "none": fp.compose(fp.filter(never), fp.batch(4)),
}


@pytest.mark.parametrize("keep", [lambda folder: fp.load(), fp.cache], ids=["load", "cache"])
@pytest.mark.parametrize("grouped", GROUPS.values(), ids=GROUPS)
def test_groups_that_are_kept_are_what_came_before(keep: Any, grouped: Any, tmp_path: Path):
    groups = fp.pipe(TOKENS, grouped)
    kept = fp.pipe(groups, keep(tmp_path))
    assert kept.level == "groups"
    laws.assert_same_items(kept, groups)
    assert fp.length(kept) == sum(1 for _ in groups)
    laws.assert_repeatable(kept, epoch=1)
    laws.assert_resumable(kept, epoch=1)
    laws.assert_described(kept)
    laws.assert_value(kept)
    laws.assert_told_apart(kept, fp.pipe(TOKENS, fp.batch(6), keep(tmp_path)))
    assert [group for group, _ in fp.iterate(kept, epoch=1)] == list(groups)  # drawn once, as in epoch 0
    assert len(list(tmp_path.iterdir())) == (keep is fp.cache)


@pytest.mark.parametrize("keep", [lambda folder: fp.load(), fp.cache], ids=["load", "cache"])
def test_what_is_random_after_kept_groups_draws_anew_in_each_epoch(keep: Any, tmp_path: Path):
    drawn = fp.pipe(TOKENS, fp.batch(7), keep(tmp_path), fp.map(draw, seed=0), fp.repeat(2))
    numbers = [row["drawn"] for group in drawn for row in group]
    assert len(set(numbers)) == 100
    assert numbers[:50] == [row["drawn"] for group in fp.pipe(TOKENS, fp.batch(7), fp.map(draw, seed=0)) for row in group]
    laws.assert_resumable(drawn)


@pytest.mark.parametrize("keep", [lambda folder: fp.load(), fp.cache], ids=["load", "cache"])
@pytest.mark.parametrize("after", [(), (fp.repeat(2),), (fp.skip(2),), (fp.prefetch(2),), (fp.load(),)], ids=repr)
def test_batches_that_are_kept_are_what_came_before(after: Any, keep: Any, tmp_path: Path):
    batches = fp.pipe(TOKENS, fp.shuffle(seed=0), fp.batch(7), fp.collate(to_batch))
    kept = fp.pipe(batches, keep(tmp_path), *after)
    assert kept.level == "batches"
    found = list(fp.iterate(kept, epoch=3))
    once = [item for item, _ in fp.iterate(batches)]
    expected = {"(repeat(epochs=2),)": once * 2, "(skip(count=2),)": once[2:]}.get(repr(after), once)
    assert same([item for item, _ in found], expected)
    laws.assert_resumable(kept, epoch=1)
    laws.assert_value(kept)


def test_loaded_batches_are_made_once_and_cannot_be_changed_by_who_reads_them():
    calls: list[int] = []

    def counted(examples) -> dict[str, Any]:
        calls.append(len(examples))
        return to_batch(examples)

    kept = fp.pipe(TOKENS, fp.batch(25), fp.collate(counted), fp.load())
    for made in kept:
        made.clear()
    assert [len(made) for made in kept] == [3, 3]
    assert calls == [25, 25]


def test_groups_are_cached_before_collate(tmp_path: Path):
    batches = fp.pipe(TOKENS, fp.batch(7), fp.cache(tmp_path), fp.collate(to_batch))
    assert same(list(batches), list(fp.pipe(TOKENS, fp.batch(7), fp.collate(to_batch))))
    laws.assert_resumable(batches)


def test_a_damaged_cache_of_groups_is_named(tmp_path: Path):
    list(fp.pipe(ROWS, fp.batch(4), fp.cache(tmp_path)))
    os.truncate(file_of(tmp_path), 100)
    with pytest.raises(DataError, match=r"cannot be read: part-00000.arrow has 100 bytes instead of .* Delete this folder; the next run"):
        list(fp.pipe(ROWS, fp.batch(4), fp.cache(tmp_path)))


KEPT = fp.pipe(ROWS, fp.filter(odd))


def keep_in(folder: Path, dataset=KEPT) -> Path:
    """Fill a cache, and return its folder."""
    before = set(folder.glob("*"))
    list(fp.pipe(dataset, fp.cache(folder)))
    (file,) = set(folder.glob("*")) - before
    return file


@pytest.mark.parametrize("group", [None, fp.batch(4)], ids=["rows", "groups"])
def test_the_file_of_a_cache_is_read_as_rows_of_its_own(group, tmp_path: Path):
    file = keep_in(tmp_path, KEPT if group is None else fp.pipe(KEPT, group))
    for dataset in (fp.read_arrow(file), fp.read_arrow(tmp_path), fp.read_arrow(file / "*.arrow")):
        assert fp.schema(dataset).equals(fp.schema(KEPT))
        assert list(dataset) == list(KEPT)
        assert dataset[3] == {"x": 7, "text": "row 7"}
        assert fp.length(dataset) == 25
    assert [row["x"] for row in fp.pipe(fp.read_arrow(file), fp.select_columns(["x"]), fp.shuffle(seed=0), fp.take(25))] != [
        row["x"] for row in KEPT
    ]
    laws.check(fp.read_arrow(file))
    rows = [row for chunk in fp.parts.read_all(fp.read_arrow(file)) for row in chunk.column("__row__").to_pylist()]
    assert rows == list(range(25))  # numbered as rows of this file, which is what is named in errors


def test_a_cache_without_rows_is_read(tmp_path: Path):
    dataset = fp.read_arrow(keep_in(tmp_path, fp.pipe(ROWS, fp.filter_by([("x", ">", 99)]))))
    assert fp.schema(dataset).equals(fp.schema(ROWS))
    assert list(dataset) == []


def test_the_caches_of_a_folder_are_not_joined(tmp_path: Path):
    files = [keep_in(tmp_path, KEPT), keep_in(tmp_path, ROWS)]
    with pytest.raises(ArgumentError, match=r"A folder has several caches, probably of different versions of a pipeline: got 2 caches"):
        list(fp.read_arrow(tmp_path))
    assert len(list(fp.read_arrow(files))) == 75


def test_marked_rows_of_a_cache_are_not_taken_for_data(tmp_path: Path):
    failing = fp.map(lambda row: {"y": 1 // (row["x"] - 3)}, schema=pa.schema({"y": pa.int64()}))
    list(fp.pipe(ROWS, failing, fp.cache(tmp_path / "marked"), fp.on_error("skip", max_rate=1)))
    with pytest.raises(SchemaError, match=r"cannot read a cache that contains failed rows: got the column .*Put on_error before cache"):
        list(fp.read_arrow(tmp_path / "marked"))
    list(fp.pipe(ROWS, failing, fp.on_error("skip", max_rate=1), fp.cache(tmp_path / "well")))
    assert len(list(fp.read_arrow(tmp_path / "well"))) == 49


def test_a_file_with_reserved_names_that_is_not_a_cache_is_refused(tmp_path: Path):
    pyarrow_table = pa.table({"x": [1], "__row__": ["a"]})
    with pa.ipc.new_file(tmp_path / "a.arrow", pyarrow_table.schema) as out:
        out.write_table(pyarrow_table)
    with pytest.raises(SchemaError, match="A column has a reserved name: got '__row__'"):
        list(fp.read_arrow(tmp_path / "a.arrow"))


def test_len_counts_the_rows_that_load_and_cache_keep(tmp_path):
    """After a filter, `len` reads the rows once. A written cache tells its length without reading the source."""
    kept = fp.pipe(fp.from_examples([{"x": i} for i in range(9)]), fp.filter(lambda row: row["x"] % 2 == 0))
    assert (len(fp.pipe(kept, fp.load())), len(fp.pipe(kept, fp.load(), fp.batch(2)))) == (5, 3)
    cached = fp.pipe(kept, fp.cache(tmp_path))
    assert "random access\n    memory-mapped" in fp.explain(cached)
    assert len(cached) == 5
    assert "5 examples" in fp.explain(fp.pipe(kept, fp.cache(tmp_path)))
    with pytest.raises(ArgumentTypeError, match="known only after reading the data"):
        len(kept)
