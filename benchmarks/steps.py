"""step: `fit` and the compiled step, compared with the shortest loop written with mlx.nn and mlx.optimizers."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from io import StringIO
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlx.core as mx
from mlx import nn, optimizers
from mlx.utils import tree_flatten

import mlxfp as fp
from benchmarks.encoders import deep_encoder, example_batches, example_encoder, loss
from benchmarks.measuring import Row, best, medians

Loss = Callable[[nn.Module, dict[str, mx.array]], tuple[mx.array, mx.array]]

_FEW = 2, 8  # rows and tokens of the deep model; a step takes about 10 ms
_WIDTH = 16  # width of the small model; a step takes about 0.2 ms
_TOGETHER = 100  # Steps of the small model per measurement. After other work, the first steps reload all code into the CPU caches.


def rows(*, small: bool) -> list[Row]:
    """Train three models, with a synchronization after each step, so the device cannot hide the time of Python."""
    batches, vocabulary = example_batches(320)
    batch = next(iter(batches))
    few = {name: array[tuple(slice(size) for size in _FEW[: array.ndim])] for name, array in batch.items()}
    mx.eval(few)
    models = {"example's encoder": (example_encoder, batch), "deep narrow encoder": (deep_encoder, few)}
    large = [_compared(name, partial(make, vocabulary), some, 20 if small else 1000) for name, (make, some) in models.items()]
    return [*large, *_compared_small(5 if small else 200)]


def _compared_small(repeats: int) -> list[Row]:
    """Train a model with very cheap steps, to measure the overhead of `train_step` alone and of `fit` with observers."""
    batch = {"x": mx.random.normal((32, _WIDTH), key=mx.random.key(0)), "label": mx.arange(32) % 4}
    mx.eval(batch)
    with TemporaryDirectory() as folder:
        watching = [
            fp.observers.progress(file=StringIO()),
            fp.observers.log_metrics(Path(folder, "log.jsonl")),
            fp.observers.checkpoint(Path(folder, "checkpoints"), steps=10_000),
        ]
        runs = [
            _ours(_perceptron(), batch, _classified, watching),
            _step_alone(_perceptron(), batch),
            _pure_by_hand(_perceptron(), batch, _classified),
            _by_hand(_perceptron(), batch, _classified),
        ]
        watched, alone, pure, other = (time / _TOGETHER for time in best([partial(_times, run) for run in runs], repeats=repeats))
    theirs = f"by hand {other * 1000:.3f} ms"
    return [
        Row("step", f"a training step, width {_WIDTH}", f"{alone * 1000:.3f} ms", theirs, other / alone, 0.88),
        Row("step", f"the loop by hand as a pure function, width {_WIDTH}", f"{pure * 1000:.3f} ms", theirs, other / pure, None),
        Row("step", f"fit with three observers, width {_WIDTH}", f"{watched * 1000:.3f} ms a step", theirs, other / watched, 0.75),
    ]


def _times(run: Callable[[], None]) -> None:
    for _ in range(_TOGETHER):
        run()


def _perceptron() -> nn.Module:
    layers = [nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 4)]
    return nn.Sequential(*layers)


def _classified(model: nn.Module, batch: dict[str, mx.array]) -> tuple[mx.array, mx.array]:
    return fp.losses.cross_entropy(model(batch["x"]), batch["label"])


def _step_alone(model: nn.Module, batch: dict[str, mx.array]) -> Callable[[], None]:
    optimizer = _optimizer()
    step, state = fp.train_step(model, _classified, optimizer), fp.train_state(model, optimizer, seed=0)

    def states() -> Iterator[None]:
        now = state
        while True:
            now, _ = step(now, batch)
            yield

    made = states()

    def run() -> None:
        next(made)
        mx.synchronize()

    return _warmed(run)


def _compared(name: str, make: Callable[[], nn.Module], batch: dict[str, mx.array], repeats: int) -> Row:
    arrays = len(tree_flatten(make().parameters()))
    mine, other = medians([_ours(make(), batch, loss, []), _by_hand(make(), batch, loss)], repeats=repeats)
    work = f"a training step, {name}, {arrays} arrays"
    return Row("step", work, f"{mine * 1000:.2f} ms", f"by hand {other * 1000:.2f} ms", other / mine, 0.99)


def _optimizer() -> optimizers.Optimizer:
    return optimizers.AdamW(1e-4, weight_decay=0.01, bias_correction=True)


def _ours(model: nn.Module, batch: dict[str, mx.array], loss: Loss, watching: Iterable[Any]) -> Callable[[], None]:
    optimizer = _optimizer()
    step, state = fp.train_step(model, loss, optimizer), fp.train_state(model, optimizer, seed=0)
    events = iter(fp.pipe(fp.fit(step, state, repeat(batch)), *watching))

    def run() -> None:
        next(events)  # starts the computation of the next step
        mx.synchronize()

    return _warmed(run)


def _by_hand(model: nn.Module, batch: dict[str, mx.array], loss: Loss) -> Callable[[], None]:
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


def _pure_by_hand(model: nn.Module, batch: dict[str, mx.array], loss: Loss) -> Callable[[], None]:
    """Return the shortest loop that keeps the previous state unchanged. Faster loops compute in place."""
    optimizer = _optimizer()
    optimizer.init(model.trainable_parameters())
    begin = [model.trainable_parameters(), optimizer.state]

    def mean(params: Any, batch: dict[str, mx.array]) -> mx.array:
        total, weight = loss(model.update(params), batch)
        return mx.divide(total, weight)

    @mx.compile
    def step(state: list[Any], batch: dict[str, mx.array]) -> Any:
        params, optimizer.state = state
        value, gradients = mx.value_and_grad(mean)(params, batch)
        return value, [optimizer.apply_gradients(gradients, params), optimizer.state]

    states = [begin]

    def run() -> None:
        value, after = step(states.pop(), batch)
        mx.async_eval(value, after)
        states.append(after)
        mx.synchronize()

    return _warmed(run)


def _warmed(run: Callable[[], None]) -> Callable[[], None]:
    for _ in range(5):  # the first call compiles
        run()
    return run
