"""Layout of the folder of a run, and the stored options as plain data."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from itertools import count
from os import PathLike, fspath
from os.path import getmtime
from pathlib import Path
from shlex import quote
from shutil import rmtree
from typing import Any

from attrs import frozen

from mlxfp import __version__
from mlxfp.app.config.classes import RunConfig
from mlxfp.app.config.loading import SCHEMA, read_config
from mlxfp.app.kaggle.specs.reading import folder_of, hash_file
from mlxfp.app.run_folders.files import read_json, write_json, write_text
from mlxfp.inspect import fingerprint
from mlxfp.support.atomic_files import PARTIAL
from mlxfp.support.errors import ConfigError, DataError, MissingFileError, nearest, suggest_path
from mlxfp.support.structuring import flatten, unstructure
from mlxfp.support.yaml_files import write_document

Settings = Mapping[str, Any]  # options of a run as nested dicts, by section and name

# File names in the folder of a run.
CONFIG, SPEC, DATA, ENVIRONMENT, FOLDS = "config.yaml", "spec.yaml", "data.json", "environment.json", "folds.csv"
OOF, TEST, METRICS, RECEIPT, REPORT = "oof.csv", "test_predictions.csv", "metrics.json", "receipt.json", "report.html"
# For model.name=auto: the folder with the runs of the single models, and the record of the chosen models.
MEMBERS, DECIDED = "members", "members.json"
BLENDED = "runs"  # the file metrics.json of a blend lists the blended runs under this key
MLFLOW, SYNTHETIC, TUNING, _LOCK = "mlflow.json", "data", "tuning", ".lock"
# File names in the folder of a fold: log, checkpoints, best state, fitted recipe, final weights, predictions, result.
LOG, CHECKPOINTS, BEST, RECIPE = "log.jsonl", "checkpoints", "best.safetensors", "recipe.json"
MODEL, FOLD_OOF, FOLD_TEST, RESULT = "model.safetensors", "oof.npy", "test.npy", "result.json"
_MODELS = "model[.-]*"  # glob pattern of model files: the weights of a network, or the files of an estimator

# Options that may change when a run is continued: paths and display options, which do not affect results.
_FREE = frozenset(
    {"name", "output", "data.path", "data.spec", "data.prefetch", "data.workers", "data.kind", "data.cache", "competition.submission"}
    | {f"observers.{name}" for name in ("progress", "every", "checkpoint_every", "keep", "mlflow", "mlflow_model", "tensorboard", "plots")}
)
_MOVABLE = ("model.path", "text.tokenizer")
_LIMIT = "observers.minutes"  # time limit of a run, which users may increase
_EPOCHS = "training.epochs"
_SHOWN = 5  # differences in a message


@frozen
class FoldFolder:
    """Folder of one fold of a run. `fold` is the number of the fold, starting at 1."""

    run: Path
    fold: int

    def __truediv__(self, name: str) -> Path:
        """Return the path of a file in the folder."""
        return self.run / f"fold-{self.fold:02}" / name

    @property
    def done(self) -> bool:
        """True if the fold is finished and no file is damaged."""
        return (self / RESULT).is_file() and not self.damaged()

    def result(self) -> dict[str, Any]:
        """Read the score and the file hashes from the result file of a finished fold."""
        return read_json(self / RESULT)

    def damaged(self) -> list[Path]:
        """Return the missing or changed files of a finished fold."""
        files = self.result()["files"] if (self / RESULT).is_file() else {}
        return [self / name for name in files if not is_as_written(self / name, files[name])]

    def hashes(self) -> dict[str, str]:
        """Return the hashes of the model files and of the prediction files."""
        models = sorted(path.name for path in (self / RECIPE).parent.glob(_MODELS))
        return {name: hash_file(self / name) for name in (RECIPE, *models, FOLD_OOF, FOLD_TEST) if (self / name).is_file()}


def data_folder(folder: Path, path: str | None) -> Path:
    """Return the folder of the competition files. `path` is the option data.path; None means synthetic data."""
    return folder / SYNTHETIC if path is None else folder_of(path)


def is_csv_name(name: str) -> bool:
    """Return True for a valid submission file name: a CSV file that replaces no other file of the run."""
    return Path(name).name == name and name not in (FOLDS, OOF, TEST) and name.endswith(".csv")


def is_as_written(path: Path, digest: str) -> bool:
    """Return True if a file exists and has the hash `digest`."""
    return path.is_file() and hash_file(path) == digest


def is_done(folder: Path) -> bool:
    """Return True if the run in a folder is finished and no output has changed."""
    receipt = folder / RECEIPT
    return receipt.is_file() and all(is_as_written(folder / name, was) for name, was in read_json(receipt)["outputs"].items())


def check_folder(folder: Path, name: str) -> None:
    """Raise `ConfigError` for an invalid folder name, and for a non-empty folder that is not the folder of a run."""
    if name in ("", ".", "..") or Path(name).name != name:
        raise ConfigError(f"The name of a run must be a valid folder name, got name={name!r}. To change the parent folder, set output.")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"The run folder {folder} is an existing file. Choose another run name (name=...) or parent folder (output=...).")
    known = not folder.is_dir() or (folder / CONFIG).is_file()
    if not known and any(not path.name.startswith(".") and path.name not in (SYNTHETIC, TUNING) for path in folder.iterdir()):
        raise ConfigError(
            f"The folder {folder} is not empty and is not the folder of a run: {CONFIG} is missing. "
            "Choose another run name (name=...) or parent folder (output=...)."
        )


def missing(folder: Path) -> tuple[Path, ...]:
    """Return the missing folders among `folder` and its parents, the innermost folder first."""
    return tuple(path for path in (folder, *folder.parents) if not path.exists())


def remove(new: Sequence[Path]) -> None:
    """Remove the folder of a run that did not start, and the empty parent folders that were created for the run.

    The argument `new` holds the folders that did not exist before the run, as returned by `missing(folder)` before the run.
    """
    for folder in new[:1]:
        rmtree(folder)
    for parent in new[1:]:
        with suppress(OSError):  # rmdir fails if the parent folder contains other files
            parent.rmdir()


def is_continued(folder: Path, settings: Settings, *, extends: bool = False) -> bool:
    """Return True if a run with the options `settings` continues the run in the folder, and False if a new run starts. Change no file.

    A run with the stored options is continued. With different options, a folder without weights gets a new run, and a folder with weights
    raises `ConfigError`. An unfinished run may get a larger time limit. `extends=True` permits more epochs.
    """
    if not (folder / CONFIG).is_file():
        return False
    stored, new = decisive(stored_settings(folder)), decisive(settings)
    # Also compare options that only the stored configuration has, such as a removed argument of an estimator.
    names = [*new, *(name for name in stored if name not in new)]
    names = [name for name in names if stored.get(name) != new.get(name) and not (extends and name == _EPOCHS)]
    finished = (folder / RECEIPT).is_file()
    if not names or (names == [_LIMIT] and is_longer(stored.get(_LIMIT), new.get(_LIMIT)) and not finished):
        return True
    trained = (
        path
        for prefix in ("", f"{MEMBERS}/*/")
        for pattern in ("**/*.safetensors", _MODELS)
        for path in folder.glob(f"{prefix}fold-*/{pattern}")
    )
    if not any(trained):
        return False
    differ = [f"{name} is {stored.get(name)!r} in the folder and {new.get(name)!r} now" for name in names]
    if finished and names == [_LIMIT]:
        raise ConfigError(
            f"The run in {folder} is finished: {differ[0]}. Nothing was changed. For another time limit, start another run: "
            f"{other_limit(folder, new[_LIMIT])}"
        )
    more = f", and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
    longer = f" To train longer, run: mlxfp resume {folder} {_EPOCHS}=N."
    train_longer = longer if any(folder.glob("fold-*/**/*.safetensors")) else ""  # only networks have epochs
    is_limited = not finished and stored.get(_LIMIT) is not None
    more_time = f" To continue an unfinished run without a time limit, add {_LIMIT}=null." if is_limited else ""
    raise ConfigError(
        f"The folder {folder} has a run with a different configuration: {'; '.join(differ[:_SHOWN])}{more}. Nothing was changed. "
        f"To continue with the options in the folder, run: mlxfp resume {folder}. To use the new options, add another run name, such as "
        f"name=second, or remove the folder.{train_longer}{more_time}"
    )


def claim(folder: Path, settings: Settings) -> None:
    """Create the folder of a run, or check that the folder holds this run. Files of other runs are never overwritten.

    If the options in the folder differ, but no weights have been saved yet, the new options replace the stored options. A configuration
    that failed can thus be corrected. Raises the errors of `is_continued`.
    """
    continued = is_continued(folder, settings)
    for partial in folder.glob(f".*{PARTIAL}*"):  # partial files of a killed process
        partial.unlink()
    if not continued:
        for name in (DATA, SPEC, FOLDS, ENVIRONMENT, DECIDED):
            (folder / name).unlink(missing_ok=True)
        _write_settings(folder, settings)
    elif decisive(stored_settings(folder)) != decisive(settings):
        _write_limit(folder, flatten(settings)[_LIMIT])


def other_limit(folder: Path, minutes: Any) -> str:
    """Return the command for a new run with the same configuration and another time limit. The folder of the new run does not exist yet."""
    return f"mlxfp run {quote(str(folder / CONFIG))}{other_name(folder)} {_LIMIT}={'null' if minutes is None else minutes}"


def other_name(folder: Path) -> str:
    """Return " name=x-2" with an unused run name for an existing folder x, or an empty string for a new folder."""
    if not folder.exists():
        return ""
    names = (f"{folder.name}-{number}" for number in count(2))
    name = next(name for name in names if not (folder.parent / name).exists())
    return f" {quote(f'name={name}')}"


def is_longer(before: float | None, minutes: float | None) -> bool:
    """Return True if the new time limit is larger than the stored time limit. None means no limit.

    >>> is_longer(5.0, 10.0), is_longer(5.0, None), is_longer(None, 5.0), is_longer(5.0, 5.0)
    (True, True, False, False)
    """
    return before is not None and (minutes is None or minutes > before)


def _write_limit(folder: Path, minutes: float | None) -> None:
    """Store a new time limit of an unfinished run."""
    longer = with_values(stored_settings(folder), {_LIMIT: minutes})
    _update_fingerprint(folder, longer)
    _write_settings(folder, longer)


def _update_fingerprint(folder: Path, settings: Settings) -> None:
    if (folder / DATA).is_file():
        write_json(folder / DATA, read_json(folder / DATA) | {"config": config_fingerprint(settings)})


def extend(folder: Path, epochs: int) -> None:
    """Increase the number of epochs of the run in a folder. Remove weights, predictions and results, but keep the checkpoints.

    The configuration is written last. If the process is killed earlier, the next run with the old options recreates the removed files.
    """
    longer = with_values(stored_settings(folder), {_EPOCHS: epochs})
    for name in (RECEIPT, REPORT):
        (folder / name).unlink(missing_ok=True)
    for fold in sorted(folder.glob("fold-*")):
        for path in (fold / RESULT, *fold.glob(_MODELS), fold / FOLD_OOF, fold / FOLD_TEST):
            path.unlink(missing_ok=True)
    _update_fingerprint(folder, longer)
    _write_settings(folder, longer)


def config_file(folder: str | PathLike[str]) -> Path:
    """Return the path of the stored options. Raises `MissingFileError` for a folder without a run, and `ConfigError` for a project."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise MissingFileError(
            f"{str(folder)!r} is not the folder of a run: {CONFIG} is missing.{near_run(Path(folder))} Give a folder written by mlxfp run."
        )
    if (path.parent / SCHEMA).is_file():
        raise ConfigError(
            f"{folder} is a project, not a run. Start a run with mlxfp run {quote(str(path))}, or continue a run with "
            f"mlxfp resume {quote(str(path.parent / 'runs' / 'NAME'))}."
        )
    return path


