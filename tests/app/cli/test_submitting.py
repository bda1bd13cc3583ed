"""`mlxfp submit`: checked first, sent only with --yes; a fake of Kaggle's client replies, and nothing reaches a network."""

import sys
from types import ModuleType
from types import SimpleNamespace as Reply

import attrs
import pytest

import mlxfp as fp
from mlxfp.app.cli import main


@pytest.fixture
def kaggle(monkeypatch):
    """Kaggle's client with a reply to come: what it was asked to send is in `sent`."""
    sent = []
    found = Reply(ref=7, status="COMPLETE", public_score="0.775", error_description="too few rows")

    def send(file_name, message, competition, quiet):
        sent.append((file_name, competition, message))
        return Reply(ref=7, message="arrived")

    client = Reply(authenticate=lambda: None, competition_submit=send, competition_submissions=lambda competition: [found])
    monkeypatch.setenv("KAGGLE_API_TOKEN", "made up")
    for name in ("kaggle", "kaggle.api"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "kaggle.api.kaggle_api_extended", Reply(KaggleApi=lambda: client))
    return Reply(sent=sent, found=found)


@pytest.fixture
def ship(tmp_path):
    """A folder with synthetic passengers."""
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], tmp_path / "ship", rows=30, test_rows=10)
    return tmp_path / "ship"


def a_run(folder, spec, data, made, **competition):
    """Write what a run leaves behind, as far as `submit` reads it."""
    folder.mkdir()
    config = fp.runs.RunConfig(data=fp.runs.DataConfig(path=data), competition=fp.runs.CompetitionConfig(**competition))
    (folder / "config.yaml").write_text(fp.runs.write_document(fp.runs.unstructure(config)))
    fp.kaggle.save_spec(spec, folder / "spec.yaml")
    if made is not None:
        (folder / config.competition.submission).write_bytes(made)
    return folder


def test_nothing_is_sent_without_a_yes(ship, kaggle, capsys):
    sample = ship / "gender_submission.csv"
    assert main(["submit", str(sample), "--competition", "titanic", "--sample", str(sample)]) == 0
    assert (
        capsys.readouterr().out
        == f"{sample} matches the sample {sample}.\nThe file was not sent to titanic. To send the file, add --yes.\n"
    )
    assert kaggle.sent == []


