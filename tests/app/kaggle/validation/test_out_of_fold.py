import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlxfp.app.kaggle.validation.folds import Folds, custom, kfold, time
from mlxfp.app.kaggle.validation.out_of_fold import OutOfFold, compare, fold_predictions, out_of_fold, score
from mlxfp.app.kaggle.validation.scoring import METRICS
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError


def made(folds: Folds, targets, predictions) -> OutOfFold:
    """Out-of-fold predictions [N] or [N, C] that are the same in every repeat."""
    values = np.asarray(predictions)
    return out_of_fold(folds, targets, [fold_predictions(fold, values[fold.valid]) for fold in folds])


@given(st.integers(4, 40), st.integers(2, 4), st.integers(1, 3), st.integers(0, 99), st.booleans())
def test_every_row_gets_the_prediction_of_its_fold(size: int, count: int, repeats: int, seed: int, wide: bool):
    chance = np.random.default_rng(seed)
    folds = kfold(size, count=count, seed=seed, repeats=repeats)
    values = chance.random((repeats, size, 2) if wide else (repeats, size))
    parts = [fold_predictions(fold, values[fold.repeat, fold.valid]) for fold in folds]
    chance.shuffle(parts)
    oof = out_of_fold(folds, np.zeros(size), parts)
    assert np.array_equal(oof.predictions, values)
    assert repr(oof) == f"OutOfFold({folds!r})"


def test_rows_that_never_validate_have_no_prediction_and_no_score():
    folds = time([1, 2, 3, 4], count=1)
    oof = made(folds, [0, 0, 1, 1], [9, 9, 1, 0])
    assert np.isnan(oof.predictions).tolist() == [[True, True, False, False]]
    assert score(oof, METRICS["accuracy"]).overall == 0.5


def test_a_score_is_that_of_each_fold_and_of_all_rows():
    oof = made(custom([0, 0, 1, 1, 1]), [0, 1, 1, 1, 1], [0, 0, 1, 1, 0])
    found = score(oof, METRICS["accuracy"])
    assert found.folds == (0.5, pytest.approx(2 / 3))
    assert found.overall == 0.6
    assert repr(found) == "accuracy 0.6000, in folds 0.5833 +- 0.1179"


def test_a_comparison_pairs_folds_and_is_positive_for_the_better_run():
    folds = kfold(60, count=5, seed=0, repeats=2)
    targets = np.linspace(0, 1, 60)
    near, far = made(folds, targets, targets + 0.1), made(folds, targets, targets + np.where(np.arange(60) % 2, 0.3, 0.2))
    found = compare(near, far, METRICS["mae"])
    assert len(found.differences) == 10
    assert found.low < found.mean < found.high
    assert found.mean == pytest.approx(score(far, METRICS["mae"]).mean - score(near, METRICS["mae"]).mean)
    assert compare(far, near, METRICS["mae"]).mean == -found.mean
    plain = 2.262 * found.sd / 10**0.5  # Student's t of 9 degrees of freedom
    assert (found.high - found.mean) / plain == pytest.approx((1 + 10 / 4) ** 0.5, rel=1e-3)


def test_the_interval_covers_no_difference_where_there_is_none():
    chance, covered = np.random.default_rng(0), 0
    for seed in range(40):
        targets = chance.integers(0, 2, 200)
        runs = [made(kfold(200, count=5, seed=seed), targets, np.where(chance.random(200) < 0.8, targets, 1 - targets)) for _ in range(2)]
        found = compare(*runs, METRICS["accuracy"])
        covered += found.low <= 0 <= found.high
    assert covered >= 36


FOLDS = custom([0, 0, 1])
FIRST, SECOND = FOLDS


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: fold_predictions(FIRST, [0.5, np.nan]), DataError, "The predictions of fold 1 of 2 must be finite, got nan in row 1"),
        (
            lambda: fold_predictions(FIRST, [0.5]),
            ArgumentError,
            r"must be \[n\], or \[n, C\] for 2 or more classes, with n=2 rows, got \[1\]",
        ),
        (lambda: fold_predictions(FIRST, [[0.5], [1]]), ArgumentError, r"with n=2 rows, got \[2, 1\]"),
        (
            lambda: out_of_fold(custom([0, 1, 1]), [0, 0, 0], [fold_predictions(FIRST, [1, 1])]),
            ArgumentError,
            "FoldPredictions.repeat 0, fold 0, 2 rows. belongs to other folds",
        ),
        (lambda: out_of_fold(FOLDS, [0, 0, 0], [fold_predictions(FIRST, [1, 1])] * 2), ArgumentError, "is a duplicate"),
        (
            lambda: out_of_fold(FOLDS, [0, 0, 0], [fold_predictions(FIRST, [1, 1])]),
            ArgumentError,
            "There are no predictions of fold 2 of 2",
        ),
        (
            lambda: out_of_fold(FOLDS, [0, 0, 0], [fold_predictions(FIRST, [1, 1]), fold_predictions(SECOND, [[1, 0]])]),
            ArgumentError,
            r"must have the same shape, got .*\['n', 2\]",
        ),
        (lambda: out_of_fold(FOLDS, [0, 0], []), ArgumentError, r"must be \[N\] or \[N, T\] for the 3 rows of the folds, got \[2\]"),
        (
            lambda: compare(made(FOLDS, [0, 1, 1], [0, 1, 1]), made(custom([0, 1, 1]), [0, 1, 1], [0, 1, 1]), METRICS["mae"]),
            ArgumentError,
            "The out-of-fold predictions have different folds",
        ),
        (
            lambda: compare(made(FOLDS, [0, 1, 1], [0, 1, 1]), made(FOLDS, [0, 0, 1], [0, 1, 1]), METRICS["mae"]),
            ArgumentError,
            "have different targets, first in row 1",
        ),
        (
            lambda: compare(*[made(time([1, 2], count=1), [0, 1], [0, 1])] * 2, METRICS["mae"]),
            DataError,
            "A comparison needs at least two folds",
        ),
    ],
)
def test_predictions_that_do_not_belong_together_are_refused(make, kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        make()


def test_a_fold_in_which_a_metric_is_undefined_is_left_out_of_the_mean_and_cannot_be_compared():
    folds = custom([0, 0, 1, 1, 2, 2])
    oof = made(folds, [0, 0, 0, 1, 1, 0], [0.1, 0.2, 0.3, 0.4, 0.1, 0.9])
    found = score(oof, METRICS["roc_auc"])
    assert np.isnan(found.folds[0])
    assert found.folds[1:] == (1.0, 0.0)
    assert (found.mean, found.sd) == (0.5, np.std([1.0, 0.0], ddof=1))
    assert found.overall == METRICS["roc_auc"](oof.targets, oof.predictions[0])
    with pytest.raises(DataError, match="roc_auc is undefined on fold 1: the runs cannot be compared"):
        compare(oof, oof, METRICS["roc_auc"])


def test_a_metric_that_is_undefined_on_all_rows_has_no_score():
    with pytest.raises(DataError, match="needs positive and negative examples"):
        score(made(custom([0, 1]), [1, 1], [0.2, 0.3]), METRICS["roc_auc"])


def test_a_metric_is_a_value_and_not_its_name():
    oof = made(custom([0, 1]), [1, 0], [0.2, 0.3])
    for call in (lambda: score(oof, "accuracy"), lambda: compare(oof, oof, "accuracy")):
        with pytest.raises(ArgumentTypeError, match="metric must be Metric, got str: 'accuracy'"):
            call()
