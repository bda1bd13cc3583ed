"""Cross-entropy is what numpy says in float64, and what PyTorch says."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.training.losses import binary_cross_entropy, cross_entropy


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def expected_cross_entropy(logits, labels, smoothing, weights):
    """PyTorch's formula, written out label by label."""
    total, weight = 0.0, 0.0
    for row, label in zip(log_softmax(np.float64(logits)), labels, strict=True):
        if label != -100:
            total -= (1 - smoothing) * weights[label] * row[label] + smoothing / len(row) * np.dot(weights, row)
            weight += weights[label]
    return total, weight


@st.composite
def problems(draw):
    classes, size = draw(st.integers(1, 6)), draw(st.integers(1, 9))
    random = np.random.default_rng(draw(st.integers(0, 999)))
    labels = draw(st.lists(st.sampled_from([*range(classes), -100]), min_size=size, max_size=size))
    weights = draw(st.none() | st.lists(st.floats(0.1, 3), min_size=classes, max_size=classes))
    logits = random.normal(scale=draw(st.sampled_from([1, 30])), size=(size, classes)).astype(np.float32)
    return logits, np.array(labels), draw(st.sampled_from([0.0, 0.1, 0.9])), weights


@given(problems())
def test_cross_entropy_is_that_of_numpy(problem):
    logits, labels, smoothing, weights = problem
    total, weight = cross_entropy(mx.array(logits), mx.array(labels), label_smoothing=smoothing, class_weights=weights)
    expected = expected_cross_entropy(logits, labels, smoothing, weights or [1.0] * logits.shape[1])
    assert (total.item(), weight.item()) == (pytest.approx(expected[0], rel=1e-4, abs=1e-4), pytest.approx(expected[1], rel=1e-5))


# From torch 2.13.0: F.cross_entropy(reduction="mean", ignore_index=-100) of these logits and labels, and its gradient's first row.
LOGITS, LABELS, WEIGHTS = [[1.0, -2.0, 0.5], [0.0, 3.0, 1.0], [2.0, 2.0, -1.0]], [2, 1, -100], [0.5, 2.0, 1.5]
BY_TORCH = {
    (0.0, None): (0.5872215032577515, [0.30187445878982544, 0.015029443427920341, -0.31690388917922974]),
    (0.0, (0.5, 2.0, 1.5)): (0.5275964140892029, [0.2587495446205139, 0.012882380746304989, -0.2716319262981415]),
    (0.2, None): (0.8205548524856567, [0.2685411274433136, -0.018303891643881798, -0.25023722648620605]),
    (0.2, (0.5, 2.0, 1.5)): (0.6877490282058716, [0.24347573518753052, -0.0254991352558136, -0.21797659993171692]),
}


@pytest.mark.parametrize(("smoothing", "weights"), BY_TORCH)
def test_means_and_gradients_are_those_of_torch(smoothing, weights):
    def mean(logits):
        total, weight = cross_entropy(logits, mx.array(LABELS), label_smoothing=smoothing, class_weights=weights)
        return total / weight

    value, gradient = mx.value_and_grad(mean)(mx.array(LOGITS))
    expected, first = BY_TORCH[smoothing, weights]
    assert value.item() == pytest.approx(expected, rel=1e-6)
    assert gradient[0].tolist() == pytest.approx(first, rel=1e-5)
    assert gradient[2].tolist() == [0, 0, 0]


def test_binary_cross_entropy_is_that_of_torch():
    total, weight = binary_cross_entropy(mx.array(LOGITS), mx.array([[0.0, 1.0, 1.0], [1.0, 0.0, 0.3], [0.0, 1.0, 0.0]]))
    assert (total / weight).item() == pytest.approx(1.248486876487732, rel=1e-6)


def test_rows_and_tokens_may_have_their_own_axes():
    logits, labels = mx.random.normal((2, 3, 4), key=mx.random.key(0)), mx.array([[0, 1, -100], [3, 2, 1]])
    total, weight = cross_entropy(logits, labels, example_weights=mx.array([1.0, 0.5]))
    first, second = (cross_entropy(logits[row], labels[row])[0].item() for row in (0, 1))
    assert (total.item(), weight.item()) == (pytest.approx(first + 0.5 * second), 2 + 3 * 0.5)


@pytest.mark.parametrize("label", [3, -1, 1000])
def test_a_label_that_is_not_a_class_gives_nan_where_a_compiled_function_hides_its_value(label):
    def all_of_them(labels):
        weighted = cross_entropy(mx.zeros((2, 3)), labels, class_weights=[1, 1, 1])
        return [cross_entropy(mx.zeros((2, 3)), labels), weighted, binary_cross_entropy(mx.zeros(2), labels)]

    sums = mx.compile(all_of_them)(mx.array([0, label]))
    assert all(np.isnan(total.item()) for total, _ in sums)
    assert sums[0][1].item() == 2


def test_ignored_labels_do_not_wrap_around_in_unsigned_types():
    total, weight = cross_entropy(mx.zeros((1, 200)), mx.array([156], mx.uint8))  # 156 is -100 in eight bits
    assert (total.item(), weight.item()) == (pytest.approx(np.log(200)), 1)


def test_another_index_can_be_ignored():
    assert cross_entropy(mx.zeros((2, 3)), mx.array([0, 1]), ignore_index=0)[1].item() == 1


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match=r"one label for each row of logits, got logits of shape \(4, 2\) and labels of shape \(3,\)"):
        cross_entropy(mx.zeros((4, 2)), mx.zeros(3, mx.int32))
    with pytest.raises(ArgumentError, match=r"one weight per example, got weights of shape \(3,\) for values of shape \(4,\)"):
        cross_entropy(mx.zeros((4, 2)), mx.zeros(4, mx.int32), example_weights=mx.ones(3))


def test_labels_that_are_no_integers_are_refused():
    with pytest.raises(ArgumentTypeError, match=r"needs integer labels, got mlx\.core\.float32"):
        cross_entropy(mx.zeros((4, 2)), mx.zeros(4))
    assert cross_entropy(mx.zeros((2, 2)), mx.array([True, False]))[1].item() == 2


@pytest.mark.parametrize("weights", [[1.0], [1, -1, 1], [0, 0, 0], [1, float("nan"), 1]])
def test_class_weights_that_make_no_sense_are_refused(weights):
    with pytest.raises(ArgumentError, match="needs 3 class weights of at least 0, and at least one weight above 0, got"):
        cross_entropy(mx.zeros((2, 3)), mx.array([0, 1]), class_weights=weights)


def test_a_smoothing_that_makes_no_sense_is_refused():
    for smoothing in (-0.1, 1.0):
        with pytest.raises(ArgumentError, match=f"at least 0 and below 1, got label_smoothing={smoothing}"):
            cross_entropy(mx.zeros((2, 3)), mx.array([0, 1]), label_smoothing=smoothing)
