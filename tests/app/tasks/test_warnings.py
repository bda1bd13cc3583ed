"""What a person should know of a run's folds is said before anything is trained."""

import io
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mlxfp as fp
from mlxfp.app.kaggle.specs.dates import dates_in_ids
from mlxfp.app.tasks.warnings import duplicated, run_warnings
from tests.app.runs.competitions import competition, configured

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


def said_of(data, *overrides):
    plan = fp.runs.plan(configured(data, *overrides))
    return list(run_warnings(plan.data, plan.folds, inferred=plan.inferred))


def said(tmp_path, train, spec=SPEC):
    return said_of(competition(tmp_path / "data", train, spec=spec))


def test_rows_that_are_in_several_folds_are_counted(tmp_path):
    train = rows(20)
    for place in range(6):
        train[place]["x"] = "the same"
    (message,) = said(tmp_path, train)
    assert message == (
        "6 rows are equal to a row in another fold, in all input columns. If these are duplicates, the score is too optimistic. "
        "In pandas, frame.drop_duplicates(frame.columns.difference(['id', 'day', 'y'])) keeps the first of equal rows."
    )
    frame = pd.DataFrame(train)
    assert list(frame.drop_duplicates(frame.columns.difference(["id", "day", "y"]))["id"]) == [0, *range(6, 20)]


def test_rows_that_differ_raise_no_warning(tmp_path):
    assert said(tmp_path, rows(20)) == []


def test_folds_in_time_say_that_the_first_rows_are_only_trained_on(tmp_path):
    (message,) = said(tmp_path, rows(20), f"{SPEC}time: day\n")
    assert message.startswith("Folds are ordered in time by 'day': the first 7 rows never validate.")


def test_folds_in_time_and_by_group_say_how_many_rows_that_costs(tmp_path):
    train = [row | {"who": "again" if row["id"] in (0, 3, 18) else f"once {row['id']}"} for row in rows(20)]
    _, message = said(tmp_path, train, f"{SPEC}time: day\ngroup: who\n")
    assert message.startswith("Folds do not train on their validation groups, by 'who'. This excludes 2 of 21 earlier rows of all folds.")


def test_groups_of_all_times_are_refused_with_what_to_do(tmp_path):
    train = [row | {"who": f"shop {row['id'] % 2}"} for row in rows(20)]
    with pytest.raises(
        fp.errors.ArgumentError, match=r"remove group from the spec\. If all test groups are new, make folds by group alone"
    ):
        said(tmp_path, train, f"{SPEC}time: day\ngroup: who\n")


def test_a_class_that_folds_lack_is_said_by_its_name(tmp_path):
    train = [row | {"y": int(row["id"] == 3)} for row in rows(20)]
    (message,) = said(tmp_path, train)
    assert message.startswith("y: Some of the 2 folds lack a class: '1' (1 row) is trained in 1 and validated in 1 folds.")
    assert message.endswith("Set the number of folds with validation.folds.")


@pytest.mark.parametrize("overrides", [[], ["data.limit=10"]])
def test_rows_of_one_class_are_refused(tmp_path, overrides):
    data = competition(tmp_path / "data", [row | {"y": 1} for row in rows(20)], spec=SPEC)
    place = "data.limit" if overrides else "data.path"
    with pytest.raises(
        fp.errors.ConfigError, match=rf"{place}: the target 'y' is '1' in all \d+ training rows, so there is nothing to learn; use"
    ):
        fp.runs.plan(configured(data, *overrides))


@pytest.mark.filterwarnings("ignore:There is no row to read")
@pytest.mark.parametrize("spec", [SPEC, None])
def test_a_file_with_a_header_only_is_refused(tmp_path, spec):
    data = competition(tmp_path / "data", rows(2), rows(2), spec=spec)
    (data / "train.csv").write_text("id,day,x,y\n")
    with pytest.raises(fp.errors.DataError, match=r"train\.csv' has column names but no rows\. Give a file with training rows\."):
        fp.runs.plan(configured(data))


def test_what_duplicates_change_is_said_at_the_end(tmp_path):
    """Copies of rows whose answers are noise: a model that remembers rows is right about them, and about nothing else."""
    rng = np.random.default_rng(0)
    noise = [{"x": f"{rng.integers(10**6)} {rng.integers(10**6)}", "y": int(rng.integers(2))} for _ in range(40)]
    train = [{"id": place, **row} for place, row in enumerate([*noise, *noise[:30]])]
    config = configured(competition(tmp_path / "data", train, spec=SPEC), "model.name=tfidf", "validation.folds=5")
    *events, end = fp.runs.run(config)
    numbers = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert numbers["without_duplicates"] < end.score.overall - 0.2
    said = [event.message for event in events if isinstance(event, fp.runs.Noted)]
    assert said[-1] == (
        f"The score is accuracy {numbers['without_duplicates']:.4f} without rows equal to a row in another fold, and "
        f"{end.score.overall:.4f} with all rows."
    )
    alone = configured(competition(tmp_path / "other", train[:40], spec=SPEC), "model.name=tfidf", "name=alone")
    assert not any("equal to a row" in event.message for event in fp.runs.run(alone) if isinstance(event, fp.runs.Noted))


