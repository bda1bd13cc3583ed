"""Losses add up over any partition of a batch."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.errors import ArgumentError, ArgumentTypeError
from mlxfp.training.losses import cross_entropy, mse
from tests.training.laws import assert_adds_up

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=5)


@st.composite
def logits_and_labels(draw):
    sizes, classes, seed = draw(SIZES), draw(st.integers(1, 5)), draw(st.integers(0, 99))
    random = np.random.default_rng(seed)
    tokens = draw(st.sampled_from([(), (3,)]))
    labels = draw(st.lists(st.sampled_from([*range(classes), -100]), min_size=sum(sizes), max_size=sum(sizes)))
    labels = np.broadcast_to(np.array(labels).reshape(-1, *[1 for _ in tokens]), (sum(sizes), *tokens))
    logits = random.normal(scale=draw(st.sampled_from([1, 50])), size=(sum(sizes), *tokens, classes))
    return mx.array(logits.astype(np.float32)), mx.array(labels.astype(np.int32)), sizes


@given(logits_and_labels())
def test_cross_entropy_adds_up_and_is_that_of_numpy(drawn):
    logits, labels, sizes = drawn
    assert_adds_up(cross_entropy, (logits, labels), sizes)
    total, weight = cross_entropy(logits, labels)
    scores, targets = np.array(logits, np.float64).reshape(-1, logits.shape[-1]), np.array(labels).reshape(-1)
    logs = scores - np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1, keepdims=True)) - scores.max(1, keepdims=True)
    expected = -sum(row[target] for row, target in zip(logs, targets, strict=True) if target != -100)
    assert total.item() == pytest.approx(expected, rel=1e-4, abs=1e-3)
    assert weight.item() == np.sum(targets != -100)


@given(SIZES, st.integers(0, 99))
def test_mse_adds_up_and_is_that_of_numpy(sizes, seed):
    a, b = np.random.default_rng(seed).normal(size=(2, sum(sizes), 2)).astype(np.float32)
    assert_adds_up(mse, (mx.array(a), mx.array(b)), sizes)
    total, weight = mse(mx.array(a), mx.array(b))
    assert (total.item(), weight.item()) == (pytest.approx(((a - b) ** 2).sum(), rel=1e-5), a.size)


def test_the_law_catches_a_mean():
    def mean(predictions, targets):
        total, weight = mse(predictions, targets)
        return total / weight, weight

    with pytest.raises(AssertionError, match=r"parts of sizes \[1, 3\] give the sum"):
        assert_adds_up(mean, (mx.arange(4.0), mx.zeros(4)), [1, 3])


def test_half_precision_logits_are_summed_in_float32():
    logits = mx.random.normal((512, 8), key=mx.random.key(0)).astype(mx.bfloat16)
    labels = mx.zeros(512, mx.int32)
    total, _ = cross_entropy(logits, labels)
    assert total.dtype == mx.float32
    assert total.item() == pytest.approx(cross_entropy(logits.astype(mx.float32), labels)[0].item(), rel=1e-6)


@pytest.mark.parametrize("label", [3, -1, 1000])
def test_a_label_that_is_no_class_gives_nan_and_not_a_number_from_elsewhere(label):
    total, weight = cross_entropy(mx.zeros((2, 3)), mx.array([0, label]))
    assert np.isnan(total.item())
    assert weight.item() == 2


def test_ignored_labels_do_not_wrap_around_in_unsigned_types():
    total, weight = cross_entropy(mx.zeros((1, 200)), mx.array([156], mx.uint8))  # 156 is -100 in eight bits
    assert (total.item(), weight.item()) == (pytest.approx(np.log(200)), 1)


def test_another_index_can_be_ignored():
    assert cross_entropy(mx.zeros((2, 3)), mx.array([0, 1]), ignore_index=0)[1].item() == 1


def test_shapes_that_would_broadcast_into_nonsense_are_refused():
    with pytest.raises(ArgumentError, match=r"got \(4, 1\) and \(4,\).* take \[:, 0\]"):
        mse(mx.zeros((4, 1)), mx.zeros(4))
    with pytest.raises(ArgumentError, match=r"one label for each row of logits, got logits of shape \(4, 2\) and labels of shape \(3,\)"):
        cross_entropy(mx.zeros((4, 2)), mx.zeros(3, mx.int32))


def test_labels_that_are_no_integers_are_refused():
    with pytest.raises(ArgumentTypeError, match=r"needs integer labels, got mlx\.core\.float32"):
        cross_entropy(mx.zeros((4, 2)), mx.zeros(4))
    assert cross_entropy(mx.zeros((2, 2)), mx.array([True, False]))[1].item() == 2
