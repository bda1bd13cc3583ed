"""What losses of workers cost when data are prepared on many machines: `python -m benchmarks.worker_losses`.

The constants are measured here, in seconds of a processor; what many machines do with them is simulated, event by event. Files are the
tasks, as `write` cuts them: a file is done when it and what is known of it are on the disk, and what a lost worker had begun is done again.
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

FILE = 64e6  # bytes of a file, as `write` cuts them by default
HOURS = 3600.0
_MOST = 3_000  # losses, after which ranks will never end


@frozen
class Constants:
    """What is measured on this machine: seconds of a processor for a byte of the source, and bytes."""

    made: float  # a byte is read, rendered, tokenized and written
    hashed: float  # a byte is read and hashed, as after a restart
    manifest: float  # bytes of a manifest for each file
    cursor: float  # bytes of a cursor


@frozen
class Plan:
    """Work for machines that are lost from time to time."""

    files: int
    workers: int  # each has a core
    seconds: float  # of work in a file
    lost_after: float  # seconds of a worker's life, on average
    back_after: float  # seconds until another one is in its place


@frozen
class Outcome:
    """What came of a plan: seconds until all was done, the share of work that was done again, and how many workers were lost."""

    seconds: float
    again: float
    losses: int


def measure(rows: int = 4000) -> Constants:
    """Prepare a small file of texts, and see what it costs."""
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
    """Simulate workers that take the next file when they are free, as those of Ray do: a lost one gives its file back."""
    draw = np.random.default_rng(seed)
    todo, done, again, losses, now = plan.files, 0, 0.0, 0, 0.0
    ends = [draw.exponential(plan.lost_after) for _ in range(plan.workers)]
    events: list[tuple[float, int, str]] = [(0.0, worker, "free") for worker in range(plan.workers)]
    heapq.heapify(events)
    waiting: list[int] = []  # workers without a file: one may come back from a worker that is lost
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
    """Simulate ranks, which have their files from the start: where one is lost all end, and begin again with what is not done."""
    draw, now, again, losses = np.random.default_rng(seed), 0.0, 0.0, 0
    left = np.array([len(range(rank, plan.files, plan.workers)) for rank in range(plan.workers)])
    while losses < _MOST:
        alive = draw.exponential(plan.lost_after / plan.workers)  # until the first of them is lost
        if alive >= left.max() * plan.seconds:
            return Outcome(now + left.max() * plan.seconds, again / (plan.files * plan.seconds), losses)
        whole = int(alive // plan.seconds)
        again += (alive - whole * plan.seconds) * (left > whole).sum()
        left = np.maximum(0, left - whole)
        now, losses = now + alive + plan.back_after, losses + 1
    return Outcome(inf, inf, losses)


def main() -> None:
    """Print the constants, and what comes of 10 TB of text on 200 machines of 16 cores."""
    found = measure()
    print(f"made: {1e-6 / found.made:.1f} MB/s of a core; hashed: {1e-6 / found.hashed:.0f} MB/s; ", end="")
    print(f"manifest: {found.manifest:.0f} bytes a file; cursor: {found.cursor:.0f} bytes")
    files, workers = int(10e12 / FILE), 200 * 16
    for factor in (1, 100):  # the work that was measured, and one that is so many times as much, such as that of a model
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
