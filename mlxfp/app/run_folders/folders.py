"""The layout of a run's folder, and the options of the run that it belongs to, as plain data."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp.app.config.loading import read_config
from mlxfp.app.kaggle.specs.reading import folder_of, hash_file
from mlxfp.app.run_folders.files import read_json, write_json, write_text
from mlxfp.inspect import fingerprint
from mlxfp.support.atomic_files import PARTIAL
from mlxfp.support.errors import ConfigError, DataError, MissingFileError
from mlxfp.support.structuring import flatten, unstructure
from mlxfp.support.yaml_files import write_document

Settings = Mapping[str, Any]  # the options of a run as a tree of plain values, by section and name

# The files of a run.
CONFIG, SPEC, DATA, ENVIRONMENT, FOLDS = "config.yaml", "spec.yaml", "data.json", "environment.json", "folds.csv"
OOF, TEST, METRICS, RECEIPT, PICTURE = "oof.csv", "test_predictions.csv", "metrics.json", "receipt.json", "run.png"
REPORT = "report.html"
# Of a run with model.name=auto: the folders of its members, each of a run of its own, and what was decided about them.
MEMBERS, DECIDED = "members", "members.json"
BLENDED = "runs"  # what the metrics of a blend have, and those of a run have not
MLFLOW, SYNTHETIC, TUNING, _LOCK = "mlflow.json", "data", "tuning", ".lock"
# The files of a fold: a log, checkpoints, the best of them, everything that was fitted, the weights that predict, predictions, the result.
LOG, CHECKPOINTS, BEST, RECIPE = "log.jsonl", "checkpoints", "best.safetensors", "recipe.json"
MODEL, FOLD_OOF, FOLD_TEST, RESULT = "model.safetensors", "oof.npy", "test.npy", "result.json"
_MODELS = "model[.-]*"  # the weights of a network, or the files of an estimator

# Options that may differ when a run is continued: they change paths, or what is shown, and no result.
_FREE = frozenset(
    {"name", "output", "data.path", "data.spec", "data.prefetch", "competition.submission"}
    | {
        f"observers.{name}"
        for name in ("progress", "every", "checkpoint_every", "keep", "mlflow", "mlflow_model", "trackio", "tensorboard", "plots")
    }
)
_MOVABLE = ("model.path", "text.tokenizer", "data.pseudo_labels")
_SHOWN = 5  # differences in a message


@frozen
class FoldFolder:
    """The folder of a fold, counted from 1."""

    run: Path
    fold: int

    def __truediv__(self, name: str) -> Path:
        """Return the path of a file."""
        return self.run / f"fold-{self.fold:02}" / name

    @property
    def done(self) -> bool:
        """Whether the fold has been trained and has predicted, and its files are as they were written."""
        return (self / RESULT).is_file() and not self.damaged()

    def result(self) -> dict[str, Any]:
        """Read the score of a finished fold, and the hashes of its files."""
        return read_json(self / RESULT)

    def damaged(self) -> list[Path]:
        """Find the files of a finished fold that are missing or have changed."""
        files = self.result()["files"] if (self / RESULT).is_file() else {}
        return [self / name for name in files if not is_as_written(self / name, files[name])]

    def hashes(self) -> dict[str, str]:
        """Return the hash of each file that predictions depend on, or are in."""
        models = sorted(path.name for path in (self / RECIPE).parent.glob(_MODELS))
        return {name: hash_file(self / name) for name in (RECIPE, *models, FOLD_OOF, FOLD_TEST) if (self / name).is_file()}


def data_folder(folder: Path, path: str | None) -> Path:
    """Return the folder with the files of a run's competition, of which `path` is the option data.path."""
    return folder / SYNTHETIC if path is None else folder_of(path)


def is_csv_name(name: str) -> bool:
    """Whether a submission may have this name: a CSV file in the folder of the run that replaces none of its files."""
    return Path(name).name == name and name not in (FOLDS, OOF, TEST) and name.endswith(".csv")


def is_as_written(path: Path, digest: str) -> bool:
    """Whether a file exists, and has the hash that it had."""
    return path.is_file() and hash_file(path) == digest


def is_done(folder: Path) -> bool:
    """Whether the run in a folder has ended, and its outputs are as they were written."""
    receipt = folder / RECEIPT
    return receipt.is_file() and all(is_as_written(folder / name, was) for name, was in read_json(receipt)["outputs"].items())


def check_folder(folder: Path, name: str) -> None:
    """Raise `ConfigError` for a name that a folder cannot have, and for a folder that holds something other than a run."""
    if name in ("", ".", "..") or Path(name).name != name:
        raise ConfigError(f"A run needs a name that a folder can have, got name={name!r}. The folder around it is output.")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, and a run needs a folder of that name. Choose another name or output.")
    known = not folder.is_dir() or (folder / CONFIG).is_file()
    if not known and any(not path.name.startswith(".") and path.name not in (SYNTHETIC, TUNING) for path in folder.iterdir()):
        raise ConfigError(f"The folder {folder} is not empty and holds no run: it has no {CONFIG}. Choose another name or output.")


