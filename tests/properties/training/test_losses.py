"""Every loss holds the laws of losses. A new one joins with a line in `LOSSES`."""

from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mlxfp.testing.laws.losses import assert_merges
from mlxfp.training import losses

MATRIX = mx.array(np.random.default_rng(9).normal(size=(5, 3)).astype(np.float32))


def class_rows(random, size, scale):
    labels = random.integers(-1, 5, (size, 2))
    return mx.array(random.normal(scale=scale, size=(size, 2, 5)).astype(np.float32)), mx.array(np.where(labels < 0, -100, labels))


def hidden_rows(random, size, scale):
    return mx.array(random.normal(scale=scale, size=(size, 2, 3)).astype(np.float32)), class_rows(random, size, scale)[1]


def yes_or_no_rows(random, size, scale):
    return mx.array(random.normal(scale=scale, size=(size, 4)).astype(np.float32)), mx.array(random.integers(0, 2, (size, 4)))


def number_rows(random, size, scale):
    return tuple(mx.array(random.normal(scale=scale, size=(size, 3)).astype(np.float32)) for _ in range(2))


def through_linear(hidden, labels, **options):
    return losses.linear_cross_entropy(hidden, MATRIX, labels, chunk=2, **options)


LOSSES = {
    "cross_entropy": (losses.cross_entropy, class_rows),
    "smooth": (partial(losses.cross_entropy, label_smoothing=0.1), class_rows),
    "weighted": (partial(losses.cross_entropy, class_weights=[0.5, 2, 0, 1, 1], label_smoothing=0.2), class_rows),
    "linear_cross_entropy": (through_linear, hidden_rows),
    "linear_weighted": (partial(through_linear, class_weights=[0.5, 2, 0, 1, 1], label_smoothing=0.2), hidden_rows),
    "binary_cross_entropy": (losses.binary_cross_entropy, yes_or_no_rows),
    "mse": (losses.mse, number_rows),
    "mae": (losses.mae, number_rows),
    "huber": (partial(losses.huber, delta=0.7), number_rows),
}


@st.composite
def loss_and_rows(draw):
    loss, rows = LOSSES[draw(st.sampled_from(sorted(LOSSES)))]
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    random = np.random.default_rng(draw(st.integers(0, 99)))
    return loss, rows(random, sum(sizes), draw(st.sampled_from([0.1, 1, 50]))), sizes


def numbers(loss, arrays, **options):
    return [part.item() for part in loss(*arrays, **options)]


@given(loss_and_rows())
def test_sums_and_weights_add_up_over_any_partition(drawn):
    loss, arrays, sizes = drawn
    assert_merges(loss, arrays, sizes)


@given(loss_and_rows(), st.data())
def test_an_example_weight_counts_like_that_many_examples(drawn, data):
    loss, arrays, sizes = drawn
    times = data.draw(st.lists(st.integers(0, 3), min_size=sum(sizes), max_size=sum(sizes)))
    assume(any(times))
    places = mx.array(np.repeat(np.arange(len(times)), times).astype(np.int32))
    repeated = [array[places] for array in arrays]
    weighted = numbers(loss, arrays, example_weights=mx.array(times, mx.float32))
    assert weighted == pytest.approx(numbers(loss, repeated), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_what_has_no_weight_gives_no_sum_and_no_gradient(name):
    loss, rows = LOSSES[name]
    first, *rest = rows(np.random.default_rng(0), 4, 1.0)
    none = {"example_weights": mx.zeros(4)}
    (total, weight), gradient = mx.value_and_grad(lambda x: loss(x, *rest, **none))(first)
    assert (total.item(), weight.item(), mx.abs(gradient).max().item()) == (0, 0, 0)
    broken = mx.where(mx.arange(4).reshape(-1, *[1] * (first.ndim - 1)) == 0, mx.nan, first)
    weights = mx.array([0.0, 1, 1, 1])
    assert numbers(loss, (broken, *rest), example_weights=weights) == numbers(loss, (first, *rest), example_weights=weights)


@pytest.mark.parametrize("name", LOSSES)
def test_huge_inputs_give_finite_sums_and_gradients(name):
    loss, rows = LOSSES[name]
    first, *rest = rows(np.random.default_rng(0), 4, 1e4)
    (total, _), gradient = mx.value_and_grad(lambda x: loss(x, *rest))(first)
    assert np.isfinite(total.item())
    assert np.isfinite(np.array(gradient)).all()


@pytest.mark.parametrize("name", LOSSES)
def test_half_precision_is_summed_in_float32(name):
    loss, rows = LOSSES[name]
    first, *rest = rows(np.random.default_rng(0), 64, 1.0)
    first = first.astype(mx.bfloat16)
    total, weight = loss(first, *rest)
    assert (total.dtype, weight.dtype) == (mx.float32, mx.float32)
    if "linear" not in name:  # there the products are as coarse as what is multiplied
        assert total.item() == pytest.approx(loss(first.astype(mx.float32), *rest)[0].item(), rel=1e-5)


def test_compiled_equals_eager():
    weights = mx.array([0.0, 1, 2, 0.5, 1])
    inputs = {name: rows(np.random.default_rng(0), 5, 1.0) for name, (_, rows) in LOSSES.items()}

    def all_of_them(inputs):  # in one program: compiling takes longer than running
        return {name: LOSSES[name][0](*arrays, example_weights=weights) for name, arrays in inputs.items()}

    eager, compiled = all_of_them(inputs), mx.compile(all_of_them)(inputs)
    for name, parts in compiled.items():
        assert [part.item() for part in parts] == pytest.approx([part.item() for part in eager[name]], rel=1e-6), name


def test_every_loss_of_rows_is_in_the_battery():
    of_models_and_pairs = {"causal_lm", "masked_lm", "contrastive", "dpo", "answer_log_probabilities"}
    assert set(losses.__all__) - of_models_and_pairs <= set(LOSSES)
