"""The fast activations are the exact ones, to float32's precision, forwards and backwards and under every transform of MLX."""

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx import nn

from mlxfp.models import activations
from mlxfp.models.activations import ACTIVATIONS, gelu, mish, selu, silu

NUMBERS = np.concatenate([np.linspace(-12, 12, 200_001), np.linspace(-100, 100, 2001), [0.0, -0.0, 1e-30, -1e-30]]).astype(np.float32)


def exact(name, x):
    """Value and derivative in float64."""
    x = x.astype(np.float64)
    if name == "gelu":
        below = 0.5 * np.vectorize(math.erfc)(-x / 2**0.5)
        return x * below, below + x * np.exp(-0.5 * x * x) / (2 * np.pi) ** 0.5
    share = 1 / (1 + np.exp(-x))
    return x * share, share + x * share * (1 - share)


def assert_exact(name, function):
    """Law: value and derivative are off by at most 3e-7 of the larger of |x| and 1."""
    x = mx.array(NUMBERS)
    value, slope = exact(name, NUMBERS)
    scale = np.maximum(1, abs(NUMBERS))
    for found, wanted in ((function(x), value), (mx.grad(lambda x: function(x).sum())(x), slope)):
        off = (abs(np.array(found) - wanted) / scale).max()
        assert off < 3e-7, f"{name} is off by {off}"


@pytest.mark.parametrize("name", ["gelu", "silu"])
def test_fast_activations_are_exact(name):
    assert_exact(name, ACTIVATIONS[name])


def test_the_law_catches_the_tanh_form_of_gelu():
    with pytest.raises(AssertionError, match=r"gelu is off by 0\.000"):
        assert_exact("gelu", nn.gelu_approx)


@given(st.sampled_from([gelu, silu]), st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=5))
def test_any_number_gives_a_number_and_large_ones_themselves(function, numbers):
    found = np.array(function(mx.array(numbers)))
    slopes = np.array(mx.grad(lambda x: function(x).sum())(mx.array(numbers)))
    finite = np.isfinite(numbers)
    assert np.isfinite(found[finite]).all()
    assert np.isfinite(slopes[finite]).all()
    large = finite & (abs(np.array(numbers)) > 20)
    assert np.allclose(found[large], np.maximum(np.array(numbers, np.float32), 0)[large], rtol=1e-6)
    assert np.allclose(slopes[large], np.array(numbers)[large] > 0, rtol=1e-6)


@pytest.mark.parametrize("function", [gelu, silu])
def test_what_is_not_a_number_stays_so(function):
    assert mx.isnan(function(mx.array(mx.nan))).item()
    assert mx.isnan(mx.grad(function)(mx.array(mx.nan))).item()


@pytest.mark.parametrize("function", [gelu, silu])
def test_a_gpu_gets_the_functions_of_mlx(function, monkeypatch):
    x = mx.array(NUMBERS)
    fast = function(x)
    monkeypatch.setattr(activations, "on_cpu", lambda: False)
    assert (mx.abs(fast - function(x)) / mx.maximum(1, mx.abs(x))).max().item() < 3e-7


@pytest.mark.parametrize("function", [gelu, silu])
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16, mx.float16])
def test_the_dtype_stays(function, dtype):
    x = mx.array([-1.0, 0.5, 3.0], dtype)
    assert function(x).dtype == dtype
    assert mx.grad(lambda x: function(x).sum())(x).dtype == dtype


@pytest.mark.parametrize("function", [gelu, silu])
def test_transforms_of_mlx_go_through(function):
    x = mx.array([[-1.0, 0.5], [3.0, -0.2]])
    slope = mx.grad(lambda x: function(x).sum())
    plain = slope(x)
    assert mx.array_equal(mx.vmap(slope)(x), plain).item()
    assert mx.allclose(mx.compile(slope)(x), plain, atol=1e-6).item()
    assert mx.array_equal(mx.grad(lambda x: mx.checkpoint(function)(x).sum())(x), plain).item()
    step = 1e-2
    second = mx.grad(lambda x: slope(x).sum())(x)
    assert mx.allclose(second, (slope(x + step) - slope(x - step)) / (2 * step), atol=1e-3).item()


@pytest.mark.parametrize("function", [mish, selu])
def test_the_activations_of_tables_are_exact_to_three_millionths(function):
    x = NUMBERS.astype(np.float64)
    below, power = np.minimum(x, 0), np.exp(np.clip(x, -700, 300))
    if function is mish:
        share = np.tanh(np.log1p(power))
        value, slope = x * share, share + x * (1 - share**2) * power / (1 + power)
    else:
        value = 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(below))
        slope = 1.0507009873554805 * np.where(x > 0, 1, 1.6732632423543772 * np.exp(below))
    found, gradient = function(mx.array(NUMBERS)), mx.grad(lambda x: function(x).sum())(mx.array(NUMBERS))
    scale = np.maximum(1, abs(NUMBERS))
    assert (abs(np.array(found) - value) / scale).max() < 3e-6
    assert (abs(np.array(gradient) - slope) / scale)[NUMBERS != 0].max() < 3e-6
    assert function(mx.ones((2, 3), mx.float16)).dtype == mx.float16
