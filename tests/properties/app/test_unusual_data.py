"""Data of other people: targets, samples and files of many kinds are predicted in their own terms, or refused before any training."""

import gzip
import json
from math import isnan
from textwrap import dedent

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from attrs import evolve

import mlxfp as fp
from tests.app.runs.competitions import competition, configured, table, texts

TARGETS = """name: several
kind: {kind}
train: {{name: train.csv}}
test: {{name: test.csv}}
sample: {{name: sample_submission.csv}}
id: id
target: {target}
classes: {classes}
columns: [{{name: text, type: text}}]
metric: {metric}
"""


def several(folder, columns, *, kind, metric, values, classes="[]"):
    train = [{**row, **{name: value(place) for name, value in values.items()}} for place, row in enumerate(texts(24))]
    test = texts(4, 900)
    sample = [{"id": row["id"], **dict.fromkeys(columns, 0)} for row in test]
    spec = TARGETS.format(kind=kind, metric=metric, target=list(values), classes=classes)
    return competition(folder, train, test, sample, spec)


def single(folder, target, guess, rows=24):
    train = [{**row, "y": target(place)} for place, row in enumerate(texts(rows))]
    test = texts(4, 900)
    return competition(folder, train, test, [{"id": row["id"], **guess} for row in test])


def ended(data, *overrides):
    return list(fp.runs.run(configured(data, *overrides)))[-1]


def test_columns_of_several_values_go_by_their_names(tmp_path):
    values = {"small": lambda place: place % 3, "large": lambda place: 1000 + place}
    data = several(tmp_path / "data", ["large", "small"], kind="regression", metric="rmse", values=values)
    rows = table(ended(data).submission)
    assert list(rows[0]) == ["id", "large", "small"]
    assert all(float(row["large"]) > 900 > float(row["small"]) for row in rows)


