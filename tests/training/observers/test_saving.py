"""Checkpoints are written beside the run, complete, in time, and so that a run continues from any of them bit for bit."""

import shutil
import threading
from itertools import islice

import attrs
import mlx.core as mx
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, FingerprintError, UnknownNameError
from mlxfp.training.observers import saving
from tests.training.observers.runs import evaluations, names, run, state
from tests.training.samples import dataset, group, setting

SETTING = setting()


def found(folder):
    return sorted(path.name for path in folder.iterdir())


def steps(folder):
    return [int(name.removeprefix("step-").removesuffix(".safetensors")) for name in found(folder)]


def observed(state, folder, *, progress=None, **options):
    losses, control = [0.5, 0.6, 0.7, 0.4, 0.4, 0.4], fp.observers.Control()
    events = fp.fit(SETTING[0], state, dataset(), epochs=6, log_every=2, control=control, **(progress or {}))
    check = fp.observers.evaluate_every(lambda state: {"loss": losses[state.step // 3 - 1]})
    plateau = fp.observers.reduce_on_plateau("loss", control=control, mode="min", patience=2)
    return fp.pipe(
        events, check, fp.observers.checkpoint(folder / "early", **options), plateau, fp.observers.checkpoint(folder / "late", **options)
    )


@pytest.mark.parametrize("options", [{}, {"steps": 1}, {"steps": 4}, {"seconds": 1e-9}])
def test_a_run_continues_bit_for_bit_from_every_checkpoint(tmp_path, options):
    _, first = SETTING
    whole = fp.last(observed(first, tmp_path, keep=99, **options)).state
    for path in sorted(tmp_path.rglob("step-*.safetensors")):
        begin = fp.load_state(path, first)
        copy = tmp_path / "again" / path.stem
        progress = {"cursor": begin.cursor, "history": begin.history, "running": begin.running}
        assert fp.last(observed(begin.state, copy, progress=progress)).state == whole, f"continued from {path.name}"
        shutil.rmtree(copy, ignore_errors=True)  # a run whose history has its end writes no checkpoint


def test_without_its_history_a_run_would_continue_otherwise(tmp_path):
    _, first = SETTING
    whole = fp.last(observed(first, tmp_path, keep=99)).state
    begin = fp.load_state(tmp_path / "late" / "step-00000009.safetensors", first)
    assert [evaluation.step for evaluation in begin.history] == [3, 6]
    assert fp.last(observed(begin.state, tmp_path / "again", progress={"cursor": begin.cursor})).state != whole


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [6, 9]),
        ({"keep": 1}, [9]),
        ({"keep": 9}, [3, 6, 9]),
        ({"steps": 1, "keep": 9}, [2, 3, 4, 6, 8, 9]),  # read every second step, and at the end of an epoch
        ({"steps": 5, "keep": 9}, [6, 9]),
        ({"steps": 100, "keep": 9}, [9]),
        ({"seconds": 1000}, [9]),
    ],
)
def test_checkpoints_are_written_in_time_and_the_last_ones_are_kept(tmp_path, options, expected):
    step, first = SETTING
    events = list(fp.pipe(fp.fit(step, first, dataset(), epochs=3, log_every=2), fp.observers.checkpoint(tmp_path, **options)))
    assert steps(tmp_path) == expected
    assert names(events[-1:]) == ["Stopped"]
    saved = [event for event in events if isinstance(event, fp.events.CheckpointSaved)]
    assert sorted({event.path.name for event in saved})[-len(expected) :] == found(tmp_path)
    assert all(fp.load_state(event.path, first).state == event.state for event in saved[-len(expected) :])


