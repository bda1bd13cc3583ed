"""Metrics add up exactly, in any grouping."""

from fractions import Fraction

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.core.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.evaluation.metrics import accuracy, add_up, means

NUMBERS = st.floats(-1e6, 1e6)
PAIRS = st.lists(st.tuples(NUMBERS, st.floats(0.5, 1e6)), min_size=1, max_size=20)


@given(PAIRS, st.randoms())
def test_means_are_exact_in_any_order(pairs, random):
    total, weight = (sum(map(Fraction, column)) for column in zip(*pairs, strict=True))
    expected = float(total) / float(weight)
    random.shuffle(pairs)
    assert means(add_up({"m": pair} for pair in pairs)) == {"m": expected}


@given(st.lists(st.integers(0, 3), min_size=1, max_size=20), st.integers(0, 99))
def test_accuracy_counts_hits(labels, seed):
    logits = np.random.default_rng(seed).normal(size=(len(labels), 4)).astype(np.float32)
    hits, rows = accuracy(mx.array(logits), mx.array(labels))
    assert (hits.item(), rows.item()) == ((logits.argmax(1) == labels).sum(), len(labels))


def test_ignored_rows_do_not_count():
    assert [part.item() for part in accuracy(mx.eye(3), mx.array([0, -100, 1]))] == [1.0, 2.0]
    assert [part.item() for part in accuracy(mx.eye(3), mx.array([0, 1, 1]), ignore_index=1)] == [1.0, 1.0]


def test_infinite_and_undefined_sums_stay_what_they_are():
    assert means(add_up([{"m": (float("inf"), 1)}, {"m": (1.0, 1)}])) == {"m": float("inf")}
    assert np.isnan(means(add_up([{"m": (float("inf"), 1)}, {"m": (float("-inf"), 1)}]))["m"])
    assert means(add_up([])) == {}


def test_a_mean_over_nothing_is_an_error():
    with pytest.raises(DataError, match="The metric 'm' has a total weight of 0"):
        means(add_up([{"m": (0.0, 0.0)}, {"m": (0.0, 0.0)}]))


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match="accuracy needs one label for each row of logits"):
        accuracy(mx.eye(3), mx.zeros((3, 1), mx.int32))
    with pytest.raises(ArgumentTypeError, match="accuracy needs integer labels"):
        accuracy(mx.eye(3), mx.zeros(3))
