"""What ranks with parts of a model run in the tests of sharding: imported by each of them, so it imports no more than that needs."""

import json
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np
from attrs import evolve
from mlx import nn, optimizers
from mlx.nn.layers.distributed import fully_shard, shard_inplace

import mlxfp as fp
from mlxfp.models.layers import draw_weights
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten
from mlxfp.training.steps.sharding import axes_in, names_of
from mlxfp.training.steps.state import trees_of
from tests.training.samples import Block, deep, group, loss, setting, stacked

STEPS = 4


def fully(ranks):
    """A model whose blocks and first layer are divided between all ranks, and whose last layer is whole."""
    model = deep(rate=0.0)
    model.first = fully_shard(model.first)
    model.blocks = [fully_shard(block) for block in model.blocks]
    return model


def tensor(ranks):
    """The same model, with the two linear layers of each block divided between the ranks of a copy."""
    model = deep(rate=0.0)
    for block in model.blocks:
        block.inner = fp.distributed.shard_linear(block.inner, "all-to-sharded", ranks=ranks)
        block.outer = fp.distributed.shard_linear(block.outer, "sharded-to-all", ranks=ranks)
    return model


class Gated(Block):
    """A block whose first layer is fused of two: one half of what it makes says how much of the other half goes on."""

    def __call__(self, x):
        gate, value = mx.split(self.inner(self.norm(x)), 2, axis=-1)
        return x + self.outer(nn.sigmoid(gate) * value)


def fused(ranks):
    """The same model with such blocks, divided between all ranks, each of which has a part of both halves."""
    model = deep(rate=0.0)
    model.blocks = [Gated(0.0) for _ in model.blocks]
    for block in model.blocks:
        block.outer = nn.Linear(16, 8)
    draw_weights(model, 0)
    for block, segments in zip(model.blocks, (2, [16], [0.5]), strict=True):
        block.inner = fp.distributed.shard_linear(block.inner, "all-to-sharded", ranks=ranks, segments=segments)
        block.outer = fp.distributed.shard_linear(block.outer, "sharded-to-all", ranks=ranks)
    return model


def small(ranks):
    """A model that compiles quickly: a layer that is divided, and one that is whole; or, on two ranks, one module in another."""
    layers = deep(rate=0.0, depth=0)
    if ranks.world.tensor == 1:
        model = nn.Sequential(fully_shard(layers.first), layers.last)
        return fully_shard(model) if ranks.world.size == 2 else model
    first = fp.distributed.shard_linear(layers.first, "all-to-sharded", ranks=ranks)
    return nn.Sequential(first, fp.distributed.shard_linear(layers.last, "sharded-to-all", ranks=ranks))


OPTIONS = {
    "compiled": {},
    "clipped": {"clip_norm": 0.01, "ema": 0.5},
    "accumulated": {"accumulate": 2, "skip_nonfinite": True},
    "recomputed": {"checkpoint_blocks": True, "clip_norm": 1.0},
}


def kind_of(ranks):
    return fully if ranks.world.tensor == 1 else tensor


def shares(world, *, broken=False):
    """Four batches, as far as they are this copy's; their labels count unevenly, and with `broken` one has a NaN in its second row."""
    for seed in range(STEPS):
        whole = {name: value for name, value in group(12, seed).items() if name != "name"}
        whole["label"] = mx.where(mx.array([1, 1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0]), whole["label"], -100)
        if broken and seed == 1:
            whole["x"] = mx.concatenate([whole["x"][:1], mx.full((1, 3), mx.nan), whole["x"][2:]])
        yield {name: value[world.copy :: world.copies] for name, value in whole.items()}


def write(ranks, folder, case, state, *rest):
    """Write the arrays of a state by their names in a checkpoint, with the axes of parts, and other results."""
    trees, where = trees_of(state), Path(folder, f"{case}-{ranks.world.rank}")
    arrays = {name: np.array(leaf) for name, leaf in zip(names_of(state.shards, trees), flatten(trees)[1], strict=True)}
    np.savez(where.with_suffix(".npz"), **arrays)
    where.with_suffix(".json").write_text(json.dumps([axes_in(state.shards, trees), *rest]), encoding="utf-8")


def train(ranks, folder, *, cases=tuple(OPTIONS), again=False):
    """Train with options; write the last states, the metrics of all steps, and the bytes that a step sends.

    With `again`, gradients that are sums over all ranks are added up once more.
    """
    for case in cases:
        options, seen, model = OPTIONS[case], [], (small if case == "compiled" else kind_of(ranks))(ranks)
        if case == "compiled":
            mx.enable_compile()
        step, state = setting(model=model, optimizer=optimizers.SGD(0.1, momentum=0.9), ranks=ranks, **options)
        if again:
            step._divided_params = step._divided_buffers = frozenset()
        for own in shares(ranks.world, broken="skip_nonfinite" in options):
            state, metrics = step(state, own)
            seen.append({name: value.item() for name, value in sorted(metrics.items())})
        mx.disable_compile()
        write(ranks, folder, case, state, seen, step.bytes_sent)


