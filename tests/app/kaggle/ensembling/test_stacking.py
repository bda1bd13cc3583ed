import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LinearRegression, LogisticRegression

import mlxfp as fp
from mlxfp.app.kaggle.ensembling.ensembles import Weighted, fixed, greedy, mean, rank, stacking, vote, weighted
from mlxfp.app.kaggle.validation import folds as ways
from mlxfp.app.kaggle.validation.folds import Folds, custom, kfold
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold, fold_predictions, out_of_fold, score
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError


def made(folds: Folds, targets, predictions) -> OutOfFold:
    values = np.asarray(predictions)
    return out_of_fold(folds, targets, [fold_predictions(fold, values[fold.valid]) for fold in folds])


def noisy(seed: int, size: int = 60):
    """Draw classes, and probabilities that know something of them."""
    chance = np.random.default_rng(seed)
    targets = np.concatenate([np.arange(size) % 2])
    return targets, np.clip(targets * 0.3 + chance.uniform(0, 0.7, size), 0, 1)


DEALT = {
    "kfold": lambda seed: kfold(24, count=3, seed=seed, repeats=2),
    "time": lambda seed: ways.time(np.arange(24) // 2, count=3),
    "some": lambda seed: custom([-1] * 6 + [0, 1] * 9),
}


@given(st.sampled_from(sorted(DEALT)), st.integers(0, 99))
def test_nothing_is_learned_from_the_rows_that_it_is_judged_by(method: str, seed: int):
    folds, seen = DEALT[method](seed), []

    def learn(targets, predictions):
        learned = set(predictions[0].tolist())
        assert targets.tolist() == predictions[0].tolist()
        return lambda new: seen.append((learned, set(new[0].tolist()))) or new[0]

    rows = np.arange(24.0)
    found = fp.kaggle.second_stage(learn, made(folds, rows, rows))
    assert all(learned and not learned & judged for learned, judged in seen)
    assert len(seen) == len(list(found.oof.folds))
    if method == "time":
        assert all(max(learned) < min(judged) for learned, judged in seen)
        assert (found.oof.folds.assignments == np.maximum(folds.assignments - 1, -1)).all()
    else:
        assert found.oof == made(folds, rows, rows)
    assert found.predict([7, 8]).tolist() == [7, 8]
    assert seen[-1][0] == set(rows[(folds.assignments >= 0).any(axis=0)])  # of all rows, for new ones


def test_models_of_other_folds_cannot_be_stacked():
    targets, chances = noisy(0)
    oofs = [made(kfold(60, count=3, seed=seed), targets, chances) for seed in (0, 1)]
    with pytest.raises(ArgumentError, match="The out-of-fold predictions have different folds"):
        fp.kaggle.second_stage(stacking(LogisticRegression()), *oofs)


arrays = st.integers(2, 12).flatmap(
    lambda rows: st.lists(st.lists(st.floats(0, 1, width=16), min_size=rows, max_size=rows), min_size=1, max_size=4)
)


@given(arrays)
def test_simple_ensembles_are_what_their_names_say(predictions: list[list[float]]):
    stacked = np.array(predictions)
    assert mean(predictions) == pytest.approx(stacked.mean(axis=0))
    assert weighted([1] * len(stacked))(predictions) == pytest.approx(stacked.mean(axis=0))
    assert rank(predictions) == pytest.approx(np.mean([rankdata(row) / len(row) for row in stacked], axis=0))


@given(st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=6))
def test_a_vote_is_won_by_the_label_that_comes_most_often(labels: list[list[int]]):
    for place, winner in enumerate(vote(labels)):
        given_ = [row[place] for row in labels]
        assert winner == min(set(given_), key=lambda label: (-given_.count(label), label))


def test_votes_of_probabilities_go_to_the_likeliest_class():
    assert vote([[[0.1, 0.2, 0.7]], [[0.6, 0.2, 0.2]], [[0.0, 0.1, 0.9]]]).tolist() == [2]


@given(st.integers(0, 60), st.sampled_from(["rmse", "spearman", "r2"]))
def test_greedy_selection_is_at_least_as_good_as_the_best_model_on_what_it_saw(seed: int, name: str):
    chance, metric = np.random.default_rng(seed), fp.kaggle.METRICS[name]
    targets = chance.normal(size=30)
    models = tuple(targets * chance.uniform(0, 2) + chance.normal(size=30) for _ in range(4))
    learned = greedy(metric, rounds=10)(targets, models)
    best = max(metric(targets, each) if metric.greater_is_better else -metric(targets, each) for each in models)
    own = metric(targets, learned(models)) if metric.greater_is_better else -metric(targets, learned(models))
    assert own >= best - 1e-12
    assert sum(learned.weights) == pytest.approx(1)


