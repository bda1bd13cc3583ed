"""The report of training runs without folds is made of their logs alone."""

import json

import pytest

import mlxfp as fp
from mlxfp.app.cli import main
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError
from tests.app.reports.finished import HOSTILE
from tests.app.reports.test_reports import Page
from tests.training.observers.runs import run
from tests.training.samples import dataset, setting


def logged(path, *, epochs=2):
    """Train, and write the log."""
    step, first = setting()
    events = fp.fit(step, first, dataset(), epochs=epochs, log_every=1)
    list(fp.pipe(events, fp.observers.evaluate_every(lambda state: {"accuracy": state.step / 8}), fp.observers.log_metrics(path)))
    return path


def test_a_log_of_a_run_is_drawn_with_its_last_values(tmp_path):
    page = Page(fp.runs.report(logged(tmp_path / "first" / "log.jsonl"), out=tmp_path / "report.html").read_text())
    assert "Run first" in page.text
    assert {"loss", "learning rate", "accuracy", "steps per second"} <= set(page.words)
    assert "epochs" in page.words  # why it ended
    lines = [json.loads(line) for line in (tmp_path / "first" / "log.jsonl").read_text().splitlines()]
    last = [line["metrics"]["loss"] for line in lines if line["event"] == "Stepped"][-1]
    assert f"{last:.4f}" in page.words
    assert "0.75 at step 6" in page.words
    assert "script" not in page.names


def test_several_logs_are_drawn_over_each_other_and_told_apart_by_their_paths(tmp_path):
    for name, epochs in (("a", 1), ("b", 2)):
        logged(tmp_path / name / "log.jsonl", epochs=epochs)
    page = Page(fp.runs.report(tmp_path / "a" / "log.jsonl", tmp_path / "b", out=tmp_path / "report.html").read_text())
    assert {"a training", "b training", "a accuracy", "b accuracy"} <= set(page.words)
    assert page.words[page.words.index("seconds") :].count("3")  # the steps of the first
    assert Page(fp.runs.report(tmp_path, out=tmp_path / "report.html").read_text()).text == page.text  # a folder of both


def test_a_log_of_a_killed_run_says_so_and_what_is_not_finite_is_a_warning(tmp_path):
    metrics = iter([{"loss": float("nan")}, {"loss": 0.5}])

    def warning(events):
        for event in events:
            yield event
            if event.step == 2:
                yield event.derive(fp.events.Warned, f"no connection {HOSTILE}")

    stream = fp.pipe(
        run(), fp.observers.evaluate_every(lambda state: next(metrics)), warning, fp.observers.log_metrics(tmp_path / "log.jsonl")
    )
    list(zip(range(10), stream, strict=False))
    with (tmp_path / "log.jsonl").open("a") as file:
        file.write('{"event": "Stepped", "st')
    text = fp.runs.report(tmp_path / "log.jsonl", out=tmp_path / "report.html").read_text()
    page = Page(text)
    assert "unknown: still running, or killed" in page.words
    assert any("step 2: loss is not finite" in words for words in page.words)
    assert any("no connection" in words for words in page.words)
    assert HOSTILE not in text


def test_a_long_log_makes_a_small_page(tmp_path):
    line = {"event": "Stepped", "epoch": 0, "metrics": {"loss": 0.5, "odd": None}}
    lines = [json.dumps(line | {"step": step, "seconds": step / 10}) for step in range(8_000)]
    (tmp_path / "log.jsonl").write_text("\n".join(lines) + "\n")
    assert fp.runs.report(tmp_path, out=tmp_path / "report.html").stat().st_size < 100_000


def test_what_is_not_a_log_is_named(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"x": 1}\n')
    with pytest.raises(DataError, match="is not a log of log_metrics: line 1 is"):
        fp.runs.report(tmp_path / "rows.jsonl", out=tmp_path / "report.html")
    (tmp_path / "log.csv").touch()
    with pytest.raises(DataError, match=r"is not a log of observers\.log_metrics\. Give a file that ends in \.jsonl"):
        fp.runs.report(tmp_path / "log.csv", out=tmp_path / "report.html")
    with pytest.raises(MissingFileError, match="is not the folder of a run"):
        fp.runs.report(tmp_path, out=tmp_path / "report.html")
    with pytest.raises(ArgumentError, match="needs the folder of a run or a log"):
        fp.runs.report(out=tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_command_takes_logs_and_folders_of_logs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    list(fp.pipe(run(), fp.observers.log_metrics("mine/log.jsonl")))
    for place, out in (("mine/log.jsonl", "report.html"), ("mine", "other.html")):
        assert main(["report", place, *([] if out == "report.html" else ["--out", out])]) == 0
        assert capsys.readouterr().out == f"{out}\n"
        assert "Learning curves" in (tmp_path / out).read_text()
    assert main(["report", "nothing"]) == 1
    assert "is not the folder of a run" in capsys.readouterr().err
