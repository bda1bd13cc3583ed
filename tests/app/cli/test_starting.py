"""`mlxfp new`: a folder that runs as it is."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.config.loading import resolve_config
from mlxfp.app.reports.linear_models import LinearModel

HOSTILE = 'it\'s # a {folder}: "x"'


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder that is made for a competition in a folder whose name is hard to quote, and the current folder."""
    here = tmp_path_factory.mktemp("here")
    data = here / HOSTILE
    data.mkdir()
    ages = [20 + row * 7 % 41 for row in range(160)]
    rows = "".join(f"{row},{int(abs(age - 40) < 8)},{'mf'[row % 2]},{age}\n" for row, age in enumerate(ages))
    (data / "train.csv").write_text(f"Id,Survived,Sex,Age\n{rows}")  # the middle ages: no linear model is better than a constant
    (data / "test.csv").write_text("Id,Sex,Age\n900,m,25\n901,f,40\n")
    (data / "sample_submission.csv").write_text("Id,Survived\n900,0\n901,0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        assert main(["new", "ship", "--data", HOSTILE]) == 0
    config = here / "ship" / "config.yaml"
    config.write_text(config.read_text().replace("minutes: 5.0", "minutes: 0.3"))  # for a short test
    return here / "ship", here


def cells(folder):
    return [cell["source"] for cell in json.loads((folder / "notebook.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]


def test_it_runs_as_it_is_and_so_does_its_notebook(made, monkeypatch, tmp_path, capsys):
    folder, _ = made
    monkeypatch.chdir(tmp_path)  # the commands work in any folder
    assert main(["run", str(folder / "config.yaml")]) == 0
    said = capsys.readouterr()
    assert "weight" in said.out
    assert {"report.html", "submission.csv"} <= {each.name for each in (folder / "runs" / "ship").iterdir()}
    monkeypatch.chdir(folder)
    names: dict[str, object] = {}
    for cell in cells(folder):
        exec(compile(cell, "cell", "exec"), names)
    assert names["event"].submission == folder / "runs" / "ship" / "submission.csv"
    assert [value.tolist() for value in map(np.asarray, names["predictions"].values())] == [["900", "901"], ["0", "1"]]


def test_the_run_of_a_new_folder_beats_a_linear_model(made):
    """The blend must learn that a middle range of a column decides, which no linear model can."""
    folder, _ = made
    assert main(["run", str(folder / "config.yaml")]) == 0  # continues a finished run of another test
    plan = fp.runs.plan(fp.runs.load_config(folder / "config.yaml").config)
    linear = fp.kaggle.score(LinearModel(plan.data, plan.folds).oof, plan.metric)
    *_, end = fp.runs.resume(folder / "runs" / "ship")
    assert end.score.overall > linear.overall + 0.2
    assert "a linear model" in (folder / "runs" / "ship" / "report.html").read_text()


def test_its_commands_work(made, capsys):
    folder, here = made
    assert main(["config", "check", str(folder / "config.yaml")]) == 0
    assert main(["data", "check", str(here / HOSTILE), "--spec", str(folder / "spec.yaml")]) == 0
    assert capsys.readouterr().out.endswith("The files match the spec.\n")


@pytest.mark.parametrize(
    "command", ["resume ship", "report ship", "compare ship ship", "predict ship --data x.csv", "submit ship", "export ship --out models"]
)
def test_a_project_in_place_of_a_run_is_answered_with_the_command(command, made, monkeypatch, capsys):
    monkeypatch.chdir(made[1])
    assert main(command.split()) == 1
    assert capsys.readouterr().err == (
        "mlxfp: ship is a project, not a run. Start a run with mlxfp run ship/config.yaml, or continue a run with "
        "mlxfp resume ship/runs/NAME.\n"
    )


def test_the_configuration_is_explained_and_fits_its_schema(made):
    folder, here = made
    path = folder / "config.yaml"
    text = path.read_text()
    assert text.startswith("# yaml-language-server: $schema=mlxfp.schema.json\n")
    jsonschema.validate(fp.runs.read_document(path).values, json.loads((folder / "mlxfp.schema.json").read_text()))
    config = resolve_config(path).config
    assert (config.data.path, config.name, config.model.name) == (str(here / HOSTILE), "ship", "auto")
    lines = text.splitlines()
    for number, line in enumerate(lines):  # each option has a comment in front of it
        assert not line or line.lstrip().startswith("#") or line.endswith(":") or lines[number - 1].lstrip().startswith("# "), line
    assert fp.kaggle.load_spec(folder / "spec.yaml").target == ("Survived",)
    assert all(name in (folder / "README.md").read_text() for name in ("spec.yaml", "config.yaml", "notebook.ipynb", HOSTILE))


def test_its_notebook_has_the_format_of_jupyter(made):
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.read(made[0] / "notebook.ipynb", as_version=4))


def test_nothing_is_overwritten(made, capsys):
    folder, here = made
    before = {each: each.stat().st_mtime_ns for each in folder.iterdir()}
    assert main(["new", str(folder), "--data", str(here / HOSTILE)]) == 1
    assert "exists and is not an empty folder" in capsys.readouterr().err
    assert {each: each.stat().st_mtime_ns for each in folder.iterdir()} == before


def test_a_target_that_cannot_be_inferred_is_asked_for_and_no_folder_is_left(tmp_path, capsys):
    file = tmp_path / "cats.csv"
    file.write_text("age,purrs\n1,yes\n2,no\n")
    assert main(["new", str(tmp_path / "cats"), "--data", str(file)]) == 1
    assert "--target COLUMN" in capsys.readouterr().err
    assert not (tmp_path / "cats").exists()
    assert main(["new", str(tmp_path / "cats"), "--data", str(file), "--target", "purrs"]) == 0
    assert fp.kaggle.load_spec(tmp_path / "cats" / "spec.yaml").target == ("purrs",)
    assert main(["new", str(tmp_path / "dogs"), "--data", str(tmp_path / "dogs.csv")]) == 1
    assert "dogs.csv" in capsys.readouterr().err
    assert not Path(tmp_path, "dogs").exists()
