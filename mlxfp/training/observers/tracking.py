"""MLflow: for each run here a run there. What goes wrong in MLflow never ends the run here."""

import logging
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from math import isnan
from pathlib import Path
from socket import create_connection
from tempfile import TemporaryDirectory
from time import time
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies

from attrs import frozen

from mlxfp.core._optional import optional
from mlxfp.core.checks import check_text
from mlxfp.distributed import Ranks
from mlxfp.training.loop.checkpoints import save_state
from mlxfp.training.loop.events import EpochEnded, Event, Observer, Stepped, Stopped, Warned
from mlxfp.training.observers.first_rank import on_first_rank
from mlxfp.training.observers.logs import numbers_of
from mlxfp.training.steps.state import TrainState, evaluate_state

_LOGGER = logging.getLogger("mlxfp")
_SQLITE = "sqlite:///"
_ODD = re.compile(r"[^\w./: -]")
_LONGEST = 6000  # characters of a setting that MLflow keeps
_PATIENCE = 10.0  # seconds for a server to answer
_TRIES = 3  # failed jobs in a row, after which a server is taken for dead: each job waits for it


def log_mlflow(  # noqa: PLR0913  # each is a word of MLflow
    experiment: str,
    *,
    uri: str | None = None,
    name: str | None = None,
    parent: str | None = None,
    params: Mapping[str, Any] | None = None,
    artifacts: Sequence[str | os.PathLike[str]] = (),
    model: str | None = None,
    ranks: Ranks | None = None,
) -> Observer:
    """Keep an MLflow run: `params` at its start, the metrics by step, the files and folders in `artifacts` at its end, and the model.

    Steps are batches. The metrics of steps are called `train/loss` and so on, those of epochs `epoch/loss`, those of evaluations have
    their own names. `uri` is the tracking server, such as `sqlite:///mlflow.db`, and by default what MLflow is configured for. The
    experiment is created if it does not exist; one in SQLite has its files next to the database. `parent` is the id of the run in
    which this one is nested, as in cross-validation. With `model` the last state is logged as an MLflow model (`state.safetensors`,
    for `load_state`) and registered under that name. With `ranks`, only rank 0 keeps a run.

    MLflow works in a thread of its own and never fails or slows the training: an error there becomes a `Warned` event, once for each
    message, and a warning of the logger `mlxfp`; after three failed calls in a row nothing more is sent. The end of a run waits for
    MLflow. Raises `MissingExtraError` if it is not installed.

    >>> log_mlflow("titanic", uri="sqlite:///mlflow.db", params={"learning_rate": 1e-3}, parent=7)
    Traceback (most recent call last):
    mlxfp.core.errors.ArgumentTypeError: parent must be a string, got parent=7.

    See also: `log_metrics` for a plain file, which can be one of the artifacts.
    """
    texts = {"experiment": experiment, "uri": uri, "name": name, "parent": parent, "model": model}
    check_text(**{key: value for key, value in texts.items() if value is not None})
    mlflow = optional("mlflow", extra="tracking", needed_by="observers.log_mlflow")
    begin = partial(begin_run, mlflow, uri, experiment, name=name, parent=parent)
    observer = partial(_log_mlflow, begin=begin, params=dict(params or {}), artifacts=tuple(map(Path, artifacts)), model=model)
    return on_first_rank(ranks, observer)


