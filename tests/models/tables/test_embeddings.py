"""Embeddings of numbers compute what their papers say."""

from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.models import PeriodicEmbedding, PiecewiseLinearEmbedding
from mlxfp.support.errors import ArgumentError

NUMBERS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def test_periodic_embeddings_are_a_linear_layer_of_cosines_and_the_number():
    layer = PeriodicEmbedding(3, frequencies=4, size=6, sigma=0.5, seed=1)
    found = np.array(layer(mx.array(NUMBERS)))
    frequency, phase, weight, bias = (np.array(layer[name], np.float64) for name in ("frequency", "phase", "weight", "bias"))
    for row in range(5):
        for column in range(3):
            waves = np.cos(2 * np.pi * frequency[column] * NUMBERS[row, column] + phase[column])
            wanted = [*(waves @ weight[column] + bias[column]), NUMBERS[row, column]]
            assert found[row, column] == pytest.approx(wanted, abs=1e-5)
    assert abs(np.array(PeriodicEmbedding(50, frequencies=50, size=2, sigma=0.5).frequency).std() - 0.5) < 0.05


def encode(x, edges):
    """The piecewise linear encoding of one number, by its definition."""
    made = []
    for place, (low, high) in enumerate(pairwise(edges)):
        share = (x - low) / (high - low)
        share = max(share, 0) if place > 0 else share
        made.append(min(share, 1) if place < len(edges) - 2 else share)
    return made


EDGES = st.lists(st.integers(-20, 20), min_size=2, max_size=6, unique=True).map(sorted)


@given(st.lists(EDGES, min_size=1, max_size=3), st.floats(-30, 30, width=32))
def test_numbers_are_encoded_in_their_bins(bins, x):
    layer = PiecewiseLinearEmbedding(bins, size=2)
    found = np.array(layer.encode(mx.full((1, len(bins)), x)))[0]
    for encoded, edges in zip(found, bins, strict=True):
        assert encoded[: len(edges) - 1] == pytest.approx(encode(x, edges), rel=1e-4, abs=1e-4)
        assert not encoded[len(edges) - 1 :].any()
        if edges[0] <= x <= edges[-1]:
            assert encoded.sum() == pytest.approx(np.interp(x, edges, range(len(edges))), rel=1e-4, abs=1e-4)


def test_piecewise_embeddings_begin_linear_and_learn_each_bin():
    layer = PiecewiseLinearEmbedding([(-1.0, 0.0, 2.0)] * 3, size=4, seed=1)
    slope, bias = np.array(layer.slope), np.array(layer.bias)
    assert np.array(layer(mx.array(NUMBERS))) == pytest.approx(NUMBERS[..., None] * slope + bias, abs=1e-6)
    layer.weight = mx.random.normal(layer.weight.shape, key=mx.random.key(0))
    curved = np.array([[encode(x, (-1.0, 0.0, 2.0)) @ np.array(layer.weight)[column] for column, x in enumerate(row)] for row in NUMBERS])
    assert np.array(layer(mx.array(NUMBERS))) == pytest.approx(NUMBERS[..., None] * slope + bias + curved, abs=1e-5)
    assert sorted(layer.parameters()) == ["bias", "slope", "weight"]


def test_columns_without_bins_are_refused():
    with pytest.raises(ArgumentError, match=r"at least two bin edges, got \[\] for column 1. Fit the bins: fit_columns"):
        PiecewiseLinearEmbedding([(0.0, 1.0), ()], size=2)
