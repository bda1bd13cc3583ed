"""What ranks with parts of a model run in the tests of sharding: imported by each of them, so it imports no more than that needs."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
from mlx import optimizers
from mlx.nn.layers.distributed import fully_shard, shard_linear

from mlxfp.core.trees import flatten
from mlxfp.training.steps.sharding import axes_in, names_of
from mlxfp.training.steps.state import trees_of
from tests.training.samples import deep, group, setting

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
        block.inner = shard_linear(block.inner, "all-to-sharded", group=ranks.tensor_group)
        block.outer = shard_linear(block.outer, "sharded-to-all", group=ranks.tensor_group)
    return model


OPTIONS = {
    "plain": {},
    "clipped": {"clip_norm": 0.01, "ema": 0.5},
    "accumulated": {"accumulate": 2, "skip_nonfinite": True},
    "recomputed": {"checkpoint_blocks": True, "clip_norm": 1.0},
}


def shares(world, *, broken=False):
    """Four batches, as far as they are this copy's; their labels count unevenly, and with `broken` one has a NaN in its second row."""
    for seed in range(STEPS):
        whole = {name: value for name, value in group(12, seed).items() if name != "name"}
        whole["label"] = mx.where(mx.array([1, 1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0]), whole["label"], -100)
        if broken and seed == 1:
            whole["x"] = mx.concatenate([whole["x"][:1], mx.full((1, 3), mx.nan), whole["x"][2:]])
        yield {name: value[world.copy :: world.copies] for name, value in whole.items()}


def trained(ranks, model, options, *, compile):
    """Train; return the last state and the metrics of every step."""
    optimizer = optimizers.AdamW(0.05, weight_decay=0.1)
    step, state = setting(model=model, optimizer=optimizer, ranks=ranks, compile=compile, **options)
    seen = []
    for own in shares(ranks.world, broken="skip_nonfinite" in options):
        state, metrics = step(state, own)
        seen.append({name: value.item() for name, value in sorted(metrics.items())})
    return step, state, seen


def train(ranks, folder):
    """Train with all options, and write the arrays of the last states by name, the axes of parts, and the metrics."""
    kind = fully if ranks.world.tensor == 1 else tensor
    for case, options in OPTIONS.items():
        step, state, seen = trained(ranks, kind(ranks), options, compile=case == "plain")
        trees = trees_of(state)
        arrays = {name: np.array(leaf) for name, leaf in zip(names_of(state.shards, trees), flatten(trees)[1], strict=True)}
        where = Path(folder, f"{case}-{ranks.world.rank}")
        np.savez(where.with_suffix(".npz"), **arrays)
        where.with_suffix(".json").write_text(json.dumps([axes_in(state.shards, trees), seen, step.bytes_sent]), encoding="utf-8")


CASES = {"train": train}
