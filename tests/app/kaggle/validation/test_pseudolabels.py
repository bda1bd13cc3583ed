from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.kaggle.validation.folds import kfold
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError


@example(size=74, classes=2, seed=234, limit=0.8125, least=0.0, most=1.0)  # quotas of 25.5 rows each are rounded up
@given(
    size=st.integers(1, 80),
    classes=st.integers(2, 4),
    seed=st.integers(0, 999),
    limit=st.floats(0.4, 1),
    least=st.floats(0, 0.5),
    most=st.floats(0.5, 1),
)
def test_the_chosen_are_sure_within_limits_and_in_proportion(size: int, classes: int, seed: int, limit: float, least: float, most: float):
    chance = np.random.default_rng(seed)
    chances = chance.dirichlet(np.full(classes, 0.3), size)
    known = np.concatenate([np.arange(classes), chance.integers(0, classes, 30)])
    rows, labels = fp.kaggle.Confidence(limit, least, most).choose(chances, known)
    assert rows.tolist() == sorted(set(rows.tolist()))
    assert labels.tolist() == chances.argmax(axis=1)[rows].tolist()
    sure = chances.max(axis=1)
    reached = (sure >= limit).sum()
    allowed = max(np.ceil(least * size), min(reached, np.floor(most * size)))
    shares = np.bincount(known, minlength=classes) / len(known)
    assert (np.bincount(labels, minlength=classes) <= np.round(allowed * shares) + 1e-9).all()
    if reached >= np.ceil(least * size):
        assert (sure[rows] >= limit).all() or len(rows) <= reached
    for kind in range(classes):  # nobody less sure is taken in place of one who is more so
        taken = set(rows[labels == kind])
        others = [row for row in range(size) if chances[row].argmax() == kind and row not in taken]
        assert not taken or not others or min(sure[list(taken)]) >= max(sure[others])


def labelled(size: int = 20):
    return fp.from_table({"row": np.arange(size), "y": np.arange(size) % 2})


@given(st.integers(0, 99), st.sampled_from(["none", "inner"]))
def test_a_fold_has_its_own_teacher_and_pseudo_rows_never_validate(seed: int, stopping: Any):
    folds, teachers, students = kfold(20, count=4, seed=seed), [], []
    more = fp.from_table({"y": [9] * 6, "row": np.arange(100, 106), "other": [1] * 6})  # its y must not matter

    def teacher(parts):
        trained = set(fp.kaggle.column_values(parts.train, "row"))

        def predict(rows):
            assert fp.to_table(rows).column_names == ["row", "other"]
            teachers.append(trained)
            return np.array([0.99, 0.01, 0.98, 0.02, 0.97, 0.03])

        return predict

    def student(parts):
        students.append(fp.to_table(parts.train).to_pydict())
        assert parts.valid is None or max(fp.kaggle.column_values(parts.valid, "row")) < 100
        return lambda rows: np.zeros(len(fp.to_table(rows)))

    sure = fp.kaggle.Confidence(most=1.0)
    run = fp.kaggle.cross_validate(
        folds,
        labelled(),
        fp.kaggle.pseudo_label(teacher, student, more, target="y", weight=0.5, confidence=sure),
        target="y",
        stopping=stopping,
    )
    assert run.oof.predictions.shape == (1, 20)
    for fold, taught, learned in zip(folds, teachers, students, strict=True):
        own = [row for row in learned["row"] if row < 100]
        assert set(own) == taught <= set(fold.train)
        assert learned["weight"] == [1.0] * len(own) + [0.5] * (len(learned["row"]) - len(own))
        assert all(label == 1 - row % 2 for row, label in zip(learned["row"], learned["y"], strict=True) if row >= 100)
        assert list(learned) == ["row", "y", "weight"]


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: fp.kaggle.Confidence(threshold=0), ArgumentError, "Confidence needs 0 < threshold <= 1"),
        (lambda: fp.kaggle.Confidence(least=0.7), ArgumentError, "got threshold=0.95, least=0.7, most=0.6"),
        (
            lambda: fp.kaggle.Confidence().choose([3.0], [0, 1]),
            ArgumentError,
            "Pseudo-labels need probabilities, got predictions from -2 to 3",
        ),
        (lambda: fp.kaggle.Confidence().choose([np.nan], [0, 1]), DataError, "The teacher's predictions must be finite"),
        (lambda: fp.kaggle.pseudo_label(print, print, labelled(), target="y", weight=0), ArgumentError, "weight must be above 0"),
        (lambda: fp.kaggle.pseudo_label(1, print, labelled(), target="y"), ArgumentTypeError, "teacher must be a function"),
        (lambda: fp.kaggle.pseudo_label(print, print, [1], target="y"), ArgumentTypeError, "unlabelled must be Dataset"),
    ],
)
def test_what_cannot_be_labelled_is_refused(make, kind: type[Exception], message: str):
    with pytest.raises(kind, match=message):
        make()


def test_unlabelled_rows_need_the_columns_of_the_others():
    def teacher(parts):
        return lambda rows: np.array([0.99] * 4)

    fit = fp.kaggle.pseudo_label(teacher, teacher, fp.from_table({"x": [1] * 4}), target="y", confidence=fp.kaggle.Confidence(most=1.0))
    with pytest.raises(SchemaError, match="pseudo_label needs the column 'row', which is missing"):
        fp.kaggle.cross_validate(kfold(20, count=2, seed=0), labelled(), fit, target="y")


def test_a_teacher_is_a_fit_and_no_model():
    def model(rows):
        return np.array([0.5] * 20)

    fit = fp.kaggle.pseudo_label(model, model, labelled(), target="y")
    with pytest.raises(ArgumentTypeError, match="what teacher returns must be a function, got what teacher returns=array"):
        fp.kaggle.cross_validate(kfold(20, count=2, seed=0), labelled(), fit, target="y")
