"""MLflow: a run there for a run here."""

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from types import TracebackType
from typing import Any, Self

from attrs import frozen

from mlxfp.core._optional import optional
from mlxfp.core.checks import check_text
from mlxfp.training.loop.checkpoints import save_state
from mlxfp.training.loop.events import EpochEnded, Event, Observer, Stepped, Stopped, Warned
from mlxfp.training.observers.numbers import numbers_of
from mlxfp.training.steps.state import TrainState, settle

_LOGGER = logging.getLogger("mlxfp")
_SQLITE = "sqlite:///"
_TRIES = 3  # jobs in a row that may go wrong, before a server is taken for dead: each job waits for it


def log_mlflow(  # noqa: PLR0913  # each is a word of MLflow
    experiment: str,
    *,
    uri: str | None = None,
    name: str | None = None,
    parent: str | None = None,
    params: Mapping[str, Any] | None = None,
    artifacts: Sequence[str | os.PathLike[str]] = (),
    model: str | None = None,
) -> Observer:
    """Keep an MLflow run: `params` at its start, the metrics by step, the files and folders in `artifacts` at its end, and the model.

    Steps are batches. The metrics of steps are called `train/loss` and so on, those of epochs `epoch/loss`, those of evaluations have
    their own names. `uri` is the tracking server, such as `sqlite:///mlflow.db`, MLflow's own choice unless given; the experiment is
    created if it is not there, of a store in SQLite with the files beside the database. `parent` is the id of the run in which this one
    is nested, as in cross-validation. With `model` the last state is logged as an MLflow model (`state.safetensors`, for `load_state`)
    and registered under that name.

    MLflow works in a thread of its own and never fails or slows the training: what goes wrong there becomes a `Warned` event, once for
    each kind, and a warning of the logger `mlxfp`; after three calls in a row that failed, nothing more is sent. The end of a run waits
    for it. Raises `MissingExtraError` if there is no MLflow.

    >>> log_mlflow("titanic", uri="sqlite:///mlflow.db", params={"learning_rate": 1e-3}, parent=7)
    Traceback (most recent call last):
    mlxfp.core.errors.ArgumentTypeError: parent must be a string, got parent=7.

    See also: `log_metrics` for a plain file, which can be one of the artifacts.
    """
    texts = {"experiment": experiment, "uri": uri, "name": name, "parent": parent, "model": model}
    check_text(**{key: value for key, value in texts.items() if value is not None})
    mlflow = optional("mlflow", extra="tracking", needed_by="observers.log_mlflow")
    files = tuple(map(Path, artifacts))
    return partial(_log_mlflow, mlflow=mlflow, plan=_Plan(experiment, uri, name, parent, dict(params or {}), files, model))


@frozen
class _Plan:
    experiment: str
    uri: str | None
    name: str | None
    parent: str | None
    params: Mapping[str, Any]
    artifacts: tuple[Path, ...]
    model: str | None


def _log_mlflow(events: Iterable[Event], *, mlflow: Any, plan: _Plan) -> Iterator[Event]:
    with _Tracker(partial(_begin, mlflow, plan)) as tracker:
        tracker.submit(partial(_log_params, mlflow, plan.params))
        for event in events:
            numbers = {_name(event, name): value for name, value in numbers_of(event).items()}
            if numbers:
                tracker.submit(partial(_log_numbers, mlflow, numbers, event.step))
            if isinstance(event, Stopped):
                settle(event.state)  # here, and not in the thread
                tracker.submit(partial(_log_files, plan.artifacts))
                if plan.model is not None:
                    tracker.submit(partial(_log_model, mlflow, plan.model, event.state))
                tracker.wait()
            for message in tracker.failures():
                yield Warned(event.state, event.cursor, event.epoch, message)
            yield event


def _name(event: Event, name: str) -> str:
    prefix = "train/" if isinstance(event, Stepped) else "epoch/" if isinstance(event, EpochEnded) else ""
    return name if name.startswith("learning_rate") else f"{prefix}{name}"


