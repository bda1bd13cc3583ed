"""Learning rates in the state of an optimizer, and learning rates configured in the optimizer."""

from functools import lru_cache
from typing import Any

import mlx.core as mx
from mlx import optimizers

from mlxfp.support.trees import TreeDef, flatten, paths


def learning_rates(opt: Any) -> list[float]:
    """Return the learning rates in an optimizer state: one per parameter group, or one for all parameters."""
    structure, leaves = flatten(opt)
    return [leaves[index].item() for index in _rate_indices(structure)]


@lru_cache(maxsize=16)  # the cache saves time, because log observers read the learning rates often
def _rate_indices(structure: TreeDef) -> tuple[int, ...]:
    return tuple(index for index, path in enumerate(paths(structure)) if is_rate(path))


def is_rate(path: str) -> bool:
    """Return True for the path of a learning rate in an optimizer state."""
    return path.rpartition(".")[2] == "learning_rate"  # False for learning_rate.m, the moment of a model parameter named learning_rate


def configured_rates(optimizer: optimizers.Optimizer, opt: Any) -> list[tuple[float | None, bool]]:
    """Return the learning rates of the last update, according to the settings of the optimizer, in the order of `learning_rates`.

    Each item has the rate, and True for a rate with a schedule. The rate is None before the first update with the schedule.
    """
    if isinstance(optimizer, optimizers.MultiOptimizer):
        pairs = zip(optimizer.optimizers, opt["states"], strict=True)
        return [rate for part, state in pairs for rate in configured_rates(part, state)]
    if "learning_rate" not in opt:
        return []
    schedule = optimizer._schedulers.get("learning_rate")  # noqa: SLF001  # no public API in MLX
    if schedule is None:
        return [(optimizer.state["learning_rate"].item(), False)]
    updates = int(opt["step"])
    rate: Any = mx.array(schedule(mx.array(updates - 1, mx.uint64))).item() if updates else None
    return [(rate, True)]
