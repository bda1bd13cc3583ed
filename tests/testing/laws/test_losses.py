"""The laws of losses and metrics catch means of means, and weights that do not count."""

import mlx.core as mx
import pytest

import mlxfp as fp
from mlxfp.testing.laws import assert_merges

ARRAYS = (mx.arange(4.0), mx.zeros(4))


def mean(predictions, targets):
    total, weight = fp.losses.mse(predictions, targets)
    return total / weight, weight


def count_of_one(predictions, targets):
    return fp.losses.mse(predictions, targets)[0], mx.array(1.0)


def test_a_sum_and_its_weight_add_up_over_any_parts():
    for sizes in ([4], [1, 3], [0, 2, 2], [1, 1, 1, 1]):
        assert_merges(fp.losses.mse, ARRAYS, sizes)


def test_a_mean_is_caught():
    with pytest.raises(AssertionError, match=r"a metric merges, but parts of sizes \[1, 3\] give"):
        assert_merges(mean, ARRAYS, [1, 3])


def test_a_weight_that_does_not_count_is_caught():
    with pytest.raises(AssertionError, match=r"parts of sizes \[1, 3\] give 7\.0, and all of the batch gives 14\.0"):
        assert_merges(count_of_one, ARRAYS, [1, 3])


def test_a_sum_that_grows_with_the_size_of_a_batch_is_caught():
    def scaled(predictions, targets):
        return tuple(part * len(predictions) for part in fp.losses.mse(predictions, targets))

    with pytest.raises(AssertionError, match=r"parts of sizes \[1, 3\] give the sum 10\.0, and all of the batch gives 16\.0"):
        assert_merges(scaled, (mx.ones(4), mx.zeros(4)), [1, 3])


def test_a_metric_of_parts_merges_to_that_of_the_whole_also_where_there_is_none():
    scores, labels = mx.array([0.1, 0.7, 0.4, 0.9]), mx.array([0, 0, 1, 1])
    for sizes in ([4], [1, 3], [2, 2], [1, 1, 1, 1]):
        assert_merges(fp.metrics.roc_auc, (scores, labels), sizes)
        assert_merges(fp.metrics.roc_auc, (scores, mx.ones(4, mx.int32)), sizes)


def test_a_metric_that_is_averaged_over_batches_is_caught():
    def averaged(predictions, targets):
        return mx.abs(predictions - targets).max(), mx.array(1.0)

    with pytest.raises(AssertionError, match=r"a metric merges, but parts of sizes \[1, 3\] give 1\.5, and all of the batch gives 3\.0"):
        assert_merges(averaged, ARRAYS, [1, 3])
