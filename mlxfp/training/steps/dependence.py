"""Check that a loss uses its argument `model`, and not another module of the same class."""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx import nn

from mlxfp.models.layers import random_key
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import tree_map
from mlxfp.training.steps.accumulating import sum_and_weight
from mlxfp.training.steps.batches import arrays_of
from mlxfp.training.steps.drawing import given_key
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.transforms import Functional


def check_use(model: Functional, loss: Any, modules: Sequence[nn.Module], state: TrainState, batch: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` if the loss ignores its argument `model` and calls another module of the same class.

    The argument `modules` has the modules that the loss reads from closures and globals. The test calls the loss on a model whose
    parameters are all NaN. A finite result shows that the loss does not use the parameters of this model.
    """
    if not any(type(module) is model.kind for module in modules):
        return
    nothing = tree_map(lambda array: mx.full(array.shape, float("nan"), array.dtype), state.params)
    key = random_key(state.seed, "look")
    result, _ = model.apply(given_key(loss, key), nothing, state.buffers, arrays_of(batch), key=key)
    if mx.isfinite(sum_and_weight(result)[0]).item():
        raise ArgumentError(
            f"The loss does not use its argument model, but calls another {model.kind.__name__}. Training would change nothing. "
            "Call the first argument: def loss(model, batch): ... model(batch[...])."
        )
