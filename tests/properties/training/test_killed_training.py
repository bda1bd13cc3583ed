"""A training that is killed with -9 at any moment, and started again by the same lines, ends as one that was not, bit for bit."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

# All at once: dropout, shuffling, prefetching, gradients summed over two batches, an average of the weights, checkpoints written beside
# the training, a rate that falls on plateaus, early stopping.
RUN = """
import sys
import time
from pathlib import Path

from mlxfp.runtime import use_fast_blas

use_fast_blas()

import mlx.core as mx
import numpy as np
from mlx import nn

from mlxfp.collators.collating import collate
from mlxfp.core.pipelines import pipe
from mlxfp.data.lengths.batching import batch
from mlxfp.data.running.prefetching import prefetch
from mlxfp.data.rows.shuffling import shuffle
from mlxfp.data.sources.in_memory import from_examples
from mlxfp.training.loop.checkpoints import load_latest, save_state
from mlxfp.training.loop.control import Control
from mlxfp.training.loop.events import Event
from mlxfp.training.loop.evaluating import evaluate
from mlxfp.training.loop.fitting import fit, last
from mlxfp.training.losses import mse
from mlxfp.training.observers import (
    checkpoint, checkpoint_best, early_stopping, evaluate_every, log_metrics, on_event, reduce_on_plateau,
)
from mlxfp.training.optimization.optimizers import adamw
from mlxfp.training.steps.state import train_state
from mlxfp.training.steps.steps import train_step

folder, pause = Path(sys.argv[1]), float(sys.argv[2])

def arrays(group):
    return {name: mx.array(np.array([row[name] for row in group], np.float32)) for name in ("x", "y")}

rng = np.random.default_rng(0)
rows = [{"x": x.tolist(), "y": [float(x.sum())]} for x in rng.normal(size=(96, 4))]
batches = pipe(from_examples(rows), shuffle(seed=0), shuffle(seed=1, buffer=20), batch(8), collate(arrays), prefetch(2))
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
for place, layer in enumerate([model.layers[0], model.layers[3]]):
    layer.weight = mx.random.normal(layer.weight.shape, key=mx.random.key(place))
    layer.bias = mx.zeros_like(layer.bias)
optimizer = adamw(0.3)

def loss(model, batch):
    return mse(model(batch["x"]), batch["y"])

check = evaluate(model, lambda model, batch: {"error": loss(model, batch)})
step = train_step(model, loss, optimizer, clip_norm=1.0, accumulate=2, ema=0.9, skip_nonfinite=True)
control = Control()
begin = load_latest(folder / "checkpoints", step.start(train_state(model, optimizer, seed=3)))
end = last(pipe(
    fit(
        step, begin.state, batches, epochs=12, cursor=begin.cursor, history=begin.history, running=begin.running,
        control=control, log_every=3,
    ),
    evaluate_every(lambda state: check(state, batches), steps=7),
    reduce_on_plateau("error", control=control, mode="min", patience=1),
    early_stopping("error", mode="min", patience=7),
    checkpoint(folder / "checkpoints", steps=5, keep=3),
    checkpoint_best(folder / "best.safetensors", "error", mode="min"),
    log_metrics(folder / "log.jsonl"),
    on_event(Event, lambda event: time.sleep(pause)),
))
save_state(folder / "end.safetensors", end.state, cursor=end.cursor)
"""


def start(folder: Path, pause: float) -> subprocess.Popen:
    with errors(folder).open("w") as file:
        return subprocess.Popen([sys.executable, "-W", "error", "-c", RUN, str(folder), str(pause)], stderr=file)


def errors(folder: Path) -> Path:
    return folder / "errors"


def log(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    kept = ("Stepped", "EpochEnded", "Evaluated", "StateChanged", "Stopped")  # when a file is complete is not of the run
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines if line["event"] in kept]


def test_a_training_killed_again_and_again_ends_as_an_undisturbed_one(tmp_path: Path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    assert start(whole, 0).wait() == 0, errors(whole).read_text()
    moments, kills = random.Random(0), 0
    while kills < 3:
        before = newest(killed)
        process = start(killed, 0.01)
        while process.poll() is None and newest(killed) == before:  # until it has gone further than the last one
            time.sleep(0.005)
        time.sleep(moments.uniform(0, 0.3))
        assert process.poll() is None, f"it has ended before it was killed: {errors(killed).read_text()}"
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    assert start(killed, 0).wait() == 0, errors(killed).read_text()
    for name in ("end.safetensors", "best.safetensors"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), f"{name} differs after {kills} kills"
    assert [path.name for path in sorted(killed.glob("checkpoints/*"))] == [path.name for path in sorted(whole.glob("checkpoints/*"))]
    assert log(killed) == log(whole)
    assert {"Evaluated", "StateChanged"} <= {line["event"] for line in log(whole)}


def newest(folder: Path) -> str:
    return max((path.name for path in folder.glob("checkpoints/step-*")), default="")