def test_a_few_duplicates_of_many_rows_are_no_warning(tmp_path):
    """Two of three hundred rows do not change a score."""
    train = [{"id": at, "x": f"text {at % 299}", "y": at % 2} for at in range(300)]
    plan = fp.runs.plan(configured(competition(tmp_path / "data", train, spec=SPEC), "model.name=tfidf", "validation.folds=5"))
    assert 0 < duplicated(plan.data, plan.folds).sum() <= 2
    assert not any("equal to a row" in message for message in run_warnings(plan.data, plan.folds, inferred=False))


def test_columns_to_look_at_are_named_before_anything_is_trained(tmp_path):
    train = [{**row, "x": f"some text {row['x']}", "paid": 3 * row["y"] + row["id"] % 3, "same": 1} for row in rows(60)]
    columns = "columns: [{name: x, type: text}, {name: paid, type: numerical}, {name: same, type: numerical}]"
    messages = said(tmp_path, train, SPEC.replace("columns: [{name: x, type: text}]", columns))
    assert [message.split(":")[0].split(" alone")[0] for message in messages] == [
        "Columns with a single value in all training rows, without any information",
        "The column 'paid'",
        "To leave out paid, remove the columns from the spec, and run again with another name, as in name=second.",
    ]


def test_a_text_among_the_numbers_of_the_test_file_is_named(tmp_path):
    train = [{"id": place, "size": place % 7, "y": place * 5 % 2} for place in range(60)]
    test = [{"id": place, "size": "unknown" if place == 63 else place % 7} for place in range(60, 80)]
    data = competition(tmp_path / "data", train, test, [{"id": row["id"], "y": 0} for row in test])
    message = "The column 'size' is categorical, because 1 of 80 cells are not numbers: 'unknown'."
    assert any(each.startswith(message) for each in said_of(data))
    columns = "{name: size, type: categorical}"
    (data / "spec.yaml").write_text(SPEC.replace("{name: x, type: text}", columns) + "test: {name: test.csv}\n")
    assert not any("read as text" in each for each in said_of(data))


def test_a_run_prints_the_repairs_of_its_columns(tmp_path):
    """The warnings of a run hold code that converts the columns and the command that writes a spec. No other command is necessary."""
    words = ["red house", "blue door", "green hill", "old road", "new town"]
    train = [
        {"id": at, "weight": f"{1000 + at * 7 % 83:,} kg", "pay": "k.A." if at == 9 else at * 11 % 29, "x": words[at % 5], "y": at * 5 % 2}
        for at in range(80)
    ]
    data = competition(tmp_path / "my data", train)
    *messages, code, words = said_of(data, "data.target=y")[:4]
    assert messages == [
        "The column 'weight' is text, because its numbers are written as '1,000 kg'.",
        "The column 'pay' is text, because 1 of 80 cells are not numbers: 'k.A.'.",
    ]
    spec = f"write a spec: mlxfp data infer '{data}' --target y --out spec.yaml. In the spec, set null_values:"
    assert words.startswith(f"If the words mean missing values, first rewrite the files, then {spec}")
    assert words.endswith(f", and type: numerical for 'pay'. Then run again: mlxfp run '{data}' data.spec=spec.yaml name=second")
    assert code.startswith("To read numbers, rewrite all files, for example with this Python code:\nimport os, pandas, re\nframe = ")
    exec(code.partition("\n")[2], {})
    assert [column.type for column in fp.kaggle.infer_spec(data, target="y").columns if column.name == "weight"] == ["numerical"]


def test_a_difference_from_an_inferred_spec_has_a_remedy_without_a_spec_file(tmp_path):
    """The warning says that the run goes on, and names the command that writes a spec."""
    train = [{"id": max(index, 2), "size": index % 7, "y": index * 5 % 2} for index in range(60)]
    test = [{"id": index, "size": index % 7} for index in range(60, 80)]
    data = competition(tmp_path / "data", train, test, [{"id": row["id"], "y": 0} for row in test])
    message = next(text for text in said_of(data) if "1 duplicate id" in text)
    assert message.splitlines()[:2] == [
        f"Found 1 problem in the files in {str(data)!r}:",
        "  train.csv: 1 duplicate id in 'id': '2' (3 rows)",
    ]
    assert "The run uses the files unchanged. The spec was inferred from the files." in message
    assert message.endswith(f"write a spec file first: mlxfp new data_spec --data {data}, then edit data_spec/spec.yaml.")