def test_greedy_selection_finds_models_that_make_up_for_each_other():
    folds, targets = kfold(60, count=3, seed=0), np.linspace(0, 1, 60)
    oofs = [made(folds, targets, targets + error) for error in (0.3, -0.3, 2)]
    found = fp.kaggle.second_stage(greedy(fp.kaggle.METRICS["rmse"]), *oofs)
    assert found.combine == Weighted((0.5, 0.5, 0.0))
    assert score(found.oof, fp.kaggle.METRICS["rmse"]).overall < 1e-9


@pytest.mark.parametrize("wide", [False, True])
def test_a_stacker_learns_which_model_to_trust(wide: bool):
    targets, chances = noisy(0, 120)
    noise = np.random.default_rng(1).uniform(size=120)
    folds = kfold(120, count=3, seed=0)
    shaped = [np.stack([1 - values, values], axis=1) if wide else values for values in (chances, noise)]
    found = fp.kaggle.second_stage(stacking(LogisticRegression()), *[made(folds, targets, values) for values in shaped])
    assert found.oof.predictions.shape == (1, 120)
    assert score(found.oof, fp.kaggle.METRICS["roc_auc"]).overall > 0.75
    assert found.predict(*shaped).shape == (120,)


def test_a_stacker_knows_classes_that_are_missing_in_some_rows():
    targets = np.array([0, 2] * 10)
    chances = np.eye(3)[targets] * 0.8 + 0.05
    combine = stacking(LogisticRegression())(targets.astype(float), (chances,))
    assert combine((chances,)).shape == (20, 3)
    assert (combine((chances,))[:, 1] == 0).all()


def test_a_stacker_of_values_gives_values():
    folds, targets = kfold(30, count=3, seed=0), np.arange(30.0)
    found = fp.kaggle.second_stage(stacking(LinearRegression()), made(folds, targets, targets * 2), made(folds, targets, targets - 5))
    assert score(found.oof, fp.kaggle.METRICS["rmse"]).overall < 1e-6


@settings(max_examples=20)
@given(st.integers(0, 60), st.sampled_from(["accuracy", "f1", "mcc"]))
def test_a_threshold_is_at_least_as_good_as_any_other_on_what_it_saw(seed: int, name: str):
    targets, chances = noisy(seed, 20)
    learned = fp.kaggle.threshold(fp.kaggle.METRICS[name])(targets, (chances,))
    own = fp.kaggle.METRICS[name](targets, learned((chances,)))
    assert own == pytest.approx(max(fp.kaggle.METRICS[name](targets, chances > each) for each in chances[chances < chances.max()]))


def rare(seed: int, size: int = 600):
    """Draw classes of which the last are rare, and what a good model says of them: the rarest never wins."""
    chance = np.random.default_rng(seed)
    shares = np.array([0.8, 0.15, 0.05])
    targets = chance.choice(3, size, p=shares)
    evidence = chance.normal(size=(size, 3)) + 1.5 * np.eye(3)[targets]
    odds = shares * np.exp(1.5 * evidence)
    return targets.astype(float), odds / odds.sum(axis=1, keepdims=True)


@given(st.integers(0, 99), st.sampled_from(["f1_macro", "qwk", "mcc", "accuracy"]))
def test_weights_of_classes_are_at_least_as_good_as_none_on_what_they_saw_and_probabilities_stay_some(seed: int, name: str):
    targets, chances = rare(seed, 120)
    made = fp.kaggle.class_weights(fp.kaggle.METRICS[name])(targets, (chances,))((chances,))
    assert fp.kaggle.METRICS[name](targets, made) >= fp.kaggle.METRICS[name](targets, chances)
    assert np.allclose(made.sum(axis=1), 1)
    assert (made >= 0).all()


def test_weights_of_classes_let_rare_classes_win_on_rows_that_they_have_not_seen():
    gains = []
    for seed in range(3):
        targets, chances = rare(seed)
        before = made(kfold(600, count=5, seed=0), targets, chances)
        after = fp.kaggle.second_stage(fp.kaggle.class_weights(fp.kaggle.METRICS["f1_macro"]), before).oof
        gains.append(score(after, fp.kaggle.METRICS["f1_macro"]).overall - score(before, fp.kaggle.METRICS["f1_macro"]).overall)
    assert np.mean(gains) > 0.01


def test_weights_of_classes_keep_rows_without_any_probability():
    assert fp.kaggle.ClassWeights((1.0, 2.0, 1.0))((np.zeros((1, 3)),)).tolist() == [[1 / 3] * 3]


def test_a_threshold_takes_both_shapes_of_two_classes():
    wide = np.array([[0.6, 0.4], [0.9, 0.1]])
    assert fp.kaggle.Threshold(0.3)((wide,)).tolist() == fp.kaggle.Threshold(0.3)((wide[:, 1],)).tolist() == [1, 0]