@frozen
class MlflowRun:
    """A run in MLflow, and what can be logged in it. Each method raises whatever MLflow raises."""

    mlflow: Any  # the module
    client: Any
    id: str

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log the settings of the run; long ones are cut, since MLflow would refuse all of them."""
        entries = [self.mlflow.entities.Param(_name(name), str(value)[:_LONGEST]) for name, value in params.items()]
        self.client.log_batch(self.id, params=entries)

    def log_metrics(self, values: Iterable[tuple[str, float, int]]) -> None:
        """Log numbers: each a name, a value and a step. NaN is left out: two at one step break the tables of MLflow."""
        now = int(time() * 1000)
        known = [self.mlflow.entities.Metric(_name(name), value, now, step) for name, value, step in values if not isnan(value)]
        if known:
            self.client.log_batch(self.id, metrics=known)

    def log_files(self, paths: Iterable[Path]) -> None:
        """Copy files and folders into the run."""
        for path in paths:
            self.client.log_artifact(self.id, str(path))

    def log_model(self, name: str, state: TrainState) -> None:
        """Log a state as a model, and register it."""
        with TemporaryDirectory() as folder:
            save_state(Path(folder) / "state.safetensors", state)
            self.register(name, folder, weights="state.safetensors")

    def register(self, name: str, folder: str, **flavor: str) -> None:
        """Log the files in a folder as a model, and register it; `flavor` says what they are."""
        made = self.mlflow.models.Model(artifact_path="model", run_id=self.id)
        made.add_flavor("mlxfp", **flavor).save(f"{folder}/MLmodel")
        self.client.log_artifacts(self.id, folder, "model")
        if not self.client.search_registered_models(f"name = '{name}'"):
            self.client.create_registered_model(name)
        self.client.create_model_version(name, f"runs:/{self.id}/model", self.id)

    def end(self, status: str) -> None:
        """Mark the run as FINISHED, KILLED or FAILED."""
        self.client.set_terminated(self.id, status)

    def end_children(self, status: str) -> None:
        """Mark the nested runs that are still running."""
        experiment = self.client.get_run(self.id).info.experiment_id
        for child in self.client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{self.id}' and attributes.status = 'RUNNING'"):
            self.client.set_terminated(child.info.run_id, status)


def _name(name: str) -> str:
    """Return a name with the characters that MLflow takes."""
    return _ODD.sub("_", name)


def connect(mlflow: Any, uri: str | None) -> Any:
    """Make a client. Raises `OSError` at once if no server answers: the client itself would try for minutes, in silence."""
    address = urlsplit(uri or "")
    if address.scheme in ("http", "https") and address.hostname and address.scheme not in getproxies():
        create_connection((address.hostname, address.port or {"http": 80, "https": 443}[address.scheme]), timeout=_PATIENCE).close()
    return mlflow.MlflowClient(tracking_uri=uri)


def begin_run(mlflow: Any, uri: str | None, experiment: str, *, name: str | None = None, parent: str | None = None) -> MlflowRun:
    """Begin a run in an experiment, which is created if it does not exist.

    The files of a store in SQLite go into a folder next to the database; MLflow would put them into the working folder.
    """
    client = connect(mlflow, uri)
    found = client.get_experiment_by_name(experiment)
    number, tags = None if found is None else str(found.experiment_id), {} if parent is None else {"mlflow.parentRunId": parent}
    if number is None:
        file = None if uri is None or not uri.startswith(_SQLITE) else Path(uri.removeprefix(_SQLITE)).resolve()
        place = {} if file is None else {"artifact_location": (file.parent / f"{file.stem}-artifacts").as_uri()}
        number = str(client.create_experiment(experiment, **place))
    return MlflowRun(mlflow, client, client.create_run(number, tags=tags, run_name=name).info.run_id)


def failure_text(source: str, error: BaseException | None) -> str:
    """Describe an error of MLflow in one line."""
    return f"{source}: {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _log_mlflow(
    events: Iterable[Event], *, begin: Callable[[], MlflowRun], params: Mapping[str, Any], artifacts: Sequence[Path], model: str | None
) -> Iterator[Event]:
    with _Worker(begin) as worker:
        worker.submit(partial(MlflowRun.log_params, params=params))
        for event in events:
            numbers = [(_metric_name(event, name), float(value), event.step) for name, value in numbers_of(event).items()]
            if numbers:
                worker.submit(partial(MlflowRun.log_metrics, values=numbers))
            if isinstance(event, Stopped):
                evaluate_state(event.state)  # here: another thread can only read arrays that are computed
                worker.submit(partial(MlflowRun.log_files, paths=artifacts))
                if model is not None:
                    worker.submit(partial(MlflowRun.log_model, name=model, state=event.state))
                wait(worker.jobs)
            for message in worker.failures():
                yield event.derive(Warned, message)
            yield event


def _metric_name(event: Event, name: str) -> str:
    prefix = "train/" if isinstance(event, Stepped) else "epoch/" if isinstance(event, EpochEnded) else ""
    return name if name.startswith("learning_rate") else f"{prefix}{name}"


class _Worker:
    """Calls MLflow in one thread, in order, and keeps errors instead of raising them."""

    def __init__(self, begin: Callable[[], MlflowRun]) -> None:
        """Begin the run in MLflow."""
        self._pool = ThreadPoolExecutor(1, "mlxfp-mlflow")
        self._run = self._pool.submit(begin)
        self.jobs: deque[Future[Any]] = deque([self._run])
        self._said: set[str] = set()
        self._failed = 0  # jobs in a row

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Tell MLflow how the run ended."""
        status = "FINISHED" if error is None else "KILLED" if isinstance(error, GeneratorExit | KeyboardInterrupt) else "FAILED"
        self.submit(partial(MlflowRun.end, status=status))
        wait(self.jobs)
        list(self.failures())
        self._pool.shutdown()

    def submit(self, job: Callable[[MlflowRun], object]) -> None:
        """Do something with the run, later; if it could not begin, nothing."""
        self.jobs.append(self._pool.submit(self._do, job))

    def _do(self, job: Callable[[MlflowRun], object]) -> None:
        if self._failed == _TRIES:
            return
        try:
            job(self._run.result())
        except Exception:
            self._failed += 1
            raise
        self._failed = 0

    def failures(self) -> Iterator[str]:
        """Return the errors of the jobs that are done, each message once."""
        while self.jobs and self.jobs[0].done():
            error = self.jobs.popleft().exception()
            message = failure_text("log_mlflow", error)
            if error is not None and message not in self._said:
                self._said.add(message)
                _LOGGER.warning(message)
                yield message
