"""exp, softmax and logsumexp equal those of numpy in float64 and of MLX, with gradients, in every range of numbers."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mlxfp.models import exponentials
from mlxfp.models.bounds import tracing
from mlxfp.models.exponentials import exp, logsumexp, softmax

# Some rows are long enough for the functions of this module, others are left to MLX.
ROWS = arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 70) | st.integers(2048, 2100)), elements=st.floats(-200, 200, width=32)
)
WIDE = (2, 3000)


@pytest.fixture(autouse=True, scope="module")
def _as_in_a_compiled_step():
    with tracing([], {}):
        yield


@given(arrays(np.float32, st.integers(1, 300), elements=st.floats(-87, 88, width=32)))
def test_exp_has_the_error_that_is_stated(x):
    exact = np.exp(x.astype(np.float64))
    assert (np.abs(np.array(exp(mx.array(x))) / exact - 1) <= 3e-7 + 8e-8 * np.abs(x)).all()


def test_exp_at_the_ends_of_its_range():
    assert exp(mx.array([-mx.inf, -100.0, 0.0, 100.0, mx.inf])).tolist() == [0.0, 0.0, pytest.approx(1), mx.inf, mx.inf]
    assert mx.isnan(exp(mx.array(mx.nan))).item()


@given(ROWS)
def test_softmax_and_logsumexp_equal_mlx_with_their_gradients(x):
    x = mx.array(x)
    weights = mx.cos(mx.arange(x.shape[1]).astype(mx.float32))
    pairs = [(softmax, lambda x: mx.softmax(x, axis=-1)), (logsumexp, lambda x: mx.logsumexp(x, axis=-1))]
    for ours, theirs in pairs:
        assert mx.allclose(ours(x), theirs(x), rtol=2e-6, atol=2e-6).item()
        slopes = [mx.grad(lambda x, function=function: (function(x)[..., None] * weights).sum())(x) for function in (ours, theirs)]
        assert mx.allclose(*slopes, rtol=1e-5, atol=1e-5).item()


def test_hidden_positions_get_exactly_no_weight_and_no_gradient():
    scores = mx.concatenate([mx.array([[1.0, -mx.inf, 2.0, -1e9]]), mx.zeros((1, 3000))], axis=1)
    assert softmax(scores)[0, 1].item() == softmax(scores)[0, 3].item() == 0
    assert mx.grad(lambda x: logsumexp(x).sum())(scores)[0, 1].item() == 0


def test_infinite_rows_of_logsumexp_equal_mlx():
    x = mx.stack([mx.full(3000, -mx.inf), mx.where(mx.arange(3000) == 7, mx.inf, 0), mx.full(3000, 3e38)])
    assert logsumexp(x).tolist() == mx.logsumexp(x, axis=-1).tolist()
    assert mx.isnan(logsumexp(mx.where(mx.arange(3000) == 7, mx.nan, 0))).item()


@pytest.mark.parametrize("function", [softmax, logsumexp])
def test_transforms_of_mlx_go_through(function):
    x = mx.random.normal(WIDE, key=mx.random.key(0))
    slope = mx.grad(lambda x: (function(x) ** 2).sum())
    assert mx.allclose(mx.vmap(slope)(x), slope(x), atol=1e-6).item()
    assert mx.allclose(mx.compile(slope)(x), slope(x), atol=1e-6).item()
    assert mx.allclose(mx.grad(mx.checkpoint(lambda x: (function(x) ** 2).sum()))(x), slope(x), atol=1e-6).item()


def test_softmax_keeps_the_dtype_and_computes_in_float32():
    x = mx.random.normal(WIDE, key=mx.random.key(0)).astype(mx.float16)
    assert softmax(x).dtype == mx.float16
    assert logsumexp(x).dtype == mx.float32
    assert mx.allclose(softmax(x), mx.softmax(x, axis=-1, precise=True), rtol=1e-3).item()


def test_a_gpu_gets_the_functions_of_mlx(monkeypatch):
    x = mx.random.normal(WIDE, key=mx.random.key(0))
    fast = softmax(x), logsumexp(x)
    monkeypatch.setattr(exponentials, "on_cpu", lambda: False)
    assert mx.allclose(fast[0], softmax(x), atol=1e-6).item()
    assert mx.allclose(fast[1], logsumexp(x), atol=1e-6).item()


def test_steps_without_compilation_and_huge_arrays_take_the_memory_of_mlx(monkeypatch):
    assert exponentials.is_better(2**20)
    assert not exponentials.is_better(2**26)
    monkeypatch.setattr(exponentials, "is_tracing", lambda: False)
    assert not exponentials.is_better(2**20)
