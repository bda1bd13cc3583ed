"""The progress of a run on the console."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Any, TextIO

from attrs import define

from mlxfp.distributed import Ranks
from mlxfp.support.checks import explain_call
from mlxfp.support.progress import bar_class, is_live, progress_file, write_line
from mlxfp.training.loop.events import EpochEnded, Evaluated, Event, Observer, RunStarted, StateChanged, Stepped, Stopped, Warned
from mlxfp.training.observers.first_rank import on_first_rank

_KEPT = 0.99  # of the weight of a step when another one is made: the sums are those of the last hundred


@explain_call
def progress(*, file: TextIO | None = None, ranks: Ranks | None = None) -> Observer:
    """Show the progress of the run on standard error, or in `file`: step, loss, steps per second, time left, evaluations, the end.

    On a terminal and in a notebook a bar is drawn; otherwise a line is written for every reading of the metrics, and one before as soon as
    the speed is known. The speed is that of about the last hundred steps, with the time to read their data, but without evaluations and
    checkpoints, the first step of the run, and those that were compiled for a new shape; so is the time left. It shows the events of the
    observers before it, so put it last. With `ranks`, only rank 0 shows it. `runtime.show_progress("never")` keeps standard error quiet.

    >>> import sys
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
    out = progress_file(file, lines=True)
    if out is None:
        yield from events
        return
    view, told, waited, bar = _View(monotonic()), False, monotonic(), None
    live = is_live(out)
    try:
        for event in events:
            now = monotonic()
            view.add(event, now - waited)
            if isinstance(event, Stepped):
                if live:
                    bar = _drawn(bar, out, view, event)
                elif event.metrics or (view.rate and not told):
                    write_line(out, view.line(event, now))
                    told = True
            elif _has_line(event):
                if isinstance(event, Stopped) and bar is not None:
                    bar.leave = False
                    bar.close()
                write_line(out, view.line(event, now))
            yield event
            waited = monotonic()  # what observers and programs do with the event is not the time of the next one
    finally:
        if bar is not None:
            bar.close()  # the bar stays if the run was stopped from outside


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

    def line(self, event: Event, now: float) -> str:
        text = _text_between_steps(event)
        if text:
            return f"epoch {event.epoch + 1}  step {event.step}{text}"
        end, took = "", ""
        if isinstance(event, Stopped):
            took = f"  in {_clock(now - self.began)}"
            end = "done: " if event.reason in ("epochs", "steps") else f"stopped by {event.reason}: "
        return f"{end}{''.join(self.parts(event))}{took}"

    def parts(self, event: Event) -> tuple[str, str]:
        """Say what is done; and the loss, the speed and the time left."""
        rate = self.rate
        done = f"{event.step}/{self.total}" if self.total else f"{event.step}"
        speed = f"  {rate:.1f} steps/s" if rate else ""
        left = f"  eta {_clock((self.total - event.step) / rate)}" if rate and self.total and self.total > event.step else ""
        return f"epoch {event.epoch + 1}  step {done}", f"{self.loss}{speed}{left}"


def _drawn(bar: Any, file: TextIO, view: _View, event: Stepped) -> Any:
    """Draw the bar of a step and return the bar. `bar=None` starts a bar."""
    done, speed = view.parts(event)
    text = "{desc}  |{bar}|" + speed if view.total else "{desc}" + speed
    if bar is None:
        return bar_class()(file=file, desc=done, total=view.total, initial=event.step, bar_format=text, dynamic_ncols=True)
    bar.set_description_str(done, refresh=False)
    bar.bar_format = text
    bar.update(event.step - bar.n)
    return bar


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
