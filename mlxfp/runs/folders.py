"""The folder of a run: what is in it, whose it is, and files that are whole or not there."""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve
from numpy.typing import NDArray

from mlxfp.config.classes import RunConfig
from mlxfp.core.atomic_files import PARTIAL, write_whole
from mlxfp.core.errors import ConfigError, DataError, MissingFileError
from mlxfp.kaggle.specs.reading import hash_file
from mlxfp.settings.structuring import structure, unstructure
from mlxfp.settings.yaml_files import read_document, write_document

CONFIG, SPEC, DATA, FOLDS, METRICS, RECEIPT = "config.yaml", "spec.yaml", "data.json", "folds.csv", "metrics.json", "receipt.json"
OOF, TEST, ENVIRONMENT, MADE_UP, PICTURE, MODEL = (
    "oof.csv",
    "test_predictions.csv",
    "environment.json",
    "data",
    "run.png",
    "model.safetensors",
)

# What may differ when a run is continued: it changes where things are, or what is seen of them, and no result.
_FREE = frozenset(
    {"name", "output", "data.path", "data.spec", "data.prefetch", "competition.submission"}
    | {f"observers.{name}" for name in ("progress", "every", "checkpoint_every", "keep", "mlflow", "plots")}
)
_GIVEN = ("model.path", "text.tokenizer")
_SHOWN = 5


def check_place(folder: Path, name: str) -> None:
    """Raise `ConfigError` for a name that is none, and for a folder that holds something else than a run."""
    if name in ("", ".", "..") or Path(name).name != name:
        raise ConfigError(f"A run needs a name that a folder can have, got name={name!r}. The folder around it is output.")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file, and a run needs a folder of that name. Choose another name or output.")
    if (
        folder.is_dir()
        and not (folder / CONFIG).is_file()
        and any(not path.name.startswith(".") and path.name != MADE_UP for path in folder.iterdir())
    ):
        raise ConfigError(f"The folder {folder} is not empty and holds no run: it has no {CONFIG}. Choose another name or output.")


def claim(folder: Path, config: RunConfig) -> None:
    """Make the folder of a run, or make sure that it holds this run: never is anything of another one overwritten.

    Where nothing has been trained yet, a configuration that was mended takes the place of the one that would not run. Raises
    `ConfigError` naming the first values that differ.
    """
    for left in folder.glob(f".*{PARTIAL}*"):  # of a process that was killed while it wrote
        left.unlink()
    if (folder / CONFIG).is_file():
        there, here = settled(read_config(folder)), settled(config)
        differ = [f"{name} is {there.get(name)!r} there and {here[name]!r} here" for name in here if there.get(name) != here[name]]
        if differ and not any(folder.glob("fold-*/**/*.safetensors")):
            for name in (DATA, SPEC, FOLDS, ENVIRONMENT):
                (folder / name).unlink(missing_ok=True)
            write_text(folder / CONFIG, write_document(unstructure(config)))
        elif differ:
            more = f", and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
            raise ConfigError(
                f"The folder {folder} holds a run of another configuration: {'; '.join(differ[:_SHOWN])}{more}. Nothing was changed. "
                "Choose another name, as in name=second, or remove the folder."
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CONFIG, write_document(unstructure(config)))


def read_config(folder: str | PathLike[str]) -> RunConfig:
    """Read the configuration of a run from its folder; raises `MissingFileError` where there is none."""
    path = Path(folder) / CONFIG
    if not path.is_file():
        raise MissingFileError(f"{str(folder)!r} is not the folder of a run: it has no {CONFIG}. Give a folder that mlxfp run has made.")
    return structure(read_document(path).values, RunConfig, origin=lambda _: str(path))


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes out of a run's folder; raises `ConfigError` if one is in it. A process that is killed lets go."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"Another process is running in {folder}. Wait for it, or give this run another name.") from error
        yield


def hold(folder: Path, name: str, values: Mapping[str, Any], about: str) -> None:
    """Write values to a JSON file, or make sure that they are those that it has: else the run would not be the one that was begun."""
    path = folder / name
    if not path.is_file():
        write_json(path, values)
        return
    own = read_json(path)
    differ = [key for key in {**own, **values} if own.get(key) != values.get(key)]
    if differ:
        raise DataError(
            f"{about} of the run in {folder} have changed since it began: {', '.join(differ)} (see {name}). Bring back what was, or begin "
            "another run, as in name=second."
        )


def write_text(path: Path, text: str) -> None:
    """Write a file; it is complete before it takes its name."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write values as JSON, with names in their order."""
    write_text(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read what `write_json` wrote; raises `DataError` for what is damaged."""
    try:
        values = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}. Remove it, and what depends on it is made again.") from error
    return dict(values)


def write_array(path: Path, array: NDArray[Any]) -> None:
    """Write an array in numpy's format."""
    file = BytesIO()
    np.save(file, array, allow_pickle=False)
    write_bytes(path, file.getvalue())


def read_array(path: Path) -> NDArray[Any]:
    """Read what `write_array` wrote; raises `DataError` for what is damaged."""
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is damaged: {error}. Remove it, and it is made again.") from error
    return array


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file; it is complete before it takes its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, content)


def is_as_written(path: Path, digest: str) -> bool:
    """Whether a file is there, and has the hash that it had."""
    return path.is_file() and hash_file(path) == digest


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        yield from _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else ((f"{prefix}{name}", value),)


def flat(config: RunConfig) -> dict[str, Any]:
    """Return the values of a configuration by their paths, such as training.epochs."""
    return dict(_flat(unstructure(config)))


def settled(config: RunConfig) -> dict[str, Any]:
    """Return what decides the results of a run: the values of its configuration that must not change while it is continued.

    Of a folder of weights or of a tokenizer it is what is in it, which `data.json` holds, and not where it is.
    """
    values = {name: value for name, value in flat(config).items() if name not in _FREE}
    return values | {name: "a path" for name in _GIVEN if values[name] is not None and Path(values[name]).is_absolute()}


def keep_places(folder: Path, config: RunConfig) -> None:
    """Keep in the configuration of a run where its files are now."""
    kept, data = read_config(folder), config.data
    moved = evolve(
        kept,
        data=evolve(kept.data, path=data.path, spec=data.spec),
        text=evolve(kept.text, tokenizer=config.text.tokenizer),
        model=evolve(kept.model, path=config.model.path),
    )
    if moved != kept:
        write_text(folder / CONFIG, write_document(unstructure(moved)))
