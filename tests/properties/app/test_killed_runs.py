"""A run that is killed at any moment, with -9 or asked to end, and started again by the same command, ends with the same bytes."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

COMMAND = (
    *("mlxfp", "run", "titanic", "model.name=encoder", "data.limit=80", "text.vocab_size=300", "training.epochs=3", "training.size=16"),
    *("validation.folds=2", "observers.progress=false", "observers.every=1", "observers.checkpoint_every=2", "observers.plots=false"),
    *(
        "text.permute=true",
        "text.drop=0.1",
        "training.ema=0.9",
        "competition.views=2",
        "observers.patience=2",
        "competition.threshold=true",
    ),
)
RESULTS = ("submission.csv", "oof.csv", "test_predictions.csv", "metrics.json", "folds.csv", "spec.yaml")


def start(output: Path):
    return subprocess.Popen([sys.executable, "-m", *COMMAND, f"output={output}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def results(output):
    folder = Path(output) / "titanic"
    folds = sorted(folder.glob("fold-*/*.npy")) + sorted(folder.glob("fold-*/model.safetensors"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in [*(folder / name for name in RESULTS), *folds]}


def test_a_killed_run_ends_as_one_that_was_not(tmp_path):
    began = time.monotonic()
    whole = start(tmp_path / "whole")
    said, _ = whole.communicate()
    assert whole.returncode == 0, said.decode()
    seconds = time.monotonic() - began

    first = start(tmp_path / "killed")
    while not list((tmp_path / "killed").glob("titanic/fold-*/**/*.safetensors")) and first.poll() is None:
        time.sleep(0.01)
    first.send_signal(signal.SIGKILL)  # in the middle, however fast the machine is
    first.communicate()
    assert first.returncode == -signal.SIGKILL
    chance, kills = random.Random(0), 1
    while True:
        process = start(tmp_path / "killed")
        try:
            # Imports take the first second or so, and a process that is killed before that has done nothing.
            said, _ = process.communicate(timeout=seconds * chance.uniform(0.4, 0.7) if kills < 3 else None)
        except subprocess.TimeoutExpired:
            process.send_signal((signal.SIGKILL, signal.SIGTERM)[kills % 2])  # as machines say that are taken away
            process.communicate()
            kills += 1
            continue
        assert process.returncode == 0, said.decode()
        break
    assert results(tmp_path / "killed") == results(tmp_path / "whole")