def test_on_a_yes_it_is_sent_and_its_score_is_said(ship, kaggle, capsys):
    file = ship / "gender_submission.csv"
    assert main(["submit", str(file), "--competition", "titanic", "--message", "first try", "--yes"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{file} was not checked, because no sample submission is known. To check the file, add --sample FILE.",
        "titanic: complete. The score is 0.775.",
    ]
    assert kaggle.sent == [(str(file), "titanic", "first try")]


def test_what_does_not_fit_the_sample_is_never_sent(ship, kaggle, capsys):
    sample, file = ship / "gender_submission.csv", ship / "mine.csv"
    file.write_text("PassengerId,Survived\n1,0.5\n")
    assert main(["submit", str(file), "--competition", "titanic", "--sample", str(sample), "--yes"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        f"mlxfp: {file} does not match the sample {sample} and was not sent:\n- number of rows: 1, but 10 in the sample\n"
    )
    assert "- 'Survived': values that are not whole numbers as in the sample (1): 0.5 in row 1" in said
    assert kaggle.sent == []


def test_a_submission_that_cannot_be_scored_is_exit_code_1(ship, kaggle, capsys):
    kaggle.found.status = "ERROR"
    assert main(["submit", str(ship / "gender_submission.csv"), "--competition", "titanic", "--yes"]) == 1
    assert capsys.readouterr().out.endswith("titanic: error. The submission could not be scored: too few rows\n")


def test_a_run_knows_its_file_its_competition_and_its_sample(ship, tmp_path, kaggle, capsys):
    sample = ship / "gender_submission.csv"
    run = a_run(tmp_path / "first", fp.kaggle.SPECS["titanic"], str(ship), sample.read_bytes(), submission="mine.csv")
    assert main(["submit", str(run), "--yes"]) == 0
    assert capsys.readouterr().out == f"{run / 'mine.csv'} matches the sample {sample}.\ntitanic: complete. The score is 0.775.\n"
    assert kaggle.sent == [(str(run / "mine.csv"), "titanic", "first")]


def test_probabilities_are_wanted_where_the_metric_is_of_such(ship, tmp_path, capsys):
    lines = (ship / "gender_submission.csv").read_text().splitlines()
    made = "\n".join([lines[0], *(f"{line.split(',')[0]},0.5" for line in lines[1:])]).encode()
    run = a_run(tmp_path / "first", fp.kaggle.SPECS["titanic"], str(ship), made, metric="roc_auc")
    assert main(["submit", str(run)]) == 0
    run = a_run(tmp_path / "second", fp.kaggle.SPECS["titanic"], str(ship), made)
    assert main(["submit", str(run)]) == 1
    assert "0.5 in row 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "competition"),
    [
        ("disaster_tweets", "nlp-getting-started"),
        ("house_prices", "house-prices-advanced-regression-techniques"),
        ("spaceship_titanic", "spaceship-titanic"),
        ("spaceship-titanic", "spaceship-titanic"),
    ],
)
def test_a_known_data_set_is_submitted_under_its_name_on_kaggle(name, competition, tmp_path, capsys):
    spec = fp.kaggle.SPECS[name] if name in fp.kaggle.SPECS else attrs.evolve(fp.kaggle.SPECS["titanic"], name=name)
    run = a_run(tmp_path / "first", spec, str(tmp_path), b"id,x\n1,2\n")
    assert main(["submit", str(run)]) == 0
    assert capsys.readouterr().out == (
        f"{run / 'submission.csv'} was not checked, because no sample submission is known. To check the file, add --sample FILE.\n"
        f"The file was not sent to {competition}. To send the file, add --yes.\n"
    )
    assert main(["submit", str(run), "--competition", "other"]) == 0
    assert "The file was not sent to other" in capsys.readouterr().out


def test_the_name_of_a_folder_is_no_competition(tmp_path, kaggle, capsys):
    """The inferred spec of a run has the name of the folder. The competition is unknown, and `--competition` gives the name."""
    run = a_run(tmp_path / "first", attrs.evolve(fp.kaggle.SPECS["titanic"], name="cats"), str(tmp_path), b"id,x\n1,2\n")
    assert main(["submit", str(run)]) == 0
    remedy = "The file was not sent. To send the file, add --yes and the name from the competition's URL: --competition NAME.\n"
    assert capsys.readouterr().out.endswith(remedy)
    assert main(["submit", str(run), "--yes"]) == 1
    assert f"The Kaggle competition of {run} is not known." in capsys.readouterr().err
    assert kaggle.sent == []
    assert main(["submit", str(run), "--yes", "--competition", "cats"]) == 0
    assert [sent[1] for sent in kaggle.sent] == ["cats"]


def test_predictions_of_synthetic_rows_are_checked_and_never_sent(tmp_path, kaggle, capsys):
    run = a_run(tmp_path / "first", fp.kaggle.SPECS["titanic"], None, b"")
    fp.kaggle.write_synthetic(fp.kaggle.SPECS["titanic"], run / "data", rows=30, test_rows=10)
    (run / "submission.csv").write_bytes((run / "data" / "gender_submission.csv").read_bytes())
    assert main(["submit", str(run)]) == 0
    assert "matches the sample" in capsys.readouterr().out
    assert main(["submit", str(run), "--yes"]) == 1
    assert "predicts synthetic rows and was not sent. Run on the files of the competition" in capsys.readouterr().err
    assert kaggle.sent == []


def test_mistakes_are_sentences(tmp_path, capsys):
    file, run = tmp_path / "mine.csv", a_run(tmp_path / "first", fp.kaggle.SPECS["titanic"], "data", None)
    file.write_text("id,x\n1,2\n")
    for arguments, said in (
        (
            [str(file), "--yes"],
            f"mlxfp: The Kaggle competition of {file} is not known. Give the name from the competition's URL: --competition titanic.",
        ),
        ([str(tmp_path / "no.csv")], "mlxfp: There is no file or folder at"),
        ([str(run)], f"mlxfp: The run in {run} has no submission.csv. Continue the run first: mlxfp resume {run}"),
        ([str(tmp_path)], f"mlxfp: {str(tmp_path)!r} is not the folder of a run"),
        ([str(file), "--competition", "x", "--sample", "no.csv"], "mlxfp: There is no file at 'no.csv'"),
    ):
        assert main(["submit", *arguments]) == 1
        assert capsys.readouterr().err.startswith(said)
