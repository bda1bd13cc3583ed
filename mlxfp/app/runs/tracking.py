"""A run in experiment trackers: in each a run with one for each fold. Errors of a tracker never end the run."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from attrs import frozen

from mlxfp import observers
from mlxfp.app.kaggle.validation.out_of_fold import Score
from mlxfp.app.run_folders.files import read_json, write_json
from mlxfp.app.run_folders.folders import BEST, CHECKPOINTS, CONFIG, LOG, METRICS, MLFLOW, RECEIPT, SYNTHETIC
from mlxfp.app.runs.events import Noted, RunEvent
from mlxfp.app.runs.plans import Trackers
from mlxfp.observers import Observer
from mlxfp.support.optional import optional
from mlxfp.training.observers import event_files, trackio_runs
from mlxfp.training.observers.mlflow_runs import MlflowRun, begin_run, connect
from mlxfp.training.observers.tracking import Number, Tracker, failure_text

T = TypeVar("T")

_NO_MODEL = (BEST, CHECKPOINTS, LOG, MLFLOW, SYNTHETIC, ".*")  # files of a run that its predictions do not need


class TrackedRun(Protocol):
    """A run in one tracker. Methods raise whatever the tracker raises."""

    @property
    def name(self) -> str:
        """The name of the tracker."""

    def observer(self, fold: int) -> Observer:
        """Return the observer that keeps the run of a fold, if the tracker answers."""

    def end(self, metrics: Sequence[Number], files: Sequence[Path]) -> None:
        """Log the results of the whole run, and its files where the tracker keeps files."""


@frozen
class Tracking:
    """A run in all trackers that its configuration names, of those that answered when it began."""

    folder: Path
    runs: tuple[TrackedRun, ...] = ()

    def fold(self, number: int) -> Generator[RunEvent, None, tuple[Observer, ...]]:
        """Return the observers that keep the runs of a fold; report a tracker that does not answer: the next fold tries it again."""
        made: list[Observer] = []
        for run in self.runs:
            observer = yield from _attempt(self.folder, run.name, partial(run.observer, number))
            made += [] if observer is None else [observer]
        return tuple(made)

    def ended(self, metrics: Sequence[Number], outputs: Iterable[Path | None] = ()) -> Iterator[RunEvent]:
        """Log the results of the whole run and its files, with `outputs` those that not every run has."""
        paths = (self.folder / CONFIG, self.folder / METRICS, self.folder / RECEIPT, *outputs)
        files = [path for path in paths if path is not None and path.is_file()]
        known = [metric for metric in metrics if isfinite(metric[1])]
        for run in self.runs:
            yield from _attempt(self.folder, run.name, partial(run.end, known, files))


def track(chosen: Trackers, folder: Path, experiment: str) -> Generator[RunEvent, None, Tracking]:
    """Begin the run in each tracker, or find it again where the run continues; yield what went wrong, and return the tracking.

    Raises `MissingExtraError` for a tracker that is not installed.
    """
    made: list[TrackedRun] = []
    if chosen.mlflow is not None:
        mlflow = optional("mlflow", extra="tracking", needed_by="observers.mlflow")
        found = yield from _attempt(folder, "MLflow", partial(_in_mlflow, mlflow, chosen, folder, experiment, chosen.mlflow))
        made += [] if found is None else [found]
    if chosen.trackio is not None:
        made.append(_InTrackio(optional("trackio", extra="trackio", needed_by="observers.trackio"), chosen, chosen.trackio))
    if chosen.tensorboard is not None:
        optional("tensorboard", extra="tensorboard", needed_by="observers.tensorboard")
        made.append(_InTensorboard(chosen, Path(chosen.tensorboard) / chosen.name))
    return Tracking(folder, tuple(made))


@frozen
class _InMlflow:
    """The parent run in MLflow, with a child for each fold."""

    mlflow: Any  # the module
    run: Trackers
    folder: Path
    experiment: str
    uri: str
    parent: str
    name: str = "MLflow"

    def observer(self, fold: int) -> Observer:
        connect(self.mlflow, self.uri)
        params = {"fold": fold, **self.run.params}
        return observers.log_mlflow(self.experiment, uri=self.uri, name=f"fold {fold}", parent=self.parent, params=params)

    def end(self, metrics: Sequence[Number], files: Sequence[Path]) -> None:
        run = MlflowRun(self.mlflow, connect(self.mlflow, self.uri), self.parent)
        run.log_metrics(metrics)
        run.log_files(files)
        if (name := self.run.mlflow_model) is not None:
            with TemporaryDirectory() as copy:
                copytree(self.folder, copy, ignore=ignore_patterns(*_NO_MODEL), dirs_exist_ok=True)
                run.register(name, copy, run=".")
        run.end("FINISHED")


def _in_mlflow(mlflow: Any, chosen: Trackers, folder: Path, experiment: str, uri: str) -> _InMlflow:
    """Begin the parent run, or find it again. Children that a killed process left running are marked as killed."""
    # MLflow tries a request to a server that has died for four minutes, and there is one for every entry of the log.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    file = folder / MLFLOW
    known: Mapping[str, Any] = read_json(file) if file.is_file() else {}
    if known.get("uri") == uri:
        MlflowRun(mlflow, connect(mlflow, uri), known["run"]).end_children("KILLED")  # raises if the run is not there
        return _InMlflow(mlflow, chosen, folder, experiment, uri, str(known["run"]))
    run = begin_run(mlflow, uri, experiment, name=chosen.name)
    run.log_params(chosen.params)
    write_json(file, {"uri": uri, "run": run.id})
    return _InMlflow(mlflow, chosen, folder, experiment, uri, run.id)


@frozen
class _InTrackio:
    """Runs of one group in a project of Trackio: of each fold one, and one of the results."""

    trackio: Any  # the module
    run: Trackers
    project: str
    name: str = "Trackio"

    def observer(self, fold: int) -> Observer:
        group = self.run.name
        return observers.log_trackio(self.project, name=f"{group} fold {fold}", group=group, params={"fold": fold, **self.run.params})

    def end(self, metrics: Sequence[Number], files: Sequence[Path]) -> None:
        name = self.run.name
        _log_results(trackio_runs.begin_run(self.trackio, self.project, name=name, group=name, params=self.run.params), metrics)


@frozen
class _InTensorboard:
    """A folder of event files: in it those of the results, and a folder for each fold."""

    run: Trackers
    folder: Path
    name: str = "TensorBoard"

    def observer(self, fold: int) -> Observer:
        return observers.log_tensorboard(self.folder / f"fold-{fold:02}", params={"fold": fold, **self.run.params})

    def end(self, metrics: Sequence[Number], files: Sequence[Path]) -> None:
        _log_results(event_files.begin_files(str(self.folder)), metrics)


def _log_results(run: Tracker, metrics: Sequence[Number]) -> None:
    run.log_metrics(metrics)
    run.end("FINISHED")


def score_metrics(score: Score | None) -> tuple[Number, ...]:
    """Return the metrics of a run in folds: of each fold, and of all out-of-fold predictions."""
    if score is None:
        return ()
    folds = [(f"fold/{score.metric}", value, place) for place, value in enumerate(score.folds, 1)]
    return (*folds, (f"oof/{score.metric}", score.overall, 0))


def _attempt(folder: Path, tracker: str, job: Callable[[], T]) -> Generator[RunEvent, None, T | None]:
    """Do something with a tracker and return its result; yield a note if that fails."""
    try:
        return job()
    except Exception as error:  # noqa: BLE001  # whatever a tracker does, the run goes on
        yield Noted(folder, failure_text(tracker, error))
    return None
