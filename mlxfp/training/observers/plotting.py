"""Plots of training runs."""

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from mlxfp.support.checks import check_types
from mlxfp.support.errors import ArgumentError, DataError
from mlxfp.support.optional import optional
from mlxfp.training.observers.logs import read_log

PathLike = str | os.PathLike[str]
Points = list[tuple[int, float]]

_SIDE_BY_SIDE = 2


def plot_run(log: PathLike, picture: PathLike) -> None:
    """Plot the log of a run, written by `log_metrics` as `.jsonl`: loss, learning rate, evaluations and steps per second.

    `picture` is a `.png` or `.svg` file. Non-finite numbers leave a gap. The command `mlxfp report` compares several logs. Raises
    `MissingExtraError` without matplotlib, `MissingFileError` for a missing log, and `DataError` for a file that is not a log or has no
    metrics.

    >>> from tempfile import TemporaryDirectory
    >>> line = '{"event": "Stepped", "step": %d, "epoch": 0, "seconds": %d, "metrics": {"loss": 0.5, "learning_rate": 0.1}}'
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/log.jsonl").write_text("".join(line % (step, step) + chr(10) for step in range(5)))
    ...     plot_run(f"{folder}/log.jsonl", f"{folder}/run.svg")
    ...     "steps per second" in Path(f"{folder}/run.svg").read_text()
    True
    """
    if Path(picture).suffix not in (".png", ".svg"):
        raise ArgumentError(f"A picture is a .png or .svg file, got {os.fspath(picture)!r}. Use one of these suffixes.")
    check_types((str, os.PathLike), log=log)
    figures = optional("matplotlib.figure", extra="plots", needed_by="plot_run")
    matplotlib = optional("matplotlib", extra="plots", needed_by="plot_run")
    panels = {title: curves for title, curves in log_panels(read_log(Path(log))).items() if curves}
    if not panels:
        raise DataError(f"{os.fspath(log)} has no metrics to plot. Train for more steps, or lower log_every.")
    rows = -(-len(panels) // _SIDE_BY_SIDE)
    figure = figures.Figure(figsize=(12, 3.5 * rows), layout="constrained")
    for index, (title, curves) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(rows, min(len(panels), _SIDE_BY_SIDE), index)
        axes.set(title=title, xlabel="step")
        for name, points in curves.items():
            axes.plot(*zip(*points, strict=True), label=name, marker="." if len(points) == 1 else None)
        if len(curves) > 1:
            axes.legend(fontsize="x-small")
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text in SVG files stays searchable
        figure.savefig(os.fspath(picture))


def log_panels(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Points]]:
    """Return the curves of a log for plotting: plot title -> curve name -> points (step, value).

    >>> log_panels([{"event": "Evaluated", "step": 5, "metrics": {"valid/loss": 0.7}}])["loss"]
    {'valid/loss': [(5, 0.7)]}
    """
    trained = _curves([line for line in lines if line["event"] == "Stepped"])
    panels: dict[str, dict[str, Points]] = {"loss": {"training": trained.pop("loss")} if "loss" in trained else {}, "learning rate": {}}
    for name, points in _curves([line for line in lines if line["event"] == "Evaluated"]).items():
        panels.setdefault(name.rpartition("/")[2], {})[name] = points
    panels["steps per second"] = _speeds(lines)
    for name, points in trained.items():
        panels.setdefault("learning rate" if name.startswith("learning_rate") else name, {})[name] = points
    rates = list(panels["learning rate"].values())
    if len(rates) > 1 and all(points == rates[0] for points in rates):
        panels["learning rate"] = {"learning_rate": rates[0]}  # one curve is enough if all parameter groups have equal learning rates
    panels.pop("weight", None)  # the metric `weight` is the batch size, which shows no progress and needs no plot
    return panels


def _curves(lines: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    curves: dict[str, Points] = {}
    for line in lines:
        for name, value in line.get("metrics", {}).items():
            curves.setdefault(name, []).append((line["step"], float("nan") if value is None else value))
    return curves


def _speeds(lines: Sequence[Mapping[str, Any]]) -> dict[str, Points]:
    timed = [line for line in lines if line["event"] in ("Stepped", "RunStarted")]
    speeds = [
        (after["step"], (after["step"] - before["step"]) / (after["seconds"] - before["seconds"]))
        for before, after in pairwise(timed)
        if after["event"] == "Stepped" and after["seconds"] > before["seconds"]
    ]
    return {"steps per second": speeds} if speeds else {}
