from functools import partial

import mlx.core as mx
import numpy as np
import pytest
from attrs import fields
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn import metrics as reference

import mlxfp as fp
from mlxfp.app.config.classes import CompetitionConfig
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, UnknownNameError

REFERENCES = {
    "accuracy": reference.accuracy_score,
    "f1_macro": lambda y, p: reference.f1_score(y, p, average="macro", zero_division=0.0),
    "f1_micro": lambda y, p: reference.f1_score(y, p, average="micro", zero_division=0.0),
    "qwk": lambda y, p: reference.cohen_kappa_score(y, p, labels=range(4), weights="quadratic"),
    "mcc": reference.matthews_corrcoef,
    "rmse": reference.root_mean_squared_error,
    "rmsle": reference.root_mean_squared_log_error,
    "mae": reference.mean_absolute_error,
    "r2": reference.r2_score,
    "spearman": lambda y, p: spearmanr(y, p).statistic,
    "roc_auc": lambda y, p: reference.roc_auc_score(y, p, multi_class="ovr", average="weighted"),
    "log_loss": reference.log_loss,
    "map_at_3": lambda y, p: np.mean([average_precision(label, row) for label, row in zip(y, p, strict=True)]),
}


def average_precision(label: int, row):
    rank = sorted(row, reverse=True).index(row[label]) + 1
    return 1 / rank if rank <= 3 else 0


def drawn(seed: int, needs: str):
    chance = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(4), chance.integers(0, 4, 40)])
    if needs == "labels":
        return labels, np.concatenate([np.arange(4)[::-1], chance.integers(0, 4, 40)])
    if needs == "probabilities":
        return labels, chance.dirichlet(np.ones(4), 44)
    return chance.uniform(0, 9, 44).round(), chance.uniform(0, 9, 44).round()


@pytest.mark.parametrize("name", sorted(REFERENCES))
@given(st.integers(0, 2**30))
def test_every_metric_equals_its_reference(name: str, seed: int):
    targets, predictions = drawn(seed, fp.kaggle.METRICS[name].needs)
    assert fp.kaggle.METRICS[name](targets, predictions) == pytest.approx(REFERENCES[name](targets, predictions), abs=1e-9)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=30).filter(lambda y: 0 < sum(y) < len(y)), st.integers(0, 99))
def test_two_classes_may_come_as_one_column(targets: list[int], seed: int):
    one = np.random.default_rng(seed).uniform(0.01, 0.99, len(targets)).round(2)
    both = np.stack([1 - one, one], axis=1)
    for name in ("accuracy", "f1", "log_loss", "roc_auc"):
        assert fp.kaggle.METRICS[name](targets, one) == pytest.approx(fp.kaggle.METRICS[name](targets, both), abs=1e-9)
    assert fp.kaggle.METRICS["f1"](targets, one) == reference.f1_score(targets, fp.kaggle.labels_of(one), zero_division=0.0)
    assert fp.kaggle.METRICS["log_loss"](targets, one) == pytest.approx(reference.log_loss(targets, both), abs=1e-9)


@pytest.mark.parametrize("name", sorted(fp.kaggle.METRICS))
def test_every_metric_prefers_the_truth_in_the_direction_that_it_names(name: str):
    metric = fp.kaggle.METRICS[name]
    targets = np.array([0, 1] * 6 if name == "f1" else [0, 1, 2, 3] * 3)
    wrong = targets[::-1]
    if metric.needs == "probabilities":
        right, wrong = (np.eye(4)[classes] * 0.9 + 0.02 for classes in (targets, wrong))
    else:
        right = targets
    assert metric.better(metric(targets, right), metric(targets, wrong))
    assert not metric.better(metric(targets, wrong), metric(targets, right))
    assert metric.name == name


def test_mean_average_precision_looks_at_the_first_ranks_only():
    predictions = [[0.5, 0.3, 0.2]]
    assert [fp.kaggle.map_at(2)([kind], predictions) for kind in (0, 1, 2)] == [1, 0.5, 0]


def test_agreement_on_one_label_is_full_agreement():
    assert fp.kaggle.METRICS["qwk"]([2, 2], [2, 2]) == 1


