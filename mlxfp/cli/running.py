"""`mlxfp run`, `resume` and `predict`: from a configuration to a submission, and from a trained run to predictions of other rows."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from mlxfp.cli.configuring import add_config, known_names, loaded
from mlxfp.cli.parsing import Commands, add_command, say, start_mlx, warn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfp.runs import RunEvent


def add(commands: Commands) -> None:
    """Add `run`, `resume` and `predict`."""
    example = "mlxfp run titanic --data data/titanic\nmlxfp run run.yaml training.epochs=3 name=short"
    add_config(add_command(commands, "run", _run, example=example))
    resume = add_command(commands, "resume", _resume, example="mlxfp resume runs/titanic")
    resume.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    resume.add_argument(
        "overrides", metavar="key=value", nargs="*", help="options that change no result, such as data.path=PATH for data that were moved"
    )
    predict = add_command(commands, "predict", _predict, example="mlxfp predict runs/titanic --data new.csv --out predictions.csv")
    predict.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    predict.add_argument("--data", metavar="FILE", required=True, help="a CSV file with the columns of the test file")
    predict.add_argument("--out", metavar="FILE", help="write a CSV file, instead of printing it")


def _run(options: Namespace) -> int:
    """Train and evaluate every fold, predict the test rows, write the submission. Run it again to continue after an interruption."""
    _start()
    from mlxfp.runs import run

    config = loaded(options, known_names()).config
    return _show(run(config), Path(config.output) / config.name)


def _resume(options: Namespace) -> int:
    """Continue a run, from its folder alone, or show how it ended."""
    _start()
    from mlxfp.runs import resume

    return _show(resume(options.folder, overrides=options.overrides), Path(options.folder))


def _predict(options: Namespace) -> int:
    """Predict the rows of a file with all models of a finished run."""
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
    from mlxfp.runs import Began, Ended, FoldBegan, FoldEnded, Noted

    folds = 0
    try:
        for event in events:
            match event:
                case Began(folder=place, folds=folds, done=done):
                    say(f"{place}: {folds} folds" + (f", {done} of them done" if done else ""))
                case FoldBegan(fold=fold, rows=rows, step=step):
                    say(f"fold {fold} of {folds}: {rows:,} rows" + (f", from step {step}" if step else ""))
                case FoldEnded(fold=fold, metric=metric, score=score):
                    say(f"fold {fold} of {folds}: {metric} " + ("undefined" if score is None else f"{score:.4f}"))
                case Noted(message=message):
                    warn(message)
                case Ended(folder=place, score=total, submission=submission):
                    say(f"{place}: out of fold, {total}" if total is not None else f"{place}: done")
                    if submission is not None:
                        say(f"{submission} is ready to submit: mlxfp submit {place}")
    except KeyboardInterrupt:
        warn(f"stopped. Continue with: mlxfp resume {folder}")
        raise
    return 0
