"""The command `mlxfp data`: describe the files of a competition and check the files against a spec."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import TYPE_CHECKING

from mlxfp.app.cli.configuring import run_name
from mlxfp.app.cli.parsing import Commands, add_command, add_group, say, warn
from mlxfp.support.errors import ArgumentError, MlxfpError
from mlxfp.support.terminal import one_line

if TYPE_CHECKING:
    from mlxfp.app.kaggle.specs.specs import DatasetSpec


def add(commands: Commands) -> None:
    """Add the commands `data check`, `data infer` and `data synthetic` to the command line."""
    group = add_group(commands, "data", about="Check and describe the files of a competition.", example="mlxfp data check data/titanic")
    check = add_command(group, "check", _check, example="mlxfp data check data/titanic --spec titanic")
    infer = add_command(group, "infer", _infer, example="mlxfp data infer data/cats --out cats.yaml")
    for command in (check, infer):
        command.add_argument("path", metavar="PATH", help="the folder of a competition, or a file: CSV, Parquet or JSON lines")
        command.add_argument("--target", metavar="COLUMN", action="append", help="the column to predict, if mlxfp cannot infer the target")
        command.add_argument("--encoding", help="the encoding of CSV files, such as cp1252 (default: utf-8)")
    check.add_argument("--spec", metavar="SPEC", help="the name of a known data set, or a spec in YAML or JSON (default: inferred)")
    synthetic = add_command(group, "synthetic", _synthetic, example="mlxfp data synthetic titanic --out passengers")
    synthetic.add_argument("spec", metavar="SPEC", help="the name of a known data set, or a spec in YAML or JSON")
    synthetic.add_argument("--out", metavar="FOLDER", required=True, help="the folder for the files")
    infer.add_argument("--out", metavar="FILE", help="write the spec to this YAML or JSON file instead of printing")


def _check(options: Namespace) -> int:
    """Describe the files and list all differences from the spec."""
    from mlxfp.app.kaggle.specs.catalogue import named_spec
    from mlxfp.app.kaggle.specs.checking import check_spec

    if options.spec and options.target:
        raise ArgumentError(
            f"--target is {', '.join(options.target)}, but --spec {options.spec} defines the target. Leave out --target or --spec."
        )
    if options.spec and options.encoding:
        raise ArgumentError(
            f"--encoding is {options.encoding}, but --spec {options.spec} defines the encoding. Leave out --encoding or --spec."
        )
    spec = named_spec(options.spec) if options.spec else inferred_spec(options.path, options.target, options.encoding)
    if not options.spec:
        warn_of_columns(spec, options.path)
    say("\n".join(_description(spec)))
    check_spec(spec, options.path)
    say(
        "The files match the spec."
        if options.spec
        else "The spec was inferred from the files. To check the files against your own spec, add --spec FILE."
    )
    return 0


def _infer(options: Namespace) -> int:
    """Infer a data set spec from the files."""
    from mlxfp.app.config.classes import RunConfig
    from mlxfp.app.kaggle.specs.spec_files import save_spec
    from mlxfp.app.run_folders.folders import other_name

    spec = inferred_spec(options.path, options.target, options.encoding)
    if options.out is None:
        with TemporaryDirectory() as folder:
            save_spec(spec, file := Path(folder, "spec.yaml"))
            say(f"# The spec of {one_line(options.path)}. To write the spec to a file, add --out FILE.")
            say(file.read_text("utf-8"))  # ends with an empty line, which separates the spec from the warnings on a terminal
        warn_of_columns(spec, options.path)
        return 0
    if Path(options.out).exists():
        raise ArgumentError(f"{options.out!r} exists already, and mlxfp does not overwrite files. Give another --out, or remove the file.")
    save_spec(spec, options.out)
    warn_of_columns(spec, options.path)
    say(f"Wrote {options.out}: {spec.kind}, target {', '.join(spec.target)}. Correct mistakes in the file.")
    run = Path(RunConfig().output, run_name(options.path))
    say(f"Next: mlxfp run {quote(options.path)} {quote(f'data.spec={options.out}')}{other_name(run)}")
    return 0


def _synthetic(options: Namespace) -> int:
    """Write synthetic files with the columns of a spec, for experiments. Existing files are not overwritten."""
    from mlxfp.app.kaggle.specs.catalogue import named_spec
    from mlxfp.app.kaggle.specs.synthetic import write_synthetic

    data = write_synthetic(named_spec(options.spec), options.out)
    files = ", ".join(file.name for file in (data.train, data.test, data.sample) if file is not None)
    say(f"{options.out}: {files}, with synthetic rows.")
    return 0


def inferred_spec(path: str | Path, target: list[str] | None, encoding: str | None) -> "DatasetSpec":
    """Infer a spec from the files. If the target cannot be inferred, the error names the option of the command line."""
    from mlxfp.app.kaggle.specs.inferring import infer_spec

    try:
        return infer_spec(path, target=target, encoding=encoding or "utf-8")
    except MlxfpError as error:
        if target is None and isinstance(error, ArgumentError):
            error.add_note("On the command line: --target COLUMN.")
        raise


def warn_of_columns(spec: "DatasetSpec", path: str | Path) -> None:
    """Print warnings about text columns with mostly numeric cells, with repairs of the columns."""
    from mlxfp.app.kaggle.specs.reading import folder_of, read_part
    from mlxfp.app.kaggle.validation.suspicious_columns import text_warnings

    parts = [read_part(spec, path)] if spec.test is None else [read_part(spec, path), read_part(spec, path, part="test")]
    problems, repairs = text_warnings(spec, *parts, folder=folder_of(path))
    if problems:
        warn("\n".join([*problems, "\n\n".join(repairs)]))


def _description(spec: "DatasetSpec") -> Iterator[str]:
    """Yield the lines of the description of a data set."""
    from mlxfp.app.kaggle.specs.column_kinds import COLUMN_KINDS

    yield f"{spec.name}: {spec.kind}, metric {spec.metric}"
    for part, file in (("train", spec.train), ("test", spec.test), ("sample", spec.sample)):
        if file is not None:
            yield f"  {part:<12} {file.name}" + ("" if file.rows is None else f", {file.rows:,} rows")
    yield f"  {'target':<12} {', '.join(spec.target)}" + (f": {' or '.join(spec.classes)}" if spec.classes else "")
    for word, column in (("id", spec.id), ("group", spec.group), ("time", spec.time)):
        if column is not None:
            yield f"  {word:<12} {column}"
    for kind in COLUMN_KINDS:
        names = [column.name for column in spec.columns if column.type == kind]
        if names:
            yield fill(f"  {kind:<12} {', '.join(names)}", 120, subsequent_indent=" " * 15)
