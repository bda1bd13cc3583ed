"""The best value of a metric so far, and how long ago it was: what early stopping, checkpoints and plateaus have in common."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from attrs import evolve, frozen

from mlxfp.core.checks import check_choice, check_text
from mlxfp.core.errors import unknown_name
from mlxfp.training.loop.events import Evaluation, Event, Stopped, Warned

Mode = Literal["min", "max"]


def watch(metric: str, mode: Mode) -> "Watch":
    """Check the arguments that observers of a metric share, and start to watch it.

    >>> watch("loss", "min").after({"loss": 0.5}).after({"loss": 0.7})
    Watch(metric='loss', mode='min', best=0.5, waited=1)
    """
    check_text(metric=metric)
    check_choice(("min", "max"), mode=mode)
    return Watch(metric, mode)


@frozen
class Watch:
    """A metric, its best value, and the number of evaluations since then. NaN is never the best."""

    metric: str
    mode: Mode
    best: float | None = None
    waited: int = 0

    def after(self, metrics: Mapping[str, float]) -> "Watch":
        """Take an evaluation into account. One of another `evaluate_every`, which has another name in front, is passed over.

        Raises `UnknownNameError` for an evaluation of the same name without the metric.
        """
        if self.metric not in metrics:
            alike = [name for name in metrics if family(name) == family(self.metric)]
            if alike:
                raise unknown_name("metric", self.metric, metrics)
            return self
        value = float(metrics[self.metric])
        better = value == value if self.best is None else value < self.best if self.mode == "min" else value > self.best
        return evolve(self, best=value, waited=0) if better else evolve(self, waited=self.waited + 1)

    def after_all(self, history: Iterable[Evaluation]) -> "Watch":
        """Take the evaluations of a run that continues into account."""
        new = self
        for evaluation in history:
            new = new.after(evaluation.metrics)
        return new


def unseen(observer: str, watched: Watch, event: Event) -> Iterator[Warned]:
    """Warn, at the end of a run, that an observer saw no evaluation: one that stands before `evaluate_every` would never say why."""
    if isinstance(event, Stopped) and watched.best is None:
        message = f"{observer} saw no evaluation with a number for {watched.metric!r}, so it did nothing. Put evaluate_every before it."
        yield Warned(event.state, event.cursor, event.epoch, message)


def family(name: str) -> str:
    """Return the name of the evaluation that a metric belongs to: what stands before its own name.

    >>> family("hard/accuracy"), family("accuracy")
    ('hard', '')
    """
    return name.rpartition("/")[0]
