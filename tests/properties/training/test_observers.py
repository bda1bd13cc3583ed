"""Every observer passes every event on, as it is, one at a time, and lets go of the run when it is stopped."""

import io
from itertools import islice

import pytest

import mlxfp as fp
from mlxfp.testing.laws import assert_keeps_events, assert_observes_lazily
from mlxfp.training import observers
from mlxfp.training.loop import events
from tests.screens import Terminal
from tests.training.observers.runs import evaluations, run, state
from tests.training.samples import group, setting

OBSERVERS = {
    "checkpoint": lambda folder: observers.checkpoint(folder / "checkpoints"),
    "checkpoint by steps": lambda folder: observers.checkpoint(folder / "checkpoints", steps=1),
    "checkpoint by time": lambda folder: observers.checkpoint(folder / "checkpoints", seconds=1e-9),
    "checkpoint_best": lambda folder: observers.checkpoint_best(folder / "best.safetensors", "loss", mode="max"),
    "early_stopping": lambda _: observers.early_stopping("loss", mode="min", patience=1),
    "evaluate_every epoch": lambda _: observers.evaluate_every(lambda state: {"accuracy": 0.5}),
    "evaluate_every 3 steps": lambda _: observers.evaluate_every(lambda state: {"accuracy": 0.5}, steps=3),
    "log_metrics jsonl": lambda folder: observers.log_metrics(folder / "log.jsonl"),
    "log_memory": lambda _: observers.log_memory(limit=1),
    "on_event": lambda _: observers.on_event(events.Event, lambda event: None),
    "progress": lambda _: observers.progress(file=io.StringIO()),
    "progress on a terminal": lambda _: observers.progress(file=Terminal()),
    "reduce_on_plateau": lambda _: observers.reduce_on_plateau("loss", control=fp.observers.Control(), mode="min", patience=1),
    "stop_on_signal": lambda _: observers.stop_on_signal(),
    "time_budget": lambda _: observers.time_budget(1e-9),
}


def test_every_observer_is_in_the_battery():
    assert {name.partition(" ")[0] for name in OBSERVERS} == set(observers.__all__) - {
        *("log_mlflow", "log_tensorboard", "log_wandb"),  # slow: see test_tracking
        *(
            "Control",
            "Observer",
            "Tracker",
            "begin_mlflow_run",
            "begin_tensorboard_run",
            "begin_wandb_run",
        ),  # these are no observers
        *("log_panels", "plot_run", "read_log"),
    }


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("stream", [run, lambda: evaluations(0.3, 0.4, 0.5), lambda: iter(())])
def test_an_observer_keeps_the_events_and_is_lazy(name, stream, tmp_path):
    for place, law in enumerate((assert_keeps_events, assert_observes_lazily)):
        law(OBSERVERS[name](tmp_path / str(place)), list(stream()))


@pytest.mark.parametrize("name", OBSERVERS)
def test_an_observer_writes_nothing_into_the_events(name, tmp_path):
    given = list(evaluations(0.3, 0.4, 0.5))
    before = [(event.state, dict(getattr(event, "metrics", {}))) for event in given]
    list(OBSERVERS[name](tmp_path)(iter(given)))
    assert [(event.state, getattr(event, "metrics", {})) for event in given] == before


@pytest.mark.parametrize("name", ["checkpoint_best", "early_stopping", "reduce_on_plateau"])
def test_an_observer_that_saw_no_evaluation_says_so_once(name, tmp_path):
    for epochs in (1, 3):
        (warned,) = (event for event in OBSERVERS[name](tmp_path)(run(epochs=epochs)) if isinstance(event, events.Warned))
        assert warned.message == f"{name} has received no evaluation with a number for 'loss'. Put evaluate_every before {name}."
    for stream in (evaluations(0.3), iter([events.RunStarted(state(9), None, 0, None, [events.Evaluation(1, {"loss": 0.3})]), *run()])):
        assert not [event for event in OBSERVERS[name](tmp_path)(stream) if isinstance(event, events.Warned)]


def test_the_laws_catch_observers_that_drop_copy_or_hoard_events():
    def dropping(events):
        return (event for event in events if event.step != 1)

    def hoarding(events):
        yield from list(events)

    with pytest.raises(AssertionError, match="passes events on unchanged and in order, but"):
        assert_keeps_events(dropping, run())
    with pytest.raises(AssertionError, match="has read 4 steps and passed on 1"):
        assert_observes_lazily(hoarding, list(run()))


@pytest.mark.parametrize("name", OBSERVERS)
def test_nothing_happens_before_the_events_are_consumed(name, tmp_path):
    OBSERVERS[name](tmp_path)(run())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", OBSERVERS)
def test_who_stops_consuming_stops_the_run(name, tmp_path):
    closed = []

    def batches():
        try:
            while True:
                yield group()
        finally:
            closed.append(True)

    step, state = SETTING
    stream = fp.pipe(fp.fit(step, state, batches(), log_every=1), OBSERVERS[name](tmp_path))
    list(islice(stream, 3))
    stream.close()
    assert closed


SETTING = setting()


@pytest.mark.parametrize("name", OBSERVERS)
def test_an_error_of_the_run_goes_through(name, tmp_path):
    def failing():
        yield from islice(run(), 2)
        raise ZeroDivisionError("in the run")

    with pytest.raises(ZeroDivisionError, match="in the run"):
        list(OBSERVERS[name](tmp_path)(failing()))
