"""Ctrl-C at any moment of a run leaves the last event, from which it goes on as if nothing had happened."""

import gc
import signal
import threading

import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, UnknownNameError
from mlxfp.training import observers
from mlxfp.training.loop import checkpoints
from mlxfp.training.observers import saving
from tests.training.samples import dataset, group, setting

STEP, FIRST = setting()
WHOLE = list(fp.fit(STEP, FIRST, dataset(), epochs=3))


def interrupt():
    signal.raise_signal(signal.SIGINT)


def in_a_step(monkeypatch):
    def step(state, batch):
        if state.step == 4:
            interrupt()
        return STEP(state, batch)

    return step, []


def in_an_evaluation(monkeypatch):
    def validate(state):
        if state.step == 4:
            interrupt()
        return {"loss": 0.5}

    return STEP, [observers.evaluate_every(validate, steps=1)]


def in_an_observer(monkeypatch):
    return STEP, [observers.on_event(fp.events.Stepped, lambda event: event.step == 4 and interrupt())]


def while_a_checkpoint_is_written(monkeypatch):
    def slow(*args, **more):
        if args[1].step == 4:
            threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
            threading.Event().wait(0.3)
        return checkpoints.save_state(*args, **more)

    monkeypatch.setattr(saving, "save_state", slow)
    return STEP, []


@pytest.mark.parametrize("where", [in_a_step, in_an_evaluation, in_an_observer, while_a_checkpoint_is_written])
def test_a_run_goes_on_from_the_last_event_before_the_interruption(where, tmp_path, monkeypatch):
    step, watching = where(monkeypatch)
    seen: list[fp.events.Event] = []
    events = fp.pipe(
        fp.fit(step, FIRST, fp.pipe(dataset(), fp.prefetch(2)), epochs=3, log_every=1),
        *watching,
        observers.checkpoint(tmp_path, steps=1, keep=20),
    )
    with pytest.raises(KeyboardInterrupt):
        seen.extend(events)  # those before the interruption stay in the list
    assert 3 <= seen[-1].step <= 5
    rest = list(
        fp.fit(STEP, seen[-1].state, fp.pipe(dataset(), fp.prefetch(2)), epochs=3, cursor=seen[-1].cursor, running=seen[-1].running)
    )
    assert rest[-1].state == WHOLE[-1].state
    ended = {event.epoch: event.metrics for event in WHOLE if isinstance(event, fp.events.EpochEnded)}
    assert {event.epoch: event.metrics for event in rest if isinstance(event, fp.events.EpochEnded)}.items() <= ended.items()
    del events
    gc.collect()
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("mlxfp") and thread.name != "mlxfp-ranks"]
    assert not [path.name for path in tmp_path.iterdir() if not path.name.startswith("step-")]
    for path in tmp_path.iterdir():
        assert fp.load_state(path, FIRST).state.step == int(path.stem[5:])


def test_saved_files_are_reported_up_to_the_interruption(tmp_path, monkeypatch):
    _, watching = in_an_observer(monkeypatch)
    seen = []
    with pytest.raises(KeyboardInterrupt):
        seen.extend(
            fp.pipe(fp.fit(STEP, FIRST, dataset(), epochs=3, log_every=1), *watching, observers.checkpoint(tmp_path, steps=1, keep=20))
        )
    assert {event.path.name for event in seen if isinstance(event, fp.events.CheckpointSaved)} <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("where", [in_a_step, in_an_evaluation, in_an_observer, while_a_checkpoint_is_written])
def test_last_hands_out_the_last_event_of_an_interrupted_run(where, tmp_path, monkeypatch):
    step, watching = where(monkeypatch)
    data = fp.pipe(dataset(), fp.prefetch(2))
    events = fp.pipe(fp.fit(step, FIRST, data, epochs=3, log_every=1), *watching, observers.checkpoint(tmp_path, steps=1, keep=20))
    with pytest.warns(
        RuntimeWarning, match=r"The run was interrupted\. last returns the event after step [345], .* press Ctrl-C again"
    ) as said:
        end = fp.last(events)
    assert said[0].filename == __file__
    assert isinstance(end, fp.events.Stopped)
    assert (end.reason, list(events)) == ("interrupted", [])
    assert fp.last(fp.fit(STEP, end.state, data, epochs=3, cursor=end.cursor, running=end.running)).state == WHOLE[-1].state
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("mlxfp") and thread.name != "mlxfp-ranks"]


