"""What a fold learns does not depend on the rows that it is judged by: they may say anything."""

import json

import pytest

import mlxfp as fp
from tests.app.runs.competitions import competition, configured, texts

SPEC = """name: sizes
kind: regression
train: {name: train.csv}
test: {name: test.csv}
id: id
target: [y]
columns: [{name: text, type: text}, {name: size, type: numerical}]
metric: rmse
"""


def rows(judged):
    """24 rows, of which those in `judged` are quite unlike the others."""
    made = [{**row, "size": number % 7, "y": number / 3} for number, row in enumerate(texts(24))]
    strange = {"text": "zebra quagga okapi", "size": 1e6, "y": -1e4}
    return [row | strange if number in judged else row for number, row in enumerate(made)]


@pytest.mark.parametrize("patience", ["null", "1"])
def test_a_fold_is_the_same_whatever_the_rows_hold_that_judge_it(tmp_path, patience):
    changes = ["validation.method=kfold", "model.numeric=true", "text.numbers=quantile", "text.digits=4", f"observers.patience={patience}"]
    plain = competition(tmp_path / "plain", rows(()), texts_with_sizes(), spec=SPEC)
    first = configured(plain, *changes, "name=first", "training.epochs=2")
    fold = next(iter(fp.runs.plan(first).folds))
    other = competition(tmp_path / "other", rows(set(fold.valid.tolist())), texts_with_sizes(), spec=SPEC)
    second = configured(other, *changes, "name=second", "training.epochs=2")
    assert fp.runs.plan(second).folds.assignments.tolist() == fp.runs.plan(first).folds.assignments.tolist()
    for config in (first, second):
        list(fp.runs.run(config))
    for name in ("recipe.json", "model.safetensors", "test.npy"):
        assert (tmp_path / "first" / "fold-01" / name).read_bytes() == (tmp_path / "second" / "fold-01" / name).read_bytes(), name
        assert (tmp_path / "first" / "fold-02" / name).read_bytes() != (tmp_path / "second" / "fold-02" / name).read_bytes(), name
    scores = [json.loads((tmp_path / name / "fold-01" / "result.json").read_text())["score"] for name in ("first", "second")]
    assert scores[0] != scores[1]


def texts_with_sizes():
    return [{**row, "size": 3} for row in texts(4, 900)]
