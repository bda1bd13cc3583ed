"""One step of training, as a pure function: (state, batch) -> (state, metrics)."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn, optimizers

from mlxfp.core.checks import check_callable
from mlxfp.core.errors import ArgumentError, ArgumentTypeError
from mlxfp.core.trees import TreeDef, difference, flatten, tree_map, unflatten
from mlxfp.models.layers import random_key
from mlxfp.training.optimizers import start, update
from mlxfp.training.state import TrainState, flat_state, leaves_of
from mlxfp.training.transforms import Compiler, Functional, functional

Batch = Mapping[str, Any]
Metrics = Mapping[str, mx.array]
Loss = Callable[[Any, dict[str, Any]], tuple[mx.array, mx.array]]
Step = Callable[[TrainState, Batch], tuple[TrainState, Metrics]]


def train_step(model: nn.Module, loss: Loss, optimizer: optimizers.Optimizer, *, clip_norm: float | None = None) -> "TrainStep":
    """Make a compiled step of training: loss, gradients, clipping, update.

    `loss(model, batch)` returns (sum, weight), two scalars, such as those of `mlxfp.training.losses`; sum / weight is minimised. It
    sees the MLX arrays of the batch and nothing else: text that the batch carries would be a new trace for every batch. The metrics
    are float32 scalars: `loss`, the mean; `weight`; and with `clip_norm`, `grad_norm`, the norm before clipping. Measuring the norm
    costs time, so without `clip_norm` it is left out; `clip_norm=float("inf")` measures and never clips.

    The step is pure: same state and batch, same result, dropout included; the old state stays as it was. It only uses the shape of
    `model` and `optimizer`; weights and moments are in the state. Everything that comes out is being computed when it returns.
    Raises `ArgumentError` for a state of another model or optimizer. `.variants` counts the compiled variants, one a batch shape.

    >>> from mlxfp.training.losses import mse
    >>> from mlxfp.training.state import train_state
    >>> model, optimizer = nn.Linear(1, 1), optimizers.SGD(0.1)
    >>> step = train_step(model, lambda model, batch: mse(model(batch["x"]), batch["y"]), optimizer)
    >>> state, metrics = step(train_state(model, optimizer), {"x": mx.ones((4, 1)), "y": mx.ones((4, 1)), "name": ("a", "b", "c", "d")})
    >>> state.step, sorted(metrics), metrics["weight"].item()
    (1, ['loss', 'weight'], 4.0)
    """
    check_callable(loss=loss)
    if clip_norm is not None and not clip_norm > 0:
        raise ArgumentError(f"clip_norm must be above 0, got clip_norm={clip_norm!r}. To measure without clipping pass float('inf').")
    return TrainStep(functional(model), loss, optimizer, clip_norm)


class TrainStep:
    """A step of training; made by `train_step`."""

    def __init__(self, model: Functional, loss: Loss, optimizer: optimizers.Optimizer, clip_norm: float | None) -> None:
        """Compile nothing yet."""
        self._model = model.emptied()
        self._loss = loss
        self._optimizer = deepcopy(optimizer)  # it may be changed outside, and is only read when a new shape is traced
        self._clip_norm = clip_norm
        self._structure, _ = leaves_of(TrainState(model.params, model.buffers, start(optimizer, model.params), 0, 0))
        self._compiler = Compiler("train_step", 64)

    @property
    def variants(self) -> int:
        """How many traces there are: one for each set of batch shapes."""
        return self._compiler.variants

    def __call__(self, state: TrainState, batch: Batch) -> tuple[TrainState, Metrics]:
        """Make one step."""
        leaves = self._leaves(state)
        structure, arrays = flatten(arrays_of(batch))
        run = self._compiler.get(structure, partial(self._run, structure))
        leaves, metrics = run(leaves, random_key(state.seed, "step", state.step), arrays)
        mx.async_eval(leaves, metrics)
        return flat_state(self._structure, leaves, state.step + 1, state.seed), metrics

    def _run(self, structure: TreeDef, leaves: list[mx.array], key: mx.array, arrays: list[mx.array]) -> tuple[list[mx.array], Metrics]:
        trees, batch = unflatten(self._structure, leaves), unflatten(structure, arrays)

        def objective(params: Any) -> tuple[mx.array, tuple[mx.array, Any]]:
            result, after = self._model.apply(self._loss, params, trees["buffers"], batch, key=key)
            total, weight = sum_and_weight(result)
            return total / mx.where(weight == 0, 1, weight), (weight, after)

        (mean, (weight, buffers)), gradients = mx.value_and_grad(objective)(trees["params"])
        metrics = {"loss": mean, "weight": weight}
        if self._clip_norm is not None:
            gradients, metrics["grad_norm"] = clip(gradients, self._clip_norm)
        params, opt = update(self._optimizer, gradients, trees["opt"], trees["params"])
        after, leaves = flatten({"params": params, "buffers": buffers, "opt": opt})
        assert after == self._structure, difference(self._structure, after)
        return leaves, metrics

    def _leaves(self, state: TrainState) -> list[mx.array]:
        if not isinstance(state, TrainState):
            raise ArgumentTypeError(f"A step takes a TrainState, got {type(state).__name__}. Make one with train_state(model, optimizer).")
        found, leaves = leaves_of(state)
        if found is not self._structure and found != self._structure:
            raise ArgumentError(f"The state does not belong to the model and optimizer of this step. {difference(self._structure, found)}")
        return leaves


def arrays_of(batch: Batch) -> dict[str, Any]:
    """Return the part of a batch that a compiled function sees: its MLX arrays. Text and other carried values are left out.

    Raises `ArgumentTypeError` for numpy arrays and bare numbers, which were meant to be seen.

    >>> arrays_of({"x": mx.array(1), "name": ("Ada", None)})
    {'x': array(1, dtype=int32)}
    """
    if not isinstance(batch, Mapping):
        raise ArgumentTypeError(
            f"A batch is a dict of MLX arrays, got {type(batch).__name__}: {batch!r:.80}. Put collate into the pipeline."
        )
    for name, value in batch.items():
        if isinstance(value, np.ndarray | np.generic | int | float):
            raise ArgumentTypeError(f"The batch has {type(value).__name__} at {name!r}, where an MLX array belongs. Make it an mx.array.")
    return {name: value for name, value in batch.items() if isinstance(value, mx.array)}


def sum_and_weight(result: Any) -> tuple[mx.array, mx.array]:
    """Check and return what a loss or metric gave: two scalars, as float32."""
    pair = result if isinstance(result, tuple) else (result,)
    numbers = [mx.array(part, mx.float32) if isinstance(part, int | float) else part for part in pair]
    if len(numbers) != 2 or not all(isinstance(number, mx.array) and number.size == 1 for number in numbers):
        # Not the arrays themselves: inside a trace they cannot be printed.
        got = ", ".join(f"{type(number).__name__}{list(getattr(number, 'shape', ()))}" for number in numbers)
        raise ArgumentTypeError(f"A loss or metric returns (sum, weight), two scalars, got ({got}). See mlxfp.training.losses.")
    total, weight = numbers
    return total.reshape(()).astype(mx.float32), weight.reshape(()).astype(mx.float32)


def clip(gradients: Any, norm: float) -> tuple[Any, mx.array]:
    """Scale a tree of gradients so that their joint Euclidean norm is at most `norm`: (gradients, norm before, float32).

    Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.

    >>> clipped, before = clip({"w": mx.array([3.0, 4.0])}, 1.0)
    >>> [round(value, 3) for value in clipped["w"].tolist()], before.item()
    ([0.6, 0.8], 5.0)
    """
    squares = [leaf.astype(mx.float32).square().sum() for leaf in flatten(gradients)[1]]
    before = mx.sqrt(mx.stack(squares).sum()) if squares else mx.array(0.0)
    scale = mx.minimum(norm / mx.maximum(before, 1e-12), 1)
    return tree_map(lambda leaf: (leaf * scale).astype(leaf.dtype), gradients), before
