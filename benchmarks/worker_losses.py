"""Cost of lost workers when data are prepared on many machines: `python -m benchmarks.worker_losses`.

Constants are measured on this machine, in processor seconds. Many machines are simulated event by event. A task is a file, with the file
size of `write`. A file is done when the file and its manifest entry are on disk. The unfinished file of a lost worker is written again.
"""

import heapq
import json
import tempfile
from math import inf
from pathlib import Path
from time import process_time

import numpy as np
from attrs import frozen

import mlxfp as fp
from mlxfp.data.manifests import digest

FILE = 64e6  # bytes per file, the default of `write`
HOURS = 3600.0
_MOST = 3_000  # limit of losses; more losses mean an endless run


@frozen
class Constants:
    """Costs measured on this machine: processor seconds per source byte, and sizes in bytes."""

    made: float  # seconds to read, render, tokenize and write a byte
    hashed: float  # seconds to read and hash a byte, as after a restart
    manifest: float  # bytes of the manifest per file
    cursor: float  # bytes of a cursor


@frozen
class Plan:
    """Work on machines with occasional losses."""

    files: int
    workers: int  # one core each
    seconds: float  # of work per file
    lost_after: float  # mean seconds until a worker is lost
    back_after: float  # seconds until a lost worker is replaced


@frozen
class Outcome:
    """Result of a plan: total seconds, share of repeated work, and number of lost workers."""

    seconds: float
    again: float
    losses: int


def measure(rows: int = 4000) -> Constants:
    """Prepare small files of texts and return the measured costs."""
    words = np.array(["quick", "brown", "foxes", "jump", "over", "a", "lazy", "dog", "and", "run", "away", "from", "all", "others"])
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "texts.jsonl")
        source.write_text("".join(json.dumps({"id": i, "text": " ".join(draw.choice(words, 120))}) + "\n" for i in range(rows)))
        texts = fp.read_jsonl(str(source))
        tokenizer = fp.train_tokenizer(fp.pipe(texts, fp.take(200)), kind="bpe", vocab_size=400)
        dataset = fp.pipe(texts, fp.template("A story: {text}"), fp.tokenize(tokenizer))
        fp.write(dataset, Path(folder, "warm"), rows_per_file=rows // 8)
        began = process_time()
        manifest = fp.write(dataset, Path(folder, "made"), rows_per_file=rows // 8)
        made = (process_time() - began) / source.stat().st_size
        *_, (_, cursor) = fp.iterate(fp.pipe(dataset, fp.batch(8)))
        size = sum(each.bytes for each in manifest.files)
        began = process_time()
        for each in manifest.files:
            digest(Path(folder, "made", each.name))
        hashed = (process_time() - began) / size
        text = Path(folder, "made", "manifest.json").stat().st_size
        return Constants(made, hashed, text / len(manifest.files), len(cursor.to_bytes()))


def by_queue(plan: Plan, *, seed: int) -> Outcome:
    """Simulate workers that take the next file from a queue, as in Ray. A lost worker returns its file to the queue."""
    draw = np.random.default_rng(seed)
    todo, done, again, losses, now = plan.files, 0, 0.0, 0, 0.0
    ends = [draw.exponential(plan.lost_after) for _ in range(plan.workers)]
    events: list[tuple[float, int, str]] = [(0.0, worker, "free") for worker in range(plan.workers)]
    heapq.heapify(events)
    waiting: list[int] = []  # idle workers; a lost worker can free a file
    while done < plan.files:
        now, worker, what = heapq.heappop(events)
        if what == "back":
            ends[worker] = now + draw.exponential(plan.lost_after)
        elif what == "lost":
            losses += 1
            heapq.heappush(events, (now + plan.back_after, worker, "back"))
            todo += 1
            for idle in waiting[:1]:
                heapq.heappush(events, (now, idle, "free"))
            del waiting[:1]
            continue
        elif what == "done":
            done += 1
        if not todo:
            waiting.append(worker)
            continue
        todo -= 1
        finished = now + plan.seconds
        if ends[worker] < finished:
            lost = max(now, ends[worker])
            again += lost - now
            heapq.heappush(events, (lost, worker, "lost"))
        else:
            heapq.heappush(events, (finished, worker, "done"))
    return Outcome(now, again / (plan.files * plan.seconds), losses)


def by_ranks(plan: Plan, *, seed: int) -> Outcome:
    """Simulate ranks with a fixed share of files. After a loss, all ranks stop and continue with the unfinished files."""
    draw, now, again, losses = np.random.default_rng(seed), 0.0, 0.0, 0
    left = np.array([len(range(rank, plan.files, plan.workers)) for rank in range(plan.workers)])
    while losses < _MOST:
        alive = draw.exponential(plan.lost_after / plan.workers)  # until the first loss
        if alive >= left.max() * plan.seconds:
            return Outcome(now + left.max() * plan.seconds, again / (plan.files * plan.seconds), losses)
        whole = int(alive // plan.seconds)
        again += (alive - whole * plan.seconds) * (left > whole).sum()
        left = np.maximum(0, left - whole)
        now, losses = now + alive + plan.back_after, losses + 1
    return Outcome(inf, inf, losses)


def main() -> None:
    """Print the costs, and the simulated times for 10 TB of text on 200 machines with 16 cores."""
    found = measure()
    print(f"made: {1e-6 / found.made:.1f} MB/s of a core; hashed: {1e-6 / found.hashed:.0f} MB/s; ", end="")
    print(f"manifest: {found.manifest:.0f} bytes a file; cursor: {found.cursor:.0f} bytes")
    files, workers = int(10e12 / FILE), 200 * 16
    for factor in (1, 100):  # measured work, and 100 times as much, for example a model
        seconds = factor * found.made * FILE
        ideal = -(-files // workers) * seconds
        print(f"{files:,} files of {seconds:.0f} s on {workers:,} cores: {ideal / 60:.0f} min without losses")
        for days in (1000, 100, 10, 1):
            plan = Plan(files, workers, seconds, days * 24 * HOURS, 120.0)
            for name, simulate in (("queue", by_queue), ("ranks", by_ranks)):
                seen = [simulate(plan, seed=seed) for seed in range(3)]
                slowest = max(each.seconds for each in seen)
                again, losses = sum(each.again for each in seen) / 3, sum(each.losses for each in seen) / 3
                print(f"  a core lost every {days:>4} days, {name}: {slowest / ideal:.2f}x, {100 * again:.2f} % again, {losses:.0f} losses")


if __name__ == "__main__":
    main()
