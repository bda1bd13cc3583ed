"""The command `mlxfp submit`: check a submission against the sample file. With the option --yes, also upload the submission to Kaggle."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from mlxfp.app.cli.parsing import Commands, add_command, say
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlxfp.app.kaggle.specs.spellings import Spelling

# Kaggle competition names by spec name. Every other spec has the same name as its competition.
_KAGGLES = {
    "disaster_tweets": "nlp-getting-started",
    "house_prices": "house-prices-advanced-regression-techniques",
    "spaceship_titanic": "spaceship-titanic",
}


def add(commands: Commands) -> None:
    """Add `submit`."""
    example = "mlxfp submit runs/titanic\nmlxfp submit submission.csv --competition titanic --sample gender_submission.csv --yes"
    command = add_command(commands, "submit", _submit, example=example)
    command.add_argument("path", metavar="FILE_OR_RUN_FOLDER", help="a submission in CSV, or the folder of a run with a submission")
    command.add_argument(
        "--competition",
        metavar="NAME",
        help="the name in the competition's URL on Kaggle (default: the name of the spec, if the run has a spec)",
    )
    command.add_argument("--message", metavar="TEXT", help="the description on Kaggle (default: the name of the run or file)")
    command.add_argument(
        "--sample", metavar="FILE", help="the sample submission to check against (default: the sample in the data of the run)"
    )
    command.add_argument("--yes", action="store_true", help="send the file; without --yes, the file is only checked")


@frozen
class _Candidate:
    file: Path
    message: str
    competition: str | None = None
    sample: Path | None = None
    spelling: "Mapping[str, Spelling] | None" = None  # number formats by column, with priority over the sample file
    synthetic: bool = False
    encoding: str = "utf-8"  # encoding of the sample


def _submit(options: Namespace) -> int:
    """Check a submission against the sample. With --yes, submit the file to Kaggle and wait for the score."""
    from mlxfp.app.kaggle.submitting.submissions import check_submission
    from mlxfp.app.kaggle.submitting.uploading import submit

    path, sample = Path(options.path), Path(options.sample) if options.sample else None
    if not (path.is_dir() or path.is_file()):
        from mlxfp.app.run_folders.folders import near_run

        raise MissingFileError(
            f"There is no file or folder at {str(path)!r}.{near_run(path)} Give a submission in CSV or the folder of a run."
        )
    given = {"competition": options.competition, "message": options.message, "sample": sample}
    candidate = _of_run(path) if path.is_dir() else _Candidate(path, path.name)
    candidate = evolve(candidate, **{name: value for name, value in given.items() if value})
    if candidate.competition is None and options.yes:
        raise ArgumentError(
            f"The Kaggle competition of {options.path} is not known. Give the name from the competition's URL: --competition titanic."
        )
    if candidate.sample is None:
        say(f"{candidate.file} was not checked, because no sample submission is known. To check the file, add --sample FILE.")
    else:
        problems = check_submission(candidate.file, sample=candidate.sample, spelling=candidate.spelling, encoding=candidate.encoding)
        if problems:
            listed = "".join(f"\n- {problem}" for problem in problems)
            raise DataError(f"{candidate.file} does not match the sample {candidate.sample} and was not sent:{listed}")
        say(f"{candidate.file} matches the sample {candidate.sample}.")
    if candidate.synthetic and options.yes:
        raise DataError(
            f"{candidate.file} predicts synthetic rows and was not sent. Run on the files of the competition: data.path=FOLDER."
        )
    if candidate.competition is None:
        say("The file was not sent. To send the file, add --yes and the name from the competition's URL: --competition NAME.")
        return 0
    verdict = submit(candidate.file, candidate.competition, message=candidate.message, yes=options.yes)
    if verdict.status == "not sent":
        say(f"The file was not sent to {candidate.competition}. To send the file, add --yes.")
        return 0
    say(f"{candidate.competition}: {verdict.status}. {verdict.message}")
    return 1 if verdict.status in ("failed", "error") else 0


def _of_run(folder: Path) -> _Candidate:
    from mlxfp.app.config.loading import read_config
    from mlxfp.app.kaggle.specs.catalogue import SPECS
    from mlxfp.app.kaggle.specs.spec_files import load_spec
    from mlxfp.app.kaggle.validation.scoring import METRICS
    from mlxfp.app.run_folders.folders import SPEC, config_file, data_folder
    from mlxfp.app.runs.submission import spelling_of

    config = read_config(config_file(folder))
    file = folder / config.competition.submission
    if not file.is_file():
        raise MissingFileError(f"The run in {folder} has no {file.name}. Continue the run first: mlxfp resume {folder}")
    spec = load_spec(folder / SPEC)
    named = None if spec.sample is None else data_folder(folder, config.data.path) / spec.sample.name
    # An inferred spec has the name of the folder.
    known = config.data.spec is not None or config.own.spec is not None or spec.name in {*SPECS, *_KAGGLES.values()}
    sample = named if named is not None and named.is_file() else None
    return _Candidate(
        file,
        folder.resolve().name,
        _KAGGLES.get(spec.name, spec.name) if known else None,
        sample,
        None if sample is None else spelling_of(METRICS[config.competition.metric or spec.metric], spec, sample),
        config.data.path is None,
        spec.encoding,
    )
