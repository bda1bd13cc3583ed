"""Attention: both of its paths are one function, and who sees whom is as said."""

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.models.attention import Attention, attend, bias_of, earlier, nearby, positions_of, rotate, rotation_of, visible
from mlxfp.models.layers import Dropout, random_key
from tests.models.samples import gap


def normal(*shape, seed=0):
    return mx.random.normal(shape, key=mx.random.key(seed))


def plainly(queries, keys, values, seen):
    """Attention as it is written in the paper, one head of queries at a time."""
    queries, keys, values = (np.array(x, np.float64) for x in (queries, keys, values))
    each = queries.shape[1] // keys.shape[1]
    keys, values = np.repeat(keys, each, axis=1), np.repeat(values, each, axis=1)
    scores = queries @ keys.swapaxes(-1, -2) / queries.shape[-1] ** 0.5
    weights = np.exp(np.where(seen, scores, -np.inf))
    return weights / weights.sum(axis=-1, keepdims=True) @ values


@given(
    st.sampled_from([(4, 4), (4, 2), (4, 1), (6, 3)]), st.integers(1, 5), st.integers(0, 3), st.sampled_from(["none", "causal", "array"])
)
def test_both_paths_of_attention_are_that_of_the_paper(heads, length, before, kind):
    keys_length = length + before
    queries, keys, values = (
        normal(2, heads[0], length, 8),
        normal(2, heads[1], keys_length, 8, seed=1),
        normal(2, heads[1], keys_length, 8, seed=2),
    )
    padding = mx.arange(keys_length) != keys_length - 1 if keys_length > 1 else mx.ones(1, mx.bool_)
    bias, seen = {
        "none": (None, True),
        "causal": ("causal", np.array(earlier(length, keys_length))),
        "array": (bias_of(mx.float32, padding[None, None, None]), np.array(padding)),
    }[kind]
    expected = plainly(queries, keys, values, seen)
    hardly = Dropout(1e-9).keyed(random_key(0))
    for dropout in (None, Dropout(0.5).eval(), Dropout(0.0), hardly):
        assert gap(attend(queries, keys, values, bias, dropout), expected) < 1e-5


def test_dropout_acts_on_the_weights_and_keeps_their_mean():
    queries, keys, values = normal(1, 2, 3, 4), normal(1, 2, 5, 4, seed=1), mx.ones((1, 2, 5, 4))
    runs = [np.array(attend(queries, keys, values, None, Dropout(0.5).keyed(random_key(seed)))) for seed in range(400)]
    assert np.mean(runs) == pytest.approx(1, abs=0.05)
    assert np.std(runs) > 0.3


@given(st.integers(1, 9), st.integers(0, 9))
def test_nearby_are_those_in_the_window(length, window):
    places = np.arange(length)
    expected = abs(places[:, None] - places) <= window
    found = nearby(length, window)
    assert (found is None) == bool(expected.all())
    if found is not None:
        assert np.array_equal(np.array(found)[0, 0], expected)


def test_a_token_sees_real_tokens_of_its_own_segment():
    mask, segments = mx.array([[1, 1, 0]]), mx.array([[1, 2, 2]])
    assert visible(None, None) is None
    assert visible(mask, segments).squeeze().tolist() == [[True, False, False], [False, True, False], [False, True, False]]


def test_what_is_hidden_weighs_nothing_and_a_row_that_sees_nothing_is_finite():
    scores = normal(1, 1, 1, 8)
    for dtype in (mx.float32, mx.bfloat16, mx.float16):
        weights = mx.softmax(scores.astype(dtype) + bias_of(dtype, (mx.arange(8) < 3)[None, None, None]), axis=-1)
        assert weights.dtype == dtype
        assert weights[0, 0, 0, 3:].tolist() == [0] * 5
        assert mx.isfinite(mx.softmax(scores.astype(dtype) + bias_of(dtype, mx.zeros((1, 1, 1, 8), mx.bool_)), axis=-1)).all().item()


@given(st.lists(st.booleans(), min_size=1, max_size=8))
def test_positions_count_real_tokens_wherever_the_padding_stands(real):
    found = np.array(positions_of(mx.array([real]), len(real)))[0]
    assert found[np.array(real)].tolist() == list(range(sum(real)))
    assert ((found >= 0) & (found < len(real))).all()


@given(st.integers(0, 5000), st.integers(0, 20), st.integers(0, 20))
def test_rotations_keep_lengths_and_know_differences_only(start, first, second):
    """What attention sees of positions, the product of a rotated query and a rotated key, is that of their distance."""
    query, key = normal(1, 1, 1, 8), normal(1, 1, 1, 8, seed=1)

    def product(a, b):
        turned = rotate(query, rotation_of(mx.array([[a]]), 8, 10_000.0)), rotate(key, rotation_of(mx.array([[b]]), 8, 10_000.0))
        assert gap(mx.linalg.norm(turned[0]), mx.linalg.norm(query)) < 1e-4
        return (turned[0] * turned[1]).sum()

    assert gap(product(first, second), product(start + first, start + second)) < 5e-3


def test_joining_heads_is_the_inverse_of_splitting_them():
    layer, x = Attention(12, 4, bias=False, output_bias=False), normal(2, 3, 12)
    layer.inputs.weight, layer.output.weight = mx.concatenate([mx.eye(12)] * 3), mx.eye(12)
    queries, keys, values = layer.project(x)
    assert queries.shape == values.shape == (2, 4, 3, 3)
    only_itself = mx.where(mx.eye(3) == 1, 0.0, -1e4)[None, None]
    assert gap(layer.mix(queries, keys, values, only_itself), x) < 1e-6
