"""Runs compared: options, a paired test on the same folds, and rows."""

import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.reports.comparing import comparison_page
from tests.app.reports.finished import finished, rows_of, spec_of
from tests.app.reports.test_reports import Page, sure_of_yes
from tests.app.runs.competitions import competition, configured, table, write


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    first = finished(folder, sure_of_yes, name="first")
    second = finished(folder, lambda targets: np.where(targets == 1, 0.9, 0.1), name="second", overrides=["training.epochs=7"])
    other = finished(folder, sure_of_yes, name="other", overrides=["validation.seed=9"])
    return first, second, other


def test_options_that_differ_have_a_value_for_each_run(runs):
    assert fp.runs.compare(runs).options == {"training.epochs": (1, 7, 1), "validation.seed": (0, 0, 9)}


def test_rows_are_counted_by_which_run_is_right(runs):
    pair = fp.runs.compare(runs[:2]).pairs[0]
    assert pair.rows == {"both right": 38, "only the first is right": 0, "only the second is right": 2, "both wrong": 0}
    assert [each.id for each in pair.disagreements[:2]] == ["r4", "r7"]
    assert pair.disagreements[0].first == pytest.approx(0.99)
    assert pair.disagreements[0].second == pytest.approx(0.1)
    assert "note no" in pair.disagreements[0].text


def test_scores_have_a_paired_test_on_the_same_folds(runs):
    pytest.importorskip("scipy")
    found = fp.runs.compare(runs[:2])
    assert found.pairs[0].difference.mean == pytest.approx(np.mean(found.pairs[0].difference.differences))
    assert found.pairs[0].difference.mean > 0
    assert "normally distributed" in repr(found)


def test_differences_are_those_of_the_scores_that_the_runs_have_with_their_thresholds(tmp_path):
    pytest.importorskip("scipy")
    low = finished(tmp_path, lambda targets: np.where(targets == 1, 0.4, 0.1), name="low")
    tuned = finished(tmp_path, lambda targets: np.where(targets == 1, 0.4, 0.1), name="tuned", overrides=["competition.threshold=true"])
    found = fp.runs.compare([low, tuned])
    assert [each.overall for each in found.scores] == [0.5, 1.0]
    assert found.pairs[0].difference.mean == pytest.approx(0.5)
    assert "accuracy undecided, +0.5000" in repr(found)
    undecided = "accuracy undecided, -0.5000 (above 0 is better; two folds allow no useful interval: use at least 3 folds)"
    assert undecided in repr(fp.runs.compare([tuned, low]))
    assert "accuracy equal" in repr(fp.runs.compare([low, low]))


def test_a_page_names_runs_without_the_folder_that_they_share(runs, tmp_path, monkeypatch):
    page = Page(fp.runs.report(*runs[:2], out=tmp_path / "c.html").read_text("utf-8"))
    assert "second against first" in page.words
    monkeypatch.chdir(runs[0].parent)
    mixed = Page(fp.runs.report(runs[0], "second", out=tmp_path / "c.html").read_text("utf-8"))
    assert "second against first" in mixed.words  # an absolute and a relative path


def test_runs_on_other_folds_are_not_compared_row_by_row(runs):
    pair = fp.runs.compare([runs[0], runs[2]]).pairs[0]
    assert pair == fp.runs.Pair(str(runs[2]), "The two runs have different folds, so their scores and rows cannot be compared.", {}, ())


def test_another_spec_of_the_same_files_is_named(tmp_path):
    first = finished(tmp_path, sure_of_yes, name="first")
    (tmp_path / "data" / "spec.yaml").write_text(spec_of(("no", "yes")).replace("- {name: kind, type: categorical}\n", ""))
    pairs = fp.runs.compare([first, finished(tmp_path, sure_of_yes, name="second"), first]).pairs
    assert [pair.data for pair in pairs] == [("spec",), ()]


