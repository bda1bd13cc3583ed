"""What metrics of classes ignore, refuse and say of the undefined."""

from functools import partial

import attrs
import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.evaluation.metrics import accuracy, compute, f1, log_loss, perplexity, roc_auc
from mlxfp.evaluation.metrics.classification import HitCounts
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, UnknownNameError


def value(measured):
    return compute({"m": measured})["m"]


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=2, max_size=20))
def test_roc_auc_is_the_share_of_pairs_in_the_right_order(rows):
    positive, negative = ([score for score, label in rows if label == kind] for kind in (True, False))
    measured = roc_auc(mx.array([score for score, _ in rows]), mx.array([label for _, label in rows]))
    if positive and negative:
        right = sum((a > b) + (a == b) / 2 for a in positive for b in negative)
        assert value(measured) == pytest.approx(right / (len(positive) * len(negative)), abs=1e-12)
    else:
        with pytest.raises(DataError, match=r"'m' needs positive and negative examples, got \d+ of a single class"):
            value(measured)


def test_ignored_rows_do_not_count():
    labels = mx.array([0, -100, 1])
    assert [part.item() for part in accuracy(mx.eye(3), labels)] == [1.0, 2.0]
    assert [part.item() for part in accuracy(mx.eye(3), mx.array([0, 1, 1]), ignore_index=1)] == [1.0, 1.0]
    logits = mx.array([[4.0, 0.0], [1.0, 0.0], [0.0, 9.0]])
    kept = logits[mx.array([0, 2])], mx.array([0, 1])
    assert value(log_loss(logits, labels)) == value(log_loss(*kept))
    assert value(perplexity(logits, labels)) == value(perplexity(*kept))
    assert value(f1(logits, labels, average="macro")) == 1


def test_classes_that_nobody_saw_are_not_averaged_over():
    logits = mx.eye(5)[mx.array([0, 0, 1])]
    assert value(f1(logits, mx.array([0, 1, 1]), average="macro")) == pytest.approx(2 / 3)


def test_f1_without_positives_is_undefined_and_with_none_found_zero():
    negative, positive = mx.array([[1.0, 0.0]]), mx.array([1])
    assert value(f1(negative, positive, average="binary")) == 0
    with pytest.raises(DataError, match="'m' got no rows to measure"):
        value(f1(negative, mx.array([0]), average="binary"))


def test_labels_that_are_not_classes_give_nan_where_a_compiled_function_hides_their_values():
    for label in (3, -1):
        labels = mx.array([0, label, 1])
        for metric in (accuracy, log_loss):
            assert np.isnan(value(mx.compile(partial(metric, mx.eye(3)))(labels)))
        counted = mx.compile(lambda labels: [*attrs.astuple(f1(mx.eye(3), labels, average="macro"), recurse=False)])(labels)
        assert np.isnan(value(HitCounts(*counted)))
    assert np.isnan(value(roc_auc(mx.array([mx.nan, 1.0]), mx.array([0, 1]))))


def test_a_hopeless_perplexity_is_infinite():
    assert value(perplexity(mx.array([[0.0, 1e4]]), mx.array([0]))) == float("inf")


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match="accuracy needs one label for each row of logits"):
        accuracy(mx.eye(3), mx.zeros((3, 1), mx.int32))
    with pytest.raises(ArgumentTypeError, match="accuracy needs integer labels"):
        accuracy(mx.eye(3), mx.zeros(3))
    with pytest.raises(ArgumentError, match=r"roc_auc needs predictions and targets of the same shape, got \(3, 3\) and \(3,\)"):
        roc_auc(mx.eye(3), mx.zeros(3))
    with pytest.raises(DataError, match="'m' needs labels of 0 and 1, got 2"):
        value(roc_auc(mx.ones(3), mx.array([0, 1, 2])))


def test_averages_that_make_no_sense_are_refused():
    with pytest.raises(UnknownNameError, match=r"No average is named 'makro'\. Did you mean 'macro'"):
        f1(mx.eye(2), mx.array([0, 1]), average="makro")
    with pytest.raises(ArgumentError, match="needs logits of two classes, got 3"):
        f1(mx.eye(3), mx.array([0, 1, 2]), average="binary")


NAN_LOGITS = mx.array([[1.0, mx.nan], [2.0, 0.0], [0.0, 1.0]])
LABEL_METRICS = [accuracy, log_loss, perplexity, *(partial(f1, average=average) for average in ("macro", "micro", "binary"))]


@pytest.mark.parametrize("label", [0, 1])
@pytest.mark.parametrize("metric", LABEL_METRICS)
def test_a_nan_among_the_logits_of_a_counted_row_is_visible(metric, label):
    """The index of the largest logit does not show a NaN, so a diverged model would get a plausible accuracy."""
    labels = mx.array([label, 0, 1])
    assert np.isnan(value(metric(NAN_LOGITS, labels)))
    assert np.isnan(value(metric(NAN_LOGITS.astype(mx.bfloat16), labels)))
    right = value(metric(NAN_LOGITS[1:], labels[1:]))
    assert value(metric(NAN_LOGITS, mx.array([-100, 0, 1]))) == right
    assert value(metric(NAN_LOGITS, labels, example_weights=mx.array([0.0, 1, 1]))) == right


def test_infinite_logits_are_ordinary_logits_for_metrics_of_labels():
    """A class with -inf is never predicted, and a class with inf always."""
    logits = mx.array([[-mx.inf, 0.0, -1.0], [0.0, mx.inf, 5.0], [-mx.inf, 3.0, mx.inf]])
    assert value(accuracy(logits, mx.array([1, 1, 2]))) == 1
    assert value(f1(logits, mx.array([1, 1, 2]), average="macro")) == 1


def test_roc_auc_ranks_large_integers_exactly():
    """float32 would make both scores equal."""
    for scores in (mx.array([2**24, 2**24 + 1]), mx.array(np.array([2**40, 2**40 + 1]))):
        assert value(roc_auc(scores, mx.array([0, 1]))) == 1
    assert value(roc_auc(mx.array([0.5, 1.0], mx.bfloat16), mx.array([False, True]))) == 1
