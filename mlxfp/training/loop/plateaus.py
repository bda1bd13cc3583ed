"""The best value of a metric, and the number of evaluations since the best value.

Used for early stopping, for the best checkpoint and for plateaus of the learning rate.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from math import isnan, nan
from typing import Literal

from attrs import evolve, field, frozen

from mlxfp.support.checks import check_choice, check_text
from mlxfp.support.errors import unknown_name
from mlxfp.training.loop.events import EpochEnded, Evaluated, Event, RunStarted, Stepped, Stopped, Warned

Mode = Literal["min", "max"]


@frozen
class PlateauTracker:
    """A metric, its best value, and the number of evaluations since the best value. NaN never counts as the best value."""

    metric: str = field(validator=lambda _, __, metric: check_text(metric=metric))
    mode: Mode = field(validator=lambda _, __, mode: check_choice(("min", "max"), mode=mode))
    best: float | None = None
    waited: int = 0

    def after(self, metrics: Mapping[str, float]) -> "PlateauTracker":
        """Return a copy of this `PlateauTracker`, updated with the metrics of one evaluation.

        A tracker of `hard/loss` ignores evaluations without the prefix `hard/`. Raises `UnknownNameError` if an evaluation with this prefix
        has no metric `hard/loss`.
        """
        if self.metric not in metrics:
            if any(evaluation_of(name) == evaluation_of(self.metric) for name in metrics):
                raise unknown_name("metric", self.metric, metrics)
            return self
        value = float(metrics[self.metric])
        better = value == value if self.best is None else value < self.best if self.mode == "min" else value > self.best
        return evolve(self, best=value, waited=0) if better else evolve(self, waited=self.waited + 1)

    def after_event(self, event: Event) -> "PlateauTracker":
        """Return a copy of this `PlateauTracker`, updated with all evaluations in an event.

        An `Evaluated` event has one evaluation. The `RunStarted` event of a continued run has all earlier evaluations.
        """
        return reduce(PlateauTracker.after, metrics_in(event), self)


def warned_if_unused(events: Iterable[Event], observer: str, metric: str) -> Iterator[Event]:
    """Pass events on, and add a `Warned` event if an observer received no evaluation in the first epoch.

    The usual cause is an observer placed before `evaluate_every`.
    """
    ended = useful = False
    for event in events:
        useful = useful or any(not isnan(metrics.get(metric, nan)) for metrics in metrics_in(event))
        if not useful and (isinstance(event, Stopped) or (ended and isinstance(event, Stepped))):
            useful = True  # warn only once
            message = f"{observer} has received no evaluation with a number for {metric!r}. Put evaluate_every before {observer}."
            yield event.derive(Warned, message)
        ended = ended or isinstance(event, EpochEnded)
        yield event


def metrics_in(event: Event) -> list[Mapping[str, float]]:
    """Return the metrics of an `Evaluated` event, or of all evaluations in the history of a `RunStarted` event."""
    if isinstance(event, RunStarted):
        return [evaluation.metrics for evaluation in event.history]
    return [event.metrics] if isinstance(event, Evaluated) else []


def evaluation_of(name: str) -> str:
    """Return the evaluation name of a metric: "hard" for "hard/accuracy", "" for "accuracy"."""
    return name.rpartition("/")[0]
