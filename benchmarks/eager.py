"""eager: a training step without compilation, compared with a hand-written eager loop."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
from mlx import nn
from mlx.optimizers import AdamW

import mlxfp as fp
from benchmarks.measuring import Row, medians

_WIDTH, _LAYERS, _ROWS = 1120, 4, 256  # 5 million parameters


def rows(*, small: bool) -> list[Row]:
    """Compare the time and the peak memory of a step."""
    width, repeats = (64, 2) if small else (_WIDTH, 15)
    batch = {"x": mx.random.normal((_ROWS, width)), "y": mx.random.normal((_ROWS, width))}
    peaks = [_peak(make(width, batch)) for make in (_ours, _by_hand)]
    ours, by_hand = medians([_ours(width, batch), _by_hand(width, batch)], repeats=repeats)
    work = f"a step without compilation, {_LAYERS * width * (width + 1) / 1e6:.1f} million parameters"
    megabytes = [f"{peak / 1e6:.0f} MB" for peak in peaks]
    return [
        Row("eager", work, f"{ours * 1000:.1f} ms", f"by hand {by_hand * 1000:.1f} ms", ours / by_hand, 1.1, "at most"),
        Row("eager", f"{work}: memory", megabytes[0], f"by hand {megabytes[1]}", peaks[0] / peaks[1], 1.1, "at most"),
    ]


def _model(width: int) -> nn.Module:
    mx.random.seed(0)
    model = nn.Sequential(*(layer for _ in range(_LAYERS) for layer in (nn.Linear(width, width), nn.ReLU())))
    mx.eval(model.parameters())
    return model


def _ours(width: int, batch: dict[str, mx.array]) -> Callable[[], None]:
    model, optimizer = _model(width), AdamW(1e-3)
    step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer, compile=False)
    state = fp.train_state(model, optimizer)
    del model

    def run() -> None:
        nonlocal state
        state, metrics = step(state, batch)
        mx.eval(state.params, metrics)

    return run


def _by_hand(width: int, batch: dict[str, mx.array]) -> Callable[[], None]:
    model, optimizer = _model(width), AdamW(1e-3)
    gradients_of = nn.value_and_grad(model, lambda model: nn.losses.mse_loss(model(batch["x"]), batch["y"]))

    def run() -> None:
        loss, gradients = gradients_of(model)
        optimizer.update(model, gradients)
        del gradients
        mx.eval(model.parameters(), optimizer.state, loss)

    return run


def _peak(run: Callable[[], Any]) -> int:
    """Return the peak memory of the third step in bytes."""
    run()
    run()
    mx.clear_cache()
    mx.reset_peak_memory()
    run()
    return mx.get_peak_memory()
