"""`mlxfp submit`: check a submission against the sample, and send it to Kaggle with --yes."""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from mlxfp.app.cli.parsing import Commands, add_command, say
from mlxfp.support.errors import ArgumentError, DataError, MissingFileError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlxfp.app.kaggle.specs.spellings import Spelling

# Names of competitions on Kaggle, as in their URLs, that differ from the names of the specs.
_KAGGLES = {
    "disaster_tweets": "nlp-getting-started",
    "house_prices": "house-prices-advanced-regression-techniques",
    "spaceship_titanic": "spaceship-titanic",
}


def add(commands: Commands) -> None:
    """Add `submit`."""
    example = "mlxfp submit runs/titanic\nmlxfp submit submission.csv --competition titanic --sample gender_submission.csv --yes"
    command = add_command(commands, "submit", _submit, example=example)
    command.add_argument("path", metavar="FILE_OR_RUN_FOLDER", help="a CSV file, or the folder of a run that has made one")
    command.add_argument("--competition", metavar="NAME", help="the name in its URL on Kaggle (default: that of the run's data set)")
    command.add_argument("--message", metavar="TEXT", help="the description on Kaggle (default: the name of the run, or of the file)")
    command.add_argument("--sample", metavar="FILE", help="the sample submission to check against (default: that of the run's data)")
    command.add_argument("--yes", action="store_true", help="send the file; nothing is sent without this")


@frozen
class _Candidate:
    """A file to submit, and what is known about it."""

    file: Path
    message: str
    competition: str | None = None
    sample: Path | None = None
    spelling: "Mapping[str, Spelling] | None" = None  # of columns with probabilities or values, even if the sample has classes there
    synthetic: bool = False


def _submit(options: Namespace) -> int:
    """Check a submission against the sample and, with --yes, submit it to Kaggle and wait for its score."""
    from mlxfp.app.kaggle.submitting.submissions import check_submission
    from mlxfp.app.kaggle.submitting.uploading import submit

    path, sample = Path(options.path), Path(options.sample) if options.sample else None
    if not (path.is_dir() or path.is_file()):
        raise MissingFileError(f"There is no file and no folder of a run at {str(path)!r}. Give the path of a submission in CSV.")
    given = {"competition": options.competition, "message": options.message, "sample": sample}
    found = _of_run(path) if path.is_dir() else _Candidate(path, path.name)
    found = evolve(found, **{name: value for name, value in given.items() if value})
    if found.competition is None:
        raise ArgumentError(
            f"The competition of {options.path} is not known. Give its name, as in its URL on Kaggle: --competition titanic."
        )
    if found.sample is None:
        say(f"{found.file} was not checked: no sample is known. --sample FILE names one.")
    else:
        if problems := check_submission(found.file, sample=found.sample, spelling=found.spelling):
            listed = "".join(f"\n- {problem}" for problem in problems)
            raise DataError(f"{found.file} does not fit the sample {found.sample}, and was not sent:{listed}")
        say(f"{found.file} fits the sample {found.sample}.")
    if found.synthetic and options.yes:
        raise DataError(f"{found.file} predicts synthetic rows, and was not sent. Run on the competition's files: data.path=FOLDER.")
    verdict = submit(found.file, found.competition, message=found.message, yes=options.yes)
    if verdict.status == "not sent":
        say(f"It was not sent to {found.competition}; --yes sends it.")
        return 0
    say(f"{found.competition}: {verdict.status}. {verdict.message}")
    return 1 if verdict.status in ("failed", "error") else 0


def _of_run(folder: Path) -> _Candidate:
    """Find the submission of a run, with its sample."""
    from mlxfp.app.config.loading import read_config
    from mlxfp.app.kaggle.specs.reading import column_names
    from mlxfp.app.kaggle.specs.spec_files import load_spec
    from mlxfp.app.kaggle.validation.scoring import METRICS
    from mlxfp.app.run_folders.folders import SPEC, config_file, data_folder
    from mlxfp.app.runs.submission import spelling_of

    config = read_config(config_file(folder))
    file = folder / config.competition.submission
    if not file.is_file():
        raise MissingFileError(f"The run in {folder} has no {file.name}. Continue it first: mlxfp resume {folder}")
    spec = load_spec(folder / SPEC)
    named = None if spec.sample is None else data_folder(folder, config.data.path) / spec.sample.name
    sample = named if named is not None and named.is_file() else None
    return _Candidate(
        file,
        folder.resolve().name,
        _KAGGLES.get(spec.name, spec.name),
        sample,
        None if sample is None else spelling_of(METRICS[config.competition.metric or spec.metric], spec, column_names(sample)[1:]),
        config.data.path is None,
    )
