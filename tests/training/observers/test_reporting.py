"""Progress says what people want to know of a run, on terminals and elsewhere."""

import io
import re
import sys

import pytest

import mlxfp as fp
from mlxfp.support.progress import SETTING
from mlxfp.training.observers import reporting
from tests.screens import Terminal, screens, terminal
from tests.training.observers.runs import run, state


def shown(file, **options):
    list(fp.pipe(run(**options), fp.observers.evaluate_every(lambda state: {"accuracy": 0.5}), fp.observers.progress(file=file)))
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


def test_progress_draws_a_bar_on_a_terminal_and_lines_above_it():
    with terminal(60) as (file, written):
        list(fp.pipe(run(), fp.observers.evaluate_every(lambda state: {"accuracy": 0.5}), fp.observers.progress(file=file)))
        seen = [*screens(written())]
    first = next(lines[0] for lines in seen if "step 1/4" in lines[0])
    assert re.fullmatch(r"epoch 1  step 1/4  \|█+.? +\|", first)
    assert all(len(lines[-1]) < 60 for lines in seen if "|" in lines[-1])
    *above, end, last = seen[-1]
    assert [line[:8] for line in above] == ["epoch 1 ", "epoch 2 "]  # the evaluations; no bar is left
    assert (end[:6], last) == ("done: ", "")


def test_a_notebook_has_a_bar_and_a_quiet_one_has_none(monkeypatch):
    kernel = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    monkeypatch.setattr("sys.stderr", kernel())
    list(fp.pipe(run(), fp.observers.progress()))
    assert "step 1/4  |##" in sys.stderr.getvalue()
    monkeypatch.setattr("sys.stderr", kernel())
    monkeypatch.setenv(SETTING, "0")
    list(fp.pipe(run(), fp.observers.progress()))
    assert sys.stderr.getvalue() == ""
    assert "loss" in shown(io.StringIO())  # who names a file wants it


def test_messages_move_no_cursor():
    file = Terminal()
    list(
        fp.observers.progress(file=file)(
            iter(
                [
                    step(1),
                    fp.events.Warned(state(1), None, 0, "no\x1b[2Jserver\nhere"),
                    fp.events.Evaluated(state(1), None, 0, {"\x9bK": 1.0}),
                ]
            )
        )
    )
    assert [*screens(file.getvalue())][-1][:2] == [
        r"epoch 1  step 1  no\x1b[2Jserver here",
        r"epoch 1  step 1  \x9bK 1.0000",
    ]


def test_progress_knows_no_end_where_there_is_none():
    assert "step 2  loss 0.5000" in shown(io.StringIO(), total=None)
    assert "eta" not in shown(io.StringIO(), total=None)


def test_progress_leaves_a_clean_line_when_the_run_fails():
    def failing():
        yield from list(run())[:3]
        raise RuntimeError("out of memory")

    terminal = Terminal()
    with pytest.raises(RuntimeError, match="out of memory"):
        list(fp.observers.progress(file=terminal)(failing()))
    bar, end = [*screens(terminal.getvalue())][-1]
    assert (bar[:16], end) == ("epoch 1  step 2/", "")


def test_progress_goes_to_standard_error(capsys):
    list(fp.pipe(run(), fp.observers.progress()))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "loss 0.2500" in captured.err


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (90061, "25:01:01")])
def test_times_read_like_a_clock(seconds, text):
    assert reporting._clock(seconds) == text


def test_progress_tells_of_warnings_of_steering_and_why_an_observer_ended_the_run():
    events = [
        fp.events.Warned(state(1), None, 0, "no server"),
        fp.events.StateChanged(state(1), None, 0, "slower"),
        fp.events.Stopped(state(1), None, 0, "time_budget"),
    ]
    file = io.StringIO()
    list(fp.observers.progress(file=file)(iter(events)))
    assert file.getvalue().splitlines() == [
        "epoch 1  step 1  no server",
        "epoch 1  step 1  slower",
        "stopped by time_budget: epoch 1  step 1  in 0:00",
    ]


class Gone(io.StringIO):
    def write(self, text):
        raise OSError("the pipe is closed")


