"""The picture of a run shows what its log has."""

import json
import re

import pytest

import mlxfp as fp
from mlxfp.support import optional as optional_imports
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError, MissingExtraError, MissingFileError
from mlxfp.training.observers import plotting
from tests.training.samples import dataset, setting

pytest.importorskip("matplotlib")


def test_a_run_is_drawn_with_its_loss_rate_metrics_and_speed(tmp_path):
    step, state = setting(clip_norm=1.0)
    check = fp.observers.evaluate_every(lambda state: {"accuracy": 0.25 * state.step})
    fp.last(fp.pipe(fp.fit(step, state, dataset(), epochs=3, log_every=1), check, fp.observers.log_metrics(tmp_path / "log.jsonl")))
    fp.observers.plot_run(tmp_path / "log.jsonl", tmp_path / "run.svg")
    drawn = (tmp_path / "run.svg").read_text()
    assert all(f">{title}</text>" in drawn for title in ("loss", "learning rate", "accuracy", "steps per second", "grad_norm"))
    fp.observers.plot_run(str(tmp_path / "log.jsonl"), str(tmp_path / "run.png"))
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_evaluations_are_drawn_beside_their_like():
    lines = [
        {"event": "RunStarted", "step": 0, "seconds": 0.0},
        {
            "event": "Stepped",
            "step": 1,
            "seconds": 2.0,
            "metrics": {"loss": 0.5, "weight": 8.0, "learning_rate/0": 0.1, "learning_rate/1": 0.2},
        },
        {"event": "Evaluated", "step": 1, "seconds": 2.0, "metrics": {"loss": 0.6, "accuracy": 0.7}},
        {"event": "Evaluated", "step": 1, "seconds": 2.0, "metrics": {"hard/accuracy": None}},
        {"event": "Stepped", "step": 2, "seconds": 2.0, "metrics": {"learning_rate/1": 0.2}},
    ]
    assert {title: list(curves) for title, curves in plotting.log_panels(lines).items()} == {
        "loss": ["training", "loss"],
        "learning rate": ["learning_rate/0", "learning_rate/1"],
        "accuracy": ["accuracy", "hard/accuracy"],
        "steps per second": ["steps per second"],
    }
    assert plotting.log_panels(lines)["steps per second"]["steps per second"] == [(1, 0.5)]


def test_groups_with_equal_learning_rates_have_one_curve():
    lines = [
        {"event": "Stepped", "step": step, "seconds": step, "metrics": {f"learning_rate/{group}": step / 10 for group in "ab"}}
        for step in (1, 2)
    ]
    assert plotting.log_panels(lines)["learning rate"] == {"learning_rate": [(1, 0.1), (2, 0.2)]}


def test_numbers_that_are_not_finite_leave_a_gap(tmp_path):
    assert parts_of_the_curve(tmp_path, [0.5, 0.6, 0.55, 0.7, 0.8]) == [5]
    assert parts_of_the_curve(tmp_path, [0.5, 0.6, None, 0.7, 0.8]) == [2, 2]
    assert parts_of_the_curve(tmp_path, [None, 0.6, 0.7, 0.8, None]) == [3]


def parts_of_the_curve(folder, losses):
    """Draw the losses, and count the points of each connected part of the curve in the picture."""
    lines = [{"event": "Evaluated", "step": step, "seconds": step, "metrics": {"loss": loss}} for step, loss in enumerate(losses)]
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    fp.observers.plot_run(folder / "log.jsonl", folder / "run.svg")
    [curve] = re.findall(r'<path d="([^"]*)" clip-path[^>]*fill: none', (folder / "run.svg").read_text())
    return [1 + part.count("L") for part in curve.split("M")[1:]]


def test_mistakes_are_named(tmp_path, monkeypatch):
    log = tmp_path / "log.jsonl"
    with pytest.raises(MissingFileError, match=r"There is no log at .*log\.jsonl\. Write one with observers\.log_metrics"):
        fp.observers.plot_run(log, tmp_path / "run.png")
    with pytest.raises(ArgumentError, match=r"A picture is a \.png or \.svg file, got 'run\.pdf'"):
        fp.observers.plot_run(log, "run.pdf")
    log.write_text('{"event": "RunStarted", "step": 0, "seconds": 0.0}\n')
    with pytest.raises(DataError, match="has no metrics to plot"):
        fp.observers.plot_run(log, tmp_path / "run.png")
    log.write_text("a diary\n")
    with pytest.raises(DataError, match="is not a log of log_metrics: line 1 is 'a diary"):
        fp.observers.plot_run(log, tmp_path / "run.png")

    def missing(name):
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(optional_imports, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"plot_run needs matplotlib\. Install it with: pip install \"mlxfp\[plots\]\""):
        fp.observers.plot_run(log, tmp_path / "run.png")


def test_a_list_of_logs_is_refused(tmp_path):
    with pytest.raises(ArgumentTypeError, match=r"log must be str or PathLike, got list: \["):
        fp.observers.plot_run([tmp_path / "a.jsonl", tmp_path / "b.jsonl"], tmp_path / "run.svg")
