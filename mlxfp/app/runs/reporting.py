"""Reports and comparisons of finished runs, whose rows are read again."""

from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path

from mlxfp.app.reports.comparing import RunComparison, compare_runs, write_comparison
from mlxfp.app.reports.event_logs import is_log, write_logs
from mlxfp.app.reports.linear_models import LinearModel
from mlxfp.app.reports.writing import write
from mlxfp.app.runs.from_config.planning import plan_in
from mlxfp.app.runs.own_parts import Code
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
    read = partial(linear_of, code=code)
    return write(paths[0], read, out=out) if len(paths) == 1 else write_comparison(paths, read, out or "comparison.html")


def compare(runs: Sequence[str | PathLike[str]], *, code: Code = None) -> RunComparison:
    """Compare finished runs with the first of them: options, scores on the same folds, and rows.

    The difference of two scores has an interval of a paired test over folds. Runs on other rows or folds are compared in their options
    alone, and the result says so. `code` is that of `runs.run`. Raises `ArgumentError` for fewer than two runs, `MissingFileError` for a
    folder that holds no run, `DataError` for a run that is not done.

    >>> compare(["runs/first"])
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: A comparison needs at least two runs, got 1. Name more folders of runs.

    See also: `report`, the same as a page; `kaggle.compare` for predictions of your own.
    """
    return compare_runs(runs, partial(linear_of, code=code))


def linear_of(folder: Path, code: Code = None) -> LinearModel:
    """Read the rows and folds of a run, for the linear model that the run is compared with."""
    made = plan_in(folder, code)
    return LinearModel(made.data, made.folds)