def claim(folder: Path, settings: Settings) -> None:
    """Make the folder of a run, or make sure that it holds this run: nothing of another run is ever overwritten.

    As long as nothing has been trained, other options replace those of the folder, so a configuration that failed can be corrected. Raises
    `ConfigError` naming the first values that differ.
    """
    for left in folder.glob(f".*{PARTIAL}*"):  # of a process that was killed while it wrote
        left.unlink()
    if not (folder / CONFIG).is_file():
        _write_settings(folder, settings)
        return
    there, here = decisive(stored_settings(folder)), decisive(settings)
    names = [*here, *(name for name in there if name not in here)]  # arguments of an estimator may be in one of them only
    differ = [f"{name} is {there.get(name)!r} there and {here.get(name)!r} here" for name in names if there.get(name) != here.get(name)]
    trained = (
        path
        for place in ("", f"{MEMBERS}/*/")
        for pattern in ("**/*.safetensors", _MODELS)
        for path in folder.glob(f"{place}fold-*/{pattern}")
    )
    if differ and not any(trained):
        for name in (DATA, SPEC, FOLDS, ENVIRONMENT, DECIDED):
            (folder / name).unlink(missing_ok=True)
        _write_settings(folder, settings)
    elif differ:
        more = f", and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
        raise ConfigError(
            f"The folder {folder} holds a run of another configuration: {'; '.join(differ[:_SHOWN])}{more}. Nothing was changed. "
            "Choose another name, as in name=second, or remove the folder. Only training.epochs may grow: mlxfp resume FOLDER "
            "training.epochs=N."
        )


def extend(folder: Path, epochs: int) -> None:
    """Let the run in a folder train for more epochs: what was made of its last states is removed, and its checkpoints stay.

    The configuration changes last: a process that is killed before leaves a run that makes the removed files again.
    """
    longer = with_values(stored_settings(folder), {"training.epochs": epochs})
    for name in (RECEIPT, REPORT):
        (folder / name).unlink(missing_ok=True)
    for fold in sorted(folder.glob("fold-*")):
        for path in (fold / RESULT, *fold.glob(_MODELS), fold / FOLD_OOF, fold / FOLD_TEST):
            path.unlink(missing_ok=True)
    if (folder / DATA).is_file():
        write_json(folder / DATA, read_json(folder / DATA) | {"config": fingerprint(decisive(longer))})
    _write_settings(folder, longer)


def config_file(folder: str | PathLike[str]) -> Path:
    """Return the file with the options of a run; raises `MissingFileError` where there is none."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise MissingFileError(f"{str(folder)!r} is not the folder of a run: it has no {CONFIG}. Give a folder that mlxfp run has made.")
    return path


def stored_settings(folder: Path) -> dict[str, Any]:
    """Read the options of a run as its folder has them. Raises what `config_file` does, and `ConfigError` for a file that was changed."""
    return unstructure(read_config(config_file(folder)))


def settings_in(folder: str | PathLike[str]) -> dict[str, Any]:
    """Read the options of a run, with the name and output that its folder has now. Raises what `stored_settings` does."""
    path = located(folder)
    return stored_settings(path) | {"output": fspath(path.parent), "name": path.name}


def located(folder: str | PathLike[str]) -> Path:
    """Return the path of a folder with its name and its parent: "." has none."""
    return Path(folder) if Path(folder).name == Path(folder).resolve().name else Path(folder).resolve()


def _write_settings(folder: Path, settings: Settings) -> None:
    write_text(folder / CONFIG, write_document(settings))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a run's folder; raises `ConfigError` if one is in it. The lock of a killed process is released."""
    from filelock import FileLock, Timeout

    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / _LOCK, thread_local=False)  # a run, which is a generator, may go on in another thread
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise ConfigError(f"Another process is running in {folder}. Wait for it, or give this run another name.") from error
    try:
        yield
    finally:
        lock.release()


def claim_data(folder: Path, identities: Mapping[str, Any]) -> None:
    """Write what identifies the data of a run, or raise `DataError` if they differ: the run would not be the one that was begun."""
    if not (folder / DATA).is_file():
        write_json(folder / DATA, identities)
    own = read_json(folder / DATA)
    differ = [key for key in {**own, **identities} if own.get(key) != identities.get(key)]
    if differ:
        raise DataError(
            f"The data of the run in {folder} have changed since it began: {', '.join(differ)} (see {DATA}). Restore the original, or "
            "begin another run, as in name=second."
        )


def decisive(settings: Settings) -> dict[str, Any]:
    """Return the options that decide the results of a run, and must not change while it is continued, by their paths.

    A folder of weights or a tokenizer is identified by its content, which `data.json` has, not by its path.
    """
    values = {name: value for name, value in flatten(settings).items() if name not in _FREE}
    return values | {name: "a path" for name in _MOVABLE if values[name] is not None and Path(values[name]).is_absolute()}


def update_paths(folder: Path, settings: Settings) -> None:
    """Write the paths of a run's inputs to the options that its folder has."""
    stored, flat = stored_settings(folder), flatten(settings)
    moved = with_values(stored, {name: flat[name] for name in ("data.path", "data.spec", *_MOVABLE)})
    if moved != stored:
        _write_settings(folder, moved)


def with_values(settings: Settings, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with other values, by their paths.

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
