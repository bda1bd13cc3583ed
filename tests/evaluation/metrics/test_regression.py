"""What metrics of numbers refuse and say of the undefined."""

import mlx.core as mx
import pytest

from mlxfp.evaluation.metrics import compute, mae, r2, rmse
from mlxfp.support.errors import ArgumentError, DataError


def test_predicting_the_mean_explains_nothing():
    assert compute({"r2": r2(mx.full((4,), 2.5), mx.array([1, 2, 3, 4]))}) == {"r2": 0.0}


def test_targets_that_do_not_differ_have_no_variance_to_explain():
    with pytest.raises(DataError, match="The metric 'r2' needs different targets, got 3 equal targets"):
        compute({"r2": r2(mx.arange(3), mx.ones(3))})


def test_weights_of_examples_count_for_each_of_their_values():
    predictions, targets = mx.array([[1.0, 3.0], [5.0, 5.0]]), mx.zeros((2, 2))
    measured = {"mae": mae(predictions, targets, example_weights=mx.array([1.0, 0.0]))}
    assert compute(measured) == {"mae": 2.0}


@pytest.mark.parametrize("metric", [mae, rmse, r2])
def test_shapes_that_would_broadcast_into_nonsense_are_refused(metric):
    with pytest.raises(ArgumentError, match=r"got \(4, 1\) and \(4,\).* pass predictions\[:, 0\]"):
        metric(mx.zeros((4, 1)), mx.zeros(4))