def test_labels_are_named_and_written_as_chances_where_the_sample_has_zeros(tmp_path):
    values = {"rude": lambda place: place % 2, "nice": lambda place: place % 3 // 2, "odd": lambda place: place % 5 // 2}
    columns = ["odd", "rude", "nice"]
    classes = "['0', '1']"
    data = several(
        tmp_path / "data",
        columns,
        kind="multilabel",
        metric="log_loss",
        values={k: lambda p, v=v: min(v(p), 1) for k, v in values.items()},
        classes=classes,
    )
    end = ended(data)
    test = table(tmp_path / "out" / "test_predictions.csv")
    assert list(test[0]) == ["id", "rude", "nice", "odd"]
    assert list(table(tmp_path / "out" / "oof.csv")[0])[-3:] == ["rude", "nice", "odd"]
    assert [{name: row[name] for name in columns} for row in table(end.submission)] == [
        {name: row[name] for name in columns} for row in test
    ]
    predicted = fp.runs.predict(tmp_path / "out", data / "test.csv")
    assert [str(value) for value in predicted["odd"].tolist()] == [row["odd"] for row in test]


def test_a_sample_with_a_column_for_each_of_two_classes_gets_both_chances(tmp_path):
    data = single(tmp_path / "data", lambda place: ("no", "yes")[place % 2], {"yes": 0.5, "no": 0.5})
    rows = table(ended(data, "competition.metric=log_loss").submission)
    chances = [float(row["yes"]) for row in table(tmp_path / "out" / "test_predictions.csv")]
    assert [(float(row["yes"]), float(row["no"])) for row in rows] == [(chance, 1 - chance) for chance in chances]


@pytest.mark.parametrize("changes", [[], ["competition.metric=accuracy"]])
def test_a_sample_of_halves_gets_probabilities_whatever_the_metric_needs(tmp_path, changes):
    """AUC of 0 and 1 instead of probabilities costs ranks, and no error tells."""
    data = single(tmp_path / "data", lambda place: ("no", "yes")[place % 2], {"y": 0.5})
    rows = table(ended(data, *changes).submission)
    assert [row["y"] for row in rows] == [row["yes"] for row in table(tmp_path / "out" / "test_predictions.csv")]
    assert {row["y"] for row in rows} - {"0", "1", "0.0", "1.0", "no", "yes"}


def test_values_are_written_with_their_digits_where_the_sample_has_zeros(tmp_path):
    data = single(tmp_path / "data", lambda place: place / 7, {"y": 0})
    assert all("." in row["y"] for row in table(ended(data).submission))


@pytest.mark.parametrize(
    ("classes", "guess", "written"),
    [
        (("007", "012"), "007", {"007", "012"}),
        (("True", "False"), "0", {"0", "1"}),
        (("1.0", "2.0"), "1", {"1", "2"}),
        (("no", "yes"), "False", {"True", "False"}),
    ],
)
def test_classes_are_written_as_the_sample_writes_them(tmp_path, classes, guess, written):
    data = single(tmp_path / "data", lambda place: classes[place % 2], {"y": guess})
    assert {row["y"] for row in table(ended(data).submission)} <= written


@pytest.mark.parametrize(
    ("target", "guess", "overrides", "message"),
    [
        (("bad", "good"), {"y": "True"}, [], "not spelled True or False as in the sample \\(4\\): bad"),
        (
            ("a", "b", "c"),
            {"y": "a"},
            ["competition.metric=log_loss"],
            r"a probability for each of 3 classes, but the sample .* has only the column",
        ),
        (
            ("a", "b"),
            {"is_a": 1, "was_a": 0},
            ["competition.metric=log_loss"],
            "They do not match the classes of the spec one to one: a, b",
        ),
        (("a", "b"), {"a": 1, "c": 0}, ["competition.metric=log_loss"], "They do not match the classes of the spec one to one"),
        (
            ("0", "1"),
            {"y": "0"},
            ["competition.metric=map_at_3"],
            "map_at_3 is a metric for .* targets, got binary",
        ),
        (
            ("0", "1"),
            {"y": "0"},
            ["competition.submission=oof.csv"],
            "must be the name of a CSV file, different from the other files of the run",
        ),
        (("0", "1"), {"y": "0"}, ["text.template=Say it."], "has no placeholder {column}"),
    ],
)
def test_what_can_never_be_submitted_is_refused_before_any_training(tmp_path, target, guess, overrides, message):
    data = single(tmp_path / "data", lambda place: target[place % len(target)], guess)
    with pytest.raises(fp.MlxfpError, match=message):
        ended(data, *overrides)
    assert not list((tmp_path / "out").glob("fold-*"))


def test_double_ids_are_refused_before_any_training(tmp_path):
    data = single(tmp_path / "data", lambda place: place % 2, {"y": 0})
    lines = (data / "test.csv").read_text().splitlines()
    (data / "test.csv").write_text("\n".join([*lines, lines[1]]) + "\n")
    with pytest.raises(fp.errors.DataError, match=r"duplicate ids \(1\)") as error:
        ended(data)
    assert "Nothing was trained" in error.value.__notes__[-1]


def test_columns_without_any_value_are_nothing_to_learn_from(tmp_path):
    data = competition(tmp_path / "data", [{"x": "", "y": place % 2} for place in range(12)], [{"x": ""}] * 3)
    with pytest.raises(fp.errors.ConfigError, match="has no input columns with values"):
        ended(data)


def test_the_metric_of_the_run_decides_what_is_learned(tmp_path):
    data = single(tmp_path / "data", lambda place: 10**place if place % 2 else 0, {"y": 0.5}, rows=12)
    assert ended(data, "competition.metric=rmsle").score.metric == "rmsle"  # logarithms were learned: no prediction is below 0
    assert json.loads((tmp_path / "out" / "fold-01" / "recipe.json").read_text())["target"]["log"]


def test_a_fold_where_the_metric_is_undefined_does_not_take_the_score_away(tmp_path):
    data = single(tmp_path / "data", lambda place: int(place == 5), {"y": 0})
    *events, end = fp.runs.run(configured(data, "competition.metric=roc_auc"))
    assert any("roc_auc is undefined on fold" in event.message for event in events if isinstance(event, fp.runs.Noted))
    assert 0 <= end.score.overall <= 1
    assert sum(map(isnan, end.score.folds)) == 1
    assert None in json.loads((tmp_path / "out" / "metrics.json").read_text())["folds"]
    again = list(fp.runs.run(configured(data, "competition.metric=roc_auc")))[-1]
    assert repr(again.score) == repr(end.score)


def test_a_run_whose_time_is_up_before_it_was_judged_ends_all_the_same(tmp_path):
    data = single(tmp_path / "data", lambda place: place % 2, {"y": 0})
    assert ended(data, "observers.minutes=0.000001", "observers.patience=1").submission is not None


def test_a_training_that_diverges_says_so(tmp_path):
    data = single(tmp_path / "data", lambda place: place % 2, {"y": 0})
    with pytest.raises(
        fp.errors.DataError, match=r"predicts NaN or infinity, because the training diverged.*lower optimizer\.learning_rate"
    ):
        ended(data, "optimizer.learning_rate=1e30", "optimizer.clip_norm=null")


@pytest.mark.filterwarnings("ignore:There is no row to read")
def test_other_rows_may_come_without_ids_and_must_not_be_none(tmp_path):
    data = single(tmp_path / "data", lambda place: place % 2, {"y": 0})
    ended(data)
    (tmp_path / "bare.csv").write_text("text\nred cat\n")
    with pytest.warns(RuntimeWarning, match=r"has no id column 'id', so the predictions have row numbers, starting at 0,"):
        assert list(fp.runs.predict(tmp_path / "out", tmp_path / "bare.csv")) == ["row", "1"]
    (tmp_path / "none.csv").write_text("id,text\n")
    with pytest.raises(fp.errors.DataError, match="has no rows, only a header"):
        fp.runs.predict(tmp_path / "out", tmp_path / "none.csv")
    (tmp_path / "long.csv").write_text(f"id,text\n1,{'red cat ' * 200}\n")
    with pytest.raises(fp.errors.DataError, match="more tokens than max_length=128"):
        fp.runs.predict(tmp_path / "out", tmp_path / "long.csv")


def test_files_may_be_compressed(tmp_path):
    data = single(tmp_path / "data", lambda place: place % 2, {"y": 0})
    for path in list(data.iterdir()):
        with gzip.open(f"{path}.gz", "wb") as file:
            file.write(path.read_bytes())
        path.unlink()
    end = ended(data)
    assert [row["id"] for row in table(end.submission)] == ["0900", "0901", "0902", "0903"]
    assert fp.runs.predict(end.folder, data / "test.csv.gz")["id"] == ["0900", "0901", "0902", "0903"]


def test_a_class_called_none_is_predicted_and_submitted(tmp_path):
    data = single(tmp_path / "data", lambda place: ("None", "NA", "null")[place % 3], {"y": "NA"})
    end = ended(data)
    assert {row["y"] for row in table(end.submission)} <= {"None", "NA", "null"}
    assert len(table(end.folder / "oof.csv")) == 24


def test_a_loss_that_is_no_number_names_the_values_of_the_configuration(tmp_path):
    data = single(tmp_path / "data", lambda place: place % 2, {"y": 0})
    with pytest.raises(ArithmeticError, match="The loss is nan") as caught:
        ended(data, "optimizer.learning_rate=1e30", "optimizer.clip_norm=null", "training.epochs=9", "observers.every=1")
    assert "optimizer.clip_norm=1. Another remedy: set training.skip_nonfinite=true" in caught.value.__notes__[-1]


def test_a_competition_in_parquet_and_json_lines_is_run_and_predicted(tmp_path):
    names = {"train": fp.kaggle.FileSpec(name="train.parquet"), "test": fp.kaggle.FileSpec(name="test.jsonl")}
    spec = evolve(fp.kaggle.SPECS["titanic"], **names)
    data = tmp_path / "data"
    fp.kaggle.save_spec(fp.kaggle.write_synthetic(spec, data, rows=40, test_rows=10), data / "spec.yaml")
    end = ended(data, "text.overflow=cut")
    assert fp.kaggle.check_submission(end.submission, sample=data / spec.sample.name) == ()
    predicted = fp.runs.predict(tmp_path / "out", data / "test.jsonl")
    assert [str(each) for each in predicted["1"].tolist()] == [row["1"] for row in table(tmp_path / "out/test_predictions.csv")]


@pytest.mark.parametrize(
    ("values", "classes"),
    [
        (("True", "False"), ("False", "True")),
        (("yes", "no"), ("no", "yes")),
        (("0.0", "1.0"), ("0.0", "1.0")),
        ((" a b ", "c d"), (" a b ", "c d")),
        (("1", "2", "3"), ("1", "2", "3")),
    ],
)
def test_targets_of_every_spelling_are_classes(tmp_path, values, classes):
    data = single(tmp_path / "data", lambda place: values[place % len(values)], {"y": values[0]})
    made = fp.runs.plan(configured(data))
    assert made.data.spec.classes == classes
    assert set(made.data.targets.tolist()) == {*map(float, range(len(classes)))}


@pytest.mark.parametrize("values", [(0, 1), (0.5, 1.5, 2.5, 3.25), ("good", "bad")])
def test_rows_without_target_are_counted_and_the_lines_of_the_message_remove_them(tmp_path, values):
    """The message about missing targets has the count, the file, the first line, and code that repairs the file."""
    pytest.importorskip("pandas")
    data = single(tmp_path / "data", lambda row: "" if row in (5, 9) else values[row % len(values)], {"y": values[0]})
    with pytest.raises(
        fp.errors.DataError, match=r"2 of 24 training rows have no value in the target 'y': got '', first in line 7 of"
    ) as caught:
        fp.runs.plan(configured(data))
    assert getattr(caught.value, "__notes__", []) == []
    exec(dedent(str(caught.value).partition("\n")[2]), {})
    assert len(fp.runs.plan(configured(data)).data.targets) == 22
    assert '"0000"' not in (data / "train.csv").read_text()
    assert "\n0000," in (data / "train.csv").read_text()


def test_rows_without_target_in_parquet_are_counted(tmp_path):
    """The message about missing targets in a Parquet file names the row."""
    pq.write_table(pa.table({"x": [1, 2, 3, 4], "y": ["a", None, "b", "a"]}), tmp_path / "train.parquet")
    with pytest.raises(fp.errors.DataError, match=r"1 of 4 training rows have no value in the target 'y', first in row 1 of '.*parquet'"):
        fp.kaggle.read_competition(tmp_path / "train.parquet", spec=fp.kaggle.infer_spec(tmp_path / "train.parquet", target="y"))


def test_a_class_of_one_row_and_values_that_only_the_test_rows_have_are_trained_and_said(tmp_path):
    train = [{**row, "kind": "ab"[place % 2], "y": ("x", "z", "z")[place] if place < 3 else "y"} for place, row in enumerate(texts(30))]
    test = [{**row, "kind": "never seen"} for row in texts(4, 900)]
    data = competition(tmp_path / "data", train, test)
    *events, end = fp.runs.run(configured(data, "competition.metric=log_loss"))
    assert any(
        "lack a class: 'x' (1 row) is trained in 1 and validated in 1 folds" in event.message
        for event in events
        if isinstance(event, fp.runs.Noted)
    )
    assert len(table(tmp_path / "out" / "test_predictions.csv")) == 4
    assert end.score.overall > 0
