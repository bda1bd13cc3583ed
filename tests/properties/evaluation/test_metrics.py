"""Every metric holds the laws of metrics and equals scikit-learn's. A new one joins with a line in `METRICS`."""

import warnings
from functools import partial
from itertools import pairwise

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn import metrics as theirs

from mlxfp.evaluation import metrics
from mlxfp.evaluation.metrics.totals import to_numpy
from mlxfp.support.errors import DataError
from mlxfp.training.steps.transforms import jit


def class_rows(classes):
    def rows(random, size):
        labels = random.integers(0, classes, size)
        logits = random.normal(size=(size, classes)) + 1.5 * (np.arange(classes) == labels[:, None])
        return np.float32(logits), labels

    return rows


def scored_rows(random, size):
    labels = random.integers(0, 2, size)
    return np.float32(random.integers(0, 6, size) / 4 + labels / 4), labels  # few values, so many ties


def number_rows(random, size):
    targets = random.normal(size=size) + 2000  # far from 0: sums of squares in float32 would lose the variance
    return np.float32(targets + 0.5 * random.normal(size=size)), np.float32(targets)


def softmax(logits):
    exponentials = np.exp(logits.astype(np.float64) - logits.max(1, keepdims=True))
    return exponentials / exponentials.sum(1, keepdims=True)


def log_loss(logits, labels, weights):
    return theirs.log_loss(labels, softmax(logits), sample_weight=weights, labels=range(logits.shape[1]))


def f1(logits, labels, weights, average):
    return theirs.f1_score(labels, logits.argmax(1), sample_weight=weights, average=average)


# name -> ours, what it is given, scikit-learn's
METRICS = {
    "accuracy": (metrics.accuracy, class_rows(3), lambda x, y, w: theirs.accuracy_score(y, x.argmax(1), sample_weight=w)),
    "log_loss": (metrics.log_loss, class_rows(3), log_loss),
    "perplexity": (metrics.perplexity, class_rows(4), lambda x, y, w: np.exp(log_loss(x, y, w))),
    "f1_macro": (partial(metrics.f1, average="macro"), class_rows(4), partial(f1, average="macro")),
    "f1_micro": (partial(metrics.f1, average="micro"), class_rows(4), partial(f1, average="micro")),
    "f1_binary": (partial(metrics.f1, average="binary"), class_rows(2), partial(f1, average="binary")),
    "roc_auc": (metrics.roc_auc, scored_rows, lambda x, y, w: theirs.roc_auc_score(y, x, sample_weight=w)),
    "mae": (metrics.mae, number_rows, lambda x, y, w: theirs.mean_absolute_error(y, x.astype(np.float64), sample_weight=w)),
    "rmse": (metrics.rmse, number_rows, lambda x, y, w: theirs.root_mean_squared_error(y, x.astype(np.float64), sample_weight=w)),
    "r2": (metrics.r2, number_rows, lambda x, y, w: theirs.r2_score(y.astype(np.float64), x.astype(np.float64), sample_weight=w)),
}


@st.composite
def problems(draw):
    ours, rows, other = METRICS[draw(st.sampled_from(sorted(METRICS)))]
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=5))
    random = np.random.default_rng(draw(st.integers(0, 9999)))
    weights = draw(st.none() | st.just(np.float32(random.uniform(0.5, 2, sum(sizes)))))
    return ours, rows(random, sum(sizes)), weights, sizes, other


def of_batch(ours, arrays, weights):
    return {"m": ours(*map(mx.array, arrays), example_weights=None if weights is None else mx.array(weights))}


def computed(totals):
    try:
        return metrics.compute(totals)["m"]
    except DataError:
        return None


@given(problems())
def test_metrics_are_those_of_scikit_learn(problem):
    ours, arrays, weights, _, other = problem
    value = computed(of_batch(ours, arrays, weights))
    assume(value is not None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns of few classes and of few examples
        assert value == pytest.approx(other(*arrays, weights), rel=1e-5, abs=1e-6)


@given(problems(), st.randoms())
def test_batches_merge_in_any_order_and_grouping_to_the_whole(problem, random):
    ours, arrays, weights, sizes, _ = problem
    edges = np.cumsum([0, *sizes])
    parts = [
        of_batch(ours, [array[start:stop] for array in arrays], None if weights is None else weights[start:stop])
        for start, stop in pairwise(edges)
    ]
    whole = computed(of_batch(ours, arrays, weights))
    random.shuffle(parts)
    cut = random.randint(0, len(parts))
    step_by_step = metrics.merge([])
    for part in parts:
        step_by_step = metrics.merge([step_by_step, part])
    for merged in (metrics.merge(parts), metrics.merge([metrics.merge(parts[:cut]), metrics.merge(parts[cut:])]), step_by_step):
        value = computed(merged)
        assert (value is None) == (whole is None)
        assert value is None or value == pytest.approx(whole, rel=1e-5, abs=1e-6)


def test_averaging_over_batches_is_caught():
    logits, labels = np.eye(2, dtype=np.float32)[[0, 1, 1]], np.array([0, 0, 1])
    halves = [metrics.compute(of_batch(METRICS["f1_binary"][0], (logits[part], labels[part]), None))["m"] for part in ([0, 1], [2])]
    assert np.mean(halves) != metrics.compute(of_batch(METRICS["f1_binary"][0], (logits, labels), None))["m"]


@pytest.mark.parametrize("name", METRICS)
def test_examples_of_weight_zero_do_not_count(name):
    ours, rows, _ = METRICS[name]
    arrays = rows(np.random.default_rng(0), 12)
    weights = np.float32([1] * 9 + [0] * 3)
    expected = metrics.compute(of_batch(ours, [array[:9] for array in arrays], None))["m"]
    assert metrics.compute(of_batch(ours, arrays, weights))["m"] == pytest.approx(expected, rel=1e-6)
    nothing = of_batch(ours, arrays, 0 * weights)
    with pytest.raises(DataError, match="The metric 'm'"):
        metrics.compute(nothing)


def test_what_a_metric_says_of_a_batch_can_come_out_of_a_compiled_function():
    several = ("accuracy", "rmse", "f1_macro", "roc_auc")  # a pair, a mean, counts, and rows that are kept; compiling takes long
    random = np.random.default_rng(0)
    inputs = {name: tuple(map(mx.array, rows(random, 7))) for name, (_, rows, _) in METRICS.items() if name in several}

    def all_of_them(inputs):
        return {name: METRICS[name][0](*arrays) for name, arrays in inputs.items()}

    compiled = to_numpy(jit(all_of_them)(inputs))
    assert metrics.compute(compiled) == pytest.approx(metrics.compute(all_of_them(inputs)), rel=1e-6)


def test_every_metric_is_in_the_battery():
    families = {name.removesuffix("_macro").removesuffix("_micro").removesuffix("_binary") for name in METRICS}
    assert set(metrics.__all__) - {"Explained", "Measured", "Ranking", "Totals", "merge", "compute"} == families
