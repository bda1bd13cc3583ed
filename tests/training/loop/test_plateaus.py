"""A tracked metric: its best value, and how long ago that was."""

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentTypeError, UnknownNameError
from mlxfp.training.loop.plateaus import PlateauTracker


@given(st.lists(st.floats()), st.sampled_from(["min", "max"]))
def test_the_best_is_that_of_all_numbers_and_was_as_long_ago_as_its_first(values, mode):
    history = tuple(fp.events.Evaluation(step, {"loss": value}) for step, value in enumerate(values))
    tracker = PlateauTracker("loss", mode).after_event(fp.events.RunStarted(fp.TrainState({}, {}, {}, 0, 0), None, 0, None, history))
    numbers = [value for value in values if not isnan(value)]
    best = (min if mode == "min" else max)(numbers, default=None)
    assert tracker.best == best
    assert tracker.waited == (len(values) - 1 - values.index(best) if numbers else len(values))


def test_evaluations_of_another_name_are_passed_over_and_a_wrong_name_is_named():
    tracker = PlateauTracker("hard/loss", "min").after({"hard/loss": 0.5})
    assert tracker.after({"loss": 0.1, "other/loss": 0.1}) is tracker
    assert tracker.after({}) is tracker
    with pytest.raises(UnknownNameError, match=r"No metric is named 'hard/loss'\. Did you mean 'hard/los'"):
        tracker.after({"hard/los": 0.1})
    with pytest.raises(ArgumentTypeError, match="metric must be a string"):
        PlateauTracker(1, "min")
