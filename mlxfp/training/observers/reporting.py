"""Progress of a run on the console."""

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

_KEPT = 0.99  # decay factor per step of the moving average of the speed; the average covers about 100 steps


@explain_call
def progress(*, file: TextIO | None = None, ranks: Ranks | None = None) -> Observer:
    """Show the progress of a run on standard error or in `file`: step, loss, steps per second, remaining time, evaluations and the end.

    Terminals and notebooks show a progress bar. Other files get one line whenever `fit` reads the metrics, and one line as soon as the
    speed is known. The speed is an average over about 100 steps. It includes the time to read data, but not evaluations, checkpoints,
    the first step, and steps compiled for a new shape. Put `progress` last, because only events of earlier observers are shown. With
    `ranks`, only rank 0 shows progress. `runtime.show_progress("never")` turns off the output on standard error.

    >>> import sys
    >>> import mlxfp as fp
    >>> state = fp.TrainState({}, {}, {}, 7, 0)
    >>> events = fp.pipe([RunStarted(state, None, 0, 7), Evaluated(state, None, 0, {"accuracy": 0.5})], progress(file=sys.stdout))
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
    view, written, waited, bar = _View(monotonic()), False, monotonic(), None
    live = is_live(out)
    try:
        for event in events:
            now = monotonic()
            view.add(event, now - waited)
            if isinstance(event, Stepped):
                if live:
                    bar = _drawn(bar, out, view, event)
                elif event.metrics or (view.rate and not written):
                    write_line(out, view.line(event, now))
                    written = True
            elif isinstance(event, Stopped) or _text_between_steps(event):
                if isinstance(event, Stopped) and bar is not None:
                    bar.leave = False
                    bar.close()
                write_line(out, view.line(event, now))
            yield event
            waited = monotonic()  # the time spent in later observers and user code is not counted
    finally:
        if bar is not None:
            bar.close()  # the bar of an interrupted run stays on the screen


@define
class _View:
    """Displayed values of a run. The speed is an average over all steps, with larger weights for recent steps."""

    began: float
    total: int | None = None
    loss: str = ""
    steps: float = 0.0
    seconds: float = 0.0
    first: bool = True  # True until the first step is done

    @property
    def rate(self) -> float:
        """Steps per second, or 0 if unknown."""
        return self.steps / self.seconds if self.seconds else 0.0

    def add(self, event: Event, seconds: float) -> None:
        """Update the values with an event. `seconds` is the time spent waiting for the event."""
        if isinstance(event, Stepped):
            if not self.first and not event.compiled:
                self.steps, self.seconds = _KEPT * self.steps + 1, _KEPT * self.seconds + seconds
            self.first = False
            if event.metrics:
                self.loss = _words(event.metrics, ["loss"]) or self.loss
        elif isinstance(event, EpochEnded) and self.steps:
            self.seconds += seconds  # add the time that the loop waited for the last step of the epoch
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
        """Return the position in the run, and a text with loss, speed and remaining time."""
        rate = self.rate
        done = f"{event.step}/{self.total}" if self.total else f"{event.step}"
        speed = f"  {rate:.1f} steps/s" if rate else ""
        eta = f"  eta {_clock((self.total - event.step) / rate)}" if rate and self.total and self.total > event.step else ""
        return f"epoch {event.epoch + 1}  step {done}", f"{self.loss}{speed}{eta}"


def _drawn(bar: Any, file: TextIO, view: _View, event: Stepped) -> Any:
    """Update the progress bar for a step and return the bar. `bar=None` creates a bar."""
    done, speed = view.parts(event)
    text = "{desc}  |{bar}|" + speed if view.total else "{desc}" + speed
    if bar is None:
        return bar_class()(file=file, desc=done, total=view.total, initial=event.step, bar_format=text, dynamic_ncols=True)
    bar.set_description_str(done, refresh=False)
    bar.bar_format = text
    bar.update(event.step - bar.n)
    return bar


def _text_between_steps(event: Event) -> str:
    """Return the text for an evaluation, a change of the state, or a warning. Return an empty text for all other events."""
    match event:
        case Evaluated(metrics=metrics):
            return _words(metrics, metrics)
        case StateChanged(reason=text) | Warned(message=text):
            return f"  {text}"
    return ""


def _words(metrics: Mapping[str, float], names: Iterable[str]) -> str:
    return "".join(f"  {name} {metrics[name]:.4f}" for name in names if name in metrics)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
