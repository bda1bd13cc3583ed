"""The commands `mlxfp report` and `mlxfp compare`: reports of finished runs."""

import webbrowser
from argparse import Namespace
from pathlib import Path

from mlxfp.app.cli.configuring import add_code
from mlxfp.app.cli.parsing import Commands, add_command, say

_EXAMPLE = "mlxfp report runs/titanic --open\nmlxfp report runs/first runs/second\nmlxfp report first/log.jsonl second/log.jsonl --open"


def add(commands: Commands) -> None:
    """Add `report` and `compare`."""
    report = add_command(commands, "report", _report, example=_EXAMPLE)
    report.add_argument(
        "folders",
        metavar="RUN",
        nargs="+",
        help="the folder of a run, or a training log (.jsonl); several runs are compared with the first run",
    )
    report.add_argument(
        "--out", metavar="FILE", help="the HTML file (default: report.html in the run folder, comparison.html for several runs)"
    )
    report.add_argument(
        "--open", action="store_true", help="open the report in the browser; an existing report of one run is not written again"
    )
    compare = add_command(commands, "compare", _compare, example="mlxfp compare runs/first runs/second")
    compare.add_argument("folders", metavar="RUN", nargs="+", help="the folders of runs; all runs are compared with the first run")
    for command in (report, compare):
        add_code(command)


def _report(options: Namespace) -> int:
    """Write one HTML file: the report of a finished run, a comparison of several runs, or a report of training logs."""
    from mlxfp.app.run_folders.folders import CONFIG, REPORT
    from mlxfp.app.runs.reporting import report

    file, is_run = Path(options.folders[0], REPORT), Path(options.folders[0], CONFIG).is_file()
    has_options = len(options.folders) > 1 or options.out is not None or options.code is not None
    if not options.open or has_options or not is_run or not file.is_file():
        file = report(*options.folders, out=options.out, code=options.code)
    say(str(file))
    if options.open:
        webbrowser.open(Path(file).resolve().as_uri())
    return 0


def _compare(options: Namespace) -> int:
    """Compare the options and scores of finished runs. Print the rows for which the predictions of the runs differ most."""
    from mlxfp.app.runs.reporting import compare

    say(str(compare(options.folders, code=options.code)))
    return 0
