"""A log says what happened, and that of a run which was killed is that of one which was not."""

import json
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, DataError
from tests.training.observers.runs import evaluations, run, state
from tests.training.samples import dataset, setting

SETTING = setting(clip_norm=1.0)


def untimed(path):
    return [
        {name: value for name, value in line.items() if name != "seconds"}
        for line in fp.observers.read_log(path)
        if line["event"] != "RunStarted"
    ]


def test_every_event_is_a_line_of_json(tmp_path):
    list(fp.observers.log_metrics(tmp_path / "runs" / "log.jsonl")(run(epochs=1)))
    lines = [json.loads(line) for line in (tmp_path / "runs" / "log.jsonl").read_text().splitlines()]
    assert [list(line)[:4] for line in lines] == [["event", "step", "epoch", "seconds"]] * 4
    assert [{name: value for name, value in line.items() if name != "seconds"} for line in lines] == [
        {"event": "RunStarted", "step": 0, "epoch": 0, "total": 4},
        {"event": "Stepped", "step": 2, "epoch": 0, "metrics": {"loss": 0.5, "weight": 8.0, "learning_rate": 0.5}},
        {"event": "EpochEnded", "step": 2, "epoch": 0, "metrics": {"loss": 0.5, "weight": 8.0}},
        {"event": "Stopped", "step": 2, "epoch": 0, "reason": "epochs"},
    ]


def test_what_observers_add_is_logged(tmp_path):
    added = [
        fp.events.MemoryRead(state(1), None, 0, 10, 30, 20),
        fp.events.Warned(state(1), None, 0, "no server"),
        fp.events.StateChanged(state(1), None, 0, "slower"),
        fp.events.CheckpointSaved(state(1), None, 0, tmp_path / "a"),
    ]
    list(fp.observers.log_metrics(tmp_path / "log.jsonl")(iter(added)))
    assert [list(line.values())[4:] for line in fp.observers.read_log(tmp_path / "log.jsonl")] == [
        [{"memory/active": 10, "memory/peak": 30, "memory/cache": 20}],
        ["no server"],
        ["slower"],
        [str(tmp_path / "a")],
    ]


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(NAMES, st.floats(), min_size=1))
def test_any_name_and_number_can_be_read_again(tmp_path_factory, metrics):
    folder = tmp_path_factory.mktemp("law")
    path = folder / "log.jsonl"
    list(fp.observers.log_metrics(path)([fp.events.RunStarted(state(0), None, 0, None), fp.events.Evaluated(state(1), None, 0, metrics)]))
    # The second run continues the first run, so it reads every line.
    list(fp.observers.log_metrics(path)([fp.events.RunStarted(state(1), None, 0, None, (fp.events.Evaluation(1, {}),))]))
    expected = {name: value if abs(value) < float("inf") else None for name, value in metrics.items()}
    assert fp.observers.read_log(path)[1]["metrics"] == expected


@pytest.mark.parametrize("stop", range(2, 26, 3))
def test_the_log_of_a_run_that_was_killed_is_that_of_one_that_was_not(tmp_path, stop):
    step, first = SETTING

    def observed(folder, state, **begin):
        check = fp.observers.evaluate_every(lambda state: {"accuracy": 1 / state.step})
        events = fp.fit(step, state, dataset(), epochs=4, log_every=2, **begin)
        return fp.pipe(
            events, check, fp.observers.checkpoint(folder / "checkpoints", steps=3), fp.observers.log_metrics(folder / "log.jsonl")
        )

    fp.last(observed(tmp_path / "whole", first))
    stream = observed(tmp_path / "killed", first)
    list(islice(stream, stop))
    stream.close()
    path = tmp_path / "killed" / "log.jsonl"
    with path.open("a") as file:
        file.write('{"event": "Stepped", "st')  # a line that was not written whole
    begin = fp.load_latest(tmp_path / "killed" / "checkpoints", first)
    fp.last(observed(tmp_path / "killed", begin.state, cursor=begin.cursor, history=begin.history, running=begin.running))

    def lines(path):
        return [line for line in untimed(path) if line["event"] != "CheckpointSaved"]

    read = [line for line in lines(path) if line["event"] != "EpochEnded"]
    whole = [line for line in lines(tmp_path / "whole" / "log.jsonl") if line["event"] != "EpochEnded"]
    assert read == whole


def test_time_goes_on_where_it_was(tmp_path):
    path = tmp_path / "log.jsonl"
    line = '{"event": "Stepped", "step": %d, "epoch": 0, "seconds": %r, "metrics": {"loss": 0.5}}\n'
    path.write_text(line % (1, 100.5) + line % (9, 900.5))
    list(fp.observers.log_metrics(path)([fp.events.RunStarted(state(1), None, 0, None)]))
    (_, kept), (step, seconds) = [(line["step"], line["seconds"]) for line in fp.observers.read_log(path)]
    assert (kept, step) == (100.5, 1)
    assert 100.5 <= seconds < 900.5


def test_a_new_run_begins_a_new_log_and_never_overwrites_anything_else(tmp_path):
    path = tmp_path / "log.jsonl"
    list(fp.observers.log_metrics(path)(run()))
    list(fp.observers.log_metrics(path)(evaluations(0.5)))
    assert [line["event"] for line in fp.observers.read_log(path)] == ["RunStarted", "Stepped", "Evaluated", "Stopped"]
    path, content = tmp_path / "train.jsonl", '{"text": "my data"}\n'
    path.write_text(content)
    with pytest.raises(DataError, match=r"is not a log of log_metrics: line 1 is .*\. Use another file"):
        list(fp.observers.log_metrics(path)(run()))
    assert path.read_text() == content


def test_a_line_is_there_as_soon_as_it_is_written(tmp_path):
    stream = fp.observers.log_metrics(tmp_path / "log.jsonl")(run())
    next(stream)
    assert [line["event"] for line in fp.observers.read_log(tmp_path / "log.jsonl")] == ["RunStarted"]


def test_mistakes_are_named_when_the_observer_is_made():
    with pytest.raises(ArgumentError, match=r"A log is a \.jsonl file, got 'log\.txt'"):
        fp.observers.log_metrics("log.txt")
