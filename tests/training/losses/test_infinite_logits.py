"""Losses of infinite logits are the limit, and NaN stays visible."""

import mlx.core as mx
import numpy as np
import pytest

from mlxfp.training.losses import binary_cross_entropy, cross_entropy, linear_cross_entropy

INF, NAN = float("inf"), float("nan")
CERTAIN = [(INF, 1.0, 0), (-INF, 0.0, 0), (INF, 0.0, INF), (-INF, 1.0, INF), (INF, 0.3, INF), (INF, 0.7, INF), (-INF, 0.3, INF)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("logit", "label", "limit"), CERTAIN)
def test_binary_cross_entropy_of_an_infinite_logit_is_the_limit(logit, label, limit, compiled):
    loss = mx.compile(binary_cross_entropy) if compiled else binary_cross_entropy
    assert loss(mx.array([logit]), mx.array([label]))[0].item() == limit


@pytest.mark.parametrize("label", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_binary_cross_entropy_and_its_gradients_equal_those_of_float64(label):
    """Also far from 0, where log(1 + e^x) - x would be 0 in float32, and at 0, where an absolute value has no derivative."""
    logits = np.array([-60.0, -20.0, -1.0, 0.0, 0.5, 20.0, 60.0])
    labels = mx.full((7,), label)
    total, gradient = mx.value_and_grad(lambda x: binary_cross_entropy(x, labels)[0])(mx.array(logits))
    sigmoid = 1 / (1 + np.exp(-logits))
    expected = label * np.logaddexp(0, -logits) + (1 - label) * np.logaddexp(0, logits)
    assert total.item() == pytest.approx(expected.sum(), rel=1e-6)
    singles = [binary_cross_entropy(mx.array([x]), labels[:1])[0].item() for x in logits]
    assert singles == pytest.approx(expected, rel=1e-5)
    assert gradient.tolist() == pytest.approx(sigmoid - label, rel=1e-5, abs=1e-7)
    slope = mx.grad(lambda y: binary_cross_entropy(mx.array(logits), y)[0])(labels)
    assert slope.tolist() == pytest.approx(-logits, rel=1e-6)


@pytest.mark.parametrize("label", [0.0, 0.5, 1.0])
def test_binary_cross_entropy_of_a_nan_is_nan(label):
    assert np.isnan(binary_cross_entropy(mx.array([NAN]), mx.array([label]))[0].item())


MASKED = mx.array([[1.0, -INF, 0.0, 2.0], [-INF, -INF, 3.0, 0.0]])
WEIGHTS = [0.0, 0.0, 1.0, 2.0]
CASES = [({}, [0, 3], False), ({}, [1, 3], True), ({"label_smoothing": 0.1}, [0, 3], True), ({"class_weights": WEIGHTS}, [1, 2], False)]
CASES += [({"class_weights": WEIGHTS, "label_smoothing": 0.1}, [3, 2], False)]


@pytest.mark.parametrize(("options", "labels", "infinite"), CASES)
def test_a_class_excluded_by_minus_infinity_has_the_probability_zero(options, labels, infinite):
    """The loss is that of the remaining classes. A positive share of an excluded class makes the loss infinite, a weight of 0 does not."""
    finite = mx.where(MASKED == -INF, -1e4, MASKED)
    (total, weight), gradient = mx.value_and_grad(lambda x: cross_entropy(x, mx.array(labels), **options))(MASKED)
    expected, expected_weight = cross_entropy(finite, mx.array(labels), **options)
    assert total.item() == (INF if infinite else pytest.approx(expected.item(), rel=1e-6))
    assert weight.item() == expected_weight.item()
    assert np.isfinite(np.array(gradient)).all()


@pytest.mark.parametrize(("options", "labels", "infinite"), CASES)
def test_a_bias_of_minus_infinity_excludes_classes_of_a_vocabulary(options, labels, infinite):
    """Also if all classes of a chunk are excluded."""
    hidden, matrix, bias = (
        mx.array([[0.5, 1.0], [1.0, -1.0]]),
        mx.array([[1.0, 2], [3, 4], [5, 6], [0, 1]]),
        mx.array([-INF, -INF, 1.0, 0.0]),
    )
    labels = [max(label, 2) if not infinite else label for label in labels]
    expected = cross_entropy(hidden @ matrix.T + bias, mx.array(labels), **options)
    actual = linear_cross_entropy(hidden, matrix, mx.array(labels), bias=bias, chunk=2, **options)
    assert [part.item() for part in actual] == pytest.approx([part.item() for part in expected], rel=1e-5)
    assert not np.isnan(actual[0].item())