@pytest.mark.parametrize(
    ("name", "targets", "predictions", "kind", "message"),
    [
        ("accuracy", [0, 1], [0], ArgumentError, r"accuracy needs targets \[N\] and predictions \[N\], or \[N, C\] .* got \[2\] and \[1\]"),
        ("accuracy", [0, 1], [[0.2], [0.9]], ArgumentError, r"for 2 classes or more, got \[2\] and \[2, 1\]"),
        ("accuracy", [], [], ArgumentError, r"got \[0\] and \[0\]"),
        ("accuracy", [0, 1], [0.5, np.nan], DataError, "The predictions for accuracy must be finite, got nan in row 1"),
        ("accuracy", ["yes"], [1], ArgumentTypeError, "The targets of accuracy must be numbers, got .'yes'.. Encode classes as"),
        ("accuracy", [0, 1], [0.2, 2.5], ArgumentError, "The metric compares predicted classes, got predictions from 0.2 to 2.5"),
        ("rmse", [0, 1], [[0, 1], [1, 0]], ArgumentError, r"rmse needs one value for each row, \[N\], got \[2, 2\]"),
        ("rmsle", [0, 1], [-1, 0], DataError, "rmsle needs values above -1, got a value of -1"),
        ("roc_auc", [1, 1], [0.2, 0.4], DataError, "The metric 'roc_auc' needs positive and negative examples, got 2 of a single class"),
        ("log_loss", [0, 1], [0.2, 1.4], DataError, "log_loss needs probabilities, got values from 0.2 to 1.4"),
        ("log_loss", [0, 1], [[0, 0], [0, 1]], DataError, "a row of zeros: row 0"),
        ("log_loss", [0, 2], [[0.5, 0.5], [0.5, 0.5]], ArgumentError, "Targets must be class numbers from 0 to 1, .* got 0 to 2"),
        ("map_at_3", [0, 1], [0.5, 0.5], ArgumentError, r"Probabilities of every class are needed, \[N, C\], got an array of shape \[2\]"),
        ("f1", [0, 2], [0, 2], ArgumentError, "Use f1_macro or f1_micro"),
        *(
            (name, [1, 0.5], [1, 1], ArgumentError, rf"{name} needs class numbers as targets, got 0.5 in row 1\. Make class numbers")
            for name in ("accuracy", "f1", "f1_macro", "f1_micro", "mcc", "qwk")
        ),
        ("r2", [1, 1], [0, 1], DataError, "The metric 'r2' needs different targets, got 2 equal targets"),
        ("spearman", [1, 2], [3, 3], DataError, "all 2 predictions are equal to 3"),
    ],
)
def test_what_cannot_be_scored_is_refused(name: str, targets, predictions, kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        fp.kaggle.METRICS[name](targets, predictions)


def test_roc_auc_of_several_classes_is_the_weighted_mean_that_the_option_names():
    """Tell the weighted mean from the macro mean, the default of scikit-learn, and name the argument where users set the metric."""
    targets = [0, 0, 0, 0, 0, 0, 1, 1, 2]
    chances = np.random.default_rng(0).dirichlet(np.ones(3), len(targets))
    weighted, macro = (reference.roc_auc_score(targets, chances, multi_class="ovr", average=mean) for mean in ("weighted", "macro"))
    assert fp.kaggle.METRICS["roc_auc"](targets, chances) == pytest.approx(weighted)
    assert abs(weighted - macro) > 0.01
    assert 'multi_class="ovr", average="weighted"' in fields(CompetitionConfig).metric.metadata["about"]


def test_a_name_nearly_right_is_answered_with_the_right_one():
    with pytest.raises(UnknownNameError, match=r"No metric is named 'logloss'\. Did you mean 'log_loss'"):
        fp.kaggle.METRICS["logloss"]


# Metrics of `fp.metrics` and losses with the same value on batches. The inputs are logits, values, or scores for roc_auc.
_ON_BATCHES = {
    **{name: getattr(fp.metrics, name) for name in ("accuracy", "log_loss", "r2", "rmse", "roc_auc")},
    **{name: partial(fp.metrics.f1, average=name.partition("_")[2] or "binary") for name in ("f1", "f1_macro", "f1_micro")},
    "mae": fp.losses.mae,
}


@pytest.mark.parametrize("name", sorted(_ON_BATCHES))
@given(st.integers(0, 2**30), st.integers(1, 43))
def test_batches_on_the_device_measure_what_whole_arrays_do(name: str, seed: int, cut: int):
    metric, chance = fp.kaggle.METRICS[name], np.random.default_rng(seed)
    classes = 2 if name in ("f1", "roc_auc") else 4
    targets = np.concatenate([np.arange(classes), chance.integers(0, classes, 44 - classes)])
    if metric.needs == "values":
        outputs = predictions = chance.uniform(0, 9, 44)
    else:
        predictions = chance.dirichlet(np.ones(classes), 44)
        outputs = predictions[:, 1] if name == "roc_auc" else np.log(predictions)
    parts = [
        {name: _ON_BATCHES[name](mx.array(np.float32(outputs[rows])), mx.array(targets[rows]))} for rows in (slice(cut), slice(cut, None))
    ]
    assert fp.metrics.compute(fp.metrics.merge(parts))[name] == pytest.approx(metric(targets, predictions), rel=1e-4, abs=1e-5)
