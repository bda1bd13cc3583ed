"""The progress of a run on the console."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from shutil import get_terminal_size
from time import monotonic
from typing import TextIO

from attrs import define

from mlxfp.core.checks import explain_call
from mlxfp.distributed import Ranks
from mlxfp.training.loop.events import EpochEnded, Evaluated, Event, Observer, RunStarted, StateChanged, Stepped, Stopped, Warned
from mlxfp.training.observers.first_rank import on_first_rank

_REDRAW = 0.1  # seconds between two drawings of the bar: ten a second look live, and cost nothing
_BAR = 12  # its width in characters: with it, the line of a long run fits into 80 columns
_KEPT = 0.99  # of the weight of a step when another one is made: the sums are those of the last hundred
_ERASE = "\r\x1b[K"  # to the start of the line, and clear it (ECMA-48)


@explain_call
def progress(*, file: TextIO | None = None, ranks: Ranks | None = None) -> Observer:
    """Show the progress of the run on standard error, or in `file`: step, loss, steps per second, time left, evaluations, the end.

    On a terminal one line is drawn again and again; otherwise a line is written for every reading of the metrics, and one before as soon as
    the speed is known. The speed is that of about the last hundred steps, with the time to read their data, but without evaluations and
    checkpoints, the first step of the run, and those that were compiled for a new shape; so is the time left. It shows the events of the
    observers before it, so put it last. With `ranks`, only rank 0 shows it.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.training.steps.state import TrainState
    >>> state = TrainState({}, {}, {}, 7, 0)
    >>> events = pipe([RunStarted(state, None, 0, 7), Evaluated(state, None, 0, {"accuracy": 0.5})], progress(file=sys.stdout))
    >>> len(list(events))
    epoch 1  step 7  accuracy 0.5000
    2
    """
    return on_first_rank(ranks, partial(_progress, file=file))


def _progress(events: Iterable[Event], *, file: TextIO | None) -> Iterator[Event]:
    out = file or sys.stderr
    if out is None or out.closed:  # a program without a console
        yield from events
        return
    live, drawn = out.isatty(), 0.0  # when the bar was drawn; 0 while there is none
    view, told, waited = _View(monotonic()), False, monotonic()
    try:
        for event in events:
            now = monotonic()
            view.add(event, now - waited)
            if isinstance(event, Stepped):
                if live and (event.metrics or now - drawn >= _REDRAW):
                    _write(out, f"{_ERASE}{view.line(event, now, live=True)[: get_terminal_size().columns - 1]}")
                    drawn = now
                elif not live and (event.metrics or (view.rate and not told)):
                    _write(out, f"{view.line(event, now, live=False)}\n")
                    told = True
            elif _has_line(event):
                _write(out, f"{_ERASE if drawn else ''}{view.line(event, now, live=live)}\n")
                drawn = 0.0
            yield event
            waited = monotonic()  # what observers and programs do with the event is not the time of the next one
    finally:
        if drawn:  # stopped from outside: what comes next starts on a clean line
            _write(out, "\n")


def _write(out: TextIO, text: str) -> None:
    """Write text, if that is possible: a console that is gone, or cannot write a character, must not end a run."""
    with suppress(OSError, ValueError):
        out.write(text)
        out.flush()


@define
class _View:
    """What is known of a run so far. The speed is the quotient of two sums in which a step counts less the longer it is ago."""

    began: float
    total: int | None = None
    loss: str = ""
    steps: float = 0.0
    seconds: float = 0.0
    first: bool = True  # no step was made so far

    @property
    def rate(self) -> float:
        """Steps per second, 0 if that is not known."""
        return self.steps / self.seconds if self.seconds else 0.0

    def add(self, event: Event, seconds: float) -> None:
        """Take an event into account that came after some time of waiting for it alone."""
        if isinstance(event, Stepped):
            if not self.first and not event.compiled:
                self.steps, self.seconds = _KEPT * self.steps + 1, _KEPT * self.seconds + seconds
            self.first = False
            if event.metrics:
                self.loss = _words(event.metrics, ["loss"]) or self.loss
        elif isinstance(event, EpochEnded) and self.steps:
            self.seconds += seconds  # the rest of the last step: it is read here
        elif isinstance(event, RunStarted):
            self.total = event.total

    def line(self, event: Event, now: float, *, live: bool) -> str:
        text = _text_between_steps(event)
        if text:
            return f"epoch {event.epoch + 1}  step {event.step}{text}"
        rate = self.rate
        done = f"{event.step}/{self.total}" if self.total else f"{event.step}"
        full = int(min(event.step / self.total, 1.0) * _BAR) if self.total else 0
        bar = f"  [{'#' * full:-<{_BAR}}]" if live and self.total and isinstance(event, Stepped) else ""
        speed = f"  {rate:.1f} steps/s" if rate else ""
        left = f"  eta {_clock((self.total - event.step) / rate)}" if rate and self.total and self.total > event.step else ""
        end, took = "", ""
        if isinstance(event, Stopped):
            took = f"  in {_clock(now - self.began)}"
            end = "done: " if event.reason in ("epochs", "steps") else f"stopped by {event.reason}: "
        return f"{end}epoch {event.epoch + 1}  step {done}{bar}{self.loss}{speed}{left}{took}"


def _has_line(event: Event) -> bool:
    return isinstance(event, Stopped) or bool(_text_between_steps(event))


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
