"""Averages of the parameters over training, which often do better than the last ones.

Polyak and Juditsky, "Acceleration of Stochastic Approximation by Averaging", 1992; here with weights that decay.
"""

from math import log
from typing import Any

import mlx.core as mx
from attrs import evolve

from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import tree_map
from mlxfp.training.steps.state import TrainState


def ema_weights(state: TrainState) -> TrainState:
    """Return the state with the averaged parameters in place of the last ones: for evaluation, prediction and export.

    Continue training from the state itself. Raises `ArgumentError` if the step that made the state was not given `ema`.

    >>> import mlxfp as fp
    >>> from mlx import nn, optimizers
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer, ema=0.9)
    >>> first, _ = step(fp.train_state(model, optimizer), {"x": mx.ones((4, 1)), "y": mx.ones((4, 1))})
    >>> fp.optimizers.ema_weights(first).params["bias"].item() == first.params["bias"].item()
    True
    """
    if "average" not in state.extra:
        raise ArgumentError("The state has no averaged parameters. Make the step with train_step(..., ema=0.999), and train.")
    average = state.extra["average"]["params"]
    return evolve(state, params=tree_map(lambda mean, leaf: mean.astype(leaf.dtype), average, state.params))


def first_average(params: Any) -> dict[str, Any]:
    """Make the average before the first update, in float32."""
    return {"params": tree_map(lambda leaf: leaf.astype(mx.float32), params), "updates": mx.array(0, mx.int32)}


def next_average(average: dict[str, Any], params: Any, decay: float) -> dict[str, Any]:
    """Add the parameters after an update to the average.

    After t updates it is the mean of the parameters after each of them, the i-th with weight `decay ** (t - i)`; those before the
    first do not count, so the average needs no bias correction.
    """
    updates = average["updates"] + 1
    # (1 - decay) / (1 - decay ** updates), in a form that does not lose the digits where decay is almost 1
    rate = mx.array(log(decay))
    share = mx.expm1(rate) / mx.expm1(updates * rate)
    return {"params": tree_map(lambda mean, leaf: (1 - share) * mean + share * leaf, average["params"], params), "updates": updates}
