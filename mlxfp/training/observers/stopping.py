"""Observers that end a run."""

import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Literal

from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_choice, check_positive, check_types, explain_call
from mlxfp.support.errors import ArgumentError
from mlxfp.training.loop.events import EpochEnded, Evaluated, Event, Observer, RunStarted, Stepped, Stopped
from mlxfp.training.loop.plateaus import Mode, PlateauTracker, warned_if_unused


@explain_call
def early_stopping(metric: str, *, mode: Mode, patience: int) -> Observer:
    """End the run after `patience` evaluations in a row without a new best `metric`, with a `Stopped` event.

    Put `early_stopping` after `evaluate_every`, and before observers that need the `Stopped` event. A run continued with its history stops
    at the same step as an uninterrupted run. If `early_stopping` already ended the run in the history, the continued run stops before its
    first step. Raises `UnknownNameError` for an evaluation without the metric.

    >>> import mlxfp as fp
    >>> losses = [0.5, 0.4, 0.45, 0.41, 0.3]
    >>> events = [fp.events.Evaluated(fp.TrainState({}, {}, {}, step, 0), None, 0, {"loss": loss}) for step, loss in enumerate(losses)]
    >>> *_, end = fp.pipe(events, fp.observers.early_stopping("loss", mode="min", patience=2))
    >>> end.step, end.reason
    (3, 'early_stopping')

    See also: `best`, the evaluation with the best state.
    """
    check_positive(patience=patience)
    return partial(_early_stopping, tracker=PlateauTracker(metric, mode), patience=patience)


def time_budget(seconds: float, *, ranks: Ranks | None = None) -> Observer:
    """End the run with a `Stopped` event after `seconds` of wall-clock time, as soon as `fit` reads the metrics.

    The time includes evaluations and compilation. In a run continued from a checkpoint, the time before the checkpoint does not count. With
    `ranks`, the clock of rank 0 decides for all ranks, because a rank that stopped alone would leave the other ranks waiting.

    >>> import mlxfp as fp
    >>> events = [fp.events.Stepped(fp.TrainState({}, {}, {}, step, 0), None, 0, {"loss": 0.5}) for step in range(100)]
    >>> [event.step for event in fp.pipe(events, fp.observers.time_budget(1e-9))]
    [0, 0]
    """
    if not seconds > 0:
        raise ArgumentError(f"seconds must be above 0, got seconds={seconds!r}.")
    check_types((type(None), Ranks), ranks=ranks)
    return partial(_time_budget, seconds=seconds, ranks=ranks)


def stop_on_signal(name: Literal["SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"] = "SIGTERM", *, ranks: Ranks | None = None) -> Observer:
    """End the run after the current step when the process receives a signal. The reason of the `Stopped` event is the signal name.

    A batch system sends SIGTERM some time before it takes the machine away. To save a last checkpoint, put the observer `checkpoint` after
    this observer. SIGINT is Ctrl-C. The observer handles only the first signal during the run. Later signals have their usual effect.
    With `ranks`, a signal on any rank ends the run on all ranks, as soon as `fit` reads the metrics.

    Python handles signals only in the main thread. A run in another thread therefore raises `ArgumentError` at the start.

    >>> import mlxfp as fp
    >>> import signal
    >>> events = (fp.events.Stepped(fp.TrainState({}, {}, {}, step, 0), None, 0, {}) for step in range(100))
    >>> for event in fp.pipe(events, fp.observers.stop_on_signal()):
    ...     if event.step == 3 and isinstance(event, fp.events.Stepped):
    ...         signal.raise_signal(signal.SIGTERM)
    >>> event.step, event.reason
    (3, 'SIGTERM')
    """
    check_choice(("SIGTERM", "SIGINT", "SIGUSR1", "SIGUSR2"), name=name)
    check_types((type(None), Ranks), ranks=ranks)
    return partial(_stop_on_signal, number=signal.Signals[name], ranks=ranks)


def _early_stopping(events: Iterable[Event], *, tracker: PlateauTracker, patience: int) -> Iterator[Event]:
    for event in warned_if_unused(events, "early_stopping", tracker.metric):
        yield event
        before, tracker = tracker, tracker.after_event(event)
        if isinstance(event, Evaluated | RunStarted) and tracker.waited >= patience and tracker != before:
            yield _stopped(events, event, "early_stopping")
            return


def _time_budget(events: Iterable[Event], *, seconds: float, ranks: Ranks | None) -> Iterator[Event]:
    began = monotonic()
    for event in events:
        yield event
        if not _is_read(event):
            continue
        over = monotonic() - began >= seconds
        if over if ranks is None else ranks.gather([over])[0][0]:
            yield _stopped(events, event, "time_budget")
            return


def _stop_on_signal(events: Iterable[Event], *, number: signal.Signals, ranks: Ranks | None) -> Iterator[Event]:
    if threading.current_thread() is not threading.main_thread():
        raise ArgumentError(
            "stop_on_signal works only in the main thread, but the run is in another thread. Consume the events in the main thread."
        )
    before = signal.getsignal(number) or signal.SIG_DFL  # `getsignal` returns None for a handler not installed from Python
    received: list[bool] = []

    def note(*_: object) -> None:
        received.append(True)
        signal.signal(number, before)  # restore the previous handler, so that a second signal has its usual effect

    signal.signal(number, note)
    try:
        for event in events:
            yield event
            if not isinstance(event, Stepped | EpochEnded):
                continue
            if received if ranks is None else _is_read(event) and any(signalled for (signalled,) in ranks.gather([bool(received)])):
                yield _stopped(events, event, number.name)
                return
    finally:
        with suppress(ValueError):  # if the garbage collector runs this code in another thread, `signal.signal` raises ValueError
            if signal.getsignal(number) is note:
                signal.signal(number, before)


def _is_read(event: Event) -> bool:
    return (isinstance(event, Stepped) and bool(event.metrics)) or isinstance(event, EpochEnded)


def _stopped(events: Iterable[Event], event: Event, reason: str) -> Stopped:
    getattr(events, "close", lambda: None)()  # closing the event stream ends the threads that still prepare batches
    return event.derive(Stopped, reason)
