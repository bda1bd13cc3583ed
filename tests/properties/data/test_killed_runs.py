"""A run that is killed with -9 at any moment, and started again with its last cursor, loses nothing and repeats nothing."""

import json
import random
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

# One line a batch: the cursor after it, and the tokens in it. A line without an end was not written whole, and does not count.
RUN = """
import json
import sys
import numpy as np
import mlxfp as fp

journal, pause, share, workers = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])

def source(name, count):
    rows = [{"input_ids": [name * 100_000 + 10 * i + j for j in range(1 + i % 7)]} for i in range(count)]
    return fp.from_examples(rows)

def few(row):
    return len(row["input_ids"]) < 7

streams = [
    fp.pipe(source(1, 4000 // share), fp.map(dict), fp.shuffle(seed=1)),
    fp.pipe(source(2, 3000 // share), fp.filter(few), fp.shuffle(seed=2, buffer=100)),
]
dataset = fp.pipe(
    fp.mix(streams, [2, 1], by="tokens", stop="all"), fp.pack(32), fp.batch(4), fp.repeat(2), fp.prefetch(2, **workers),
)
lines = [line for line in open(journal) if line.endswith("\\n")]
with open(journal, "w") as out:
    out.writelines(lines)
cursor = fp.Cursor.from_bytes(bytes.fromhex(lines[-1].split()[0])) if lines else None
with open(journal, "a", buffering=1) as out:
    for group, cursor in fp.iterate(dataset, cursor):
        tokens = [token for row in group for token in row["input_ids"]]
        out.write(cursor.to_bytes().hex() + " " + ",".join(map(str, tokens)) + "\\n")
        if pause:
            import time
            time.sleep(pause)
"""


def start(journal: Path, pause: float, share: int, workers: dict[str, Any]) -> subprocess.Popen:
    command = [sys.executable, "-c", RUN, str(journal), str(pause), str(share), json.dumps(workers)]
    with errors(journal).open("w") as file:
        return subprocess.Popen(command, stderr=file)


def errors(journal: Path) -> Path:
    return journal.with_suffix(".errors")


def batches(journal: Path) -> list[str]:
    return [line.split()[1] for line in journal.read_text().splitlines()]


needs_processes = pytest.mark.skipif(find_spec("loky") is None, reason="worker processes need loky: pip install 'mlxfp[processes]'")


@pytest.mark.parametrize(
    ("share", "workers"),
    [(2, {}), (4, {"workers": 2}), pytest.param(4, {"workers": 2, "kind": "processes"}, marks=needs_processes)],
    ids=["alone", "threads", "processes"],
)
def test_a_run_killed_again_and_again_gives_what_an_undisturbed_one_gives(tmp_path: Path, share: int, workers: dict[str, Any]):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for journal in (whole, killed):
        journal.touch()
    assert start(whole, 0, share, {}).wait() == 0, errors(whole).read_text()
    moments, kills = random.Random(0), 0
    while True:
        before = killed.stat().st_size
        process = start(killed, 0.01 if workers else 0.005, share, workers)
        while process.poll() is None and killed.stat().st_size <= before:  # it has started, and written something new
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.4))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
    assert process.returncode == 0, errors(killed).read_text()
    assert kills >= 2
    assert batches(killed) == batches(whole)
    tokens = [token for batch in batches(whole) for token in batch.split(",")]
    assert len(tokens) == 2 * len(set(tokens))  # both epochs, every token once in each
