"""The summary before the training of a run."""

from attrs import evolve

import mlxfp as fp
from tests.app.runs.competitions import competition, configured


def summary(data, *overrides):
    """Return the summary of a run with an inferred spec."""
    events = fp.runs.run(configured(data, *overrides))
    return next(event.text for event in events if isinstance(event, fp.runs.Summarized))


def test_a_summary_names_columns_classes_metric_and_folds(tmp_path):
    rows = [
        {"id": index, "age": index % 50 + 0.5, "town": ["Oslo", "Rome"][index % 2], "y": ["no", "yes"][index % 3 == 0]}
        for index in range(60)
    ]
    test = [{name: value for name, value in row.items() if name != "y"} | {"id": row["id"] + 60} for row in rows[:20]]
    sample = [{"id": row["id"], "y": 0.5} for row in test]
    assert summary(competition(tmp_path / "data", rows, test, sample)) == (
        "  rows: 60 for training, 20 for the test\n"
        "  columns: 1 numerical (age); 1 categorical (town); id id\n"
        "  target: y, binary with 2 classes (no, yes)\n"
        "  metric: roc_auc, because the sample submission has probabilities\n"
        "  folds: 2 folds, with equal shares of the classes"
    )


def test_a_summary_names_the_columns_with_dates(tmp_path):
    """Dates are texts in a CSV file. The summary says that models do not read dates as words."""
    rows = [
        {"day": f"2024-{index % 12 + 1:02}-{index % 28 + 1:02}", "size": index % 7 + 0.5, "y": index * 3 % 17 + 0.25} for index in range(60)
    ]
    lines = summary(competition(tmp_path / "data", rows, [{"day": "2025-01-02", "size": 1.5}] * 9)).splitlines()
    assert "  dates: day; models of tables read day, month, weekday and hour; models of texts read words" in lines


def test_a_summary_names_columns_with_dates_in_two_forms_and_a_few_words(tmp_path):
    """Spreadsheets mix 2024-03-12 with 12.03.2024 and k.A."""
    days = ["k.A." if n % 9 == 0 else f"{n % 28 + 1:02}.{n % 12 + 1:02}.2024" if n % 2 else f"2024-{n % 12 + 1:02}-01" for n in range(60)]
    rows = [{"day": day, "size": index % 7 + 0.5, "y": index * 3 % 17 + 0.25} for index, day in enumerate(days)]
    lines = summary(competition(tmp_path / "data", rows, [{"day": "-", "size": 1.5}] * 9)).splitlines()
    assert "  dates: day; models of tables read day, month, weekday and hour; models of texts read words" in lines


def test_a_summary_gives_the_reason_of_folds_by_group_and_in_time(tmp_path):
    rows = [{"storm": f"s{index // 4}", "wind": index * 7 % 31 + 0.5, "y": index * 3 % 17 + 0.25} for index in range(80)]
    test = [{"storm": f"t{index // 4}", "wind": index * 5 % 29 + 0.5} for index in range(24)]
    lines = summary(competition(tmp_path / "groups", rows, test)).splitlines()
    assert lines[2:] == [
        "  target: y, regression",
        "  metric: rmse, the usual metric of regression targets",
        "  folds: 2 folds, by storm, because no value of the column occurs in the test rows",
    ]
    rows = [
        {"day": f"2024-{1 + index // 28:02}-{1 + index % 28:02}", "wind": index * 7 % 31 + 0.5, "y": index + 0.25} for index in range(112)
    ]
    test = [{"day": f"2024-06-{1 + index:02}", "wind": index * 5 % 29 + 0.5} for index in range(24)]
    lines = summary(competition(tmp_path / "days", rows, test)).splitlines()
    assert lines[-1] == "  folds: 2 folds, in the order of day, because the test rows are later"


def test_a_given_spec_or_metric_is_named_as_the_reason(tmp_path):
    rows = [{"size": index % 9 + 0.5, "y": index % 2} for index in range(40)]
    data = competition(tmp_path / "data", rows)
    fp.kaggle.save_spec(evolve(fp.kaggle.infer_spec(data, target="y"), metric="log_loss"), data / "spec.yaml")
    assert "metric: log_loss, from the spec or the configuration" in summary(data)


def test_a_summary_names_delimiters_other_than_commas(tmp_path):
    """mlxfp detects the delimiter and decimal commas. The summary shows the result, so that users notice a wrong guess."""
    rows = [{"size": f"{index % 9},5", "y": index % 2} for index in range(40)]
    data = competition(tmp_path / "data", rows, [{"size": "1,5"}] * 9)
    for name, mark in (("train.csv", ";"), ("test.csv", "\t")):
        (data / name).write_text((data / name).read_text().replace('"', "").replace(",5,", f",5{mark}").replace("size,", f"size{mark}"))
    (data / "test.csv").write_text("size\tz\n" + "1.5\t0\n" * 9)
    lines = summary(data).splitlines()
    assert lines[0] == "  files: tabs in test.csv; semicolons in train.csv, where numbers such as 12,5 are read as 12.5"
    assert lines[2] == "  columns: 1 numerical (size)"


def test_a_summary_names_numbers_that_are_also_categories(tmp_path):
    """A column of ZIP codes stays a number. With `model.codes`, estimators read the codes as categories as well."""
    rows = [{"zip": 94100 + index % 25, "size": index % 9 + 0.5, "y": index % 2} for index in range(100)]
    data = competition(tmp_path / "data", rows, [{"zip": 94101, "size": 1.5}])
    line = "  codes: zip; the model also reads these numbers as categories"
    assert line in summary(data, "model.name=lightgbm", "model.codes=true").splitlines()
    assert "codes" not in summary(data, "model.name=lightgbm", "name=plain")
    config = fp.runs.load_config(preset="auto", overrides=[f"data.path={data}", f"output={tmp_path}"]).config
    text = next(event.text for event in fp.runs.run(config) if isinstance(event, fp.runs.Summarized))
    assert "  codes: zip; some models also read these numbers as categories" in text.splitlines()


def test_a_finished_run_has_no_summary(tmp_path):
    rows = [{"size": index % 9 + 0.5, "y": index % 2} for index in range(40)]
    data = competition(tmp_path / "data", rows)
    fp.kaggle.save_spec(fp.kaggle.infer_spec(data, target="y"), data / "spec.yaml")
    config = configured(data, "model.name=tfidf")
    kinds = [[type(event) for event in fp.runs.run(config)] for _ in range(2)]
    assert [run.count(fp.runs.Summarized) for run in kinds] == [1, 0]
