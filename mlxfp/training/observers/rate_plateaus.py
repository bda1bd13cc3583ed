"""A learning rate that falls when a metric gets no better."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from attrs import evolve

from mlxfp.core.checks import check_positive
from mlxfp.core.errors import ArgumentError
from mlxfp.training.loop.events import Change, Evaluated, Event, Observer, RunStarted, Steered, Stepped
from mlxfp.training.loop.plateaus import Mode, Watch, unseen, watch
from mlxfp.training.optimization.learning_rates import learning_rates, scaled_rates
from mlxfp.training.steps.state import TrainState


def reduce_on_plateau(metric: str, *, mode: Mode, patience: int, factor: float = 0.5) -> Observer:
    """Multiply the learning rate by `factor` after `patience` evaluations in a row without a new best `metric`, then wait anew.

    The rate is a part of the state, so it is saved and loaded with it, and a run that continues from a checkpoint with its history
    reduces it where it would have. Each reduction is a `Steered` event. The rate must be a number: a schedule would set it again at
    every step, so that raises `ArgumentError`. Stands after `evaluate_every`.

    >>> reduce_on_plateau("loss", mode="min", patience=2, factor=1.5)
    Traceback (most recent call last):
    mlxfp.core.errors.ArgumentError: factor must be above 0 and below 1, got factor=1.5.
    """
    check_positive(patience=patience)
    if not 0 < factor < 1:
        raise ArgumentError(f"factor must be above 0 and below 1, got factor={factor!r}.")
    return partial(_reduce_on_plateau, watched=watch(metric, mode), patience=patience, factor=factor)


def _reduce_on_plateau(events: Iterable[Event], *, watched: Watch, patience: int, factor: float) -> Iterator[Event]:
    reason = f"reduce_on_plateau: learning rate x {factor:g}"
    steer: Callable[[Change, str], None] | None = None
    reduced: list[float] = []  # the rates that the next step should have
    for event in events:
        if isinstance(event, RunStarted):
            steer = event.steer
            for evaluation in event.history:
                watched = _after(watched, evaluation.metrics, patience)[0]
        elif isinstance(event, Evaluated):
            watched, waited_enough = _after(watched, event.metrics, patience)
            if waited_enough and steer is not None:
                steer(partial(_with_scaled_rates, factor=factor), reason)
        elif isinstance(event, Steered) and event.reason == reason:
            reduced = learning_rates(event.state.opt)
        elif isinstance(event, Stepped) and reduced:
            _check_kept(reduced, learning_rates(event.state.opt))
            reduced = []
        yield from unseen("reduce_on_plateau", watched, event)
        yield event


def _after(watched: Watch, metrics: Mapping[str, float], patience: int) -> tuple[Watch, bool]:
    after = watched.after(metrics)
    return (evolve(after, waited=0), True) if after.waited >= patience else (after, False)


def _with_scaled_rates(state: TrainState, *, factor: float) -> TrainState:
    return evolve(state, opt=scaled_rates(state.opt, factor))


def _check_kept(expected: list[float], found: list[float]) -> None:
    if found != expected:
        raise ArgumentError(
            f"reduce_on_plateau set the learning rate to {expected}, and after the next step it was {found}: a schedule sets it. "
            "Give the optimizer a number as its learning rate."
        )