def batches(world, count=12):
    """Shuffled rows, of which all copies together have 12 in a batch."""
    rows = [{"x": group(120)["x"][row].tolist(), "label": row % 2, "name": str(row)} for row in range(120)]
    return fp.pipe(
        fp.from_examples(rows), fp.shuffle(seed=0), fp.shard(world.copy, world.copies), fp.batch(count // world.copies), fp.collate(stacked)
    )


def go_on(ranks, folder, *, make=None):
    """Make six steps from the last checkpoint, evaluate, and write where it began and what came out."""
    model, options = (make or kind_of(ranks))(ranks), {"accumulate": 2, "ema": 0.5}
    step, state = setting(model=model, optimizer=optimizers.AdamW(0.01, weight_decay=0.1), ranks=ranks, **options)
    begin = fp.load_latest(Path(folder, "checkpoints"), step.start(state), ranks=ranks)
    stream = fp.fit(
        step, begin.state, batches(ranks.world), epochs=9, steps=begin.state.step + 6, cursor=begin.cursor, running=begin.running
    )
    end = fp.last(fp.pipe(stream, fp.observers.checkpoint(Path(folder, "checkpoints"), steps=3, ranks=ranks)))
    found = fp.evaluate(model, lambda model, rows: {"loss": loss(model, rows)}, ranks=ranks)(
        end.state, batches(fp.distributed.World(0, 1), 25)
    )
    answers = fp.predict(model, lambda model, rows: model(rows["x"]), ranks=ranks)(end.state, batches(fp.distributed.World(0, 1), 25))
    write(ranks, folder, f"step {end.step}", end.state, begin.state.step, found, [rows.tolist() for rows in answers])


def scattered(ranks, folder):
    """Train as on the ring, and as on a backend with sum_scatter; as none without a GPU has it, here is what MLX says of it."""
    cases = ["compiled", "clipped", "accumulated"]
    train(ranks, folder, cases=cases)

    def sum_scatter(x, *, group):
        size = x.shape[0] // group.size()
        return mx.distributed.all_sum(x, group=group)[group.rank() * size : (group.rank() + 1) * size]

    mx.distributed.sum_scatter = sum_scatter
    Path(folder, "scattered").mkdir(exist_ok=True)
    train(evolve(ranks, backend="nccl"), Path(folder, "scattered"), cases=cases)


def refused(make):
    """Return the message of an error."""
    try:
        make()
    except ArgumentError as error:
        return str(error)
    raise AssertionError("there was no error")


def adapters(ranks, folder):
    """Train adapters in blocks that are divided, and try what cannot be trained."""
    model = fp.models.lora(deep(rate=0.0), rank=4)
    model.blocks = [fully_shard(block) for block in model.blocks]
    step, state = setting(model=model, optimizer=optimizers.SGD(0.1, momentum=0.9), ranks=ranks, clip_norm=0.01, ema=0.5)
    seen = []
    for own in shares(ranks.world):
        state, metrics = step(state, own)
        seen.append({name: value.item() for name, value in sorted(metrics.items())})
    write(ranks, folder, "adapters", state, seen)
    if ranks.world.size == 1:
        return
    ranks = evolve(ranks, world=fp.distributed.World(ranks.world.rank, ranks.world.size, tensor=ranks.world.size))
    cut, inner = fp.models.lora(deep(rate=0.0), rank=4), deep(rate=0.0)
    cut.blocks[0].inner.linear = fp.distributed.shard_linear(cut.blocks[0].inner.linear, "all-to-sharded", ranks=ranks)
    shard_inplace(inner.blocks[0].inner, "all-to-sharded", group=ranks.tensor_group)
    said = [refused(lambda: setting(model=cut, optimizer=optimizers.SGD(0.1), ranks=ranks))]
    for other in (inner, deep(rate=0.0, seed=ranks.world.rank)):
        step, state = setting(model=other, optimizer=optimizers.SGD(0.1), ranks=ranks)
        said.append(refused(lambda: fp.last(fp.fit(step, state, [group()]))))  # noqa: B023  # called here
    Path(folder, f"refused-{ranks.world.rank}.json").write_text(json.dumps(said), encoding="utf-8")


CASES = {
    "adapters": adapters,
    "scattered": scattered,
    "train": train,
    "again": partial(train, cases=["clipped"], again=True),
    "go on": go_on,
    "go on fused": partial(go_on, make=fused),
}
