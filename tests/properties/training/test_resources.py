"""Memory is read with the metrics, and what MLX keeps is given back above the limit."""

import mlx.core as mx
import pytest

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from tests.training.observers.runs import names, run


def test_memory_is_read_whenever_the_metrics_are():
    events = list(fp.observers.log_memory()(run(epochs=1)))
    assert names(events) == ["RunStarted", "Stepped", "Stepped", "MemoryRead", "EpochEnded", "Stopped"]
    assert events[3].peak >= events[3].active >= 0


def test_the_peak_is_that_of_the_steps_since_the_previous_reading():
    """Memory used between two readings counts in the second reading and in no other."""
    peaks = []
    for event in fp.observers.log_memory()(run(epochs=3)):
        if isinstance(event, fp.events.MemoryRead):
            peaks.append(event.peak)
            if len(peaks) == 1:
                mx.eval(mx.ones(25_000_000).sum() + mx.ones(25_000_001)[:3])
    assert len(peaks) == 3
    assert peaks[1] >= 100_000_000 > max(peaks[0], peaks[2])


@pytest.mark.parametrize(("limit", "cleared"), [(None, 0), (100, 0), (99, 2)])
def test_what_is_kept_for_reuse_is_given_back_above_the_limit(monkeypatch, limit, cleared):
    calls = []  # MLX keeps nothing on a CPU, so there the figures are made up
    for name, value in (("get_active_memory", 60), ("get_cache_memory", 40), ("get_peak_memory", 80)):
        monkeypatch.setattr(mx, name, lambda value=value: value)
    monkeypatch.setattr(mx, "clear_cache", lambda: calls.append("cleared"))
    read = [event for event in fp.observers.log_memory(limit=limit)(run()) if isinstance(event, fp.events.MemoryRead)]
    assert [(event.active, event.peak, event.cache) for event in read] == [(60, 80, 40)] * 2
    assert len(calls) == cleared


def test_mistakes_are_named_when_the_observer_is_made():
    with pytest.raises(ArgumentError, match="limit must be at least 1"):
        fp.observers.log_memory(limit=0)
    with pytest.raises(ArgumentTypeError, match="limit must be an int"):
        fp.observers.log_memory(limit=1.5)
