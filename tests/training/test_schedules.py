"""Schedules start above zero, rise, fall and stay."""

from itertools import pairwise

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.errors import ArgumentError
from mlxfp.training.schedules import constant, cosine_decay, linear_decay

DECAYS = st.sampled_from([linear_decay, cosine_decay])


@given(DECAYS, st.integers(2, 60), st.data())
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
    assert constant(0.3, warmup=warmup)(step).item() == pytest.approx(0.3 * min(1, (step + 1) / max(warmup, 1)))


def test_a_schedule_is_a_value_and_takes_the_counter_of_an_optimizer():
    schedule = cosine_decay(1.0, steps=10, warmup=2)
    assert schedule == cosine_decay(1.0, steps=10, warmup=2) != cosine_decay(1.0, steps=11, warmup=2)
    assert schedule(mx.array(3, mx.uint64)).item() == schedule(3).item()


@pytest.mark.parametrize("decay", [linear_decay, cosine_decay])
def test_a_warmup_longer_than_the_decay_is_refused(decay):
    with pytest.raises(ArgumentError, match="warmup must end before the decay does, got warmup=5 and steps=5"):
        decay(1.0, steps=5, warmup=5)
    with pytest.raises(ArgumentError, match="steps must be at least 1"):
        decay(1.0, steps=0)
