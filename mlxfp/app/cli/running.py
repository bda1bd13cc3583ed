"""`mlxfp run`, `resume`, `predict`, `export` and `blend`: from a configuration to a submission, and what trained runs are good for."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from mlxfp.app.cli.configuring import add_code, add_config, config_arguments, known_names, loaded
from mlxfp.app.cli.parsing import Commands, add_command, say, start_mlx, warn
from mlxfp.app.cli.ranks import add_ranks, connected, end_well, launch, wants_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlxfp.app.config import BlendConfig
    from mlxfp.app.runs import RunEvent


def add(commands: Commands) -> None:
    """Add `run`, `resume`, `predict`, `export` and `blend`."""
    lines = (
        "--data data/titanic --minutes 10",
        "titanic --data data/titanic",
        "run.yaml training.epochs=3 name=short",
        "mine.yaml --code .",
        "run.yaml --ranks 2",
    )
    example = "\n".join(f"mlxfp run {line}" for line in lines)
    run = add_command(commands, "run", _run, example=example)
    add_config(run)
    add_ranks(run)
    run.add_argument("--minutes", metavar="M", type=float, help="short for observers.minutes=M: the time that all models of auto may take")
    resume = add_command(commands, "resume", _resume, example="mlxfp resume runs/titanic\nmlxfp resume runs/titanic training.epochs=20")
    resume.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    resume.add_argument(
        "overrides",
        metavar="key=value",
        nargs="*",
        help="options that change no result, such as data.path=PATH for data that were moved, or more training.epochs",
    )
    predict = add_command(commands, "predict", _predict, example="mlxfp predict runs/titanic --data new.csv --out predictions.csv")
    predict.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    predict.add_argument("--data", metavar="FILE", required=True, help="a file with the columns of the test file")
    predict.add_argument("--out", metavar="FILE", help="write a CSV file, instead of printing it")
    export = add_command(commands, "export", _export, example="mlxfp export runs/titanic --out models/titanic")
    export.add_argument("folder", metavar="FOLDER", help="the folder of a run")
    export.add_argument("--out", metavar="FOLDER", required=True, help="the folder for the models, one in it for each fold")
    blend = add_command(commands, "blend", _blend, example="mlxfp blend runs/first runs/second --out runs/both --method greedy")
    blend.add_argument(
        "folders",
        metavar="FOLDER",
        nargs="+",
        help="the folders of runs on the same rows and folds, or a YAML file of runs, out and method",
    )
    blend.add_argument("--out", metavar="FOLDER", help="the folder for predictions, metrics and submission")
    blend.add_argument("--method", metavar="NAME", help="mean, rank, vote or greedy (default: mean)")
    for command in (run, resume, predict, export, blend):
        add_code(command)


def _run(options: Namespace) -> int:
    """Train and evaluate every fold, predict the test rows, write the submission. Run it again to continue after an interruption.

    With a folder of data alone, several models are chosen, trained on the same folds within some minutes, and blended.
    """
    if options.minutes is not None:
        options.overrides = [*options.overrides, f"observers.minutes={options.minutes}"]
    if wants_ranks(options):
        loaded(options)  # a mistake is said once, and not by every rank
        return launch(options, ["run", *config_arguments(options), *(["--code", options.code] if options.code else [])])
    _start()
    from mlxfp.app.runs import run

    config, ranks = loaded(options, known_names()).config, connected()
    code = _show(run(config, code=options.code, ranks=ranks), Path(config.output) / config.name)
    end_well(ranks)
    return code


def _resume(options: Namespace) -> int:
    """Continue a run, from its folder alone, or show how it ended."""
    _start()
    from mlxfp.app.runs import resume

    return _show(resume(options.folder, overrides=options.overrides, code=options.code), Path(options.folder))


def _predict(options: Namespace) -> int:
    """Predict the rows of a file with all models of a finished run."""
    _start()
    from mlxfp.app.run_folders.files import csv_text, write_text
    from mlxfp.app.runs import predict

    columns = predict(options.folder, options.data, code=options.code)
    text = csv_text(columns)
    if options.out is None:
        say(text.rstrip("\n"))
    else:
        write_text(Path(options.out), text)
        say(f"{options.out}: {len(next(iter(columns.values()))):,} rows.")
    return 0


def _export(options: Namespace) -> int:
    """Write the models of a finished run as models.load and the hub of Hugging Face read them."""
    _start()
    from mlxfp.app.runs import export

    for path in export(options.folder, options.out, code=options.code):
        say(str(path))
    return 0


def _blend(options: Namespace) -> int:
    """Combine the predictions of finished runs, score them out of fold, and write a submission."""
    _start()
    from mlxfp.app.runs import blend

    wanted = _wanted_blend(options)
    made = blend(wanted.runs, wanted.out, method=wanted.method, code=options.code)
    for folder, value in made.parts.items():
        say(f"{folder}: {made.score.metric} {value:.4f}")
    say(f"{wanted.out}: out of fold, {made.score}")
    if made.submission is not None:
        say(f"{made.submission} is ready to submit: mlxfp submit {made.submission} --competition NAME")
    return 0


def _wanted_blend(options: Namespace) -> "BlendConfig":
    """Read what to blend: from a file, if one is named, and what the command line says goes before it."""
    from mlxfp.app.config import BlendConfig, read_document, structure

    said = {name: value for name, value in (("out", options.out), ("method", options.method)) if value is not None}
    if len(options.folders) > 1 or Path(options.folders[0]).is_dir():
        return structure({"runs": options.folders, **said}, BlendConfig, what="the command line, whose values are runs, --out and --method")
    path = options.folders[0]
    document = read_document(path)
    return structure(
        {**document.values, **said},
        BlendConfig,
        what=path,
        origin=lambda place: f"{path}:{document.lines[place]}" if place in document.lines else "",
    )


def _start() -> None:
    for problem in start_mlx():
        warn(problem)


def _show(events: "Iterator[RunEvent]", folder: Path) -> int:
    """Print the events of a run to standard output, and its messages to standard error."""
    from mlxfp.app.runs import Began, Ended, Noted

    folds = 0
    try:
        for event in events:
            match event:
                case Began(folder=place, folds=folds, done=done):
                    say(f"{place}: {folds} folds" + (f", {done} of them done" if done else ""))
                case Noted(message=message):
                    warn(message)
                case Ended(folder=place, score=total) if _is_member(place, folder):
                    say(f"{place}: out of fold, {total}")
                case Ended(folder=place, score=total, submission=submission):
                    scored = "out of fold" if total is not None and len(total.folds) > 1 else "rows that validate"
                    say(f"{place}: {scored}, {total}" if total is not None else f"{place}: done")
                    if submission is not None:
                        say(f"{submission} is ready to submit: mlxfp submit {place}")
                case _:
                    _show_part(event, folds, of=f"{event.folder.name}, " if _is_member(event.folder, folder) else "")
    except KeyboardInterrupt:
        warn(f"stopped. Continue with: mlxfp resume {folder}")
        raise
    return 0


def _is_member(folder: Path, run: Path) -> bool:
    from mlxfp.app.run_folders.folders import MEMBERS

    return folder.parent.name == MEMBERS and folder != run


def _show_part(event: "RunEvent", folds: int, of: str) -> None:
    """Print an event of one of so many folds, those `of` a member where there are several, or of a member."""
    from mlxfp.app.runs import FoldBegan, FoldEnded, LeftOut, Weighed

    match event:
        case FoldBegan(fold=fold, rows=rows, step=step):
            say(f"{of}fold {fold} of {folds}: {rows:,} rows" + (f", from step {step}" if step else ""))
        case FoldEnded(fold=fold, metric=metric, score=score):
            say(f"{of}fold {fold} of {folds}: {metric} " + ("undefined" if score is None else f"{score:.4f}"))
        case LeftOut(member=member, why=why):
            say(f"{member} is left out: {why}")
        case Weighed(member=member, score=value, weight=weight, adds=adds):
            say(f"{member}: {value:.4f}, weight {weight:.2f}" + ("" if adds is None else f", adds {adds:+.4f} to the blend"))
