"""A run in MLflow: a parent with a child for each fold. Errors of MLflow never end the run."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from attrs import frozen

from mlxfp.config.classes import RunConfig
from mlxfp.core._optional import optional
from mlxfp.kaggle.validation.out_of_fold import Score
from mlxfp.runs.events import Noted, RunEvent
from mlxfp.runs.files import read_json, write_json
from mlxfp.runs.folders import BEST, CHECKPOINTS, CONFIG, LOG, METRICS, MLFLOW, RECEIPT, SYNTHETIC, flat
from mlxfp.training import observers
from mlxfp.training.loop.events import Observer
from mlxfp.training.observers.tracking import MlflowRun, begin_run, connect, failure_text

T = TypeVar("T")
Metric = tuple[str, float, int]  # its name, its value, and its step

_NO_MODEL = (BEST, CHECKPOINTS, LOG, MLFLOW, SYNTHETIC, ".*")  # files of a run that its predictions do not need


@frozen
class Tracking:
    """The parent run in MLflow; without one, every method does nothing."""

    config: RunConfig
    folder: Path
    experiment: str
    uri: str | None = None
    parent: str | None = None

    def lost(self) -> Iterator[RunEvent]:
        """Report a server that does not answer any more: this fold is not tracked, and the next one tries again."""
        if self.parent is not None:
            yield from _attempt(self.folder, lambda mlflow: connect(mlflow, self.uri))

    def fold(self, number: int) -> tuple[Observer, ...]:
        """Return the observer that keeps the child run of a fold."""
        if self.parent is None:
            return ()
        params = {"fold": number, **_params(self.config)}
        return (observers.log_mlflow(self.experiment, uri=self.uri, name=f"fold {number}", parent=self.parent, params=params),)

    def ended(self, metrics: Iterable[Metric], outputs: Iterable[Path | None] = ()) -> Iterator[RunEvent]:
        """Log the results of the whole run and its files, with `outputs` those that not every run has, and end the parent."""
        if self.parent is None:
            return
        folder, uri, parent = self.folder, self.uri, self.parent

        def log(mlflow: Any) -> None:
            run = MlflowRun(mlflow, connect(mlflow, uri), parent)
            run.log_metrics(metrics)
            files = (folder / CONFIG, folder / METRICS, folder / RECEIPT, *outputs)
            run.log_files(path for path in files if path is not None and path.is_file())
            if (name := self.config.observers.mlflow_model) is not None:
                with TemporaryDirectory() as copy:
                    copytree(folder, copy, ignore=ignore_patterns(*_NO_MODEL), dirs_exist_ok=True)
                    run.register(name, copy, run=".")
            run.end("FINISHED")

        yield from _attempt(folder, log)


def track(config: RunConfig, folder: Path, experiment: str) -> Generator[RunEvent, None, Tracking]:
    """Begin the parent run, or find it again where the run continues; yield what went wrong, and return the tracking.

    Children that were left running by a process that was killed are marked as killed. Raises `MissingExtraError` without MLflow.
    """
    uri, file = config.observers.mlflow, folder / MLFLOW
    if uri is None:
        return Tracking(config, folder, experiment)
    # MLflow tries a request to a server that has died for four minutes, and there is one for every entry of the log.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    known: Mapping[str, Any] = read_json(file) if file.is_file() else {}

    def begin(mlflow: Any) -> str:
        if known.get("uri") == uri:
            MlflowRun(mlflow, connect(mlflow, uri), known["run"]).end_children("KILLED")  # raises if the run is not there
            return str(known["run"])
        run = begin_run(mlflow, uri, experiment, name=config.name)
        run.log_params(_params(config))
        write_json(file, {"uri": uri, "run": run.id})
        return run.id

    return Tracking(config, folder, experiment, uri, (yield from _attempt(folder, begin)))


def score_metrics(score: Score | None) -> tuple[Metric, ...]:
    """Return the metrics of a run in folds: of each fold, and of all out-of-fold predictions."""
    if score is None:
        return ()
    folds = [(f"fold/{score.metric}", value, place) for place, value in enumerate(score.folds, 1)]
    return (*folds, (f"oof/{score.metric}", score.overall, 0))


def _params(config: RunConfig) -> dict[str, str]:
    return {name: str(value) for name, value in flat(config).items() if value is not None}


def _attempt(folder: Path, job: Callable[[Any], T]) -> Generator[RunEvent, None, T | None]:
    """Do something with MLflow, whose module it is given, and return its result; yield a note if that fails."""
    mlflow = optional("mlflow", extra="tracking", needed_by="observers.mlflow")
    try:
        return job(mlflow)
    except Exception as error:  # noqa: BLE001  # whatever a tracking server does, the run goes on
        yield Noted(folder, failure_text("MLflow", error))
    return None
