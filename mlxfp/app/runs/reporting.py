"""The functions `report` and `compare` for finished runs."""

from collections.abc import Sequence
from functools import partial
from os import PathLike
from pathlib import Path

from mlxfp.app.reports.comparing import RunComparison, compare_runs, comparison_page
from mlxfp.app.reports.event_logs import is_log, write_logs
from mlxfp.app.reports.linear_models import LinearModel
from mlxfp.app.reports.writing import write
from mlxfp.app.run_folders import folders
from mlxfp.app.run_folders.files import write_text
from mlxfp.app.runs.auto.results import fold_model
from mlxfp.app.runs.from_config.planning import plan_in
from mlxfp.app.runs.outcomes import identities
from mlxfp.app.runs.own_parts import Code
from mlxfp.app.runs.plans import Plan
from mlxfp.support.checks import check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError


@explain_call
def report(*paths: str | PathLike[str], out: str | PathLike[str] | None = None, code: Code = None) -> Path:
    """Write a report as one HTML file and return the path. The file has bounded size, loads no other files and is deterministic.

    The content depends on the paths:

    *The folder of one finished run or blend.* The report is `report.html` in this folder, unless `out` gives another path. Contents:

    - the score, compared with a constant and with a linear model on the same folds
    - importance of columns by permutation, and learning curves
    - for classes, the confusion matrix and the calibration; for values, the residuals
    - the worst mistakes with the texts of the rows, and the lengths of texts in tokens
    - warnings, configuration, package versions and file hashes

    Without the data files, sections that need the rows are omitted. `runs.run` and `runs.blend` write this report unless
    `observers.plots` is false.

    *The folders of several runs.* The report is `comparison.html` by default. Each run is compared with the first run, as in
    `runs.compare`.

    *Logs of `observers.log_metrics`* (`.jsonl` files, or folders with such files). The report is `report.html` by default, with the
    learning curves in common charts, the last step, warnings, and the last, lowest and highest value of each metric. Logs of killed or
    running trainings may be incomplete.

    See `runs.run` for `code`. Raises `MissingFileError` for a folder without a run or a log, `ArgumentError` for no path or more than 100
    logs, and `DataError` for an unfinished run, for data that have changed since the start of the run, or a file that is not a log.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> line = '{"event": "Stepped", "step": %d, "epoch": 0, "seconds": %d, "metrics": {"loss": 0.5}}'
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(f"{folder}/log.jsonl").write_text("".join(line % (step, step) + chr(10) for step in range(5)))
    ...     "<svg" in fp.runs.report(f"{folder}/log.jsonl", out=f"{folder}/report.html").read_text()
    True

    See also: `runs.compare` for a comparison as a value; `plot_run` for a picture.
    """
    for path in paths:
        check_types((str, PathLike), path=path)
    if not paths:
        raise ArgumentError("A report needs the folder of a run or a log of observers.log_metrics, got no path. Give at least one path.")
    if all(map(is_log, paths)):
        return write_logs(paths, out or "report.html")
    if len(paths) == 1:
        return write(Path(paths[0]), partial(linear_of, code=code), partial(fold_model, Path(paths[0]), code), out=out)
    page = Path(out or "comparison.html")
    write_text(page, comparison_page(compare(paths, code=code)))
    return page


def compare(runs: Sequence[str | PathLike[str]], *, code: Code = None) -> RunComparison:
    """Compare finished runs with the first run: options, scores on the same folds, and rows.

    Score differences have the confidence interval of a paired test over folds. If rows or folds differ, only the options are compared, and
    the result contains the reason. If the data of a run have changed, the texts of the rows are omitted. See `runs.run` for `code`. Raises
    `ArgumentError` for fewer than two runs, `MissingFileError` for a folder without a run, and `DataError` for an unfinished run.

    >>> import mlxfp as fp
    >>> fp.runs.compare(["runs/first"])
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: A comparison needs at least two runs, got 1. Add the folder of another run.

    See also: `report` for an HTML page; `kaggle.compare` for your own predictions.
    """
    return compare_runs(runs, partial(_unchanged, code=code))


def linear_of(folder: Path, code: Code = None) -> LinearModel:
    """Return a linear model for comparison with the run in `folder`. The model uses the rows and folds of the run.

    Raises `DataError` if the rows have changed.
    """
    plan = finished_plan(folder, code)
    return LinearModel(plan.data, plan.folds)


def finished_plan(run: Path, code: Code) -> Plan:
    """Return the plan of a finished run. Raises `DataError` if the data have changed, because the stored scores belong to other rows."""
    plan = plan_in(run, code)
    folders.check_data(run, identities(plan), ignored="config")
    return plan


def _unchanged(folder: Path, code: Code) -> LinearModel | None:
    """Return the result of `linear_of`, or None if the data have changed. A comparison then needs only the stored predictions and folds."""
    try:
        return linear_of(folder, code)
    except DataError:
        return None
