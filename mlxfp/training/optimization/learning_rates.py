"""The learning rates in the state of an optimizer, and those that the optimizer itself gives."""

from functools import lru_cache
from typing import Any

import mlx.core as mx
from attrs import frozen
from mlx import optimizers

from mlxfp.support.trees import TreeDef, flatten, paths


def learning_rates(opt: Any) -> list[float]:
    """Read the learning rates of an optimizer's state: one, or one for each group of parameters."""
    structure, leaves = flatten(opt)
    return [leaves[index].item() for index in _rate_indices(structure)]


@lru_cache(maxsize=16)  # logs ask at every reading of the metrics
def _rate_indices(structure: TreeDef) -> tuple[int, ...]:
    return tuple(index for index, path in enumerate(paths(structure)) if is_rate(path))


def is_rate(path: str) -> bool:
    """Tell whether this is the path of a learning rate in an optimizer's state."""
    return path.rpartition(".")[2] == "learning_rate"  # the arrays of a parameter of that name have longer paths


@frozen
class OwnRate:
    """The learning rate that an optimizer gives, and whether it comes from a schedule."""

    rate: float
    scheduled: bool


def own_rates(optimizer: optimizers.Optimizer, opt: Any) -> list[OwnRate | None]:
    """Return the learning rates, in the order of `learning_rates`, that an optimizer itself gives for the last update in its state.

    None where there is nothing to compare: a schedule before the first update.
    """
    if isinstance(optimizer, optimizers.MultiOptimizer):
        pairs = zip(optimizer.optimizers, opt["states"], strict=True)
        return [rate for one, state in pairs for rate in own_rates(one, state)]
    if "learning_rate" not in opt:
        return []
    schedule = optimizer._schedulers.get("learning_rate")  # noqa: SLF001  # MLX has no public way to ask
    if schedule is None:
        return [OwnRate(optimizer.state["learning_rate"].item(), scheduled=False)]
    updates = int(opt["step"])
    rate: Any = mx.array(schedule(mx.array(updates - 1, mx.uint64))).item() if updates else None
    return [None if rate is None else OwnRate(rate, scheduled=True)]
