"""Averages of the parameters over training, often more accurate than the last parameters.

Source: Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; here with exponentially decaying weights.
"""

from math import log
from typing import Any

import mlx.core as mx
from attrs import evolve

from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import tree_map
from mlxfp.training.steps.state import TrainState


def ema_weights(state: TrainState) -> TrainState:
    """Return the state with averaged parameters, for evaluation, prediction and export.

    Continue training from the original state. Raises `ArgumentError` if the state was trained without `ema`.

    >>> import mlxfp as fp
    >>> from mlx import nn, optimizers
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer, ema=0.9)
    >>> first, _ = step(fp.train_state(model, optimizer), {"x": mx.ones((4, 1)), "y": mx.ones((4, 1))})
    >>> fp.optimizers.ema_weights(first).params["bias"].item() == first.params["bias"].item()
    True
    """
    if "average" not in state.extra:
        raise ArgumentError("The state has no averaged parameters. Build the step with train_step(..., ema=0.999), and train.")
    average = state.extra["average"]["params"]
    return evolve(state, params=tree_map(lambda mean, leaf: mean.astype(leaf.dtype), average, state.params))


def first_average(params: Any) -> dict[str, Any]:
    """Return the initial running average: the parameters in float32, and 0 updates."""
    return {"params": tree_map(lambda leaf: leaf.astype(mx.float32), params), "updates": mx.array(0, mx.int32)}


def next_average(average: dict[str, Any], params: Any, decay: float) -> dict[str, Any]:
    """Add the parameters after an update to the average.

    After t updates the average is a weighted mean of the parameters after each update; update i has the weight `decay ** (t - i)`. Initial
    parameters are excluded, so the average needs no bias correction.
    """
    updates = average["updates"] + 1
    # share = (1 - decay) / (1 - decay ** updates), in a form that stays accurate if decay is close to 1
    rate = mx.array(log(decay))
    share = mx.expm1(rate) / mx.expm1(updates * rate)
    return {"params": tree_map(lambda mean, leaf: (1 - share) * mean + share * leaf, average["params"], params), "updates": updates}
