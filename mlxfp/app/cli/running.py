"""The commands `mlxfp run`, `resume`, `predict`, `export` and `blend`: training, and the use of trained runs."""

import math
from argparse import SUPPRESS, Namespace
from pathlib import Path
from shlex import join, quote
from time import monotonic
from typing import TYPE_CHECKING

from mlxfp.app.cli.configuring import add_code, add_config, config_arguments, known_names, loaded
from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx_quietly, warn, warn_once
from mlxfp.app.cli.ranks import add_ranks, connected, end_well, launch, wants_ranks
from mlxfp.support.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfp.app.runs import RunEvent


def add(commands: Commands) -> None:
    """Add the commands `run`, `resume`, `predict`, `export` and `blend` to the command line."""
    lines = (
        "data/titanic --minutes 10",
        "houses.csv --target price",
        "titanic --data data/titanic",
        "run.yaml training.epochs=3 name=short",
        "mine.yaml --code .",
        "run.yaml --ranks 2",
    )
    example = "\n".join(f"mlxfp run {line}" for line in lines)
    run = add_command(commands, "run", _run, example=example)
    add_config(run)
    add_ranks(run)
    run.add_argument("--minutes", metavar="M", type=float, help="short for observers.minutes=M: the time limit for the whole command")
    resume = add_command(commands, "resume", _resume, example="mlxfp resume runs/titanic\nmlxfp resume runs/titanic training.epochs=20")
    resume.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    resume.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        help="options to change, such as data.path=PATH for moved data, more training.epochs, or a larger observers.minutes for an "
        "unfinished run; other options that change results are refused",
    )
    predict = add_command(commands, "predict", _predict, example="mlxfp predict runs/titanic --data new.csv --out predictions.csv")
    predict.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    predict.add_argument("words", nargs="*", default=[], help=SUPPRESS)  # for an error message with the correct command
    predict.add_argument("--data", metavar="FILE", help="a file with the columns of the test file")
    predict.add_argument("--probabilities", action="store_true", help="write the probability of each class instead of the class")
    predict.add_argument("--out", metavar="FILE", help="write the predictions to this CSV file instead of printing")
    export = add_command(commands, "export", _export, example="mlxfp export runs/titanic --out models/titanic")
    export.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    export.add_argument("--out", metavar="FOLDER", required=True, help="the folder for the models, with a subfolder for each fold")
    blend = add_command(commands, "blend", _blend, example="mlxfp blend runs/first runs/second --out runs/both --method greedy")
    blend.add_argument(
        "folders",
        metavar="FOLDER",
        nargs="+",
        help="the folders of runs on the same rows and folds",
    )
    blend.add_argument("--out", metavar="FOLDER", required=True, help="the folder for predictions, metrics and submission")
    blend.add_argument("--method", metavar="NAME", default="mean", help="mean, rank, vote or greedy (default: mean)")
    for command in (run, resume, predict, export, blend):
        add_code(command)


def _run(options: Namespace) -> int:
    """Train and evaluate every fold, predict the test rows and write the submission. The same command continues an interrupted run.

    With only a folder of data, mlxfp chooses several models, trains all models on the same folds within a time limit, and blends them.
    """
    since = monotonic()  # the time limit includes the duration of the imports below
    if options.minutes is not None:
        options.overrides = [*options.overrides, f"observers.minutes={options.minutes}"]
    if wants_ranks(options):
        loaded(options, known_names())  # check the configuration once here, so that not every rank reports the same mistakes
        return launch(options, ["run", *config_arguments(options), *(["--code", options.code] if options.code else [])])
    start_mlx_quietly()
    from mlxfp.app.runs import run

    config, ranks = loaded(options, known_names()).config, connected()
    code = _show(run(config, code=options.code, ranks=ranks, since=since), Path(config.output) / config.name)
    end_well(ranks)
    return code


def _resume(options: Namespace) -> int:
    """Continue a run from the run folder, or show the result of a finished run."""
    start_mlx_quietly()
    from mlxfp.app.runs import resume

    return _show(resume(options.folder, overrides=options.overrides, code=options.code), Path(options.folder))


def _predict(options: Namespace) -> int:
    """Predict the rows of a file with all models of a finished run."""
    from mlxfp.app.run_folders.folders import CONFIG

    if options.words or options.data is None or Path(options.folder).is_file():
        words = [options.folder, *options.words, *([options.data] if options.data else [])]
        runs = [word for word in words if Path(word, CONFIG).is_file()] or [word for word in words if not Path(word).is_file()]
        folder = runs[0] if runs else "FOLDER"
        file = next((word for word in words if word != folder), "FILE")
        raise ArgumentError(
            f"A prediction needs the folder of a run and, after --data, a file of rows, got {join(words)}. "
            f"Run: mlxfp predict {quote(folder)} --data {quote(file)}"
        )
    start_mlx_quietly()
    from mlxfp.app.run_folders.files import csv_text, write_text
    from mlxfp.app.runs import predict
    from mlxfp.app.runs.finished import unread_targets

    columns = predict(options.folder, options.data, probabilities=options.probabilities, code=options.code)
    if targets := unread_targets(options.folder, options.data):
        warn(f"{options.data} has the target {', '.join(map(repr, targets))}, which the prediction does not read.")
    text = csv_text(columns)
    if options.out is None:
        say(text.rstrip("\n"))
    else:
        write_text(Path(options.out), text)
        name, first = next(iter(columns.items()))
        numbered = ", with row numbers, starting at 0, in the column 'row'" if name == "row" else ""
        say(f"{options.out}: {len(first):,} rows{numbered}.")
    return 0