def closed():
    file = io.StringIO()
    file.close()
    return file


@pytest.mark.parametrize("file", [Gone(), closed(), io.TextIOWrapper(io.BytesIO(), encoding="ascii")])
def test_a_console_that_cannot_be_written_to_ends_no_run(file):
    odd = fp.observers.evaluate_every(lambda state: {"größe": 0.5})
    events = list(fp.pipe(run(), odd, fp.observers.progress(file=file)))
    assert isinstance(events[-1], fp.events.Stopped)
    assert len(events) == len(list(fp.pipe(run(), odd)))


def test_a_program_without_a_console_runs(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    assert isinstance(list(fp.pipe(run(), fp.observers.progress()))[-1], fp.events.Stopped)


def test_a_narrow_terminal_gets_narrow_bars():
    with terminal(20) as (file, written):
        list(fp.observers.progress(file=file)(iter([fp.events.RunStarted(state(0), None, 0, 500), step(1, loss=0.5)])))
        assert all(len(lines[0]) < 20 for lines in screens(written()))


def watched(monkeypatch, *moments, total=None):
    """Return what progress writes of events that come after some seconds each, to somebody who takes an hour for each."""
    now = [1000.0]
    monkeypatch.setattr(reporting, "monotonic", lambda: now[0])

    def run():
        yield fp.events.RunStarted(state(0), None, 0, total)
        for seconds, event in moments:
            now[0] += seconds
            yield event

    file = io.StringIO()
    for _ in fp.observers.progress(file=file)(run()):
        now[0] += 3600
    return file.getvalue().splitlines()


def step(number, *, loss=None, compiled=False):
    return fp.events.Stepped(state(number), None, 0, {} if loss is None else {"loss": loss}, compiled)


def speeds(lines):
    return [float(found) for line in lines for found in re.findall(r"([\d.]+) steps/s", line)]


def test_the_speed_counts_steps_only(monkeypatch):
    moments = [
        (40.0, step(1, compiled=True)),
        (0.5, step(2)),
        (100.0, fp.events.Evaluated(state(2), None, 0, {"accuracy": 0.5})),
        (0.5, step(3)),
        (50.0, fp.events.CheckpointSaved(state(3), None, 0, "a")),
        (30.0, step(4, compiled=True)),  # a new shape
        (0.25, step(5, loss=0.5)),
        (0.25, fp.events.EpochEnded(state(5), None, 0, {"loss": 0.5})),  # what is read here is the rest of the last step
        (200.0, fp.events.Evaluated(state(5), None, 0, {"accuracy": 0.5})),
        (0.5, step(6, loss=0.5)),
    ]
    assert [line for line in watched(monkeypatch, *moments, total=66) if "steps/s" in line] == [
        "epoch 1  step 2/66  2.0 steps/s  eta 0:32",
        "epoch 1  step 5/66  loss 0.5000  2.4 steps/s  eta 0:25",
        "epoch 1  step 6/66  loss 0.5000  2.0 steps/s  eta 0:30",
    ]


def test_the_speed_is_that_of_recent_steps(monkeypatch):
    moments = [(10.0 if number < 500 else 0.1, step(number, loss=0.5)) for number in range(1, 1500)]
    found = speeds(watched(monkeypatch, *moments))
    assert found[0] == found[490] == 0.1
    assert found[-1] == pytest.approx(10.0, rel=0.1)


def test_a_run_with_few_readings_shows_its_speed_as_soon_as_it_is_known(monkeypatch):
    moments = [(5.0, step(number, loss=0.5 if number == 1000 else None)) for number in range(1, 1001)]
    assert watched(monkeypatch, *moments, total=1000) == [
        "epoch 1  step 2/1000  0.2 steps/s  eta 1:23:10",
        "epoch 1  step 1000/1000  loss 0.5000  0.2 steps/s",
    ]


def test_where_every_step_is_compiled_there_is_no_speed(monkeypatch):
    lines = watched(monkeypatch, *((1.0, step(number, loss=0.5, compiled=True)) for number in range(1, 5)))
    assert (len(lines), speeds(lines)) == (4, [])