def test_an_interruption_before_the_first_step_ends_the_program():
    def first(events):
        for event in events:
            interrupt()
            yield event

    for interrupted in (
        first(fp.fit(STEP, FIRST, dataset())),
        fp.pipe(fp.fit(STEP, FIRST, dataset()), observers.on_event(fp.events.Event, lambda _: interrupt())),
    ):
        with pytest.raises(KeyboardInterrupt):
            fp.last(interrupted)


def test_a_second_interruption_ends_the_program():
    def stubborn(events):
        try:
            yield from events
        finally:  # of an observer that writes a file, for instance
            interrupt()

    with pytest.raises(KeyboardInterrupt):
        fp.last(stubborn(event for event in WHOLE[:5] if event.step < 3 or interrupt()))


def test_an_interruption_at_the_end_leaves_the_reason():
    def late(events):
        yield from events
        interrupt()

    with pytest.warns(RuntimeWarning, match="interrupted"):
        assert fp.last(late(fp.fit(STEP, FIRST, dataset(), epochs=1))).reason == "epochs"


def test_best_returns_the_best_evaluation_before_the_interruption():
    def events(until):
        evaluate = observers.evaluate_every(lambda state: {"loss": abs(state.step - 2)}, steps=1)
        return fp.pipe(
            fp.fit(STEP, FIRST, dataset(), epochs=3),
            evaluate,
            observers.on_event(fp.events.Evaluated, lambda event: event.step == until and interrupt()),
        )

    with pytest.warns(RuntimeWarning, match="best returns the event after step 2"):
        assert fp.best(events(5), "loss", mode="min").step == 2
    with pytest.raises(KeyboardInterrupt):
        fp.best(events(1), "loss", mode="min")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_ends_the_run_after_its_step_with_a_last_checkpoint(name, tmp_path):
    number = signal.Signals[name]
    before = signal.getsignal(number)

    def step(state, batch):
        if state.step == 4:
            signal.raise_signal(number)
        return STEP(state, batch)

    data = fp.pipe(dataset(), fp.prefetch(2))
    end = fp.last(fp.pipe(fp.fit(step, FIRST, data, epochs=3), observers.stop_on_signal(name), observers.checkpoint(tmp_path, steps=1000)))
    assert (end.step, end.reason) == (5, name)
    assert signal.getsignal(number) is before
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("mlxfp") and thread.name != "mlxfp-ranks"]
    found = fp.load_latest(tmp_path, FIRST)
    assert found.state == end.state
    assert fp.last(fp.fit(STEP, found.state, data, epochs=3, cursor=found.cursor, running=found.running)).state == WHOLE[-1].state


def test_a_second_signal_and_one_after_the_run_do_what_they_did(monkeypatch):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        for event in fp.pipe(fp.fit(STEP, FIRST, dataset()), observers.stop_on_signal("SIGUSR1")):
            if isinstance(event, fp.events.Stepped):
                signal.raise_signal(signal.SIGUSR1)
                signal.raise_signal(signal.SIGUSR1)
        assert (event.step, event.reason, seen) == (1, "SIGUSR1", [signal.SIGUSR1])
        signal.raise_signal(signal.SIGUSR1)
        assert len(seen) == 2
        with pytest.raises(RuntimeError, match="broken"):
            list(fp.pipe(fp.fit(STEP, FIRST, dataset()), observers.stop_on_signal("SIGUSR1"), broken))
        signal.raise_signal(signal.SIGUSR1)
        assert len(seen) == 3
    finally:
        signal.signal(signal.SIGUSR1, before)


def broken(events):
    next(iter(events))
    raise RuntimeError("broken")
    yield


def test_signals_are_handled_in_the_main_thread_only():
    errors = []

    def train():
        try:
            fp.last(fp.pipe(fp.fit(STEP, FIRST, [group()]), observers.stop_on_signal()))
        except ArgumentError as error:
            errors.append(str(error))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert errors == [
        "stop_on_signal works only in the main thread, but the run is in another thread. Consume the events in the main thread."
    ]
    with pytest.raises(UnknownNameError, match="SIGTRM"):
        observers.stop_on_signal("SIGTRM")
