"""Cross-entropy is what numpy says in float64, and what PyTorch says."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.support.errors import ArgumentError, ArgumentTypeError
from mlxfp.training.losses import binary_cross_entropy, cross_entropy, linear_cross_entropy


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


@given(problems(), st.integers(1, 7), st.booleans())
def test_a_chunk_of_the_vocabulary_at_a_time_gives_the_sums_and_gradients_of_the_whole(problem, chunk, biased):
    _, labels, smoothing, weights = problem
    labels, classes = mx.array(labels), problem[0].shape[1]
    random = np.random.default_rng(len(labels))
    hidden, matrix = (mx.array(random.normal(size=(size, 3)).astype(np.float32)) for size in (len(labels), classes))
    bias = mx.array(random.normal(size=classes).astype(np.float32)) if biased else mx.zeros(classes)
    options = {"label_smoothing": smoothing, "class_weights": weights}
    whole = mx.value_and_grad(lambda h, m, b: cross_entropy(h @ m.T + b, labels, **options), argnums=(0, 1, 2))
    parts = mx.value_and_grad(
        lambda h, m, b: linear_cross_entropy(h, m, labels, bias=b if biased else None, chunk=chunk, **options), argnums=(0, 1, 2)
    )
    (values, gradients), (chunked, of_chunks) = whole(hidden, matrix, bias), parts(hidden, matrix, bias)
    assert [value.item() for value in chunked] == pytest.approx([value.item() for value in values], rel=1e-4, abs=1e-5)
    for expected, found in zip(gradients[: 2 + biased], of_chunks, strict=False):
        assert np.allclose(expected, found, rtol=1e-3, atol=1e-4)


def test_a_chunk_at_a_time_needs_a_part_of_the_memory_also_compiled():
    classes, rows = 20_000, 256
    hidden, matrix = mx.random.normal((rows, 16), key=mx.random.key(0)), mx.random.normal((classes, 16), key=mx.random.key(1))
    labels = mx.arange(rows)
    mx.eval(hidden, matrix, labels)

    def peak(loss):
        step = mx.compile(mx.value_and_grad(lambda h, m: loss(h, m)[0], argnums=(0, 1)))
        mx.eval(step(hidden, matrix))
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        mx.eval(step(hidden, matrix))
        return mx.get_peak_memory() - before

    whole = peak(lambda h, m: cross_entropy(h @ m.T, labels))
    assert whole > 2 * 4 * classes * rows  # the logits and their gradient, at least
    assert peak(lambda h, m: linear_cross_entropy(h, m, labels, chunk=2500)) < whole / 2


def test_rows_and_tokens_may_have_their_own_axes():
    hidden, matrix, labels = mx.random.normal((2, 3, 4), key=mx.random.key(0)), mx.eye(4), mx.array([[0, 1, -100], [3, 2, 1]])
    weights = mx.array([1.0, 0.5])
    expected = [part.item() for part in cross_entropy(hidden, labels, example_weights=weights)]
    assert [part.item() for part in linear_cross_entropy(hidden, matrix, labels, example_weights=weights)] == pytest.approx(expected)
    assert expected[1] == 2 + 3 * 0.5


@pytest.mark.parametrize("label", [3, -1, 1000])
def test_a_label_that_is_not_a_class_gives_nan_where_a_compiled_function_hides_its_value(label):
    def all_of_them(labels):
        linear = linear_cross_entropy(mx.zeros((2, 4)), mx.zeros((3, 4)), labels)
        weighted = cross_entropy(mx.zeros((2, 3)), labels, class_weights=[1, 1, 1])
        return [cross_entropy(mx.zeros((2, 3)), labels), linear, weighted, binary_cross_entropy(mx.zeros(2), labels)]

    sums = mx.compile(all_of_them)(mx.array([0, label]))
    assert all(np.isnan(total.item()) for total, _ in sums)
    assert [weight.item() for _, weight in sums[:2]] == [2, 2]


def test_ignored_labels_do_not_wrap_around_in_unsigned_types():
    total, weight = cross_entropy(mx.zeros((1, 200)), mx.array([156], mx.uint8))  # 156 is -100 in eight bits
    assert (total.item(), weight.item()) == (pytest.approx(np.log(200)), 1)


def test_another_index_can_be_ignored():
    assert cross_entropy(mx.zeros((2, 3)), mx.array([0, 1]), ignore_index=0)[1].item() == 1


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match=r"one label for each row of logits, got logits of shape \(4, 2\) and labels of shape \(3,\)"):
        cross_entropy(mx.zeros((4, 2)), mx.zeros(3, mx.int32))
    with pytest.raises(ArgumentError, match=r"got \(4, 2\), \(3,\), \(5, 2\) and \(5,\)"):
        linear_cross_entropy(mx.zeros((4, 2)), mx.zeros((5, 2)), mx.zeros(3, mx.int32))
    with pytest.raises(ArgumentError, match=r"matrix \[C, D\] and bias \[C\], got \(4, 2\), \(4,\), \(5, 3\) and \(5,\)"):
        linear_cross_entropy(mx.zeros((4, 2)), mx.zeros((5, 3)), mx.zeros(4, mx.int32))
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
