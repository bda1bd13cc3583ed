"""Schedules start above zero, rise, fall and stay."""

import pickle
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.support.errors import ArgumentError, UnknownNameError

DECAYS = [
    fp.schedules.linear_decay,
    fp.schedules.cosine_decay,
]
SCHEDULES = [
    fp.schedules.constant(0.3),
    fp.schedules.constant(0.3, warmup=4),
    fp.schedules.flat_cosine(0.3, steps=10),
    fp.schedules.coslog(0.3, steps=10),
    *(decay(0.3, steps=10, warmup=2) for decay in DECAYS),
]


@given(st.sampled_from(DECAYS), st.integers(2, 60), st.data())
def test_a_decay_rises_to_its_rate_and_falls_to_its_end(decay, steps, data):
    warmup = data.draw(st.integers(0, steps - 1))
    rates = [decay(2.0, steps=steps, warmup=warmup, end=0.5)(step).item() for step in range(steps + 3)]
    assert rates[0] > 0
    assert max(rates) == pytest.approx(2.0)
    assert rates[warmup] == pytest.approx(2.0)
    assert all(a <= b + 1e-6 for a, b in pairwise(rates[: warmup + 1]))
    assert all(a >= b - 1e-6 for a, b in pairwise(rates[warmup:]))
    assert rates[steps:] == pytest.approx([0.5] * 3)


@given(st.integers(0, 9), st.integers(0, 30))
def test_a_constant_rate_is_constant_after_its_warmup(warmup, step):
    assert fp.schedules.constant(0.3, warmup=warmup)(step).item() == pytest.approx(0.3 * min(1, (step + 1) / max(warmup, 1)))


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_schedule_takes_a_number_the_counter_of_an_optimizer_and_many_at_once(schedule):
    rates = [schedule(step).item() for step in range(12)]
    assert [schedule(mx.array(step, mx.uint64)).item() for step in range(12)] == rates
    assert np.broadcast_to(schedule(mx.arange(12)), 12).tolist() == pytest.approx(rates, rel=1e-6)
    assert schedule(0).dtype == mx.float32


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_an_optimizer_follows_its_schedule_from_its_state(schedule):
    optimizer, params = fp.optimizers.adamw(schedule), {"w": mx.array(1.0)}
    state = fp.optimizers.start(optimizer, params)
    for step in range(4):
        _, state = fp.optimizers.update(optimizer, params, state, params)  # a state is all that goes from step to step
        assert state["learning_rate"].item() == schedule(step).item()


def test_a_schedule_is_a_value_that_prints_as_its_call():
    schedule = fp.schedules.cosine_decay(1.0, steps=10, warmup=2)
    assert schedule == fp.schedules.cosine_decay(1.0, steps=10, warmup=2) != fp.schedules.cosine_decay(1.0, steps=11, warmup=2)
    assert schedule != fp.schedules.linear_decay(1.0, steps=10, warmup=2)
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert str(schedule) == "cosine_decay(rate=1.0, steps=10, warmup=2)"


@pytest.mark.parametrize("decay", DECAYS)
def test_a_warmup_longer_than_the_decay_is_refused(decay):
    with pytest.raises(ArgumentError, match="warmup must be less than steps, got warmup=5 and steps=5"):
        decay(1.0, steps=5, warmup=5)
    with pytest.raises(ArgumentError, match="steps must be at least 1"):
        decay(1.0, steps=0)


@pytest.mark.parametrize("name", [name for name in fp.schedules.SCHEDULES if name != "coslog"])
@pytest.mark.parametrize("steps", [1, 2, 10])
@pytest.mark.parametrize("warmup", [0.0, 0.5, 1.0])
def test_every_schedule_of_the_table_rises_to_its_rate_in_the_share_of_the_steps(name, steps, warmup):
    schedule = fp.schedules.by_name(name, 0.3, steps=steps, warmup=warmup)
    rates = [schedule(step).item() for step in range(steps)]
    assert max(rates) == pytest.approx(0.3)
    assert rates[max(round(warmup * steps) - 1, 0)] == pytest.approx(0.3)
    assert all(a <= b + 1e-6 for a, b in pairwise(rates[: round(warmup * steps)]))


@given(st.integers(1, 300), st.integers(1, 5))
def test_coslog_is_a_cosine_of_the_logarithm_of_what_is_done(steps, cycles):
    share = (np.arange(steps) + 0.5) / steps
    wanted = 0.3 * (1 - np.cos(2 * np.pi * np.log2(1 + (2**cycles - 1) * share))) / 2
    found = np.array(fp.schedules.coslog(0.3, steps=steps, cycles=cycles)(mx.arange(steps)))
    assert found == pytest.approx(wanted, abs=1e-5)
    assert found[0] > 0
    assert fp.schedules.coslog(0.3, steps=steps, cycles=cycles)(steps + 2).item() == pytest.approx(0, abs=1e-6)
    assert fp.schedules.by_name("coslog", 0.3, steps=steps) == fp.schedules.coslog(0.3, steps=steps)


def test_flat_cosine_is_flat_for_half_of_the_steps_and_falls():
    rates = [fp.schedules.flat_cosine(2.0, steps=8)(step).item() for step in range(11)]
    assert rates == pytest.approx([2.0] * 5 + [1 + np.cos(np.pi * share) for share in (0.25, 0.5, 0.75)] + [0.0] * 3, abs=1e-5)


def test_an_unknown_schedule_is_named():
    with pytest.raises(UnknownNameError, match=r"No schedule is named 'cosin'\. Did you mean 'cosine'\? Known: constant, cosine, coslog, "):
        fp.schedules.by_name("cosin", 0.3, steps=4)
    with pytest.raises(ArgumentError, match="steps must be at least 1"):
        fp.schedules.by_name("cosine", 0.3, steps=0)
