"""The progress of a run on the console."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from shutil import get_terminal_size
from time import monotonic
from typing import TextIO

from attrs import evolve, frozen

from mlxfp.core.checks import explain_call
from mlxfp.training.loop.events import Evaluated, Event, Observer, RunStarted, StateChanged, Stepped, Stopped, Warned

_REDRAW = 0.1  # seconds between two drawings of the bar: ten a second look live, and cost nothing
_BAR = 12  # its width in characters: with it, the line of a long run fits into 80 columns
_ERASE = "\r\x1b[K"  # to the start of the line, and clear it (ECMA-48)


@explain_call
def progress(*, file: TextIO | None = None) -> Observer:
    """Show the progress of the run on standard error, or in `file`: step, loss, steps per second, time left, evaluations, the end.

    On a terminal one line is drawn again and again; otherwise a line is written for every reading of the metrics. It shows the events of
    the observers before it, so put it last.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.training.steps.state import TrainState
    >>> state = TrainState({}, {}, {}, 7, 0)
    >>> events = pipe([RunStarted(state, None, 0, 7), Evaluated(state, None, 0, {"accuracy": 0.5})], progress(file=sys.stdout))
    >>> len(list(events))
    epoch 1  step 7  accuracy 0.5000
    2
    """
    return partial(_progress, file=file)


def _progress(events: Iterable[Event], *, file: TextIO | None) -> Iterator[Event]:
    out = file or sys.stderr
    if out is None or out.closed:  # a program without a console
        yield from events
        return
    live, drawn = out.isatty(), 0.0  # when the bar was drawn; 0 while there is none
    view = _View()
    try:
        for event in events:
            now = monotonic()
            view = view.after(event, now)
            line = view.line(event, now, live=live)
            if live and isinstance(event, Stepped) and (event.metrics or now - drawn >= _REDRAW):
                _write(out, f"{_ERASE}{line[: get_terminal_size().columns - 1]}")
                drawn = now
            elif _text_between_steps(event) or isinstance(event, Stopped) or (isinstance(event, Stepped) and event.metrics and not live):
                _write(out, f"{_ERASE if drawn else ''}{line}\n")
                drawn = 0.0
            yield event
    finally:
        if drawn:  # stopped from outside: what comes next starts on a clean line
            _write(out, "\n")


def _write(out: TextIO, text: str) -> None:
    """Write text, if that is possible: a console that is gone, or cannot write a character, must not end a run."""
    with suppress(OSError, ValueError):
        out.write(text)
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
        text = _text_between_steps(event)
        if text:
            return f"epoch {event.epoch + 1}  step {event.step}{text}"
        first, then = self.start or (event.step, now)
        rate = (event.step - first) / (now - then) if event.step > first and now > then else 0.0
        done = f"{event.step}/{self.total}" if self.total else f"{event.step}"
        full = int(min(event.step / self.total, 1.0) * _BAR) if self.total else 0
        bar = f"  [{'#' * full:-<{_BAR}}]" if live and self.total and isinstance(event, Stepped) else ""
        speed = f"  {rate:.1f} steps/s" if rate else ""
        left = f"  eta {_clock((self.total - event.step) / rate)}" if rate and self.total and self.total > event.step else ""
        end, took = "", ""
        if isinstance(event, Stopped):
            took = f"  in {_clock(now - then)}"
            end = "done: " if event.reason in ("epochs", "steps") else f"stopped by {event.reason}: "
        return f"{end}epoch {event.epoch + 1}  step {done}{bar}{self.loss}{speed}{left}{took}"


def _text_between_steps(event: Event) -> str:
    """Return the text for an event between two steps, or nothing."""
    match event:
        case Evaluated(metrics=metrics):
            return _words(metrics, metrics)
        case StateChanged(reason=said) | Warned(message=said):
            return f"  {said}"
    return ""


def _words(metrics: Mapping[str, float], names: Iterable[str]) -> str:
    return "".join(f"  {name} {metrics[name]:.4f}" for name in names if name in metrics)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
