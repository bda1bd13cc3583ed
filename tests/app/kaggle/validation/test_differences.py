"""Differences between training and test rows are named before training."""

import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.app.kaggle.validation.differences import part_differences


def found(train, test, **types):
    columns = [fp.kaggle.ColumnSpec(name=name, type=kind) for name, kind in types.items()]
    spec = fp.kaggle.DatasetSpec(
        name="x", kind="regression", train=fp.kaggle.FileSpec(name="a.csv"), target=["y"], id="id", columns=columns, metric="rmse"
    )
    count = len(next(iter(train.values())))
    rows = fp.from_table({"id": list(range(count)), "y": [0.0] * count, **train})
    return list(part_differences(spec, rows, fp.from_table({"id": [0] * len(next(iter(test.values()))), **test})))


def test_equal_parts_have_no_differences():
    columns = {"c": ["a", "b"] * 10, "n": [1.0, 2.0] * 10, "t": [f"text {index}" for index in range(20)]}
    assert found(columns, columns, c="categorical", n="numerical", t="text") == []


@pytest.mark.parametrize(("old", "new"), [("270", "270.0"), ("red", "Red "), ("a  b", "a b"), ("7", "07")])
def test_case_a5_another_spelling_of_a_known_value_is_named(old, new):
    train = {"c": [old, "other"] * 20}
    assert found(train, {"c": [new, "other"]}, c="categorical") == [
        f"'c' has values with another spelling in the test rows: {new!r} for {old!r}."
    ]


def test_case_a5_unseen_categories_are_counted_and_new_texts_are_not():
    train = {"c": ["a", "b"] * 20, "t": [f"text {index}" for index in range(40)]}
    test = {"c": ["a", "z", "z", None], "t": ["new", "other", "third", None]}
    assert found(train, test, c="categorical", t="text") == ["'c' has values in 50% of the test rows that no training row has: 'z'."]


@pytest.mark.parametrize(
    ("old", "new", "share"),
    [
        (["2020-03-17", "2020-04-18"], ["17/03/2020", "01/04/2020"], "100%"),
        (["17/03/2020", "18/04/2020"], ["03/17/2020", "04/05/2020"], "50%"),
    ],
)
def test_dates_in_another_order_are_named(old, new, share):
    (message,) = found({"t": old * 20}, {"t": new}, t="text")
    assert message == (
        f"'t' has texts in {share} of the test rows that are no dates in the order of the training rows: {new[0]!r}. Write all dates in "
        "one order."
    )
    assert found({"t": old * 20}, {"t": [old[0], "2020-05-19", None]}, t="text") == []


def test_columns_that_the_test_file_lacks_or_names_otherwise_are_named():
    train = {"size ": [1.0] * 9, "extra": [1.0] * 9, "n": [1.0] * 9}
    assert found(train, {"Size": [1.0], "n": [1.0]}, n="numerical") == [
        "The column 'size ' is named 'Size' in the test file, and no model reads the column. Rename one.",
        "The test file lacks columns of the training file, which no model reads: 'extra'.",
    ]


def test_missing_numbers_and_shifted_ranges_are_named():
    train = {"n": [0.0, 1.0] * 9, "m": [0.0, 1.0] * 9}
    assert found(train, {"n": [None, 0.5], "m": [0.5, 7.0]}, n="numerical", m="numerical") == [
        "'n' is missing in 50% of the test rows and in no training row.",
        "'m' is outside of the training range, 0 to 1, in 50% of the test rows (0.5 to 7).",
    ]


@pytest.mark.parametrize("kind", ["categorical", "numerical", "text"])
def test_a_column_without_any_value_in_the_test_rows_is_named(kind):
    """An empty test column is a difference for columns of all types, also if training rows have gaps."""
    values = [1.0, 2.0, None] if kind == "numerical" else ["a", "b", None]
    empty = pa.array([None, None], pa.float64() if kind == "numerical" else pa.string())
    assert found({"c": values * 9}, {"c": empty}, c=kind) == ["'c' is empty in all 2 test rows, but not in the training rows."]


def test_the_same_letters_in_another_unicode_form_are_another_spelling():
    """Files from macOS often have é as two characters."""
    spec = fp.kaggle.DatasetSpec(
        name="x",
        kind="regression",
        train=fp.kaggle.FileSpec(name="a.csv"),
        target=["y"],
        metric="rmse",
        columns=[fp.kaggle.ColumnSpec(name="town", type="categorical")],
    )
    train = fp.from_table({"town": ["Orl\u00e9ans", "Nice"] * 9, "y": [1.0, 2.0] * 9})
    test = fp.from_table({"town": ["Orle\u0301ans", "Nice"]})
    (line,) = part_differences(spec, train, test)
    assert "'town' has values with another spelling in the test rows" in line
