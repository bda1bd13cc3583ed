"""Runs end for a reason, where it was found, and a run that continues ends where it would have ended."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, UnknownNameError
from tests.training.observers.runs import evaluations, names, run, state
from tests.training.samples import dataset, group, setting

VALUES = st.lists(st.sampled_from([0.1, 0.2, 0.3, float("nan"), float("inf")]), max_size=12)


@given(VALUES, st.integers(1, 3), st.sampled_from(["min", "max"]))
def test_a_run_ends_after_patience_evaluations_without_a_new_best(values, patience, mode):
    events = list(fp.observers.early_stopping("loss", mode=mode, patience=patience)(evaluations(*values)))
    assert names(events[-1:]) == ["Stopped"]
    assert events[-1].step == _naive_end(values, patience, mode)
    assert events[-1].reason == ("early_stopping" if _naive_end(values, patience, mode, default=None) else "steps")


def _naive_end(values, patience, mode, default=-1):
    """The step whose `patience` last evaluations are no better than the best before them."""
    for end in range(1, len(values) + 1):
        before = [value for value in values[: max(end - patience, 0)] if value == value]
        recent = [value for value in values[max(end - patience, 0) : end] if value == value]
        if end < patience or (before == [] and (recent or end < patience)):
            continue
        if not any(value < min(before) if mode == "min" else value > max(before) for value in recent):
            return end
    return len(values) if default == -1 else default


@given(VALUES, st.integers(1, 3), st.data())
def test_a_run_that_continues_with_its_history_ends_where_it_would_have_ended(values, patience, data):
    observer = fp.observers.early_stopping("loss", mode="min", patience=patience)
    end = list(observer(evaluations(*values)))[-1]
    cut = data.draw(st.integers(0, end.step))
    history = tuple(fp.events.Evaluation(step, {"loss": value}) for step, value in enumerate(values[:cut], 1))
    rest = [
        fp.events.RunStarted(state(cut), None, 0, None, history),
        *(event for event in list(evaluations(*values))[1:] if event.step > cut or isinstance(event, fp.events.Stopped)),
    ]
    assert list(observer(iter(rest)))[-1] == end


def test_a_run_that_has_ended_makes_no_further_step(tmp_path: Path):
    # A run ended by `early_stopping` ends at once, however often the run is continued from its last checkpoint.
    step, first = setting()

    def train():
        begin = fp.load_latest(tmp_path, first)
        return list(
            fp.pipe(
                fp.fit(step, begin.state, dataset(), epochs=9, cursor=begin.cursor, history=begin.history, running=begin.running),
                fp.observers.evaluate_every(lambda state: {"loss": 0.5}),
                fp.observers.early_stopping("loss", mode="min", patience=2),
                fp.observers.checkpoint(tmp_path),
            )
        )

    end = train()[-1]
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert (end.step, end.epoch, end.reason) == (9, 2, "early_stopping")
    for _ in range(2):
        assert names(repeated := train()) == ["RunStarted", "Stopped"]
        assert repeated[-1] == end
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files


def test_a_run_is_closed_before_its_end_is_told():
    closed = []

    def events():
        try:
            yield from evaluations(0.5, 0.6, 0.7)
        finally:
            closed.append(True)

    stream = events()  # a reference of one's own must not keep it running
    for event in fp.observers.early_stopping("loss", mode="min", patience=1)(stream):
        assert bool(closed) == isinstance(event, fp.events.Stopped)


def test_the_final_state_and_the_best_one_are_values():
    step, first = setting()
    losses = iter([0.5, 0.3, 0.4, 0.45, 0.2])
    observers = [
        fp.observers.evaluate_every(lambda state: {"loss": next(losses)}),
        fp.observers.early_stopping("loss", mode="min", patience=2),
    ]
    events = list(fp.pipe(fp.fit(step, first, dataset(), epochs=9), *observers))
    assert (events[-1].reason, events[-1].step, events[-1].epoch) == ("early_stopping", 12, 3)
    assert fp.best(events, "loss", mode="min").step == 6
    assert fp.best(events, "loss", mode="max").step == 3
    assert fp.last(events).state == events[-2].state
    rest = fp.last(fp.fit(step, events[-1].state, dataset(), epochs=9, cursor=events[-1].cursor))
    assert rest.state == fp.last(fp.fit(step, first, dataset(), epochs=9)).state


def test_a_best_that_is_not_there_is_named():
    with pytest.raises(ArgumentError, match=r"No evaluation has a number for 'loss', so there is no best evaluation\. Put evaluate_every"):
        fp.best(run(), "loss", mode="min")
    with pytest.raises(ArgumentError, match="No evaluation has a number for 'loss'"):
        fp.best(evaluations(float("nan")), "loss", mode="min")
    with pytest.raises(UnknownNameError, match=r"No metric is named 'los'\. Did you mean 'loss'"):
        fp.best(evaluations(0.5), "los", mode="min")


def test_evaluations_of_other_datasets_are_passed_over():
    values = [("loss", 0.5), ("hard/loss", 0.1), ("hard/loss", 0.2), ("loss", 0.4), ("hard/loss", 0.3)]
    events = [fp.events.Evaluated(state(step), None, 0, {name: value}) for step, (name, value) in enumerate(values)]
    assert names(fp.observers.early_stopping("loss", mode="min", patience=1)(events)) == ["Evaluated"] * 5
    assert list(fp.observers.early_stopping("hard/loss", mode="min", patience=2)(events))[-1] == fp.events.Stopped(
        state(4), None, 0, "early_stopping"
    )


def test_a_time_budget_ends_a_run_at_a_reading():
    step, first = setting()
    end = fp.last(fp.pipe(fp.fit(step, first, [group()] * 100, epochs=9, log_every=7), fp.observers.time_budget(1e-6)))
    assert (end.step, end.reason) == (7, "time_budget")
    assert fp.last(fp.pipe(fp.fit(step, first, [group()] * 3, epochs=9, log_every=7), fp.observers.time_budget(1e-6))).step == 3
    assert fp.last(fp.pipe(fp.fit(step, first, [group()] * 3), fp.observers.time_budget(600))).reason == "epochs"


def test_mistakes_are_named_when_the_observer_is_made():
    with pytest.raises(ArgumentError, match="patience must be at least 1"):
        fp.observers.early_stopping("loss", mode="min", patience=0)
    with pytest.raises(UnknownNameError, match=r"No mode is named 'minimum'\. Did you mean 'min'"):
        fp.observers.early_stopping("loss", mode="minimum", patience=1)
    with pytest.raises(ArgumentError, match="seconds must be above 0, got seconds=0"):
        fp.observers.time_budget(0)
