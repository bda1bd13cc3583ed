"""Ranks that write, evaluate, predict and go on together: real processes, started by mlx.launch."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn, optimizers
from mlxfp.collators.batches import default

from mlxfp import runners
from mlxfp.cli.ranks import _free
from mlxfp.collators.collating import collate
from mlxfp.core.errors import ArgumentError
from mlxfp.core.pipelines import pipe
from mlxfp.core.trees import flatten
from mlxfp.data.lengths.batching import batch
from mlxfp.data.lengths.packing import pack
from mlxfp.data.rows.map_filter import filter, map
from mlxfp.data.rows.sharding import shard
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.running.writing import write
from mlxfp.data.sources.in_memory import from_examples
from mlxfp.distributed import connect
from mlxfp.evaluation.metrics import roc_auc
from mlxfp.training.loop.checkpoints import load_latest
from mlxfp.training.loop.evaluating import evaluate, predict
from mlxfp.training.loop.fitting import fit, last
from mlxfp.training.losses import cross_entropy
from mlxfp.training.observers import checkpoint
from mlxfp.training.steps.state import train_state
from mlxfp.training.steps.steps import train_step
from tests.data.running.test_writing import Gaps, content

ROOT = Path(__file__).parent.parent
PROGRAM = """
import sys
from mlxfp.runtime import use_fast_blas
use_fast_blas(threads=1)
from mlxfp.distributed import connect
from tests.test_ranks import CASES
CASES[sys.argv[1]](connect(backend="ring", limit=100), sys.argv[2])
"""
START = "from mlx._distributed_utils.launch import main; main()"
ROWS = from_examples([{"x": [i % 7, i / 10, 1.0], "y": i % 2, "number": i, "input_ids": list(range(i % 5))} for i in range(120)])
GLOBAL = 8  # rows of all ranks in a batch


def squared(row):
    return {**row, "square": row["number"] ** 2}


class Breaks:
    """A function of rows that ends one rank at a row."""

    __fingerprint__ = "breaks"

    def __init__(self, how):
        self.how = how

    def __call__(self, row):
        if row["number"] == 80 and os.environ.get("MLX_RANK") == "1":
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("a broken row")
        return row


Breaks.__fingerprint__ = lambda self: "breaks"
WRITTEN = {
    "rows": pipe(ROWS, map(squared), filter(lambda row: row["number"] % 3 > 0)),
    "packed": pipe(ROWS, map(squared), pack(16)),
    "a state that is empty at first": pipe(from_examples([{"x": i} for i in range(120)]), Gaps()),
}


def batches(size):
    return pipe(ROWS, filter(lambda row: row["x"][0] != 3), batch(size), collate(default()))


def measure(model, group):
    logits = model(group["x"])
    return {"loss": cross_entropy(logits, group["y"]), "auc": roc_auc(logits[:, 1] - logits[:, 0], group["y"])}


def state_of():
    model = nn.Linear(3, 2)
    model.weight, model.bias = mx.array([[0.1, -0.2, 0.3], [0.2, 0.1, -0.1]]), mx.zeros(2)
    return model, train_state(model, optimizers.SGD(0.01, momentum=0.9))


def measured(ranks, size):
    model, state = state_of()
    answers = [
        answer["p"].tolist() for answer in predict(model, lambda model, group: {"p": model(group["x"])}, ranks=ranks)(state, batches(size))
    ]
    return evaluate(model, measure, ranks=ranks)(state, batches(size)), answers


def train(ranks, folder, *, steps, size=None):
    """Train up to a step, from the last checkpoint; return where it began, and the parameters."""
    world, (model, start) = ranks.world, state_of()
    own = pipe(
        ROWS,
        shuffle(seed=0),
        shard(world.copy, world.copies),
        batch(size or GLOBAL // world.copies, drop_last=True),
        collate(default()),
    )
    step = train_step(
        model, lambda model, group: cross_entropy(model(group["x"]), group["y"]), optimizers.SGD(0.01, momentum=0.9), ranks=ranks
    )
    begin = load_latest(folder, start, ranks=ranks)
    stream = fit(step, begin.state, own, epochs=3, steps=steps, cursor=begin.cursor, running=begin.running, log_every=4)
    end = last(pipe(stream, checkpoint(folder, ranks=ranks)))
    return begin.state.step, end.step, [np.array(leaf).tolist() for leaf in flatten(end.state.params)[1]]


def work_together(ranks, folder):
    """Do everything that ranks do together, and say what came out."""
    place, size = Path(folder), ranks.world.size
    for name, dataset in WRITTEN.items():
        manifest = write(dataset, place / name, rows_per_file=30, on=runners.ranks(limit=100))
        assert write(dataset, place / name, rows_per_file=30, on=runners.ranks(limit=100)) == manifest
    said = {
        "measured": [measured(ranks, rows) for rows in (4, 200)],
        "trained": train(ranks, place / "trained", steps=5 if size == 2 else 20),
    }
    try:
        evaluate(nn.Linear(3, 2), measure, ranks=ranks)(
            state_of()[1], pipe(ROWS, shard(ranks.world.rank, size), batch(4), collate(default()))
        )
    except ArgumentError as error:
        said["refused"] = str(error)
    (place / f"{size}-{ranks.world.rank}.json").write_text(json.dumps(said), encoding="utf-8")


def write_and_end(how):
    return lambda ranks, folder: write(pipe(ROWS, map(Breaks(how))), folder, rows_per_file=20, on=runners.ranks(limit=30))


CASES = {"together": work_together, "killed": write_and_end("killed"), "raises": write_and_end("raises")}


def launched(case, folder, size):
    """Run a case in so many processes of mlx.launch; return what they print, with what is said of them at the end."""
    where = ["--backend", "ring", "-n", str(size), "--starting-port", str(_free(size))]
    command = [sys.executable, "-c", START, *where, "--", sys.executable, "-c", PROGRAM, case, str(folder)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        return process.stdout.read()
    finally:
        process.communicate(timeout=300)


def test_two_ranks_do_what_one_process_does_and_four_and_one_go_on(tmp_path):
    alone = measured(None, 4), measured(None, 200)
    _, _, whole = train(connect(), tmp_path / "whole", steps=30)
    for size in (2, 4):
        printed = launched("together", tmp_path, size)
        found = (
            [json.loads((tmp_path / f"{size}-{rank}.json").read_text()) for rank in range(size)] if "Traceback" not in printed else printed
        )
        assert all(each == found[0] for each in found), found
        assert found[0]["measured"] == [list(each) for each in alone]
        assert "evaluate needs the same batches on all of them" in found[0]["refused"]
        assert found[0]["trained"][:2] == ([0, 5] if size == 2 else [5, 20])
        for name, dataset in WRITTEN.items():
            write(dataset, tmp_path / f"{name}, alone", rows_per_file=30)
            assert content(tmp_path / name) == content(tmp_path / f"{name}, alone")
    begun, ended, params = train(connect(), tmp_path / "trained", steps=30)
    assert (begun, ended) == (20, 30)
    assert all(np.allclose(ours, theirs, rtol=1e-5, atol=1e-6) for ours, theirs in zip(params, whole, strict=True))


@pytest.mark.parametrize("how", ["killed", "raises"])
def test_a_rank_that_ends_while_it_writes_ends_the_others_and_any_runner_goes_on(how, tmp_path):
    printed = launched(how, tmp_path, 2)
    assert (
        ("RankError: Another rank is gone" in printed or "and ends: a rank has ended" in printed)
        if how == "killed"
        else ("RankError: Rank 1 of 2 failed while it wrote its files, so this one, rank 0, stops" in printed)
    ), printed
    left = {path.name for path in tmp_path.glob("part-*")}
    assert 0 < len(left) < 6
    dataset = pipe(ROWS, map(Breaks(how)))
    assert write(dataset, tmp_path, rows_per_file=20).rows == 120
    write(dataset, tmp_path / "alone", rows_per_file=20)
    assert content(tmp_path / "alone") == {name: data for name, data in content_of_files(tmp_path).items()}


def content_of_files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