def test_differences_between_the_files_are_said_before_training(tmp_path):
    train = [{"id": index, "zip": ["270", "271"][index % 2], "lost": index % 5, "y": index % 2} for index in range(60)]
    spec = SPEC.replace("columns: [{name: x, type: text}]", "test: {name: test.csv}\ncolumns: [{name: zip, type: categorical}]")
    folder = competition(tmp_path / "data", train, [{"id": 100, "zip": "270.0"}, {"id": 101, "zip": "271"}], spec=spec)
    message = next(text for text in said_of(folder) if "differ" in text)
    assert "'270.0' for '270'" in message
    assert "'lost'" in message


def test_case_a6_classes_that_differ_in_spaces_and_an_id_of_dates_are_said(tmp_path):
    train = [{"day": f"2024-01-{index + 1:02}", "x": "abc"[index % 3], "y": ["good", "bad", "good "][index % 3]} for index in range(30)]
    folder = competition(tmp_path / "data", train)
    (folder / "test.csv").write_text("day,x\n2024-03-01,a\n")
    (folder / "sample_submission.csv").write_text("day,y\n2024-03-01,good\n")
    messages = said_of(folder)
    assert any("'good' and 'good '" in text or "'good ' and 'good'" in text for text in messages)
    assert any("The id 'day' holds dates" in text for text in messages)


@pytest.mark.parametrize(
    ("ids", "dates"),
    [
        (["20110101_3", "20110102_1"], ["2011-01-01", "2011-01-02"]),
        (["20110101", "20111231"], ["2011-01-01", "2011-12-31"]),
        (["2011010107", "2011010208"], ["2011-01-01", "2011-01-02"]),
        (["2011-01-01_3", "2011-01-02_b"], ["2011-01-01", "2011-01-02"]),
        (["1293840000", "1293926460"], ["2011-01-01 00:00", "2011-01-02 00:01"]),
        (["1293840000000", "1293926460000"], ["2011-01-01 00:00", "2011-01-02 00:01"]),
    ],
)
def test_ids_that_hold_times_are_named_with_code_that_reads_the_times(ids, dates):
    name = "my id"
    code = dates_in_ids(name, pa.array(ids))
    frame = pd.read_csv(io.StringIO("\n".join([name, *ids])))
    assert eval(code, {"pandas": pd, "frame": frame}).tolist() == [pd.Timestamp(date) for date in dates]


@pytest.mark.parametrize(
    "ids",
    [
        ["20110101_3", "20110101_4"],  # one date, such as the date of an export
        ["20110101_3", "20111301_3"],  # no month 13
        ["1500000001", "1500000002"],  # a counter
        ["1293840000", "9293840000"],
        ["1293840000", "x"],
        ["007", "008"],
    ],
)
def test_other_ids_hold_no_times(ids):
    assert dates_in_ids("id", pa.array(ids)) is None


def test_a_run_says_that_ids_hold_times(tmp_path):
    train = [row | {"id": f"201101{row['id'] + 1:02}_3"} for row in rows(20)]
    (message,) = said(tmp_path, train)
    assert message == (
        "The id 'id' holds dates, such as '20110101_3', which no model reads. To use the dates, add a column in all files, in pandas "
        "with frame['date'] = pandas.to_datetime(frame['id'].astype(str).str[:8])."
    )


def test_a_rare_target_of_zero_is_named_for_a_metric_of_logarithms(tmp_path):
    spec = SPEC.replace("kind: binary", "kind: regression").replace('classes: ["0", "1"]\n', "").replace("accuracy", "rmsle")
    train = [row | {"y": 800.0 + row["id"]} for row in rows(200)]

    def about_zeros(name, train, spec=spec):
        (tmp_path / name).mkdir()
        return [message for message in said(tmp_path / name, train, spec) if "the target 0" in message]

    assert about_zeros("whole", train) == []
    train[7]["y"] = 0
    (message,) = about_zeros("zero", train)
    assert message == (
        "1 training row has the target 0, and all other targets are at least 800. With the metric rmsle, such a row counts more than many "
        "others. If the value is an error, remove the row."
    )
    assert about_zeros("rmse", train, spec.replace("rmsle", "rmse")) == []