def near_run(folder: Path) -> str:
    """Return " Did you mean 'runs/x'?" for the name of a run in the default folder of runs, or for a missing path with a similar name.

    For a folder that contains runs, the suggestion is the run with the newest configuration file.
    """
    path = Path(RunConfig().output, folder)
    if (path / CONFIG).is_file():
        return f" Did you mean {str(path)!r}?"
    if folder.exists():
        runs = [file for file in folder.glob(f"*/{CONFIG}") if file.is_file() and not (file.parent / SCHEMA).is_file()]
        return f" Did you mean {str(max(runs, key=getmtime).parent)!r}?" if runs else ""
    for parent in (folder.parent, path.parent):
        if (near := nearest(folder.name, [file.parent.name for file in parent.glob(f"*/{CONFIG}")])) is not None:
            return f" Did you mean {str(parent / near)!r}?"
    return suggest_path(folder)


def stored_settings(folder: Path) -> dict[str, Any]:
    """Read the stored options of a run. Raises the errors of `config_file`, and `ConfigError` for an invalid file."""
    return unstructure(read_config(config_file(folder)))


def settings_in(folder: str | PathLike[str]) -> dict[str, Any]:
    """Read the options of a run. `output` and `name` are taken from the current path of the folder, because a run can be moved."""
    path = located(folder)
    return stored_settings(path) | {"output": fspath(path.parent), "name": path.name}


