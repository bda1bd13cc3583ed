"""step: our loop around the compiled step, against the shortest one written by hand with mlx.nn and mlx.optimizers."""

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

import mlx.core as mx
from mlx import nn, optimizers
from mlx.utils import tree_flatten

import mlxfp as fp
from benchmarks.encoders import deep_encoder, example_batches, example_encoder, loss
from benchmarks.measuring import Row, medians

_FEW = 2, 8  # rows and tokens for the deep model, so that a step takes about 10 ms


def rows(*, small: bool) -> list[Row]:
    """Train two models; each step is waited for, so that the device cannot hide the time of Python."""
    batches, vocabulary = example_batches(320)
    batch = next(iter(batches))
    few = {name: array[tuple(slice(size) for size in _FEW[: array.ndim])] for name, array in batch.items()}
    mx.eval(few)
    models = {"example's encoder": (example_encoder, batch), "deep narrow encoder": (deep_encoder, few)}
    return [_compared(name, partial(make, vocabulary), some, 20 if small else 1000) for name, (make, some) in models.items()]


def _compared(name: str, make: Callable[[], nn.Module], batch: dict[str, mx.array], repeats: int) -> Row:
    arrays = len(tree_flatten(make().parameters()))
    mine, other = medians([_ours(make(), batch), _by_hand(make(), batch)], repeats=repeats)
    work = f"a training step, {name}, {arrays} arrays"
    return Row("step", work, f"{mine * 1000:.2f} ms", f"by hand {other * 1000:.2f} ms", other / mine, 0.99)


def _optimizer() -> optimizers.Optimizer:
    return optimizers.AdamW(1e-4, weight_decay=0.01, bias_correction=True)


def _ours(model: nn.Module, batch: dict[str, mx.array]) -> Callable[[], None]:
    optimizer = _optimizer()
    step, state = fp.train_step(model, loss, optimizer), fp.train_state(model, optimizer, seed=0)
    events = fp.fit(step, state, repeat(batch))

    def run() -> None:
        next(events)  # which begins to compute all of the next step
        mx.synchronize()

    return _warmed(run)


def _by_hand(model: nn.Module, batch: dict[str, mx.array]) -> Callable[[], None]:
    optimizer = _optimizer()
    optimizer.init(model.trainable_parameters())
    state = [model.state, optimizer.state, mx.random.state]

    def mean(model: nn.Module, batch: dict[str, mx.array]) -> mx.array:
        total, weight = loss(model, batch)
        return mx.divide(total, weight)

    @partial(mx.compile, inputs=state, outputs=state)
    def step(batch: dict[str, mx.array]) -> Any:
        value, gradients = nn.value_and_grad(model, mean)(model, batch)
        optimizer.update(model, gradients)
        return value

    def run() -> None:
        mx.async_eval(step(batch), state)
        mx.synchronize()

    return _warmed(run)


def _warmed(run: Callable[[], None]) -> Callable[[], None]:
    for _ in range(5):  # the first call compiles
        run()
    return run
