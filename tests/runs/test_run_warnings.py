"""What a person should know of a run's folds is said before anything is trained."""

import mlxfp as fp
from mlxfp.runs.plans import run_warnings
from tests.runs.competitions import competition, configured

SPEC = """
name: sales
kind: binary
train: {name: train.csv}
id: id
target: [y]
classes: ["0", "1"]
columns: [{name: x, type: text}]
metric: accuracy
"""


def rows(count):
    return [{"id": place, "day": f"2024-01-{place + 1:02}", "x": f"word{place}", "y": place % 2} for place in range(count)]


def said(tmp_path, train, spec=SPEC):
    return list(run_warnings(fp.runs.plan(configured(competition(tmp_path / "data", train, spec=spec)))))


def test_rows_that_are_in_several_folds_are_counted(tmp_path):
    train = rows(20)
    for place in range(6):
        train[place]["x"] = "the same"
    (message,) = said(tmp_path, train)
    assert message.startswith("6 rows are equal to a row in another fold, in all columns that a model sees")


def test_rows_that_differ_raise_no_warning(tmp_path):
    assert said(tmp_path, rows(20)) == []


def test_folds_in_time_say_that_the_first_rows_are_only_trained_on(tmp_path):
    (message,) = said(tmp_path, rows(20), f"{SPEC}time: day\n")
    assert message.startswith("Folds go forward in time, by 'day': the first 7 rows are only trained on.")
