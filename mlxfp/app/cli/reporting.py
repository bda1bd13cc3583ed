"""`mlxfp report` and `mlxfp compare`: finished runs to look at."""

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
        "folders", metavar="RUN", nargs="+", help="the folder of a run; several are compared with the first. Or logs of training: .jsonl"
    )
    report.add_argument("--out", metavar="FILE", help="the HTML file (default: report.html, in the run; comparison.html for several)")
    report.add_argument("--open", action="store_true", help="open it in the browser")
    compare = add_command(commands, "compare", _compare, example="mlxfp compare runs/first runs/second")
    compare.add_argument("folders", metavar="RUN", nargs="+", help="the folders of runs; each is compared with the first")
    for command in (report, compare):
        add_code(command)


def _report(options: Namespace) -> int:
    """Write a report of a finished run, a comparison of several, or a report of logs of training, as one HTML file."""
    from mlxfp.app.runs.reporting import report

    made = report(*options.folders, out=options.out, code=options.code)
    say(str(made))
    if options.open:
        webbrowser.open(Path(made).resolve().as_uri())
    return 0


def _compare(options: Namespace) -> int:
    """Compare finished runs: their options, scores on the same folds, and rows."""
    from mlxfp.app.runs.reporting import compare

    say(str(compare(options.folders, code=options.code)))
    return 0
