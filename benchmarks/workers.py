"""python-map, cores, runner: the gain of several workers, and the cost of idle workers."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import mlxfp as fp
from benchmarks.first_epoch import consume, epoch, passenger_file
from benchmarks.measuring import Row, against, best, installed

_MICROS = 150  # Python time per row
_SIZE = 32


def python_map(*, small: bool) -> list[Row]:
    """Run Python code for each row in one thread, in two processes, and in two processes of torch and datasets."""
    count = 500 if small else 60_000
    slow = partial(_slow, loops=_loops())
    rows = fp.from_table({"x": np.arange(count)})
    batches = fp.pipe(rows, fp.map(slow), fp.batch(_SIZE))
    two = fp.pipe(batches, fp.prefetch(4, workers=2, kind="processes"))
    work = f"{count:,} rows through a function of Python, 2 processes"
    ours = partial(consume, two)
    alone = against(work, "one thread", ours=ours, theirs=[partial(consume, batches)], rows=count, repeats=3)
    peers = [partial(_torch_epoch, slow, count), partial(_datasets_epoch, slow, count)] if installed("torch", "datasets") else None
    others = against(work, "torch, datasets with 2", ours=ours, theirs=peers, rows=count, repeats=3)
    return [Row("python-map", *alone, 1.7), Row("python-map", *others, 1.0)]


def cores(*, small: bool) -> list[Row]:
    """Run an epoch from a CSV file to padded batches with two workers, with one worker, and on one core."""
    count = 2000 if small else 200_000
    with passenger_file(count) as (path, tokenizer):
        ways = [fp.prefetch(4, workers=2), fp.prefetch(4, workers=2, kind="processes"), fp.prefetch(4)]
        *two, one = best([partial(consume, fp.pipe(epoch(path, tokenizer), way)) for way in ways])
        bound = _on_one_core(path) if hasattr(os, "sched_setaffinity") else None
    ours = f"{count / min(two):,.0f} rows/s"
    work = f"CSV of {count:,} rows to shuffled batches, 2 workers"
    rows = [Row("cores", work, ours, f"1 worker {count / one:,.0f} rows/s", one / min(two), 1.05)]
    if bound is None:
        return [*rows, Row("cores", work, ours, "one core: this system binds no process to a core", None, 1.15)]
    fastest = min(*two, one)
    return [
        *rows,
        Row("cores", "the same, all cores", f"{count / fastest:,.0f} rows/s", f"1 core {count / bound:,.0f} rows/s", bound / fastest, 1.15),
    ]


def _on_one_core(path: Path) -> float:
    """Return the time of the epoch in a process with one core. The libraries start no further threads in this process."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.workers", str(path)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def _epoch_on_one_core(path: Path) -> None:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    (seconds,) = best([partial(consume, fp.pipe(epoch(path, fp.load_tokenizer(path.parent)), fp.prefetch(4)))])
    sys.stdout.write(str(seconds))


def runner(*, small: bool) -> list[Row]:
    """Iterate over batches of a table with idle workers."""
    count = 20_000 if small else 400_000
    batches = fp.pipe(fp.from_table({"x": np.arange(count)}), fp.batch(_SIZE))
    ahead, workers = best([partial(consume, fp.pipe(batches, way)) for way in (fp.prefetch(64), fp.prefetch(64, workers=2))], repeats=9)
    micros = (workers - ahead) / (count / _SIZE) * 1e6
    return [Row("runner", "2 workers with nothing to do, batches of 32", f"{micros:.2f} us a batch", "one thread", micros, 10, "at most")]


def _loops() -> int:
    """Return the number of loops of `_slow` for `_MICROS` on this machine."""
    (seconds,) = best([partial(_slow, {"x": 0}, loops=10_000)], repeats=20)
    return round(10_000 * _MICROS / 1e6 / seconds)


def _slow(row: Any, *, loops: int) -> dict[str, int]:
    total = 0
    for number in range(loops):
        total += number * number
    return {"x": row["x"], "total": total % 1000}


class _Items:
    def __init__(self, slow: Callable[[Any], dict[str, int]], count: int) -> None:
        self.slow = slow
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, int]:
        return self.slow({"x": index})


def _torch_epoch(slow: Callable[[Any], dict[str, int]], count: int) -> None:
    import torch

    context = multiprocessing.get_context("fork")
    consume(torch.utils.data.DataLoader(_Items(slow, count), batch_size=_SIZE, num_workers=2, multiprocessing_context=context))


def _datasets_epoch(slow: Callable[[Any], dict[str, int]], count: int) -> None:
    import datasets

    datasets.disable_progress_bars()
    datasets.disable_caching()
    rows = datasets.Dataset.from_dict({"x": list(range(count))})
    consume(rows.map(slow, num_proc=2).iter(_SIZE))


if __name__ == "__main__":
    _epoch_on_one_core(Path(sys.argv[1]))
