"""A learning rate that is reduced when a metric stops improving."""

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
    """Multiply the learning rate by `factor` after `patience` evaluations in a row without a new best `metric`, then begin to wait again.

    `control` is that of the run: `control = Control()`, and `fit(..., control=control)`. Each reduction is a `StateChanged` event. The
    rate is a part of the state, so it is saved and loaded with it, and a run that continues from a checkpoint with its history reduces
    it where it would have. The optimizer must have a number as its rate: a schedule would set it again at every step, and that raises
    `ArgumentError`. Put it after `evaluate_every`.

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
    """Return an optimizer's state with every learning rate multiplied and the rest unchanged."""
    structure, leaves = flatten(opt)
    return unflatten(structure, [leaf * factor if is_rate(path) else leaf for path, leaf in zip(paths(structure), leaves, strict=True)])


def _reduce_on_plateau(
    events: Iterable[Event], *, tracker: PlateauTracker, control: Control, patience: int, factor: float
) -> Iterator[Event]:
    reason = f"reduce_on_plateau: learning rate x {factor:g}"
    reduced: list[float] = []  # the rates that the next step should have
    for event in warned_if_unused(events, "reduce_on_plateau", tracker.metric):
        for metrics in metrics_in(event):
            tracker = tracker.after(metrics)
            if tracker.waited >= patience:
                tracker = evolve(tracker, waited=0)
                if isinstance(event, Evaluated):  # the reductions of a run that continues are in its state
                    control.request(lambda state: evolve(state, opt=scaled_rates(state.opt, factor)), reason)
        if isinstance(event, StateChanged) and event.reason == reason:
            reduced = event.learning_rates
        elif isinstance(event, Stepped) and reduced:
            found = event.learning_rates
            if found != reduced:
                raise ArgumentError(
                    f"reduce_on_plateau set the learning rate to {reduced}, and after the next step it was {found}: a schedule sets it. "
                    "Give the optimizer a number as its learning rate."
                )
            reduced = []
        yield event