@frozen
class _Run:
    client: Any
    id: str


class _Tracker:
    """Calls MLflow in one thread, in order, and keeps what goes wrong instead of raising it."""

    def __init__(self, begin: Callable[[], _Run]) -> None:
        """Begin the run there."""
        self._pool = ThreadPoolExecutor(1, "mlxfp-mlflow")
        self._run = self._pool.submit(begin)
        self._jobs: deque[Future[Any]] = deque([self._run])
        self._said: set[str] = set()
        self._in_vain = 0  # jobs in a row that went wrong

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        """Say there how the run ended."""
        status = "FINISHED" if error is None else "KILLED" if isinstance(error, GeneratorExit | KeyboardInterrupt) else "FAILED"
        self.submit(partial(_terminate, status))
        self.wait()
        list(self.failures())
        self._pool.shutdown()

    def submit(self, job: Callable[[_Run], object]) -> None:
        """Do something with the run there, later; if it could not begin, nothing."""
        self._jobs.append(self._pool.submit(self._do, job))

    def _do(self, job: Callable[[_Run], object]) -> None:
        if self._in_vain == _TRIES:
            return
        try:
            job(self._run.result())
        except Exception:
            self._in_vain += 1
            raise
        self._in_vain = 0

    def wait(self) -> None:
        """Wait until nothing is left to do."""
        wait(self._jobs)

    def failures(self) -> Iterator[str]:
        """Return what went wrong in the jobs that are done, each message once."""
        while self._jobs and self._jobs[0].done():
            error = self._jobs.popleft().exception()
            message = f"log_mlflow: {type(error).__name__}: {str(error).partition(chr(10))[0]}"
            if error is not None and message not in self._said:
                self._said.add(message)
                _LOGGER.warning(message)
                yield message


def _begin(mlflow: Any, plan: _Plan) -> _Run:
    client = mlflow.MlflowClient(tracking_uri=plan.uri)
    experiment = experiment_in(client, plan.experiment, plan.uri)
    tags = {} if plan.parent is None else {"mlflow.parentRunId": plan.parent}
    return _Run(client, client.create_run(experiment, tags=tags, run_name=plan.name).info.run_id)


def experiment_in(client: Any, name: str, uri: str | None) -> str:
    """Find an experiment by name, or create it: return its id.

    Files of a store in SQLite go into a folder beside the database: MLflow itself would put them where the process happens to run.
    """
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    file = None if uri is None or not uri.startswith(_SQLITE) else Path(uri.removeprefix(_SQLITE)).resolve()
    place = {} if file is None else {"artifact_location": (file.parent / f"{file.stem}-artifacts").as_uri()}
    return str(client.create_experiment(name, **place))


def _log_params(mlflow: Any, params: Mapping[str, Any], run: _Run) -> None:
    run.client.log_batch(run.id, params=[mlflow.entities.Param(name, str(value)) for name, value in params.items()])


def _log_numbers(mlflow: Any, numbers: Mapping[str, float], step: int, run: _Run) -> None:
    now = int(time() * 1000)
    run.client.log_batch(run.id, metrics=[mlflow.entities.Metric(name, float(value), now, step) for name, value in numbers.items()])


def _log_files(paths: Iterable[Path], run: _Run) -> None:
    for path in paths:
        run.client.log_artifact(run.id, str(path))


def _log_model(mlflow: Any, name: str, state: TrainState, run: _Run) -> None:
    with TemporaryDirectory() as folder:
        save_state(Path(folder) / "state.safetensors", state)
        made = mlflow.models.Model(artifact_path="model", run_id=run.id)
        made.add_flavor("mlxfp", weights="state.safetensors").save(f"{folder}/MLmodel")
        run.client.log_artifacts(run.id, folder, "model")
    if not run.client.search_registered_models(f"name = '{name}'"):
        run.client.create_registered_model(name)
    run.client.create_model_version(name, f"runs:/{run.id}/model", run.id)


def _terminate(status: str, run: _Run) -> None:
    run.client.set_terminated(run.id, status)
