"""The contrastive loss finds pairs, and padding is no stranger."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.support.errors import ArgumentError
from mlxfp.training.losses import contrastive


def pairs(size, seed):
    return np.random.default_rng(seed).normal(size=(2, size, 4)).astype(np.float32)


@given(st.integers(1, 6), st.integers(0, 99), st.sampled_from([0.05, 1.0]))
def test_it_is_that_of_numpy(size, seed, temperature):
    queries, keys = pairs(size, seed)
    total, weight = contrastive(mx.array(queries), mx.array(keys), temperature=temperature)
    a, b = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in np.float64((queries, keys)))
    logits = a @ b.T / temperature
    expected = (np.log(np.exp(logits).sum(1)) - np.diag(logits)).sum()
    assert (total.item(), weight.item()) == (pytest.approx(expected, rel=1e-4, abs=1e-4), size)


@given(st.integers(1, 5), st.integers(0, 99), st.integers(1, 3))
def test_examples_of_weight_zero_change_nothing(size, seed, padding):
    queries, keys = pairs(size, seed)
    padded = [mx.array(np.concatenate([rows, rows[:1].repeat(padding, axis=0)])) for rows in (queries, keys)]
    weights = mx.array([1.0] * size + [0.0] * padding)
    total, weight = contrastive(*padded, example_weights=weights)
    assert (total.item(), weight.item()) == (
        pytest.approx(contrastive(mx.array(queries), mx.array(keys))[0].item(), rel=1e-4, abs=1e-5),
        size,
    )


def test_rows_of_zeros_have_finite_gradients():
    gradient = mx.grad(lambda x: contrastive(x, mx.eye(3))[0])(mx.zeros((3, 3)))
    assert np.isfinite(np.array(gradient)).all()
    gradient = mx.grad(lambda x: contrastive(x, mx.eye(3), example_weights=mx.zeros(3))[0])(mx.eye(3))
    assert mx.abs(gradient).max().item() == 0


def test_a_temperature_can_be_learned():
    queries, keys = map(mx.array, pairs(3, 0))
    gradient = mx.compile(mx.grad(lambda log: contrastive(queries, keys, temperature=mx.exp(log))[0]))(mx.array(0.0))
    above, below = (contrastive(queries, keys, temperature=1.0 + change)[0].item() for change in (1e-2, -1e-2))
    assert gradient.item() == pytest.approx((above - below) / 2e-2, rel=1e-2)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ArgumentError, match=r"queries and keys of the same shape, \[B, D\], got \(2, 3\) and \(3, 3\)"):
        contrastive(mx.zeros((2, 3)), mx.zeros((3, 3)))
    with pytest.raises(ArgumentError, match=r"temperature must be above 0, got temperature=0"):
        contrastive(mx.zeros((2, 3)), mx.zeros((2, 3)), temperature=0.0)
    with pytest.raises(ArgumentError, match=r"temperature must be one number for all pairs, got an array of shape \(2,\)"):
        contrastive(mx.zeros((2, 3)), mx.zeros((2, 3)), temperature=mx.ones(2))
