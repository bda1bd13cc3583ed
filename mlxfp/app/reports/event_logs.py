"""Reports of training runs without folds, computed from event logs only."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp.app.reports.charts import line_chart
from mlxfp.app.reports.sections import section
from mlxfp.app.reports.writing import page, short_names
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import write_text
from mlxfp.observers import log_panels, read_log
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError
from mlxfp.support.html import Html, clip, element, table

_NAME, _TEXT, _REASON = 60, 2000, 200  # maximum numbers of characters of names, of warnings, and of reasons why a run ended
_CHARTS, _WARNINGS, _LOGS = 24, 50, 100  # the report shows at most 24 charts, 50 warnings and 100 logs


@frozen
class Log:
    """Event log of a training run."""

    name: str
    lines: Sequence[Mapping[str, Any]]

    def all(self, event: str) -> list[Mapping[str, Any]]:
        """Return all log lines with the given kind of event."""
        return [line for line in self.lines if line["event"] == event]


def is_log(path: str | PathLike[str]) -> bool:
    """Return True for a log file of `observers.log_metrics`, or for a folder with logs but without a finished run."""
    file = Path(path)
    return file.is_file() or (file.is_dir() and not (file / folders.CONFIG).is_file() and any(_logs_in(file)))


def write_logs(logs: Sequence[str | PathLike[str]], out: str | PathLike[str]) -> Path:
    """Write a report of training runs from logs of `observers.log_metrics`, or from folders with logs. Return the path."""
    files = [file for path in logs for file in _files(Path(path))]
    if len(files) > _LOGS:
        raise ArgumentError(f"A report takes up to {_LOGS} logs, got {len(files)} logs. Pass fewer logs or folders.")
    names = [name.removesuffix(".jsonl").removesuffix("/log") for name in short_names(files)]
    read = [Log(name, read_log(file)) for file, name in zip(files, names, strict=True)]
    title = f"Run {clip(read[0].name, _NAME)}" if len(read) == 1 else f"{len(read)} runs"
    parts: tuple[Callable[[Sequence[Log]], Html], ...] = (_ends, _values, _warnings, _curves)
    write_text(Path(out), page(title, *(part(read) for part in parts)))
    return Path(out)


def _files(path: Path) -> Sequence[Path]:
    if path.is_dir():
        files = sorted(_logs_in(path))
        if not files:
            raise MissingFileError(
                f"{fspath(path)!r} has no log. Give a .jsonl file of observers.log_metrics, or a folder with such files."
            )
        return files
    if path.suffix != ".jsonl":
        raise DataError(f"{fspath(path)!r} is not a log of observers.log_metrics. Give a file that ends in .jsonl.")
    return [path]


def _logs_in(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*.jsonl") if _is_written_by_us(path))


def _is_written_by_us(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.readline(200).startswith('{"event": "')


def _ends(logs: Sequence[Log]) -> Html:
    """Return a table with the steps of each run and the reason of its end."""
    rows = []
    for log in logs:
        last = log.lines[-1] if log.lines else {"step": 0, "epoch": 0, "seconds": 0.0}
        reasons = [line["reason"] for line in log.all("Stopped")]
        end = reasons[-1] if reasons and log.lines[-1]["event"] == "Stopped" else "unknown: still running, or killed"
        rows.append((clip(log.name, _NAME), last["step"], last.get("epoch", 0) + 1, last["seconds"], clip(end, _REASON)))
    return section("Runs", table(["run", "steps", "epochs", "seconds", "ended by"], rows))


def _values(logs: Sequence[Log]) -> Html:
    """Return a table with the last, lowest and highest value of each metric. Show the training step of the lowest and highest value."""
    rows = []
    for log in logs:
        for event, prefix in (("Stepped", "train/"), ("Evaluated", "")):
            for name, points in _metrics(log.all(event)).items():
                low, high = (extreme(points, key=lambda point: point[1]) for extreme in (min, max))
                at = [f"{value:.6g} at step {step}" for step, value in (low, high)]
                rows.append((clip(log.name, _NAME), clip(prefix + name, _NAME), points[-1][1], *at))
    return section("Values", table(["run", "metric", "last", "lowest", "highest"], rows)) if rows else Html()


def _metrics(lines: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    points: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        for name, value in line.get("metrics", {}).items():
            if value is not None and name != "weight":
                points.setdefault(name, []).append((line["step"], float(value)))
    return points


def _warnings(logs: Sequence[Log]) -> Html:
    """Return a list of the warnings in the logs. Add a warning for each non-finite metric value."""
    messages = []
    for log in logs:
        messages += [f"{log.name}, step {line['step']}: {line['message']}" for line in log.all("Warned")]
        for line in log.lines:
            messages += [
                f"{log.name}, step {line['step']}: {name} is not finite" for name, value in line.get("metrics", {}).items() if value is None
            ]
    more = f"{len(messages) - _WARNINGS:,} more warnings are not listed." if len(messages) > _WARNINGS else ""
    items = element("ul", *(element("li", clip(message, _TEXT)) for message in messages[:_WARNINGS])) if messages else element("p", "None.")
    return section("Warnings", items, element("p", more) if more else "")


def _curves(logs: Sequence[Log]) -> Html:
    drawn: dict[str, dict[str, Any]] = {}
    for log in logs:
        for title, curves in log_panels(log.lines).items():
            for name, points in curves.items():
                drawn.setdefault(title, {})[name if len(logs) == 1 else f"{log.name} {name}"] = points
    charts = [line_chart(title, curves, x="step", y=title) for title, curves in drawn.items()]
    return section("Learning curves", element("div", *charts[:_CHARTS], class_="charts")) if charts else Html()
