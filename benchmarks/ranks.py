"""ranks: two processes that train one model, against one process with the same cores and the same batches."""

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measuring import Row

_LAUNCH = "from mlx._distributed_utils.launch import main; main()"
_SIZE, _ROWS = 1792, 256  # 10 million parameters, and rows of a batch of all ranks together
_TRAIN = f"""
import json, sys
from itertools import islice, repeat
from pathlib import Path
from statistics import median
from time import perf_counter
import mlxfp as fp

ranks, folder, steps = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
fp.runtime.use_fast_blas(threads=2 // ranks)
import mlx.core as mx
from mlx import nn, optimizers

connected = fp.distributed.connect()
mx.random.seed(0)
layers = [layer for _ in range(3) for layer in (nn.Linear({_SIZE}, {_SIZE}), nn.GELU())]
model = nn.Sequential(*layers, nn.Linear({_SIZE}, 10))
rows = {_ROWS} // ranks
batch = {{"x": mx.random.normal((rows, {_SIZE})), "label": mx.arange(rows) % 10}}
mx.eval(batch)
optimizer = optimizers.AdamW(1e-4)
loss = lambda model, batch: fp.losses.cross_entropy(model(batch["x"]), batch["label"])
step = fp.train_step(model, loss, optimizer, ranks=connected)
times, began = [], perf_counter()
for event in islice(fp.fit(step, fp.train_state(model, optimizer), repeat(batch)), steps):
    mx.synchronize()
    times.append(perf_counter() - began)
    began = perf_counter()
if connected.world.rank == 0:
    folder.joinpath(f"{{ranks}}.json").write_text(json.dumps(median(times[3:])))
"""


def rows(*, small: bool) -> list[Row]:
    """Train a perceptron of 10 million parameters, in two processes of one core each, and in one process of two."""
    steps = 8 if small else 60
    with TemporaryDirectory() as folder:
        times: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(1 if small else 3):
            for count, found in times.items():
                found.append(_train(count, Path(folder), steps))
    one, two = (min(found) for found in times.values())
    work = f"a step of 10M parameters, {_ROWS} rows, 2 ranks"
    return [Row("ranks", work, f"{two * 1000:.1f} ms", f"one process, 2 cores {one * 1000:.1f} ms", two / one, 1.1, "at most")]


def _train(count: int, folder: Path, steps: int) -> float:
    program = [sys.executable, "-c", _TRAIN, str(count), str(folder), str(steps)]
    launch = [sys.executable, "-c", _LAUNCH, "-n", str(count), "--backend", "ring", "--", *program]
    with subprocess.Popen(launch if count > 1 else program, stdin=subprocess.PIPE) as process:
        process.wait()
    return float(json.loads(folder.joinpath(f"{count}.json").read_text()))
