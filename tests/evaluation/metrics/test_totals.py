"""Totals merge exactly, in any grouping, and are computed once."""

from fractions import Fraction

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.evaluation.metrics import Explained, compute, merge, rmse
from mlxfp.support.errors import ArgumentTypeError, DataError

NUMBERS = st.floats(-1e6, 1e6)
PAIRS = st.lists(st.tuples(NUMBERS, st.floats(0.5, 1e6)), min_size=1, max_size=20)


@given(PAIRS, st.randoms())
def test_means_are_exact_in_any_order(pairs, random):
    total, weight = (sum(map(Fraction, column)) for column in zip(*pairs, strict=True))
    expected = float(total) / float(weight)
    random.shuffle(pairs)
    assert compute(merge({"m": pair} for pair in pairs)) == {"m": expected}


def test_merging_nothing_is_where_to_start():
    assert merge([]) == {}
    assert compute({}) == {}
    assert merge([{}, {"m": (1, 2)}, merge([])]) == {"m": (1.0, 2.0)}


def test_infinite_and_undefined_sums_stay_what_they_are():
    assert compute(merge([{"m": (float("inf"), 1)}, {"m": (1.0, 1)}])) == {"m": float("inf")}
    assert np.isnan(compute(merge([{"m": (float("inf"), 1)}, {"m": (float("-inf"), 1)}]))["m"])


def test_what_is_merged_has_left_the_device():
    merged = merge([{"m": (mx.array(1.0), mx.array(2.0)), "r": rmse(mx.ones(2), mx.zeros(2))}])
    assert [type(part) for part in merged["m"]] == [float, float]
    assert (type(merged["r"].total), merged["r"].weight) == (float, 2.0)


def test_a_mean_over_nothing_is_an_error():
    with pytest.raises(DataError, match="The metric 'm' has a total weight of 0"):
        compute(merge([{"m": (0.0, 0.0)}, {"m": (0.0, 0.0)}]))


def test_one_name_for_two_kinds_of_metrics_is_an_error():
    with pytest.raises(
        ArgumentTypeError, match=r"Two metrics named 'm' have different types: one is a tuple, the other a RootOfMean\. Rename one"
    ):
        merge([{"m": (1.0, 1.0)}, {"m": rmse(mx.ones(1), mx.ones(1))}])


@pytest.mark.parametrize("total", [(mx.array(1 + 2j), mx.array(2.0)), (1 + 2j, 2.0), Explained(mx.array([1j]), mx.ones(1), mx.ones(1))])
def test_complex_sums_are_refused(total):
    """A conversion to real numbers would drop the imaginary part."""
    with pytest.raises(ArgumentTypeError, match=r"The metric 'x' must be a real number, got complex numbers: .*Return mx\.real\(sum\)"):
        compute({"x": total})
