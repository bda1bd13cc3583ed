"""What ranks run in the tests of several processes: imported by each of them, so it imports no more than that needs."""

import json
import os
import signal
from pathlib import Path

import mlx.core as mx
import numpy as np
import pyarrow as pa
from attrs import frozen
from mlx import nn, optimizers

import mlxfp as fp
from mlxfp import runners
from mlxfp.core.describing import schema
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten

ROWS = fp.from_examples([{"x": [i % 7, i / 10, 1.0], "y": i % 2, "number": i, "input_ids": list(range(i % 5))} for i in range(120)])
GLOBAL = 8  # rows of all ranks in a batch


def squared(row):
    return {**row, "square": row["number"] ** 2}


@frozen(repr=False)
class Gaps(fp.Stage):
    """Adds the difference to the row before: it keeps a state that is empty at the start."""

    def step(self, state, chunk):
        x = chunk.column("x").to_numpy()
        return (int(x[-1]),), (chunk.append_column("gap", pa.array(np.diff(x, prepend=state[0] if state else 0))),)

    def schema(self, schema):
        return schema.append(pa.field("gap", pa.int64()))


class Breaks:
    """A function of rows that ends one rank at a row."""

    def __init__(self, how):
        self.how = how

    def __fingerprint__(self):
        return "breaks"

    def __call__(self, row):
        if row["number"] == 70 and os.environ.get("MLX_RANK") == "1":
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise ValueError("a broken row")
        return row


WRITTEN = {
    "rows": fp.pipe(ROWS, fp.map(squared), fp.filter(lambda row: row["number"] % 3 > 0)),
    "packed": fp.pipe(ROWS, fp.map(squared), fp.pack(16)),
    "a state that is empty at first": fp.pipe(fp.from_examples([{"x": i} for i in range(120)]), Gaps()),
}


def batches(size):
    return fp.pipe(ROWS, fp.filter(lambda row: row["x"][0] != 3), fp.batch(size), fp.collate(fp.collators.default()))


def measure(model, group):
    logits = model(group["x"])
    return {"loss": fp.losses.cross_entropy(logits, group["y"]), "auc": fp.metrics.roc_auc(logits[:, 1] - logits[:, 0], group["y"])}


def state_of():
    model = nn.Linear(3, 2)
    model.weight, model.bias = mx.array([[0.1, -0.2, 0.3], [0.2, 0.1, -0.1]]), mx.zeros(2)
    return model, fp.train_state(model, optimizers.SGD(0.01, momentum=0.9))


def measured(ranks, size):
    model, state = state_of()
    forward = fp.predict(model, lambda model, group: {"p": model(group["x"])}, ranks=ranks)
    answers = [answer["p"].tolist() for answer in forward(state, batches(size))]
    return fp.evaluate(model, measure, ranks=ranks)(state, batches(size)), answers


def shared(world, size):
    return fp.pipe(
        ROWS, fp.shuffle(seed=0), fp.shard(world.copy, world.copies), fp.batch(size, drop_last=True), fp.collate(fp.collators.default())
    )


def filtered(row):
    return row["x"][0] != 3


def streamed(world, size):
    """Return the batches of a rank from a stream, which has no random access."""
    rows = fp.pipe(ROWS, fp.filter(filtered), fp.shuffle(seed=0, buffer=20), fp.shard(world.copy, world.copies, ends="drop"))
    return fp.pipe(rows, fp.batch(size, drop_last=True), fp.collate(fp.collators.default()))


def train(ranks, folder, *, steps, batches=shared, observer=iter):
    """Train up to a step, from the last checkpoint; return where it began and ended, and the parameters."""
    (model, start), optimizer = state_of(), optimizers.SGD(0.01, momentum=0.9)
    own = batches(ranks.world, GLOBAL // ranks.world.copies)
    step = fp.train_step(model, lambda model, group: fp.losses.cross_entropy(model(group["x"]), group["y"]), optimizer, ranks=ranks)
    begin = fp.load_latest(folder, start, ranks=ranks)
    stream = fp.fit(step, begin.state, own, epochs=3, steps=steps, cursor=begin.cursor, running=begin.running, log_every=4)
    end = fp.last(fp.pipe(stream, fp.observers.checkpoint(folder, steps=1, ranks=ranks), observer))
    return begin.state.step, end.step, [np.array(leaf).tolist() for leaf in flatten(end.state.params)[1]]


def profiled(ranks):
    """Profile training; return how many steps there were, what each sends, and how the profile says it."""
    model, _ = state_of()
    step = fp.train_step(
        model, lambda model, group: fp.losses.cross_entropy(model(group["x"]), group["y"]), optimizers.SGD(0.01), ranks=ranks
    )
    consumer = step.consumer(fp.train_state(model, optimizers.SGD(0.01)))
    found = fp.inspect.profile(shared(ranks.world, GLOBAL // ranks.world.copies), items=4, consume=consumer)
    return consumer.state.step, found.sent, step.bytes_sent, str(found).splitlines()[-2].partition(" For each, it sends ")[2]


def work_together(ranks, folder):
    """Do everything that ranks do together, and say what came out."""
    place, size = Path(folder), ranks.world.size
    for name, dataset in WRITTEN.items() if size == 2 else ():
        manifest = fp.write(dataset, place / name, rows_per_file=30, on=runners.ranks(limit=100))
        assert fp.write(dataset, place / name, rows_per_file=30, on=runners.ranks(limit=100)) == manifest
    trained = train(ranks, place / "trained", steps=5 if size == 2 else 20)
    said = {"measured": [measured(ranks, rows) for rows in (4, 200)], "trained": trained, "profiled": profiled(ranks)}
    model, state = state_of()
    try:
        fp.evaluate(model, measure, ranks=ranks)(state, shared(ranks.world, 4))
    except ArgumentError as error:
        said["refused"] = "evaluate needs the same batches on all ranks" in str(error)
    (place / f"{size}-{ranks.world.rank}.json").write_text(json.dumps(said), encoding="utf-8")


def breaking(how):
    return fp.pipe(ROWS, fp.map(Breaks(how), schema=schema(ROWS)))


def write_and_end(how):
    return lambda ranks, folder: fp.write(breaking(how), folder, rows_per_file=20, on=runners.ranks(limit=30))


def train_and_end(step):
    """Train on a stream, and end the last rank without warning after a step."""

    def program(ranks, folder):
        def killed(events):
            for event in events:
                if event.step == step and ranks.world.rank == ranks.world.size - 1:
                    os.kill(os.getpid(), signal.SIGKILL)
                yield event

        train(ranks, folder, steps=40, batches=streamed, observer=killed)

    return program


CASES = {"killed at 7": train_and_end(7), "killed at 19": train_and_end(19)}
CASES |= {"together": work_together, "killed": write_and_end("killed"), "raises": write_and_end("raises")}