def located(folder: str | PathLike[str]) -> Path:
    """Return a path that ends in a folder name. Paths such as "." become absolute."""
    return Path(folder) if Path(folder).name == Path(folder).resolve().name else Path(folder).resolve()


def _write_settings(folder: Path, settings: Settings) -> None:
    write_text(folder / CONFIG, write_document(settings))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock the folder of a run. Raises `ConfigError` if another process has the lock. The system releases the lock of a killed process."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK, thread_local=False)  # another thread may close the generator, and must then be able to release the lock
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise ConfigError(f"Another process uses the run folder {folder}. Wait until the process ends, or choose another name.") from error
    try:
        yield
    finally:
        lock.release()


def claim_data(folder: Path, identities: Mapping[str, Any]) -> None:
    """Write the fingerprints of the data of a new run. For a continued run, raise `DataError` if the fingerprints differ."""
    if not (folder / DATA).is_file():
        write_json(folder / DATA, identities)
    check_data(folder, identities)


def check_data(folder: Path, identities: Mapping[str, Any], *, ignored: str | None = None) -> None:
    """Raise `DataError` if the stored fingerprints of the data differ from `identities`. `ignored` is the name of a fingerprint to skip."""
    stored = read_json(folder / DATA) if (folder / DATA).is_file() else identities
    differ = [key for key in {**stored, **identities} if stored.get(key) != identities.get(key) and key != ignored]
    if differ:
        environment = read_json(folder / ENVIRONMENT) if (folder / ENVIRONMENT).is_file() else {}
        before = environment.get("mlxfp", __version__)
        install = f" The run was started with mlxfp {before}, and this is mlxfp {__version__}. To continue the run, install mlxfp {before}."
        raise DataError(
            f"The data of the run in {folder} have changed since the start of the run: {', '.join(differ)} (see {DATA}). Restore the "
            "original data, such as train.csv.original if code of a warning has changed train.csv, or add another name, such as "
            f"name=second, to start a new run.{'' if before == __version__ else install}"
        )


