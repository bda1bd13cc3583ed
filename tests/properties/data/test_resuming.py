"""Runs that are stopped and continued, as users of other loaders did when they lost rows: nothing is lost, nothing comes twice."""

import json
import random
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mlxfp as fp
from mlxfp.testing import laws
from tests.data.left_running import run_script

TOKENS = fp.from_examples([{"input_ids": [10 * i + j for j in range(1 + i % 7)]} for i in range(300)])


def continued(dataset: fp.Dataset[Any], stops: list[int], epoch: int = 0) -> list[Any]:
    """Read a dataset, but stop after each of these numbers of items, and continue from the bytes of the cursor."""
    found, cursor = [], None
    for stop in [*stops, None]:
        run = fp.iterate(dataset, cursor, epoch=epoch)
        for place, (item, after) in enumerate(run, 1):
            found.append(item)
            if place == stop:
                cursor = fp.Cursor.from_bytes(after.to_bytes())
                break
        else:
            return found
        run.close()
    return found


# https://github.com/huggingface/datasets/issues/7901
def test_a_shuffled_stream_resumes_after_every_row_and_twice_in_a_row(tmp_path: Path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": i}) + "\n" for i in range(1000)))
    dataset = fp.pipe(fp.read_jsonl(tmp_path / "a.jsonl"), fp.shuffle(seed=0, buffer=100))
    whole = list(dataset)
    assert sorted(row["id"] for row in whole) == list(range(1000))
    for stop in range(1, 201, 7):
        assert continued(dataset, [stop]) == whole
        assert continued(dataset, [stop, 1, stop]) == whole


# https://github.com/huggingface/accelerate/issues/2016
@pytest.mark.parametrize("buffer", [None, 30])
def test_a_run_that_stops_in_a_later_epoch_keeps_the_order_of_that_epoch_and_the_next(buffer: int | None):
    shuffled = fp.pipe(fp.from_table({"x": range(100)}), fp.shuffle(seed=0, buffer=buffer))
    passes = [[row["x"] for row, _ in fp.iterate(shuffled, epoch=epoch)] for epoch in range(4)]
    assert len({tuple(each) for each in passes}) == 4
    for stop in (201, 250, 299, 300, 301):
        found = continued(fp.pipe(shuffled, fp.repeat(4)), [stop])
        assert [row["x"] for row in found] == list(chain(*passes))
        epoch, place = divmod(stop, 100)
        if place:
            assert [row["x"] for row in continued(shuffled, [place], epoch=epoch)] == passes[epoch]


# https://github.com/KempnerInstitute/KempnerForge/pull/57, https://github.com/NVIDIA/Megatron-Energon/issues/19
PIPELINES = {
    "filter, flat_map, shuffle, pack, batch": fp.pipe(
        TOKENS,
        fp.filter(lambda row: len(row["input_ids"]) != 3),
        fp.flat_map(lambda row: [row] * (len(row["input_ids"]) % 3), schema=pa.schema({"input_ids": pa.list_(pa.int64())})),
        fp.shuffle(seed=1, buffer=50),
        fp.pack(16, open_rows=8),
        fp.batch(3),
    ),
    "pack of many open rows": fp.pipe(TOKENS, fp.pack(64, open_rows=8), fp.shuffle(seed=0, buffer=50), fp.batch(1)),
    "buckets of a shuffled stream": fp.pipe(TOKENS, fp.shuffle(seed=0, buffer=50), fp.bucket_by_length([2, 4, 8], size=4)),
}


@pytest.mark.parametrize("dataset", PIPELINES.values(), ids=PIPELINES)
def test_a_run_that_stops_seven_times_in_an_epoch_is_one_run(dataset: fp.Dataset[Any]):
    whole, draw = list(dataset), random.Random(0)
    for _ in range(10):
        assert continued(dataset, [draw.randint(1, max(1, len(whole) // 8)) for _ in range(7)]) == whole
    laws.assert_resumable(dataset)


# https://github.com/Lightning-AI/litData/issues/316
@pytest.mark.parametrize("stop", ["first", "all", "restart"])
@pytest.mark.parametrize("weights", [[3, 1], [1, 3], [1, 1]])
def test_mixtures_resume_where_a_part_ends_and_starts_again(stop: Any, weights: list[int]):
    parts = [
        fp.pipe(fp.from_table({"x": range(7)}), fp.shuffle(seed=0)),
        fp.pipe(fp.from_table({"x": range(100, 104)}), fp.shuffle(seed=0, buffer=2)),
    ]
    dataset = fp.pipe(fp.mix(parts, weights, stop=stop), fp.take(40, redraw=True))
    laws.assert_resumable(dataset)
    laws.assert_resumable(fp.pipe(dataset, fp.batch(3)))


# https://github.com/google/grain/issues/1129
def test_no_row_is_lost_whatever_the_number_of_workers():
    rows = fp.from_table({"x": range(1000)})
    found = [list(fp.pipe(rows, fp.map(dict), fp.batch(7, drop_last=True), fp.prefetch(2, workers=workers))) for workers in range(1, 5)]
    assert [len(groups) for groups in found] == [142] * 4
    assert found[0] == found[1] == found[2] == found[3]
    assert [row["x"] for group in found[0] for row in group] == list(range(994))


# https://github.com/mosaicml/streaming/issues/781
def test_a_run_that_was_interrupted_starts_again_at_once_and_leaves_nothing_behind(tmp_path: Path):
    code = f"""
import signal, threading, sys, time
import mlxfp as fp
def slow(row):
    time.sleep(0.001)
    return row
slow.__fingerprint__ = "slow"
rows = fp.from_examples([{{"x": i}} for i in range(400)])
data = fp.pipe(rows, fp.map(slow), fp.cache({str(tmp_path)!r}), fp.batch(4), fp.prefetch(2, workers=2))
if sys.argv[-1] == "stop":
    threading.Timer(0.1, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
print(sum(len(group) for group in data))
"""
    status, _, errors = run_script(code.replace("sys.argv[-1]", '"stop"'))
    assert (status != 0, errors.rstrip().endswith("KeyboardInterrupt")) == (True, True)
    assert not list(tmp_path.glob("*/manifest.json"))
    assert run_script(code) == (0, "400\n", "")
    assert sorted(file.name for file in tmp_path.glob("*/*")) == ["manifest.json", "part-00000.arrow"]


# https://github.com/huggingface/datasets/issues/7269
def test_no_memory_is_held_from_one_epoch_to_the_next(tmp_path: Path):
    for number in range(4):
        pq.write_table(pa.table({"x": np.arange(100_000) + number, "text": ["some text"] * 100_000}), tmp_path / f"{number}.parquet")
    dataset = fp.pipe(
        fp.read_parquet(tmp_path / "*.parquet"), fp.filter(lambda row: row["x"] % 50 == 0), fp.shuffle(seed=0, buffer=100), fp.batch(8)
    )
    held = []
    for epoch in range(3):
        for _ in fp.iterate(dataset, epoch=epoch):
            pass
        held.append(pa.total_allocated_bytes())
    assert max(held) - min(held) < 2**20


# https://github.com/webdataset/webdataset/issues/71
def test_a_buffer_smaller_than_a_file_shuffles_badly_and_mixing_files_first_mends():
    files = [fp.from_table({"x": range(500 * number, 500 * number + 500)}) for number in range(16)]
    one_after_another = fp.pipe(fp.concat(files), fp.filter(lambda row: True), fp.shuffle(seed=0, buffer=50))
    in_turns = fp.pipe(fp.interleave([fp.pipe(file, fp.filter(lambda row: True)) for file in files]), fp.shuffle(seed=0, buffer=50))
    assert moved(one_after_another) < 0.05
    assert moved(in_turns) > 0.25
    assert moved(fp.pipe(fp.from_table({"x": range(8000)}), fp.shuffle(seed=0, buffer=50))) < 0.05


def moved(dataset: fp.Dataset[Any]) -> float:
    """Return how far rows are from their places in the order of the numbers, on average, as a share of all rows: ideal is 1/3."""
    numbers = np.array([row["x"] for row in dataset])
    assert Counter(numbers.tolist()) == Counter(range(8000))
    return float(np.abs(numbers - np.arange(len(numbers))).mean() / len(numbers))
