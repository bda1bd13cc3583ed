"""Runs in experiment trackers, with a nested run for each fold. An error of a tracker never ends a run."""

import os
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from attrs import frozen

from mlxfp import observers
from mlxfp.app.kaggle.validation.out_of_fold import Score
from mlxfp.app.run_folders.files import read_json, write_json
from mlxfp.app.run_folders.folders import BEST, CHECKPOINTS, CONFIG, LOG, METRICS, MLFLOW, RECEIPT, SYNTHETIC
from mlxfp.app.runs.events import Noted, RunEvent
from mlxfp.app.runs.plans import Trackers
from mlxfp.observers import Observer
from mlxfp.support.errors import failure_text
from mlxfp.support.optional import optional

T = TypeVar("T")

Number = tuple[str, float, int]  # name, value and step of a metric

_NO_MODEL = (BEST, CHECKPOINTS, LOG, MLFLOW, SYNTHETIC, ".*")  # names of files that a prediction does not need


@frozen
class TrackedRun:
    """A run in one experiment tracker. The functions `observer` and `end` raise the errors of the tracker."""

    tracker: str
    observer: Callable[[int], Observer]  # function from a fold number to the observer of the fold
    end: Callable[[Sequence[Number], Sequence[Path]], object]  # function that logs the results and the files of the whole run


@frozen
class Tracking:
    """Connections of a run to experiment trackers, such as MLflow. Trackers that failed at the start of the run are omitted."""

    folder: Path
    runs: tuple[TrackedRun, ...] = ()

    def fold(self, number: int) -> Generator[RunEvent, None, tuple[Observer, ...]]:
        """Return the observers for a fold, and yield a message for each tracker that fails. The next fold tries all trackers again."""
        tracked: list[Observer] = []
        for run in self.runs:
            observer = yield from _attempt(self.folder, run.tracker, partial(run.observer, number))
            tracked += [] if observer is None else [observer]
        return tuple(tracked)

    def ended(self, metrics: Sequence[Number], submission: Path | None = None) -> Iterator[RunEvent]:
        """Log the final results and files of the run in every tracker."""
        paths = (self.folder / CONFIG, self.folder / METRICS, self.folder / RECEIPT, submission)
        files = [path for path in paths if path is not None and path.is_file()]
        known = [metric for metric in metrics if isfinite(metric[1])]
        for run in self.runs:
            yield from _attempt(self.folder, run.tracker, partial(run.end, known, files))


def track(chosen: Trackers, folder: Path, experiment: str) -> Generator[RunEvent, None, Tracking]:
    """Start the run in each tracker, or continue the tracked run of the folder. Yield messages about failures. Return a `Tracking`.

    Raises `MissingExtraError` for a tracker that is not installed.
    """
    runs: list[TrackedRun] = []
    if chosen.mlflow is not None:
        optional("mlflow", extra="tracking", needed_by="observers.mlflow")
        run = yield from _attempt(folder, "MLflow", partial(_track_in_mlflow, chosen, folder, experiment, chosen.mlflow))
        runs += [] if run is None else [run]
    if chosen.tensorboard is not None:
        optional("tensorboard", extra="tensorboard", needed_by="observers.tensorboard")
        runs.append(_track_in_tensorboard(chosen, Path(chosen.tensorboard) / chosen.name))
    return Tracking(folder, tuple(runs))


def _track_in_mlflow(chosen: Trackers, folder: Path, experiment: str, uri: str) -> TrackedRun:
    """Start or continue an MLflow run with a child run for each fold. Child runs of a killed process are marked as killed."""
    # With the default retries, MLflow needs four minutes to detect a dead server, and every log entry is a request.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    begin = partial(observers.begin_mlflow_run, experiment, uri=uri)
    file = folder / MLFLOW
    known: Mapping[str, Any] = read_json(file) if file.is_file() else {}
    if known.get("uri") == uri:
        parent = str(known["run"])
        begin(run=parent).end_children("KILLED")  # this call raises an error if the tracked run no longer exists
    else:
        run = begin(name=chosen.name)
        run.log_params(chosen.params)
        parent = run.id
        write_json(file, {"uri": uri, "run": parent})

    def observer(fold: int) -> Observer:
        begin(run=parent)  # this call raises an error if the MLflow server does not answer
        params = {"fold": fold, **chosen.params}
        return observers.log_mlflow(experiment, uri=uri, name=f"fold {fold}", parent=parent, params=params)

    def end(metrics: Sequence[Number], files: Sequence[Path]) -> None:
        run = begin(run=parent)
        run.log_metrics(metrics)
        run.log_files(files)
        if chosen.mlflow_model is not None:
            with TemporaryDirectory() as copy:
                copytree(folder, copy, ignore=ignore_patterns(*_NO_MODEL), dirs_exist_ok=True)
                run.register(chosen.mlflow_model, copy, run=".")
        run.end("FINISHED")

    return TrackedRun("MLflow", observer, end)


def _track_in_tensorboard(chosen: Trackers, folder: Path) -> TrackedRun:
    """Track a run in TensorBoard: event files with the results in a folder, and a subfolder for each fold."""

    def observer(fold: int) -> Observer:
        return observers.log_tensorboard(folder / f"fold-{fold:02}", params={"fold": fold, **chosen.params})

    def end(metrics: Sequence[Number], files: Sequence[Path]) -> None:
        run = observers.begin_tensorboard_run(folder)
        run.log_metrics(metrics)
        run.end("FINISHED")

    return TrackedRun("TensorBoard", observer, end)


def score_metrics(score: Score | None) -> tuple[Number, ...]:
    """Return the metrics of a run: the score of each fold and the out-of-fold score."""
    if score is None:
        return ()
    folds = [(f"fold/{score.metric}", value, fold) for fold, value in enumerate(score.folds, 1)]
    return (*folds, (f"oof/{score.metric}", score.overall, 0))


def _attempt(folder: Path, tracker: str, job: Callable[[], T]) -> Generator[RunEvent, None, T | None]:
    """Call `job` and return the result. If the tracker fails, yield a message and return None."""
    try:
        return job()
    except Exception as error:  # noqa: BLE001  # an error of a tracker must not end the run
        yield Noted(folder, failure_text(tracker, error))
    return None
