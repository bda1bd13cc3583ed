"""One function for all reports."""

from os import PathLike
from pathlib import Path

from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.reports.comparing import write_comparison
from mlxfp.app.runs.reports.event_logs import is_log, write_logs
from mlxfp.app.runs.reports.writing import write
from mlxfp.support.checks import check_types, explain_call
from mlxfp.support.errors import ArgumentError


@explain_call
def report(*paths: str | PathLike[str], out: str | PathLike[str] | None = None, code: Code = None) -> Path:
    """Write a report as one HTML file of bounded size that loads nothing, and return its path. It is the same each time.

    Of the folder of a finished run, or of a blend, by default to its `report.html`: the score next to those of a constant and of a linear
    model on the same folds, the learning curves, confusion and calibration or residuals, the worst mistakes with their texts, lengths,
    warnings, the configuration, versions and hashes. Where the rows cannot be read any more, what needs them is left out. `runs.run` and
    `runs.blend` have written it unless `observers.plots` is false.

    Of several runs, by default to `comparison.html`: what `runs.compare` finds, each run against the first.

    Of logs that `observers.log_metrics` has written (`.jsonl` files, or folders that hold some), by default to `report.html`: the learning
    curves of all over each other, how far each came, the last, the lowest and the highest value of each metric, and warnings. The log of a
    training run that was killed, or still runs, is read as far as it was written.

    `code` is that of `runs.run`. Raises `MissingFileError` for a folder that holds neither a run nor a log, `DataError` for a run that is
    not done or a file that is not a log, and `ArgumentError` for no path, or more than 100 logs.

    >>> from tempfile import TemporaryDirectory
    >>> line = '{"event": "Stepped", "step": %d, "epoch": 0, "seconds": %d, "metrics": {"loss": 0.5}}'
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/log.jsonl").write_text("".join(line % (step, step) + chr(10) for step in range(5)))
    ...     "<svg" in report(f"{folder}/log.jsonl", out=f"{folder}/report.html").read_text()
    True

    See also: `runs.compare`, for the same as a value; `plot_run`, for a picture.
    """
    for path in paths:
        check_types((str, PathLike), path=path)
    if not paths:
        raise ArgumentError("A report needs the folder of a run, or a log of observers.log_metrics, got none. Name one or more.")
    if all(map(is_log, paths)):
        return write_logs(paths, out or "report.html")
    return write(paths[0], out=out, code=code) if len(paths) == 1 else write_comparison(paths, out or "comparison.html", code=code)
