"""Every way to run leaves a report in the folder, and one that cannot be written loses nothing."""

import re

import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.app.reports import linear_models
from mlxfp.app.runs.auto import running
from mlxfp.app.runs.auto.members import Member
from tests.app.reports.test_reports import Page
from tests.app.runs.competitions import competition, configured, texts

pytest.importorskip("sklearn")
DRAWN = "observers.plots=true"


@pytest.fixture
def data(tmp_path):
    train = [{**row, "y": int("cat" in row["text"])} for row in texts(48)]
    return competition(tmp_path / "data", train, texts(8, 900))


def ran(data, *overrides):
    *_, end = fp.runs.run(configured(data, "model.name=tfidf", *overrides))
    return end.folder


def linear_score(run):
    """The line of the linear model in the report of a run."""
    return re.search(r"a linear model</t[hd]>.*?</tr>", (run / "report.html").read_text("utf-8"))[0]


def test_a_run_ends_with_its_report(data):
    for event in fp.runs.run(configured(data, "model.name=tfidf", DRAWN)):
        report = event.folder / "report.html"
        assert isinstance(event, fp.runs.Ended | fp.runs.Noted) or not report.exists()
    written = report.read_bytes()
    page = Page(written.decode())
    assert page.words.count("Score") == 1
    assert "Without rows equal to a row in another fold" in page.text  # these texts repeat
    assert fp.runs.report(event.folder).read_bytes() == written


def test_a_report_that_is_there_stays_and_one_that_is_missing_is_written(data):
    run = ran(data)
    assert not (run / "report.html").exists()
    for text in (None, "mine"):
        if text is not None:
            (run / "report.html").write_text(text)
        list(fp.runs.resume(run, overrides=[DRAWN]))
        assert ((run / "report.html").read_text() == "mine") == (text is not None)
    (run / "fold-01" / "result.json").unlink()
    list(fp.runs.resume(run, overrides=[DRAWN]))
    assert (run / "report.html").read_text() != "mine"  # of outputs that were made again


def test_a_report_that_cannot_be_written_loses_nothing(data, capsys):
    run = ran(data)
    (run / "report.html").mkdir()
    *events, end = fp.runs.resume(run, overrides=[DRAWN])
    assert isinstance(end, fp.runs.Ended)
    (said,) = (event for event in events if "report" in getattr(event, "message", ""))
    assert said.message.startswith("The report was not written: IsADirectoryError: ")
    assert said.message.endswith(f"The run itself is done. To try again: mlxfp report {run}")
    assert main(["resume", str(run), DRAWN]) == 0
    assert "mlxfp: The report was not written" in capsys.readouterr().err


def test_members_have_reports_with_the_linear_model_of_the_whole_run(data, monkeypatch):
    fitted, predicted = [], linear_models._predicted
    monkeypatch.setattr(linear_models, "_predicted", lambda model, fold, truth: fitted.append(fold) or predicted(model, fold, truth))
    chosen = (
        Member("one", {"model": {"name": "sklearn.neighbors:KNeighborsClassifier"}}),
        Member("two", {"model": {"name": "sklearn.naive_bayes:BernoulliNB"}}),
    )
    monkeypatch.setattr(running, "members", lambda facts: chosen)
    quick = [f"data.path={data}", f"output={data.parent}", "validation.folds=2", "observers.progress=false"]
    whole = list(fp.runs.run(fp.runs.load_config(preset="auto", overrides=quick).config))[-1].folder
    folders = [whole, *(whole / "members" / each.name for each in chosen)]
    pages = [Page((folder / "report.html").read_text("utf-8")).text for folder in folders]
    assert ["Members" in page for page in pages] == [True, False, False]
    assert len({linear_score(folder) for folder in folders}) == 1
    assert len(fitted) == 2  # folds, and not those of each report
    for folder in folders[1:]:  # a run of its own
        written = (folder / "report.html").read_bytes()
        assert fp.runs.report(folder).read_bytes() == written


def test_a_run_over_files_ends_with_its_report(tmp_path):
    (tmp_path / "texts").mkdir()
    for place in range(8):
        (tmp_path / "texts" / f"{place}.txt").write_text("the cat sat on the mat. " * 20)
    small = ["task=language_model", f"data.path={tmp_path}/texts", f"output={tmp_path}", "name=writer", "training.epochs=1"]
    *_, end = fp.runs.run(fp.runs.load_config(overrides=[*small, "model.size=tiny", "text.vocab_size=270", "text.max_length=16"]).config)
    assert "perplexity" in Page((end.folder / "report.html").read_text("utf-8")).text


def test_a_blend_has_a_report_of_its_own(data, tmp_path, capsys):
    fp.runs.blend([ran(data, f"name={name}") for name in ("first", "second")], tmp_path / "quiet")
    assert not (tmp_path / "quiet" / "report.html").exists()
    drawn = [ran(data, f"name={name}", DRAWN) for name in ("third", "fourth")]
    made = fp.runs.blend(drawn, tmp_path / "both")
    report = tmp_path / "both" / "report.html"
    page, written = Page(report.read_text("utf-8")), report.read_bytes()
    assert {"Blend both", "Score", "Runs of the blend", "Confusion", *map(str, drawn)} <= set(page.words)
    assert f"{made.score.overall:.4g}" in page.text
    report.unlink()
    assert main(["report", str(tmp_path / "both")]) == 0
    assert report.read_bytes() == written
