from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlxfp as fp
from mlxfp.app.kaggle.validation import folds as ways
from mlxfp.app.kaggle.validation.folds import Folds, grouped, kfold
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, SchemaError, UnknownNameError

GROUPS = np.arange(24) // 3


def numbered(size: int = 24):
    return fp.from_table({"row": np.arange(size), "y": np.arange(size) % 2})


def recording(seen: list[Any]):
    """Return a `fit` that notes the rows that it is given, and whose model predicts the row numbers."""

    def fit(parts):
        trained = fp.kaggle.column_values(parts.train, "row").tolist()
        stopping = [] if parts.valid is None else fp.kaggle.column_values(parts.valid, "row").tolist()

        def predict(rows):
            seen.append((trained, stopping, fp.kaggle.column_values(rows, "row").tolist(), fp.schema(rows).names))
            return fp.kaggle.column_values(rows, "row")

        return predict

    return fit


DEALT = {
    "kfold": lambda seed: kfold(24, count=3, seed=seed, repeats=2),
    "grouped": lambda seed: grouped(GROUPS, count=3, seed=seed),
    "time": lambda seed: ways.time(GROUPS, count=3),
}


@given(st.sampled_from(sorted(DEALT)), st.integers(0, 99), st.sampled_from(["none", "inner"]))
def test_no_model_ever_sees_the_rows_that_it_is_judged_by(method: str, seed: int, stopping: Any):
    folds, seen = DEALT[method](seed), []
    run = fp.kaggle.cross_validate(folds, numbered(), recording(seen), target="y", stopping=stopping)
    assert len(seen) == len(run.models) == len(list(folds))
    for fold, (trained, stopped, judged, names) in zip(folds, seen, strict=True):
        assert not {*trained, *stopped} & set(judged)
        assert sorted(trained + stopped) == fold.train.tolist()
        assert bool(stopped) == (stopping == "inner")
        assert judged == fold.valid.tolist()
        assert names == ["row"]  # and no target
        assert method == "kfold" or not set(GROUPS[trained + stopped]) & set(GROUPS[judged])
    found = run.oof.predictions
    assert np.array_equal(found, np.where(folds.assignments >= 0, np.arange(24.0), np.nan), equal_nan=True)


def test_only_on_request_are_the_rows_to_stop_by_those_that_are_judged():
    seen: list[Any] = []
    fp.kaggle.cross_validate(kfold(24, count=2, seed=0), numbered(), recording(seen), target="y", stopping="validation")
    assert all(stopped == judged for _, stopped, judged, _ in seen)


def test_folds_may_be_run_one_at_a_time():
    folds = kfold(24, count=3, seed=0)
    whole = fp.kaggle.cross_validate(folds, numbered(), recording([]), target="y")
    parts = [fp.kaggle.validate_fold(fold, numbered(), recording([]), target="y").predictions for fold in reversed(list(folds))]
    assert fp.kaggle.out_of_fold(folds, np.arange(24) % 2, parts) == whole.oof


def test_every_model_predicts_rows_that_none_has_seen():
    run = fp.kaggle.cross_validate(kfold(24, count=3, seed=0), numbered(), recording([]), target="y")
    found = run.predict(fp.from_table({"row": [100, 101]}))
    assert [values.tolist() for values in found] == [[100, 101]] * 3


FOLDS = kfold(24, count=2, seed=0)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"folds": kfold(20, count=2, seed=0)}, ArgumentError, "The folds have 20 rows, but .*from_table.* has 24 rows"),
        (
            {"rows": fp.from_iterable(lambda: iter([{"y": 1}]))},
            ArgumentError,
            r"is sequential. Load the rows into memory: pipe\(rows, load",
        ),
        ({"rows": [1, 2]}, ArgumentTypeError, "rows must be Dataset, got list"),
        ({"folds": 5}, ArgumentTypeError, "folds must be Folds, got int"),
        ({"target": "Y"}, SchemaError, "cross_validate needs the column 'Y', which is missing"),
        ({"fit": 3}, ArgumentTypeError, "fit must be a function, got fit=3"),
        ({"fit": lambda parts: None}, ArgumentTypeError, "what fit returns must be a function, got what fit returns=None"),
        ({"stopping": "iner"}, UnknownNameError, "No stopping is named 'iner'. Did you mean 'inner'"),
        ({"rows": fp.from_table({"y": ["a", "b"] * 12})}, ArgumentTypeError, "The target 'y' must be numbers, .* Encode classes as"),
        ({"rows": fp.from_table({"y": [None, *[1.0] * 23]})}, DataError, "The target 'y' must be finite, got nan in row 0"),
        ({"fit": lambda parts: lambda rows: [0.5]}, ArgumentError, r"with n=12 rows, got \[1\]"),
        ({"fit": lambda parts: lambda rows: [np.nan] * fp.length(rows)}, DataError, "fold 1 of 2 must be finite, got nan in row 0"),
    ],
)
def test_what_cannot_be_run_is_refused(options: dict[str, Any], kind: type[Exception], message: str):
    given_: dict[str, Any] = {"folds": FOLDS, "rows": numbered(), "fit": recording([]), "target": "y"} | options
    with pytest.raises(kind, match=message):
        fp.kaggle.cross_validate(
            given_["folds"], given_["rows"], given_["fit"], target=given_["target"], stopping=given_.get("stopping", "none")
        )


def test_an_error_of_the_user_names_its_fold():
    def fit(parts):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fp.kaggle.cross_validate(FOLDS, numbered(), fit, target="y")
    assert caught.value.__notes__ == ["in fold 1 of 2 of kfold: 24 rows in 2 folds"]


def test_the_law_of_unseen_rows_catches_folds_that_overlap():
    seen: list[Any] = []
    broken = Folds("broken", ways.time(GROUPS, count=3).assignments, np.arange(24))  # forward no more: it trains on the future
    fp.kaggle.cross_validate(broken, numbered(), recording(seen), target="y")
    assert any(max(trained) > max(judged) for trained, _, judged, _ in seen)
