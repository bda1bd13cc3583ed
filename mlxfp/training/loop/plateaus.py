"""The best value of a metric so far, and how long ago it was: for early stopping, the best checkpoint, and plateaus of the rate."""

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
    """A metric, its best value, and the number of evaluations since then. NaN is never the best."""

    metric: str = field(validator=lambda _, __, metric: check_text(metric=metric))
    mode: Mode = field(validator=lambda _, __, mode: check_choice(("min", "max"), mode=mode))
    best: float | None = None
    waited: int = 0

    def after(self, metrics: Mapping[str, float]) -> "PlateauTracker":
        """Take an evaluation into account, unless it is of another `evaluate_every`, whose metrics have another name in front.

        Raises `UnknownNameError` for an evaluation of the same name without the metric.
        """
        if self.metric not in metrics:
            if any(evaluation_of(name) == evaluation_of(self.metric) for name in metrics):
                raise unknown_name("metric", self.metric, metrics)
            return self
        value = float(metrics[self.metric])
        better = value == value if self.best is None else value < self.best if self.mode == "min" else value > self.best
        return evolve(self, best=value, waited=0) if better else evolve(self, waited=self.waited + 1)

    def after_event(self, event: Event) -> "PlateauTracker":
        """Take the evaluation that an event reports into account, or all those before a run that continues."""
        return reduce(PlateauTracker.after, metrics_in(event), self)


def warned_if_unused(events: Iterable[Event], observer: str, metric: str) -> Iterator[Event]:
    """Add a `Warned` event where an observer saw no evaluation in the first epoch of a run: before `evaluate_every`, it sees none."""
    ended = useful = False
    for event in events:
        useful = useful or any(not isnan(metrics.get(metric, nan)) for metrics in metrics_in(event))
        if not useful and (isinstance(event, Stopped) or (ended and isinstance(event, Stepped))):
            useful = True  # once
            message = f"{observer} saw no evaluation with a number for {metric!r} so far, so it does nothing. Put evaluate_every before it."
            yield event.derive(Warned, message)
        ended = ended or isinstance(event, EpochEnded)
        yield event


def metrics_in(event: Event) -> list[Mapping[str, float]]:
    """Return the metrics of the evaluation that an event reports, or of all those before a run that continues."""
    if isinstance(event, RunStarted):
        return [evaluation.metrics for evaluation in event.history]
    return [event.metrics] if isinstance(event, Evaluated) else []


def evaluation_of(name: str) -> str:
    """Return the name of the evaluation that a metric belongs to: "hard" of "hard/accuracy", "" of "accuracy"."""
    return name.rpartition("/")[0]
