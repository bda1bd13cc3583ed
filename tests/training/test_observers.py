"""Observers pass every event on, and say what they were asked to."""

import io
import re

import pytest

from mlxfp.core.errors import ArgumentError, ArgumentTypeError
from mlxfp.core.pipelines import pipe
from mlxfp.training import observers
from mlxfp.training.events import EpochEnded, Evaluated, RunStarted, Stepped, Stopped
from mlxfp.training.observers import evaluate_every, progress
from mlxfp.training.state import TrainState
from tests.training.laws import assert_keeps_events, assert_lazy


def state(step):
    return TrainState({}, {}, {}, step, 0)


def run(*, total=4, epochs=2):
    """The events of a run of two steps an epoch; the metrics are read every second step."""
    yield RunStarted(state(0), None, 0, total)
    for epoch in range(epochs):
        for step in (2 * epoch + 1, 2 * epoch + 2):
            yield Stepped(state(step), None, epoch, {"loss": 1 / step, "weight": 8.0} if step % 2 == 0 else {})
        yield EpochEnded(state(2 * epoch + 2), None, epoch, {"loss": 0.5, "weight": 8.0})
    yield Stopped(state(2 * epochs), None, epochs - 1, "epochs")


OBSERVERS = {
    "evaluate_every epoch": lambda: evaluate_every(lambda state: {"accuracy": 0.5}),
    "evaluate_every 3 steps": lambda: evaluate_every(lambda state: {"accuracy": 0.5}, steps=3),
    "progress": lambda: progress(file=io.StringIO()),
    "progress on a terminal": lambda: progress(file=Terminal()),
}


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("name", OBSERVERS)
def test_an_observer_keeps_the_events_and_is_lazy(name):
    assert_keeps_events(OBSERVERS[name](), run())
    assert_lazy(OBSERVERS[name](), list(run()))


def test_the_laws_catch_observers_that_drop_copy_or_hoard_events():
    def dropping(events):
        return (event for event in events if event.step != 1)

    def hoarding(events):
        yield from list(events)

    with pytest.raises(AssertionError, match="changed the events"):
        assert_keeps_events(dropping, run())
    with pytest.raises(AssertionError, match="has taken 4 steps and passed on 1"):
        assert_lazy(hoarding, list(run()))


def test_evaluations_come_after_every_epoch_or_every_few_steps():
    for steps, expected in ((None, [2, 4]), (3, [3]), (1, [1, 2, 3, 4])):
        events = pipe(run(), evaluate_every(lambda state: {"step": state.step}, steps=steps))
        assert [(event.step, event.metrics) for event in events if isinstance(event, Evaluated)] == [(at, {"step": at}) for at in expected]


def test_mistakes_are_named_when_the_observer_is_made():
    with pytest.raises(ArgumentTypeError, match="validate must be a function"):
        evaluate_every({})
    with pytest.raises(ArgumentError, match="steps must be at least 1"):
        evaluate_every(len, steps=0)


def shown(file, **options):
    list(pipe(run(**options), evaluate_every(lambda state: {"accuracy": 0.5}), progress(file=file)))
    return file.getvalue()


def test_progress_writes_plain_lines_where_there_is_no_terminal():
    lines = shown(io.StringIO()).splitlines()
    patterns = [
        r"epoch 1  step 2/4  loss 0\.5000  [\d.]+ steps/s  eta 0:00",
        r"epoch 1  step 2  accuracy 0\.5000",
        r"epoch 2  step 4/4  loss 0\.2500  [\d.]+ steps/s",
        r"epoch 2  step 4  accuracy 0\.5000",
        r"done: epoch 2  step 4/4  loss 0\.2500  [\d.]+ steps/s  in 0:00",
    ]
    assert len(lines) == len(patterns)
    assert all(re.fullmatch(pattern, line) for pattern, line in zip(patterns, lines, strict=True)), lines


def test_progress_draws_one_line_over_and_over_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    screen = ""
    frames = []
    for piece in re.split(r"(\r\x1b\[K|\n)", shown(Terminal())):
        screen = "" if piece in ("\r\x1b[K", "\n") else screen + piece
        frames.append(screen)
    assert "epoch 1  step 1/4  [###---------]" in frames
    assert all(len(frame) < 60 for frame in frames if "[" in frame)
    assert any(frame.startswith("done: ") for frame in frames)


def test_progress_knows_no_end_where_there_is_none():
    assert "step 2  loss 0.5000" in shown(io.StringIO(), total=None)
    assert "eta" not in shown(io.StringIO(), total=None)


def test_progress_leaves_a_clean_line_when_the_run_fails():
    def failing():
        yield from list(run())[:3]
        raise RuntimeError("out of memory")

    terminal = Terminal()
    with pytest.raises(RuntimeError, match="out of memory"):
        list(progress(file=terminal)(failing()))
    assert terminal.getvalue().endswith("\n")


def test_progress_goes_to_standard_error(capsys):
    list(pipe(run(), progress()))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "loss 0.2500" in captured.err


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (90061, "25:01:01")])
def test_times_read_like_a_clock(seconds, text):
    assert observers._clock(seconds) == text
