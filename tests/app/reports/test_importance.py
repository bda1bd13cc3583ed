"""Importance of columns by permutation: large for a column that decides, near zero for noise, the same each time."""

import re

import numpy as np
import pytest
from attrs import evolve

import mlxfp as fp
from mlxfp.app.reports import sections
from mlxfp.app.reports.importance import permutation_importance
from mlxfp.app.reports.reading import read_run
from mlxfp.app.runs.reporting import linear_of
from mlxfp.errors import DataError
from tests.app.reports.finished import finished
from tests.app.reports.test_reports import Page, sure_of_yes

TITLE = "Importance of columns"


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("values"), lambda targets: targets + 1.0, classes=())


@pytest.fixture(scope="module")
def binary(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("binary"), sure_of_yes)


def by_size(rows, noise=0.0):
    """Predict the target of `rows_of` from the column that decides, with an error that depends on another column."""
    return 0.5 * fp.kaggle.column_values(rows, "size").astype(float) + noise * (np.asarray(fp.kaggle.column_values(rows, "kind")) == "a")


@pytest.mark.parametrize("noise", [0.0, 0.5, 2.0])
def test_the_column_that_decides_is_most_important_and_noise_is_near_zero(values, noise):
    run = read_run(values, linear_of)
    result = permutation_importance(run.scored, run.linear.data.rows, lambda _: lambda rows: by_size(rows, noise))
    losses = {column.column: column.mean for column in result.columns}
    assert result.columns[0].column == "size"
    assert losses["size"] > 3
    assert abs(losses["kind"]) < 0.2 * losses["size"]
    assert losses["note"] == 0.0  # the model does not read the text
    assert (result.rows, result.shuffles) == (40, 6)


def test_a_loss_of_a_score_to_maximize_is_positive(binary):
    run = read_run(binary, linear_of)
    reads_note = lambda rows: np.array(["yes" in text for text in fp.kaggle.column_values(rows, "note")], float)  # noqa: E731
    (first, *others) = permutation_importance(run.scored, run.linear.data.rows, lambda _: reads_note).columns
    assert first.column == "note"
    assert 0.2 < first.mean < 0.8
    assert first.sd > 0
    assert [column.mean for column in others] == [0.0, 0.0]


def test_importances_are_the_same_each_time_and_use_the_model_of_each_fold(values):
    run, indices = read_run(values, linear_of), []

    def model_of(index):
        indices.append(index)
        return by_size

    first = permutation_importance(run.scored, run.linear.data.rows, model_of)
    assert permutation_importance(run.scored, run.linear.data.rows, model_of) == first
    assert indices == [0, 1, 0, 1]


def test_an_undefined_score_is_an_error(values):
    run = read_run(values, linear_of)
    with pytest.raises(DataError, match="finite"):
        permutation_importance(run.scored, run.linear.data.rows, lambda _: lambda rows: by_size(rows) * np.nan)


def test_a_run_without_models_says_why_the_report_has_no_importances(values):
    page = Page(fp.runs.report(values).read_text("utf-8"))
    assert TITLE in page.words
    assert "The importance was not computed: " in page.text


def test_the_models_of_a_blend_share_the_number_of_predicted_rows(tmp_path):
    """Every model of a blend predicts the rows, so a blend of two models uses half as many rows as a single model."""
    run = read_run(finished(tmp_path, lambda targets: targets + 1.0, classes=(), count=600), linear_of)
    run = evolve(run, model_of=lambda _: by_size)
    assert "of 500 out-of-fold rows" in sections.importance(run)
    members = {name: {"weight": weight} for name, weight in (("a", 0.4), ("b", 0.6), ("c", 0.0))}
    assert "of 250 out-of-fold rows" in sections.importance(evolve(run, metrics=run.metrics | {"members": members}))


def importances(page):
    """Return the section of a report with the importance of the columns."""
    return page.decode().partition(TITLE)[2].partition("</section>")[0]


@pytest.mark.parametrize("model", ["sklearn.linear_model:LogisticRegression", "encoder", "auto"])
def test_the_report_of_a_run_has_importances_of_its_models(model, tmp_path):
    pytest.importorskip("sklearn")
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path / "data", rows=60, test_rows=20)
    changes = ["observers.minutes=0.01"] if model == "auto" else [f"model.name={model}", "training.epochs=1"]
    overrides = [*changes, f"data.path={tmp_path / 'data'}", f"output={tmp_path}", "name=run", "validation.folds=2"]
    preset = "auto" if model == "auto" else "titanic"
    config = fp.runs.load_config(preset=preset, overrides=[*overrides, "observers.progress=false"]).config
    folder = fp.last(fp.runs.run(config)).folder
    written = (folder / "report.html").read_bytes()
    section = importances(written)
    assert "shuffles of 60 out-of-fold rows" in section
    assert all(f">{column.name}<" in section for column in fp.kaggle.SPECS["titanic"].columns)
    again = fp.runs.report(folder).read_bytes()
    assert importances(again) == section
    assert again == written or model == "auto"  # with a time limit, the linear model of the first report may be missing
    if model == "auto":
        assert re.search(r"<td[^>]*>\w+: (boosted trees|linear model)", written.decode())  # a line about a member
    for member in folder.glob("members/*/report.html"):
        assert TITLE not in member.read_text("utf-8")