def _export(options: Namespace) -> int:
    """Write the models of a finished run for models.load and for the Hugging Face Hub."""
    start_mlx_quietly()
    from mlxfp.app.runs import export

    for path in export(options.folder, options.out, code=options.code):
        say(str(path))
    return 0


def _blend(options: Namespace) -> int:
    """Combine the out-of-fold and test predictions of finished runs, score the blend out of fold, and write a submission."""
    start_mlx_quietly()
    from mlxfp.app.runs import blend

    result = blend(options.folders, options.out, method=options.method, code=options.code)
    for folder, value in result.parts.items():
        say(f"{folder}: {result.score.metric} {value:.4f}")
    say(f"{options.out}: out of fold, {result.score}")
    if result.submission is not None:
        say(f"{result.submission} is ready to submit: mlxfp submit {result.submission} --competition NAME")
    return 0


def _show(events: "Iterator[RunEvent]", folder: Path) -> int:
    """Print the events of a run to standard output and warnings to standard error."""
    from mlxfp.app.run_folders.folders import REPORT, other_limit, stored_settings
    from mlxfp.app.runs import Began, Ended, LeftOut, Noted
    from mlxfp.app.runs.events import NO_TIME

    show, printed, folds, late = warn_once(), set[str](), 0, list[str]()
    try:
        for event in events:
            if isinstance(event, Noted):
                show(event.message)
            if isinstance(event, LeftOut) and event.why == NO_TIME:
                late.append(event.member)
                continue
            folds = event.folds if isinstance(event, Began) else folds
            for line in _lines_without_folds(event, folder) if folds == 1 else _lines(event, folder, folds):
                if line not in printed:  # print only once: a network that starts again with fewer epochs repeats its first lines
                    say(line)
                printed.add(line)
            if isinstance(event, Ended) and event.folder == folder and late:
                minutes = stored_settings(folder)["observers"]["minutes"]
                say(f"No time was left for {', '.join(late)}. With more time: {other_limit(folder, max(10, math.ceil(2 * minutes)))}")
            if isinstance(event, Ended) and event.folder == folder and (folder / REPORT).is_file():
                say(f"{folder / REPORT} is the report. To open the report: mlxfp report {quote(str(folder))} --open")
    except KeyboardInterrupt:
        warn(f"stopped. Continue with: mlxfp resume {folder}, or without a time limit: mlxfp resume {folder} observers.minutes=null")
        raise
    return 0


def _lines(event: "RunEvent", run: Path, folds: int) -> "Iterator[str]":
    """Yield the lines to print for an event. `run` is the folder of the whole run, and `folds` the number of its folds."""
    from mlxfp.app.run_folders.folders import SPEC
    from mlxfp.app.runs import Began, Ended, FoldBegan, FoldEnded, LeftOut, Summarized, Weighed
    from mlxfp.app.runs.auto.members import describe

    name, member = event.folder, _is_member(event.folder, run)
    of = f"{name.name}, " if member else ""  # prefix with the name of the model in a run with several models
    match event:
        case Began(done=done):
            about = f"{text}, " if member and (text := describe(name.name)) else ""
            yield f"{name}: {about}{folds} folds" + (f", {done} of them done" if done else "")
        case Summarized(text=text):
            yield f"{name}:\n{text}"
        case FoldBegan(fold=fold, rows=rows, step=step):
            yield f"{of}fold {fold} of {folds}: {rows:,} rows" + (f", from step {step}" if step else "")
        case FoldEnded(fold=fold, metric=metric, score=score):
            yield f"{of}fold {fold} of {folds}: {metric} " + ("undefined" if score is None else f"{score:.4f}")
        case LeftOut(member=model, why=why):
            yield f"{model} is left out: {why}"
        case Weighed(member=model, score=value, weight=weight, adds=adds):
            about = f" ({text})" if (text := describe(model)) else ""
            yield f"{model}{about}: {value:.4f}, weight {weight:.2f}" + _addition(weight, adds)
        case Ended(score=total, submission=submission):
            scored = "out of fold" if member or (total is not None and len(total.folds) > 1) else "validation rows"
            yield f"{name}: {scored}, {total}" if member or total is not None else f"{name}: done"
            if submission is not None and not member:
                yield f"{submission} is ready to submit: mlxfp submit {name}"
            elif (name / SPEC).is_file() and not member:  # not a run on images, sounds or texts
                yield f"To predict new rows: mlxfp predict {quote(str(name))} --data FILE"


def _lines_without_folds(event: "RunEvent", run: Path) -> "Iterator[str]":
    """Yield the lines to print for an event of a run on texts, images or sounds. The last line of the run has the score."""
    from mlxfp.app.runs import Began, FoldBegan, FoldEnded

    match event:
        case FoldBegan(rows=rows, step=step):
            yield f"{event.folder}: training on {rows:,} examples" + (f", from step {step}" if step else "")
        case Began() | FoldEnded():
            return
        case _:
            yield from _lines(event, run, 1)


def _is_member(folder: Path, run: Path) -> bool:
    from mlxfp.app.run_folders.folders import MEMBERS

    return folder.parent.name == MEMBERS and folder != run


def _addition(weight: float, adds: float | None) -> str:
    return "" if adds is None else f", {'adds' if weight else 'would add'} {adds:+.4f} to the blend"