def test_calibrated_probabilities_mean_what_they_say():
    chance = np.random.default_rng(0)
    truth = chance.uniform(size=4000)
    targets = (chance.uniform(size=4000) < truth).astype(float)
    odds = np.exp(2 * np.log(truth / (1 - truth)) + 1)  # too sure, and shifted
    folds, bent = kfold(4000, count=4, seed=0), odds / (1 + odds)
    found = fp.kaggle.second_stage(fp.kaggle.platt(), made(folds, targets, bent)).oof
    observed, said = calibration_curve(targets, found.predictions[0], n_bins=10)
    assert np.abs(observed - said).max() < 0.07
    observed, said = calibration_curve(targets, bent, n_bins=10)
    assert np.abs(observed - said).max() > 0.15
    assert fp.kaggle.METRICS["log_loss"](targets, found.predictions[0]) < fp.kaggle.METRICS["log_loss"](targets, bent)


@given(st.integers(0, 30))
def test_calibration_keeps_order_and_gives_probabilities(seed: int):
    learn = fp.kaggle.platt()
    targets, chances = noisy(seed)
    order = np.argsort(chances)
    made_ = learn(targets.astype(float), (chances,))((chances,))
    assert (np.diff(made_[order]) >= -1e-12).all()
    assert made_.min() >= 0
    assert made_.max() <= 1
    wide = np.random.default_rng(seed).dirichlet(np.ones(3), 60)
    three = learn((np.arange(60) % 3).astype(float), (wide,))((wide,))
    assert three.sum(axis=1) == pytest.approx(np.ones(60))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: fp.kaggle.second_stage(fp.kaggle.threshold(fp.kaggle.METRICS["f1"])), ArgumentError, "at least one model, got none"),
        (
            lambda: fp.kaggle.second_stage(fixed(mean), made(custom([0, -1]), [0, 1], [0, 1])),
            ArgumentError,
            "second_stage needs at least two folds",
        ),
        (lambda: fp.kaggle.second_stage(5, made(custom([0, 1]), [0, 1], [0, 1])), ArgumentTypeError, "learn must be a function"),
        (
            lambda: fp.kaggle.threshold(fp.kaggle.METRICS["roc_auc"]),
            ArgumentError,
            "A threshold needs a metric that scores labels, but roc_auc scores",
        ),
        (
            lambda: fp.kaggle.class_weights(fp.kaggle.METRICS["log_loss"]),
            ArgumentError,
            "Class weights need a metric that scores labels, but log_loss scores",
        ),
        (
            lambda: fp.kaggle.ClassWeights((1.0, 1.0))((np.ones(2),)),
            ArgumentError,
            r"need probabilities of every class, \[N, C\], got \[2\]",
        ),
        (lambda: fp.kaggle.threshold("f1"), ArgumentTypeError, "metric must be Metric, got str"),
        (lambda: fp.kaggle.Threshold(0.5)((np.ones((2, 3)),)), ArgumentError, "A threshold needs two classes, got 3"),
        (lambda: fp.kaggle.Threshold(0.5)((np.array([2.0]),)), ArgumentError, "A threshold needs probabilities, got values from 2 to 2"),
        (lambda: fp.kaggle.Threshold(0.5)((np.ones(2), np.ones(2))), ArgumentError, "takes predictions of one model, got 2 models"),
        (lambda: mean([]), ArgumentError, r"All predictions must have the same shape, \[N\] or \[N, C\], got \[\]"),
        (lambda: mean([[1, 2], [1]]), ArgumentError, r"got \[\[2\], \[1\]\]"),
        (lambda: mean([[1, np.nan]]), DataError, "The predictions of model 0 must be finite, got nan in row 1"),
        (lambda: weighted([1, -1]), ArgumentError, "of at least 0 with a sum above 0"),
        (lambda: weighted([1, 1])([[1]]), ArgumentError, "There are 2 weights for 1 models"),
        (lambda: stacking(LinearRegression), ArgumentError, r"stacking takes a scikit-learn estimator, got <class .*Create one"),
        (lambda: stacking("ridge"), ArgumentError, "stacking takes a scikit-learn estimator, got 'ridge'"),
    ],
)
def test_what_cannot_be_learned_or_combined_is_refused(make, kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        make()


def test_a_combination_must_give_one_prediction_for_each_row():
    oof = made(custom([0, 0, 1, 1]), [0, 1, 0, 1], [0, 1, 0, 1])
    with pytest.raises(ArgumentError, match=r"Combining predictions of 2 rows gave 1 rows\. Return one prediction per row"):
        fp.kaggle.second_stage(fixed(lambda predictions: predictions[0][:1]), oof)
    with pytest.raises(ArgumentError, match="All predictions must have the same number of rows"):
        fp.kaggle.second_stage(fixed(mean), oof).predict([1, 2], [1])
