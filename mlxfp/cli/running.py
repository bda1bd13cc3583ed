"""`mlxfp run`, `resume` and `predict`: from a configuration to a submission, and from a trained run to predictions of other rows."""

import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlxfp.cli.configuring import add_config, known_names, loaded
from mlxfp.cli.parsing import Commands, add_command, say, start_mlx, warn

if TYPE_CHECKING:
    from mlxfp.runs import RunEvent


def add(commands: Commands) -> None:
    """Add `run`, `resume` and `predict`."""
    about = "Train and evaluate every fold, predict the test rows, write the submission. Run it again to continue after an interruption."
    run = add_command(
        commands, "run", _run, about=about, example="mlxfp run titanic --data data/titanic\nmlxfp run run.yaml training.epochs=3 name=short"
    )
    add_config(run)
    about = "Continue a run, from its folder alone, or show how it ended."
    resume = add_command(commands, "resume", _resume, about=about, example="mlxfp resume runs/titanic")
    resume.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    resume.add_argument(
        "overrides", metavar="key=value", nargs="*", help="options that change no result, such as data.path=PATH for data that were moved"
    )
    about = "Predict the rows of a file with all models of a finished run."
    predict = add_command(
        commands, "predict", _predict, about=about, example="mlxfp predict runs/titanic --data new.csv --out predictions.csv"
    )
    predict.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    predict.add_argument("--data", metavar="FILE", required=True, help="a CSV file with the columns of the test file")
    predict.add_argument("--out", metavar="FILE", help="write a CSV file, instead of printing it")


def _run(options: Namespace) -> int:
    _start()
    from mlxfp.runs import run

    config = loaded(options, known_names()).config

    return _show(run(config), Path(config.output) / config.name)


def _resume(options: Namespace) -> int:
    _start()
    from mlxfp.runs import resume

    return _show(resume(options.folder, overrides=options.overrides), Path(options.folder))


def _predict(options: Namespace) -> int:
    _start()
    from mlxfp.runs import predict
    from mlxfp.runs.files import csv_text, write_text

    columns = predict(options.folder, options.data)
    text = csv_text(columns)
    if options.out is None:
        say(text.rstrip("\n"))
    else:
        write_text(Path(options.out), text)
        say(f"{options.out}: {len(next(iter(columns.values()))):,} rows.")
    return 0


def _start() -> None:
    for problem in start_mlx():
        warn(problem)


def _show(events: "Iterator[RunEvent]", folder: Path) -> int:
    """Print the events of a run to standard output, and its messages to standard error."""
    from mlxfp.runs import Began

    folds = 0
    try:
        for event in events:
            folds = event.folds if isinstance(event, Began) else folds
            for line in _event_lines(event, folds):
                say(line)
                sys.stdout.flush()
    except KeyboardInterrupt:
        warn(f"stopped. Continue with: mlxfp resume {folder}")
        raise
    return 0


def _event_lines(event: Any, folds: int) -> Iterator[str]:
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
                yield f"{submission} is ready to submit: mlxfp submit {folder}"
