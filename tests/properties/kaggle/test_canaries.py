"""Four leaks, on the real Titanic file: what each would show, that the API does not let it happen, and the honest number.

The leaking runs go around the API: their `fit` closes over something that was fitted on rows it must not have seen.
"""

from pathlib import Path
from typing import Any

import pytest

import mlxfp as fp
from mlxfp.app.kaggle.validation.folds import Folds, stratified
from mlxfp.support.errors import ArgumentTypeError, SchemaError
from tests.app.kaggle.passengers import TARGET, encoded, forest, learn_rates, read

ACCURACY = fp.kaggle.METRICS["accuracy"]


@pytest.fixture(scope="module")
def train(data_folder: Path):
    return read(data_folder, "train.csv")


@pytest.fixture(scope="module")
def folds(train) -> Folds:
    return stratified(fp.kaggle.column_values(train, TARGET), count=5, seed=0)


def accuracy(folds: Folds, rows, fit) -> float:
    return fp.kaggle.score(fp.kaggle.cross_validate(folds, rows, fit, target=TARGET).oof, ACCURACY).overall


def test_target_encoding_is_learned_inside_the_folds(train, folds: Folds):
    leaking = accuracy(folds, train, encoded(learn_rates(train, "Ticket")))
    assert leaking > 0.95
    assert 0.80 < accuracy(folds, train, encoded()) < 0.85

    def late(parts):
        return learn_from_what_is_predicted

    def learn_from_what_is_predicted(rows):
        return learn_rates(rows, "Ticket")(rows)

    with pytest.raises(SchemaError, match=f"needs the column '{TARGET}', which is missing"):
        accuracy(folds, train, late)


# The rest of the test file, labelled by one teacher for all folds: its labels carry what it knows of the validation rows.
ALL = fp.kaggle.Confidence(threshold=0.5, least=1.0, most=1.0)
MANY = fp.kaggle.Confidence(threshold=0.7, most=1.0)


@pytest.mark.parametrize(("unlabelled", "confidence", "gap"), [("test.csv", ALL, 0.02), ("train.csv", MANY, 0.05)])
def test_a_teacher_has_not_seen_what_its_students_are_judged_by(
    data_folder: Path, train, folds: Folds, unlabelled: str, confidence: fp.kaggle.Confidence, gap: float
):
    others, student, teacher = read(data_folder, unlabelled), forest(3), forest(1)
    knowing = teacher(fp.Splits(train))

    def taught_by(any_teacher) -> float:
        fit = fp.kaggle.pseudo_label(any_teacher, student, others, target=TARGET, confidence=confidence, weight=2.0)
        return accuracy(folds, train, fit)

    leaking, honest = taught_by(lambda _: knowing), taught_by(teacher)
    assert leaking > 0.845
    assert leaking - honest > gap
    assert 0.80 < honest < 0.83
    with pytest.raises(
        ArgumentTypeError, match="to_table works on a dataset, got Splits"
    ):  # a teacher is a fit, and what has been fitted is none
        taught_by(knowing)


def test_pseudo_labels_of_a_careful_teacher_leave_the_honest_score_where_it_was(data_folder: Path, train, folds: Folds):
    others = read(data_folder, "test.csv")
    assert 0.80 < accuracy(folds, train, fp.kaggle.pseudo_label(forest(3), forest(3), others, target=TARGET)) < 0.84


def test_a_threshold_is_judged_on_folds_that_it_was_not_tuned_on(train):
    leaking, honest = [], []
    for seed in range(3):
        dealt = stratified(fp.kaggle.column_values(train, TARGET), count=5, seed=seed)
        oof = fp.kaggle.cross_validate(dealt, train, forest(3), target=TARGET).oof
        tuned = fp.kaggle.second_stage(fp.kaggle.threshold(ACCURACY), oof)
        leaking.append(ACCURACY(oof.targets, tuned.predict(oof.predictions[0])))
        honest.append(fp.kaggle.score(tuned.oof, ACCURACY).overall)
    found: Any = zip(leaking, honest, strict=True)
    assert all(0.798 <= nested < tuned_on_itself for tuned_on_itself, nested in found)
    assert max(honest) < 0.83
    assert max(leaking) > 0.83
