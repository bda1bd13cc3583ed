"""Observers that end a run."""

from collections.abc import Iterable, Iterator
from functools import partial
from time import monotonic

from mlxfp.core.checks import check_positive, check_types, explain_call
from mlxfp.core.errors import ArgumentError
from mlxfp.distributed import Ranks
from mlxfp.training.loop.events import EpochEnded, Evaluated, Event, Observer, Stepped, Stopped
from mlxfp.training.loop.plateaus import Mode, PlateauTracker, warned_if_unused


@explain_call
def early_stopping(metric: str, *, mode: Mode, patience: int) -> Observer:
    """End the run after `patience` evaluations in a row without a new best `metric`, with a `Stopped` event.

    Put it after `evaluate_every`, and before observers that should see the end. A run that continues from a checkpoint with its
    history stops where it would have stopped. Raises `UnknownNameError` for an evaluation without the metric.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.training.steps.state import TrainState
    >>> losses = [0.5, 0.4, 0.45, 0.41, 0.3]
    >>> events = [Evaluated(TrainState({}, {}, {}, step, 0), None, 0, {"loss": loss}) for step, loss in enumerate(losses)]
    >>> *_, end = pipe(events, early_stopping("loss", mode="min", patience=2))
    >>> end.step, end.reason
    (3, 'early_stopping')

    See also: `best`, the evaluation with the best state.
    """
    check_positive(patience=patience)
    return partial(_early_stopping, tracker=PlateauTracker(metric, mode), patience=patience)


def time_budget(seconds: float, *, ranks: Ranks | None = None) -> Observer:
    """End the run when it has taken this long, at the next reading of the metrics, with a `Stopped` event.

    The time before a checkpoint does not count. Evaluations and compilation do. With `ranks`, the clock of rank 0 decides for all:
    clocks differ, and a rank that ends alone leaves the others waiting.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.training.steps.state import TrainState
    >>> events = [Stepped(TrainState({}, {}, {}, step, 0), None, 0, {"loss": 0.5}) for step in range(100)]
    >>> [event.step for event in pipe(events, time_budget(1e-9))]
    [0, 0]
    """
    if not seconds > 0:
        raise ArgumentError(f"seconds must be above 0, got seconds={seconds!r}.")
    check_types((type(None), Ranks), ranks=ranks)
    return partial(_time_budget, seconds=seconds, ranks=ranks)


def _early_stopping(events: Iterable[Event], *, tracker: PlateauTracker, patience: int) -> Iterator[Event]:
    for event in warned_if_unused(events, "early_stopping", tracker.metric):
        yield event
        before, tracker = tracker, tracker.after_event(event)
        if isinstance(event, Evaluated) and tracker.waited >= patience and tracker != before:
            yield _stopped(events, event, "early_stopping")
            return


def _time_budget(events: Iterable[Event], *, seconds: float, ranks: Ranks | None) -> Iterator[Event]:
    began = monotonic()
    for event in events:
        yield event
        if not (isinstance(event, Stepped) and event.metrics) and not isinstance(event, EpochEnded):
            continue
        over = monotonic() - began >= seconds
        if over if ranks is None else ranks.gather([over])[0][0]:
            yield _stopped(events, event, "time_budget")
            return


def _stopped(events: Iterable[Event], event: Event, reason: str) -> Stopped:
    getattr(events, "close", lambda: None)()  # now, and not when the last reference is gone: threads may be preparing batches
    return event.derive(Stopped, reason)
