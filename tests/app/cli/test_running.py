"""`mlxfp run`, `resume` and `predict`."""

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mlxfp as fp
from mlxfp.app.cli import main, running

SMALL = (
    *("model.name=encoder", "data.limit=60", "text.vocab_size=300", "training.epochs=1", "validation.folds=2"),
    *("observers.progress=false", "observers.plots=false"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    output = tmp_path_factory.mktemp("a folder with spaces")
    assert main(["run", "titanic", *SMALL, f"output={output}"]) == 0
    return output / "titanic"


def test_run_says_what_happens(run, capsys):
    assert main(["run", "titanic", *SMALL, f"output={run.parent}"]) == 0
    first, score, ready = capsys.readouterr().out.splitlines()
    assert first == f"{run}: 2 folds, 2 of them done"
    assert score.startswith(f"{run}: out of fold, accuracy 0.")
    assert ready == f"{run}/submission.csv is ready to submit: mlxfp submit {run}"


def test_a_run_that_ends_has_a_report_unless_nothing_is_to_be_drawn(run, capsys, monkeypatch):
    assert not (run / "report.html").exists()
    drawn = run.parent / "drawn"
    shutil.copytree(run, drawn)
    text = (drawn / "config.yaml").read_text()
    (drawn / "config.yaml").write_text(text.replace("plots: false", "plots: true").replace("name: titanic", "name: drawn"))
    assert main(["resume", str(drawn)]) == 0
    assert "<h1>" in (drawn / "report.html").read_text()
    assert f"{drawn}/report.html is the report. To open the report: mlxfp report '{drawn}' --open" in capsys.readouterr().out
    monkeypatch.setenv("BROWSER", "true")
    (drawn / "report.html").write_text("opened")
    assert main(["report", str(drawn), "--open"]) == 0
    assert (drawn / "report.html").read_text() == "opened"  # --open writes only a missing report


def test_a_network_that_starts_again_prints_its_first_lines_once(tmp_path, capsys):
    """A network without time for all epochs starts several times. The terminal shows each line once."""
    member = tmp_path / "members" / "tabm"
    first = [fp.runs.Began(member, folds=5, done=0), fp.runs.FoldBegan(member, 1, rows=80, step=0)]
    assert running._show(iter([*first, *first, fp.runs.FoldEnded(member, 1, metric="accuracy", score=0.5)]), tmp_path) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{member}: neural network for tables (tabm), 5 folds",
        "tabm, fold 1 of 5: 80 rows",
        "tabm, fold 1 of 5: accuracy 0.5000",
    ]


@pytest.mark.parametrize(
    ("weight", "adds", "line"),
    [
        (0.0, -0.0021, "0.8000, weight 0.00, would add -0.0021 to the blend"),
        (0.4, 0.0021, "0.8000, weight 0.40, adds +0.0021 to the blend"),
        (1.0, None, "0.8000, weight 1.00"),
    ],
)
def test_a_member_with_the_weight_zero_adds_nothing_to_the_blend(weight, adds, line, capsys):
    """Print the contribution of a removed member as a condition, because the blend does not contain the member."""
    event = fp.runs.Weighed(Path("run"), "lightgbm", score=0.8, weight=weight, adds=adds)
    assert running._show(iter([event]), Path("run")) == 0
    assert capsys.readouterr().out.strip().partition(": ")[2] == line


def test_resume_needs_the_folder_only(run, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(run.parent)
    assert main(["resume", "titanic"]) == 0
    assert "2 of them done" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path)
    assert main(["resume", str(run), "observers.every=2"]) == 0


def test_predict_writes_a_table(run, capsys, tmp_path):
    data = run / "data" / "test.csv"
    assert main(["predict", str(run), "--data", str(data), "--probabilities", "--out", str(tmp_path / "made.csv")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/made.csv: 200 rows.\n"
    with (tmp_path / "made.csv").open() as file, (run / "test_predictions.csv").open() as own:
        assert list(csv.DictReader(file)) == list(csv.DictReader(own))
    assert main(["predict", str(run), "--data", str(data)]) == 0
    assert capsys.readouterr().out == (run / "submission.csv").read_text()  # the metric is accuracy, so the submission has classes


def test_predict_says_that_a_target_in_the_file_is_not_read(run, capsys):
    data = run / "data" / "train.csv"
    assert main(["predict", str(run), "--data", str(data)]) == 0
    assert f"mlxfp: {data} has the target 'Survived', which the prediction does not read.\n" in capsys.readouterr().err
    assert main(["predict", str(run), "--data", str(run / "data" / "test.csv")]) == 0
    assert "has the target" not in capsys.readouterr().err


def test_predict_on_a_folder_names_the_file_to_give(run, capsys):
    """The folder of the data is no file of rows. The message has the path of the test file in this folder."""
    folder = run / "data"
    assert main(["predict", str(run), "--data", str(folder)]) == 1
    assert f"{str(folder)!r} is a folder." in (message := capsys.readouterr().err)
    assert message.endswith(f"such as '{folder}/test.csv'.\n")
    assert main(["predict", str(run), "--data", str(folder / "tst.csv")]) == 1
    assert "Did you mean 'test.csv'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (["runs/x", "new.csv"], "runs/x --data new.csv"),
        (["new.csv", "runs/x"], "runs/x --data new.csv"),
        (["new.csv", "--data", "runs/x"], "runs/x --data new.csv"),
        (["runs/x"], "runs/x --data FILE"),
        (["new.csv", "--data", "new.csv"], "FOLDER --data new.csv"),
        (["new.csv"], "FOLDER --data new.csv"),
        (["runs/x", "none.csv"], "runs/x --data none.csv"),
    ],
)
def test_predict_with_arguments_in_another_form_prints_the_command(words, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("runs/x").mkdir(parents=True)
    Path("new.csv").write_text("id\n1\n")
    assert main(["predict", *words]) == 1
    got = " ".join(word for word in words if word != "--data")
    assert capsys.readouterr().err == (
        f"mlxfp: A prediction needs the folder of a run and, after --data, a file of rows, got {got}. Run: mlxfp predict {command}\n"
    )


def test_a_run_on_a_private_table_names_its_predictions_and_the_command_for_new_rows(tmp_path, monkeypatch, capsys):
    """Without a sample submission, nothing is to be submitted."""
    pytest.importorskip("sklearn")
    monkeypatch.chdir(tmp_path)
    Path("shop").mkdir()
    Path("shop/train.csv").write_text("id,a,y\n" + "".join(f"{at},{at % 7},{'yes' if at % 7 > 3 else 'no'}\n" for at in range(60)))
    Path("shop/test.csv").write_text("id,a\n900,3\n901,6\n")
    small = ("validation.folds=2", "observers.progress=false", "observers.plots=false")
    assert main(["run", "shop", "model.name=sklearn.linear_model:LogisticRegression", *small]) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "To predict new rows: mlxfp predict runs/shop --data FILE"
    assert "ready to submit" not in printed.out
    assert (
        f"mlxfp: The test predictions are in runs/shop/test_predictions.csv. No submission was written, because {tmp_path / 'shop'} has no "
        "sample submission.\n"
    ) in printed.err
    assert main(["predict", "runs/shop", "--data", "shop/test.csv", "--probabilities"]) == 0
    head, *rows = [line.split(",") for line in capsys.readouterr().out.splitlines()]
    assert head == ["id", "yes"]
    assert [float(chance) > 0.5 for _, chance in rows] == [False, True]
    assert Path("runs/shop/oof.csv").read_text().startswith("id,target,yes\n")
    assert Path("runs/shop/test_predictions.csv").read_text().startswith("id,yes\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "titanik"), "Did you mean 'titanic'"),
        (("run", "titanic", "training.epochs=0"), "training.epochs (command line): expected at least 1, got 0"),
        (("run", "titanic", "--data", "nowhere"), "There is no folder"),
        (("run", "development"), "The run has no data. Give the folder of your files as data.path=FOLDER"),
        (("resume", "nowhere"), "is not the folder of a run"),
        (("predict", "nowhere", "--data", "x.csv"), "is not the folder of a run"),
    ],
)
def test_a_mistake_is_a_sentence_and_an_exit_code(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    out, error = capsys.readouterr()
    assert error.startswith("mlxfp: ")
    assert message in error
    assert "Traceback" not in out + error
    assert not list(tmp_path.iterdir())  # a refused run leaves no folder


def test_another_configuration_is_refused(run, capsys):
    assert main(["run", "titanic", *SMALL, f"output={run.parent}", "training.seed=1"]) == 1
    assert "training.seed is 0 in the folder and 1 now" in capsys.readouterr().err


def test_an_interrupt_says_how_to_go_on(tmp_path):
    # Slow on purpose: it is interrupted in the middle of the first fold.
    command = [sys.executable, "-m", "mlxfp", "run", "titanic", *SMALL, "training.epochs=1000", "observers.every=1", f"output={tmp_path}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    log = tmp_path / "titanic" / "fold-01" / "log.jsonl"
    while not (log.is_file() and log.read_text().count("\n") > 3):
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"stopped. Continue with: mlxfp resume {tmp_path}/titanic" in error
    assert "Traceback" not in error


def test_a_run_on_a_train_file_alone_says_how_the_target_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(f"word {place},{place % 2}\n" for place in range(20)))
    assert main(["run", "development", "--data", "train.csv"]) == 1
    said = capsys.readouterr().err
    assert "add --target COLUMN to the command, or data.target=COLUMN to the options" in said
    assert main(["data", "infer", "train.csv", "--target", "label", "--out", "spec.yaml"]) == 0
    assert main(["config", "check", "development", "--data", "train.csv", "data.spec=spec.yaml"]) == 0
