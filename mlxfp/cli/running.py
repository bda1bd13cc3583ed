"""`mlxfp run`, `resume` and `predict`: a configuration to a submission, and a trained run to predictions of other rows."""

import csv
import sys
from argparse import Namespace
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxfp.cli.configuring import add_config, loaded
from mlxfp.cli.parsing import Commands, add_command, say, start_mlx, warn

if TYPE_CHECKING:
    from mlxfp.runs import RunEvent


def add(commands: Commands) -> None:
    """Add `run`, `resume` and `predict`."""
    about = "Train and judge every fold, predict the test rows, write the submission. Run again, it goes on where it was."
    run = add_command(
        commands, "run", _run, about=about, example="mlxfp run titanic --data data/titanic\nmlxfp run run.yaml training.epochs=3 name=short"
    )
    add_config(run)
    about = "Go on with a run, from its folder alone; or say again how it ended."
    resume = add_command(commands, "resume", _resume, about=about, example="mlxfp resume runs/titanic")
    resume.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    resume.add_argument(
        "overrides", metavar="key=value", nargs="*", help="what changes no result, such as data.path=PATH for data that were moved"
    )
    about = "Predict the rows of a file with all models of a run that is done."
    predict = add_command(
        commands, "predict", _predict, about=about, example="mlxfp predict runs/titanic --data new.csv --out predictions.csv"
    )
    predict.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    predict.add_argument("--data", metavar="FILE", required=True, help="a CSV file with the columns of the test file")
    predict.add_argument("--out", metavar="FILE", help="write a CSV file, in place of printing it")


def _run(options: Namespace) -> int:
    config = loaded(options).config
    _start()
    from mlxfp.runs import run

    return _show(run(config), Path(config.output) / config.name)


def _resume(options: Namespace) -> int:
    _start()
    from mlxfp.runs import resume

    return _show(resume(options.folder, overrides=options.overrides), Path(options.folder))


def _predict(options: Namespace) -> int:
    _start()
    from mlxfp.runs import predict
    from mlxfp.runs.folders import write_text

    columns = predict(options.folder, options.data)
    text = StringIO()
    lists = [list(column) for column in columns.values()]
    csv.writer(text, lineterminator="\n").writerows([columns, *zip(*lists, strict=True)])
    if options.out is None:
        say(text.getvalue().rstrip("\n"))
    else:
        write_text(Path(options.out), text.getvalue())
        say(f"{options.out}: {len(lists[0]):,} rows.")
    return 0


def _start() -> None:
    for problem in start_mlx():
        warn(problem)


def _show(events: "Iterator[RunEvent]", folder: Path) -> int:
    """Say what happens in a run, on standard output; what a person should know, on standard error."""
    from mlxfp.runs import Began

    folds = 0
    try:
        for event in events:
            folds = event.folds if isinstance(event, Began) else folds
            for line in _lines(event, folds):
                say(line)
                sys.stdout.flush()
    except KeyboardInterrupt:
        warn(f"stopped. Go on with: mlxfp resume {folder}")
        raise
    return 0


def _lines(event: Any, folds: int) -> Iterator[str]:
    from mlxfp.runs import Began, Ended, FoldBegan, FoldEnded, Noted

    match event:
        case Began(folder=folder, done=done):
            yield f"{folder}: {folds} folds" + (f", {done} of them done" if done else "")
        case FoldBegan(fold=fold, rows=rows, step=step):
            yield f"fold {fold} of {folds}: {rows:,} rows" + (f", from step {step}" if step else "")
        case FoldEnded(fold=fold, metric=metric, score=score):
            yield f"fold {fold} of {folds}: {metric} " + ("undefined" if score is None else f"{score:.4f}")
        case Noted(message=message):
            warn(message)
        case Ended(folder=folder, score=score, submission=submission):
            yield f"{folder}: out of fold, {score}" if score is not None else f"{folder}: done"
            if submission is not None:
                yield f"{submission} is ready to hand in: mlxfp submit {folder}"