def test_the_best_is_written_and_known_again_when_the_run_continues(tmp_path):
    path = tmp_path / "best" / "model.safetensors"
    observer = fp.observers.checkpoint_best(path, "loss", mode="min", config={"rate": 0.1})
    events = list(observer(evaluations(0.5, 0.3, 0.4)))
    assert [event.step for event in events if isinstance(event, fp.events.CheckpointSaved)] == [1, 2]
    saved = fp.load_state(path, state(0))
    assert (saved.state, saved.config) == (state(2), {"rate": 0.1})
    assert saved.history == (fp.events.Evaluation(1, {"loss": 0.5}), fp.events.Evaluation(2, {"loss": 0.3}))
    rest = [fp.events.RunStarted(state(2), None, 0, None, saved.history), *list(evaluations(0.0, 0.0, 0.35, 0.2))[5:]]
    assert [event.step for event in observer(iter(rest)) if isinstance(event, fp.events.CheckpointSaved)] == [4]


def test_what_happens_at_the_step_of_a_checkpoint_happens_again_except_at_the_end(tmp_path):
    step, first = SETTING
    check = fp.observers.evaluate_every(lambda state: {"loss": 0.5}, steps=2)
    stream = fp.fit(step, first, dataset(), epochs=2, log_every=1)
    list(fp.pipe(stream, check, fp.observers.checkpoint(tmp_path, steps=1, keep=9)))
    histories = [[each.step for each in fp.load_state(path, first).history] for path in sorted(tmp_path.iterdir())]
    assert histories == [[], [], [2], [2], [2, 4], [2, 4, 6]]


def test_what_is_being_written_is_complete_when_the_stream_is_closed(tmp_path):
    step, first = SETTING
    stream = fp.pipe(fp.fit(step, first, dataset(), epochs=3, log_every=2), fp.observers.checkpoint(tmp_path, steps=2))
    *_, stopped = islice(stream, 3)
    assert stopped.step == 2
    stream.close()
    assert fp.load_latest(tmp_path, first).state == stopped.state


def test_writing_happens_beside_the_run(tmp_path, monkeypatch):
    entered, go_on = threading.Event(), threading.Event()

    def slow(path, state, **rest):
        entered.set()
        assert go_on.wait(60)
        fp.save_state(path, state, **rest)

    monkeypatch.setattr(saving, "save_state", slow)
    step, first = SETTING
    seen = []
    for event in fp.pipe(fp.fit(step, first, [group()] * 9, steps=9, log_every=1), fp.observers.checkpoint(tmp_path, steps=2, keep=9)):
        seen.append(event)
        if event.step == 3 and isinstance(event, fp.events.Stepped):
            assert entered.wait(60)
            assert not any(isinstance(each, fp.events.CheckpointSaved) for each in seen)  # a step further, and still writing
            go_on.set()
    assert steps(tmp_path) == [2, 4, 6, 8, 9]


def test_an_error_of_writing_ends_the_run_soon(tmp_path, monkeypatch):
    def full(path, state, **rest):
        raise OSError("No space left on device")

    monkeypatch.setattr(saving, "save_state", full)
    step, first = SETTING
    seen = []
    with pytest.raises(OSError, match="No space left"):
        seen.extend(
            fp.pipe(
                fp.fit(step, first, dataset(), epochs=50),
                fp.observers.checkpoint(tmp_path),
                lambda events: (seen.append(e) or e for e in events),
            )
        )
    assert max(event.step for event in seen) <= 7  # the second one waits for the first
    stream = fp.pipe(fp.fit(step, first, dataset(), epochs=50, log_every=1), fp.observers.checkpoint(tmp_path, steps=1))
    list(islice(stream, 2))
    with pytest.raises(OSError, match="No space left"):
        stream.close()


def test_an_error_of_writing_does_not_hide_that_of_the_run(tmp_path, monkeypatch):
    def full(path, state, **rest):
        raise OSError("No space left on device")

    def failing():
        yield from islice(run(), 4)
        raise ZeroDivisionError("in the run")

    monkeypatch.setattr(saving, "save_state", full)
    with pytest.raises(ZeroDivisionError, match="in the run") as raised:
        list(fp.observers.checkpoint(tmp_path)(failing()))
    assert raised.value.__notes__ == ["and the last checkpoint could not be written: OSError: No space left on device"]


