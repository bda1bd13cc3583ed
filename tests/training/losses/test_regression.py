"""Losses of numbers are those of numpy and PyTorch."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.support.errors import ArgumentError
from mlxfp.training.losses import binary_cross_entropy, huber, mae, mse

PREDICTIONS = mx.array([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0], [2.0, 2.0, -1.0]])
TARGETS = mx.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.3], [0.0, 1.0, 0.0]])


@given(st.integers(1, 9), st.integers(0, 99))
def test_mse_and_mae_are_those_of_numpy(size, seed):
    a, b = np.random.default_rng(seed).normal(size=(2, size, 2)).astype(np.float32)
    for loss, each in ((mse, (a - b) ** 2), (mae, abs(a - b))):
        total, weight = loss(mx.array(a), mx.array(b))
        assert (total.item(), weight.item()) == (pytest.approx(each.sum(), rel=1e-5), a.size)


@pytest.mark.parametrize(
    ("loss", "expected"), [(mse, 2.9711110591888428), (mae, 1.4666666984558105), (lambda a, b: huber(a, b, delta=0.7), 0.7838888168334961)]
)
def test_means_are_those_of_torch(loss, expected):
    total, weight = loss(PREDICTIONS, TARGETS)
    assert (total / weight).item() == pytest.approx(expected, rel=1e-6)


def test_huber_does_not_square_what_is_far_away():
    total, gradient = mx.value_and_grad(lambda x: huber(x, mx.zeros(1), delta=2.0)[0])(mx.array([1e30]))
    assert (total.item(), gradient.item()) == (pytest.approx(2e30), 2)


@pytest.mark.parametrize("loss", [mse, mae, huber])
def test_shapes_that_would_broadcast_into_nonsense_are_refused(loss):
    with pytest.raises(ArgumentError, match=r"got \(4, 1\) and \(4,\).* pass predictions\[:, 0\]"):
        loss(mx.zeros((4, 1)), mx.zeros(4))


def test_a_delta_that_is_not_above_zero_is_refused():
    with pytest.raises(ArgumentError, match="delta must be above 0, got delta=0"):
        huber(mx.zeros(1), mx.zeros(1), delta=0)


@pytest.mark.parametrize("loss", [mse, mae, huber, binary_cross_entropy])
def test_a_missing_target_with_weight_0_has_the_gradient_0(loss):
    """Several targets per row, some of them missing: NaN in the targets must not reach the gradient."""
    predictions, targets = mx.array([[0.5, 2.0], [1.0, 3.0]]), mx.array([[0.0, mx.nan], [1.0, 0.0]])
    total, gradient = mx.value_and_grad(lambda x: loss(x, targets, example_weights=~mx.isnan(targets))[0])(predictions)
    known = mx.array([0.0, 1.0, 0.0])
    expected, slopes = mx.value_and_grad(lambda x: loss(x, known)[0])(mx.array([0.5, 1.0, 3.0]))
    assert total.item() == expected.item()
    assert gradient.reshape(-1)[mx.array([0, 2, 3])].tolist() == slopes.tolist()
    assert gradient[0, 1].item() == 0
