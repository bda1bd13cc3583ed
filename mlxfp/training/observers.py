"""Observers: functions from an event stream to an event stream, composed with `pipe`. They are what callbacks are elsewhere.

An observer passes every event on as it is, and may add events of its own or end the stream, which stops the run.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from shutil import get_terminal_size
from time import monotonic
from typing import TextIO

from attrs import evolve, frozen

from mlxfp.core.checks import check_callable, check_positive
from mlxfp.training.events import EpochEnded, Evaluated, Event, Observer, RunStarted, Stepped, Stopped
from mlxfp.training.state import TrainState

_REDRAW = 0.1  # seconds between two drawings of the bar: ten a second look live, and cost nothing
_BAR = 12  # its width in characters: with it, the line of a long run fits into 80 columns
_ERASE = "\r\x1b[K"  # to the start of the line, and clear it (ECMA-48)


def evaluate_every(validate: Callable[[TrainState], Mapping[str, float]], *, steps: int | None = None) -> Observer:
    """Evaluate the state after every epoch, or after every `steps` steps, and add an `Evaluated` event with the metrics.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.training.state import TrainState
    >>> events = [EpochEnded(TrainState({}, {}, {}, 7, 0), None, 0, {})]
    >>> [type(event).__name__ for event in pipe(events, evaluate_every(lambda state: {"accuracy": 0.5}))]
    ['EpochEnded', 'Evaluated']

    See also: `evaluate`, which makes functions of (state, batches).
    """
    check_callable(validate=validate)
    if steps is not None:
        check_positive(steps=steps)
    return partial(_evaluate_every, validate=validate, steps=steps)


def progress(*, file: TextIO | None = None) -> Observer:
    """Show how the run goes, on standard error unless a file is given: step, loss, steps per second, time left, evaluations.

    On a terminal one line is drawn over and over; elsewhere a line is written for every reading of the metrics. It shows the events of
    the observers before it, so it stands last.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.training.state import TrainState
    >>> state = TrainState({}, {}, {}, 7, 0)
    >>> events = pipe([RunStarted(state, None, 0, 7), Evaluated(state, None, 0, {"accuracy": 0.5})], progress(file=sys.stdout))
    >>> len(list(events))
    epoch 1  step 7  accuracy 0.5000
    2
    """
    return partial(_progress, file=file)


def _evaluate_every(
    events: Iterable[Event], *, validate: Callable[[TrainState], Mapping[str, float]], steps: int | None
) -> Iterator[Event]:
    for event in events:
        yield event
        if isinstance(event, EpochEnded) if steps is None else isinstance(event, Stepped) and event.step % steps == 0:
            yield Evaluated(event.state, event.cursor, event.epoch, validate(event.state))


def _progress(events: Iterable[Event], *, file: TextIO | None) -> Iterator[Event]:
    out = file or sys.stderr
    live, drawn = out.isatty(), 0.0  # when the bar was drawn; 0 while there is none
    view = _View()
    try:
        for event in events:
            now = monotonic()
            view = view.after(event, now)
            line = view.line(event, now, live=live)
            if live and isinstance(event, Stepped) and (event.metrics or now - drawn >= _REDRAW):
                out.write(f"{_ERASE}{line[: get_terminal_size().columns - 1]}")
                out.flush()
                drawn = now
            elif isinstance(event, Evaluated | Stopped) or (isinstance(event, Stepped) and event.metrics and not live):
                out.write(f"{_ERASE if drawn else ''}{line}\n")
                out.flush()
                drawn = 0.0
            yield event
    finally:
        if drawn:  # stopped from outside: what comes next starts on a clean line
            out.write("\n")
            out.flush()


@frozen
class _View:
    """What is known of a run so far."""

    total: int | None = None
    start: tuple[int, float] | None = None  # step and time at the end of the first step, which compiles: it would spoil the speed
    loss: str = ""

    def after(self, event: Event, now: float) -> "_View":
        if isinstance(event, RunStarted):
            return evolve(self, total=event.total)
        if isinstance(event, Stepped):
            return evolve(self, start=self.start or (event.step, now), loss=_words(event.metrics, ["loss"]) or self.loss)
        return self

    def line(self, event: Event, now: float, *, live: bool) -> str:
        if isinstance(event, Evaluated):
            return f"epoch {event.epoch + 1}  step {event.step}{_words(event.metrics, event.metrics)}"
        first, then = self.start or (event.step, now)
        rate = (event.step - first) / (now - then) if event.step > first and now > then else 0.0
        done = f"{event.step}/{self.total}" if self.total else f"{event.step}"
        bar = _bar(event.step / self.total) if live and self.total and isinstance(event, Stepped) else ""
        speed = f"  {rate:.1f} steps/s" if rate else ""
        left = f"  eta {_clock((self.total - event.step) / rate)}" if rate and self.total and self.total > event.step else ""
        end = isinstance(event, Stopped)
        took = f"  in {_clock(now - then)}" if end else ""
        return f"{'done: ' if end else ''}epoch {event.epoch + 1}  step {done}{bar}{self.loss}{speed}{left}{took}"


def _bar(share: float) -> str:
    full = int(min(share, 1.0) * _BAR)
    return f"  [{'#' * full}{'-' * (_BAR - full)}]"


def _words(metrics: Mapping[str, float], names: Iterable[str]) -> str:
    return "".join(f"  {name} {metrics[name]:.4f}" for name in names if name in metrics)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
