"""The laws of training catch steps, checkpoints and observers that are wrong. The tests of training hold ours to them."""

from pathlib import Path
from typing import Any

import attrs
import mlx.core as mx
import pytest
from mlx import optimizers

from mlxfp.testing.laws import (
    assert_accumulates,
    assert_compiled_equals_eager,
    assert_continues,
    assert_keeps_events,
    assert_observes_lazily,
    assert_pure_step,
    assert_saves,
)
from mlxfp.training.loop.events import Stepped
from tests.training.samples import dataset, deep, group, setting

EVENTS = [Stepped(None, None, place, {}) for place in range(4)]


def test_a_step_that_is_right_passes_all_laws(tmp_path: Path):
    step, state = setting()
    assert_pure_step(step, state, group())
    assert_compiled_equals_eager(step, state, group())
    assert_saves(state, tmp_path)
    assert_continues(step, state, dataset(), stop=2, steps=5, folder=tmp_path)


def test_a_step_that_edits_its_state_is_caught():
    step, state = setting()

    def editing(state: Any, batch: Any) -> Any:
        result = step(state, batch)
        state.params["first"]["bias"] += 1
        return result

    with pytest.raises(AssertionError, match=r"does not change its input, but changed its input at \[0\]\.params\.first\.bias"):
        assert_pure_step(editing, state, group())


def test_a_step_that_edits_its_batch_is_caught():
    step, state = setting()

    def editing(state: Any, batch: Any) -> Any:
        batch["x"] *= 2
        return step(state, batch)

    with pytest.raises(AssertionError, match=r"changed its input at \[1\]\.x"):
        assert_pure_step(editing, state, group())


def test_a_step_that_draws_from_hidden_randomness_is_caught():
    with pytest.raises(AssertionError, match=r"a second call differs at \[1\]\.noise"):
        assert_pure_step(lambda state, batch: (state, {"noise": mx.random.uniform()}), setting()[1], group())


def test_a_step_whose_trace_keeps_a_number_is_caught():
    calls: list[int] = []

    def counting(state: Any, batch: Any) -> Any:
        calls.append(1)
        return state, {"calls": mx.array(float(len(calls)))}

    with pytest.raises(AssertionError, match=r"compiled and eager differ at \[1\]\.calls"):
        assert_compiled_equals_eager(counting, setting()[1], group())


def test_a_file_that_rounds_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from mlxfp.training.loop import checkpoints

    load, state = checkpoints.load_state, setting()[1]

    def rounding(path: Any, like: Any) -> Any:
        checkpoint = load(path, like)
        return attrs.evolve(checkpoint, state=attrs.evolve(checkpoint.state, seed=checkpoint.state.seed + 1))

    monkeypatch.setattr(checkpoints, "load_state", rounding)
    with pytest.raises(AssertionError, match=r"the loaded state differs at seed"):
        assert_saves(state, tmp_path)


def test_a_step_that_counts_its_calls_does_not_continue(tmp_path: Path):
    step, state = setting()
    calls: list[int] = []

    def drifting(state: Any, batch: Any) -> Any:
        calls.append(1)
        return step(state, {**batch, "x": batch["x"] * len(calls)})

    with pytest.raises(AssertionError, match=r"after stopping at step 2 the run differs at params"):
        assert_continues(drifting, state, dataset(), stop=2, steps=4, folder=tmp_path)


def test_a_step_that_averages_the_means_of_its_parts_is_caught():
    def right(count: int) -> Any:
        return setting(model=deep(rate=0.0, depth=1), optimizer=optimizers.SGD(0.5), accumulate=count)

    def naive(count: int) -> Any:
        return setting(model=deep(rate=0.0, depth=1), optimizer=optimizers.SGD(0.5 / count))

    batch = {name: value for name, value in group(4).items() if name != "name"}
    assert_accumulates(right, batch, [1, 3])
    with pytest.raises(AssertionError, match=r"updates accumulate, but parts of sizes \[1, 3\] give \w+"):
        assert_accumulates(naive, batch, [1, 3])


def test_observers_that_change_drop_or_reorder_events_are_caught():
    assert_keeps_events(iter, EVENTS)
    assert_keeps_events(lambda events: (event for event, _ in zip(events, "ab", strict=False)), EVENTS)  # it stops
    for broken in (lambda events: list(events)[::-1], lambda events: list(events)[1:]):
        with pytest.raises(AssertionError, match="passes events on unchanged and in order, but"):
            assert_keeps_events(lambda events, broken=broken: iter(broken(events)), EVENTS)


def test_an_observer_that_reads_ahead_is_caught():
    assert_observes_lazily(iter, EVENTS)
    with pytest.raises(AssertionError, match="has read 4 steps and passed on 1"):
        assert_observes_lazily(lambda events: iter(list(events)), EVENTS)