def test_rows_are_the_same_if_only_a_feature_has_changed(tmp_path):
    # Rows are compared by id and target: a new feature is the usual reason for a comparison, a new target prevents the comparison.
    def run(name, **changes):
        folder = tmp_path / name
        (folder / "data").mkdir(parents=True)
        write(folder / "data" / "train.csv", [row | changes.get(row["id"], {}) for row in rows_of(40, ("no", "yes"))])
        (folder / "data" / "spec.yaml").write_text(spec_of(("no", "yes")))
        return finished(folder, sure_of_yes)

    first, feature, target, renamed = run("a"), run("b", r3={"size": "99"}), run("c", r3={"y": "no"}), run("d", r3={"id": "r99"})
    comparison = fp.runs.compare([first, feature, target, renamed])
    pairs = comparison.pairs
    assert [pair.data for pair in pairs] == [("train.csv",)] * 3
    assert repr(comparison).count("\n    data that differ: train.csv\n") == 3
    assert "data that differ: train.csv" in comparison_page(comparison)
    assert pairs[0].rows == {"both right": 38, "only the first is right": 0, "only the second is right": 0, "both wrong": 2}
    assert all(pair.difference.startswith("The two runs have different rows") for pair in pairs[1:])


def test_the_page_of_a_comparison_is_whole(runs, tmp_path):
    page = Page(fp.runs.report(*runs, out=tmp_path / "c.html").read_text("utf-8"))
    assert {"Scores", "Options that differ", "Rows with the largest disagreement"} <= set(page.words)
    assert "script" not in page.names


def test_the_commands_write_and_print(runs, tmp_path, capsys):
    first, second, _ = map(str, runs)
    assert main(["compare", first, second]) == 0
    said = capsys.readouterr().out
    assert "only the second is right: 2 rows" in said
    assert "row r4: off by 0.9900 and 0.1000: " in said
    assert said.count("\n    row r") == 5
    assert "\x1b" not in said
    assert main(["report", first, second, "--out", str(tmp_path / "both.html")]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "both.html")
    assert main(["report", first]) == 0
    assert (runs[0] / "report.html").is_file()
    assert main(["compare", first]) == 1
    assert "at least two runs" in capsys.readouterr().err


def test_what_a_blend_would_give_and_how_alike_runs_are_is_said(runs, tmp_path):
    found = fp.runs.compare(runs[:2])
    one, two = (np.array([float(row["yes"]) for row in table(run / "oof.csv")]) for run in runs[:2])
    assert found.pairs[0].correlation == pytest.approx(np.corrcoef(one, two)[0, 1])
    # The two rows that the first has wrong are in one fold: the weights for that fold are learned from the other, where both are right.
    assert found.blend.overall == found.scores[0].overall == 0.95
    said = repr(found)
    assert f"correlation of the predictions: {found.pairs[0].correlation:.3f}" in said
    assert "A blend of all runs, with weights for each fold learned on the other folds: accuracy 0.9500" in said
    page = fp.runs.report(*runs[:2], out=tmp_path / "c.html").read_text("utf-8")
    assert "<h2>A blend</h2>" in page
    assert fp.runs.compare([*runs[:2], runs[2]]).blend is None  # one of them has other folds


def test_the_blend_that_is_said_is_the_one_that_is_made(tmp_path):
    made = [{"id": place, "n": place * 7 % 11, "text": f"a {'cat' if place % 3 else 'dog'} of {place}"} for place in range(60)]
    rows = [{**row, "y": int(row["n"] > 5 or (row["id"] % 3 == 0 and row["id"] % 4 > 0))} for row in made]
    data = competition(tmp_path / "data", rows, made[:4])
    for name in ("lightgbm", "tfidf"):
        pytest.importorskip(name.replace("tfidf", "sklearn"))
        list(fp.runs.run(configured(data, f"model.name={name}", f"name={name}", "competition.metric=log_loss", "validation.folds=3")))
    runs = [tmp_path / "lightgbm", tmp_path / "tfidf"]
    assert fp.runs.compare(runs).blend == fp.runs.blend(runs, tmp_path / "both", method="greedy").score