def decisive(settings: Settings) -> dict[str, Any]:
    """Return the options that influence results, with keys such as "training.epochs". A continued run must not change these options.

    The paths of weights and tokenizers may change. Hashes in `data.json` reveal changes in the files.
    """
    values = {name: value for name, value in flatten(settings).items() if name not in _FREE}
    return values | {name: "a path" for name in _MOVABLE if values[name] is not None and Path(values[name]).is_absolute()}


def config_fingerprint(settings: Settings) -> str:
    """Return the fingerprint of the decisive options that differ from the defaults.

    A later version of mlxfp with new options gives the same fingerprint.
    """
    usual = flatten(unstructure(RunConfig()))
    return fingerprint({name: value for name, value in decisive(settings).items() if name not in usual or value != usual[name]})


def update_paths(folder: Path, settings: Settings) -> None:
    """Update the input paths in the stored options."""
    stored, flat = stored_settings(folder), flatten(settings)
    moved = with_values(stored, {name: flat[name] for name in ("data.path", "data.spec", *_MOVABLE)})
    if moved != stored:
        _write_settings(folder, moved)


def with_values(settings: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the settings with new values of some options. The argument `values` maps option paths to the new values.

    >>> with_values({"model": {"name": "kernel", "arguments": {}}}, {"model.arguments.C": 0.5})
    {'model': {'name': 'kernel', 'arguments': {'C': 0.5}}}
    """
    tree = deepcopy(dict(settings))
    for path, value in values.items():
        *sections, name = path.split(".")
        inner = tree
        for section in sections:
            inner = inner[section]
        inner[name] = value
    return tree
