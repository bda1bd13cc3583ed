"""Reduction of the learning rate when a metric stops improving."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from attrs import evolve

from mlxfp.support.checks import check_positive, check_types
from mlxfp.support.errors import ArgumentError
from mlxfp.support.trees import flatten, paths, unflatten
from mlxfp.training.loop.control import Control
from mlxfp.training.loop.events import Evaluated, Event, Observer, StateChanged, Stepped
from mlxfp.training.loop.plateaus import Mode, PlateauTracker, metrics_in, warned_if_unused
from mlxfp.training.optimization.learning_rates import is_rate


def reduce_on_plateau(metric: str, *, control: Control, mode: Mode, patience: int, factor: float = 0.5) -> Observer:
    """Multiply the learning rate by `factor` after `patience` evaluations in a row without a new best `metric`.

    After a reduction, the count of evaluations starts again at 0. Each reduction is a `StateChanged` event. Put `reduce_on_plateau` after
    `evaluate_every`. The argument `control` connects the observer to the run: pass the same object to `fit(..., control=control)`.

    The learning rate is part of the state and of checkpoints. A continued run makes the same reductions if `fit` gets the `history` of the
    checkpoint. Raises `ArgumentError` for an optimizer with a schedule, because a schedule sets a new learning rate at every step.

    >>> reduce_on_plateau("loss", control=Control(), mode="min", patience=2, factor=1.5)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: factor must be above 0 and below 1, got factor=1.5.
    """
    check_types(Control, control=control)
    check_positive(patience=patience)
    if not 0 < factor < 1:
        raise ArgumentError(f"factor must be above 0 and below 1, got factor={factor!r}.")
    return partial(_reduce_on_plateau, tracker=PlateauTracker(metric, mode), control=control, patience=patience, factor=factor)


def scaled_rates(opt: Any, factor: float) -> Any:
    """Return the state of an optimizer with all learning rates multiplied by `factor`."""
    structure, leaves = flatten(opt)
    return unflatten(structure, [leaf * factor if is_rate(path) else leaf for path, leaf in zip(paths(structure), leaves, strict=True)])


def _reduce_on_plateau(
    events: Iterable[Event], *, tracker: PlateauTracker, control: Control, patience: int, factor: float
) -> Iterator[Event]:
    reason = f"reduce_on_plateau: learning rate x {factor:g}"
    reduced: list[float] = []  # learning rates expected at the next step
    for event in warned_if_unused(events, "reduce_on_plateau", tracker.metric):
        for metrics in metrics_in(event):
            tracker = tracker.after(metrics)
            if tracker.waited >= patience:
                tracker = evolve(tracker, waited=0)
                if isinstance(event, Evaluated):  # in a continued run, the saved rate already includes earlier reductions
                    control.request(lambda state: evolve(state, opt=scaled_rates(state.opt, factor)), reason)
        if isinstance(event, StateChanged) and event.reason == reason:
            reduced = event.learning_rates
        elif isinstance(event, Stepped) and reduced:
            rates = event.learning_rates
            if rates != reduced:
                raise ArgumentError(
                    f"reduce_on_plateau set the learning rate to {reduced}, but a schedule changed it to {rates} in the next step. "
                    "Build the optimizer with a number as learning rate."
                )
            reduced = []
        yield event