def test_no_thread_is_left(tmp_path):
    before = set(threading.enumerate())
    list(fp.observers.checkpoint(tmp_path)(run()))
    stream = fp.observers.checkpoint(tmp_path / "b", steps=1)(run())
    list(islice(stream, 5))
    stream.close()
    assert set(threading.enumerate()) <= before


def test_a_folder_of_a_run_that_went_further_is_refused(tmp_path):
    list(fp.observers.checkpoint(tmp_path)(run()))
    with pytest.raises(ArgumentError, match=r"The run begins at step 0, but .* later steps: step-00000002.*\. Continue the saved run"):
        list(fp.observers.checkpoint(tmp_path)(run()))
    assert steps(tmp_path) == [2, 4]


def test_what_a_killed_run_left_half_written_is_removed(tmp_path):
    half = tmp_path / f".step-00000002.safetensors.{'0' * 16}.partial.safetensors"
    for path in (half, tmp_path / ".notes", tmp_path / ".best.safetensors.0.partial.safetensors"):
        path.touch()
    list(fp.observers.checkpoint(tmp_path)(run()))
    list(fp.observers.checkpoint_best(tmp_path / "best.safetensors", "loss", mode="min")(run()))
    assert found(tmp_path) == [".notes", "step-00000002.safetensors", "step-00000004.safetensors"]


def test_the_first_checkpoint_of_a_new_run_is_its_start(tmp_path):
    begin = fp.load_latest(tmp_path / "nothing", state(3))
    assert (begin.state, begin.cursor, begin.history, begin.config, begin.fingerprint) == (state(3), None, (), {}, None)


def test_state_that_is_not_computed_yet_is_saved(tmp_path):
    lazy = attrs.evolve(state(1), params={"w": mx.ones(3) * 2})
    list(fp.observers.checkpoint(tmp_path)(iter([fp.events.Stopped(lazy, None, 0, "steps")])))
    assert fp.load_latest(tmp_path, lazy).state.params["w"].tolist() == [2, 2, 2]


def test_a_pipeline_that_nothing_identifies_is_named(tmp_path):
    class Unknown:
        def __call__(self, row):
            return row

    from mlxfp.collators.collating import collate
    from mlxfp.data.lengths.batching import batch
    from mlxfp.data.rows.map_filter import map
    from mlxfp.data.sources.in_memory import from_examples
    from tests.training.samples import stacked

    step, first = SETTING
    rows = [{"x": [0.0, 1.0, 2.0], "label": 0, "name": "a"}] * 4
    batches = fp.pipe(from_examples(rows), map(Unknown()), batch(4), collate(stacked))
    with pytest.raises(FingerprintError):
        fp.last(fp.pipe(fp.fit(step, first, batches), fp.observers.checkpoint(tmp_path)))


def test_mistakes_are_named_when_the_observer_is_made(tmp_path):
    with pytest.raises(ArgumentError, match=r"Pass steps or seconds, got steps=1 and seconds=2\.0"):
        fp.observers.checkpoint(tmp_path, steps=1, seconds=2.0)
    with pytest.raises(ArgumentError, match="steps must be at least 1"):
        fp.observers.checkpoint(tmp_path, steps=0)
    with pytest.raises(ArgumentError, match="seconds must be above 0"):
        fp.observers.checkpoint(tmp_path, seconds=0)
    with pytest.raises(ArgumentError, match="keep must be at least 1"):
        fp.observers.checkpoint(tmp_path, keep=0)
    with pytest.raises(ArgumentTypeError, match=r"The config of a checkpoint must be representable in JSON.*Convert the value to text"):
        fp.observers.checkpoint(tmp_path, config={"folder": tmp_path})
    with pytest.raises(ArgumentTypeError, match="config of a checkpoint must be representable in JSON"):
        fp.observers.checkpoint_best(tmp_path / "best.safetensors", "loss", mode="min", config={"folder": tmp_path})
    with pytest.raises(UnknownNameError, match="No mode is named 'most'"):
        fp.observers.checkpoint_best(tmp_path / "best.safetensors", "loss", mode="most")
