"""Runs in MLflow."""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from socket import create_connection
from tempfile import TemporaryDirectory
from time import time
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from attrs import frozen

from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_text
from mlxfp.support.optional import optional
from mlxfp.training.loop.checkpoints import save_state
from mlxfp.training.loop.events import Observer
from mlxfp.training.observers.first_rank import on_first_rank
from mlxfp.training.observers.tracking import Number, track
from mlxfp.training.steps.state import TrainState

_SQLITE = "sqlite:///"
_ODD = re.compile(r"[^\w./: -]")
_LONGEST = 6000  # maximum number of characters of an MLflow parameter
_PATIENCE = 10.0  # seconds to wait for an answer of the server


def log_mlflow(  # noqa: PLR0913  # settings of MLflow
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
    """Log a run to MLflow: `params` at the start, metrics by step, and the files of `artifacts` and the model at the end.

    Steps in MLflow count batches. Metrics of steps get the prefix `train/`, as in `train/loss`, and metrics of epochs the prefix `epoch/`.
    Metrics of evaluations keep their names. A run continued from a checkpoint logs to the last run with this `name` and `parent`, without
    duplicates. With `ranks`, only rank 0 logs.

    `uri` is the tracking server, such as `sqlite:///mlflow.db`; the default is the configuration of MLflow. A missing experiment is
    created. The files of an experiment in SQLite are stored next to the database. `parent` is the id of the parent run, for example in
    cross-validation. `model` is a registered model name: the last state is logged as an MLflow model (`state.safetensors`, for
    `load_state`) and registered.

    A separate thread calls MLflow, so MLflow never stops or delays training. Each error message appears once as a `Warned` event and as a
    warning of the logger `mlxfp`. Logging stops after three consecutive failures. The end of a run waits for MLflow. Raises
    `MissingExtraError` if MLflow is not installed.

    >>> log_mlflow("titanic", uri="sqlite:///mlflow.db", params={"learning_rate": 1e-3}, parent=7)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: parent must be a string, got parent=7.

    See also: `log_wandb`, `log_tensorboard`, and `log_metrics` for a plain file, which may be an artifact.
    """
    texts = {"experiment": experiment, "uri": uri, "name": name, "parent": parent, "model": model}
    check_text(**{key: value for key, value in texts.items() if value is not None})
    optional("mlflow", extra="tracking", needed_by="observers.log_mlflow")
    begin = partial(begin_mlflow_run, experiment, uri=uri, name=name, parent=parent)
    paths = tuple(map(Path, artifacts))
    jobs: list[Callable[[MlflowRun, TrainState], object]] = [lambda run, state: run.log_files(paths)]
    jobs += [] if model is None else [lambda run, state: run.log_model(model, state)]
    return on_first_rank(ranks, partial(track, source="log_mlflow", begin=begin, params=dict(params or {}), at_end=tuple(jobs)))


@frozen
class MlflowRun:
    """A `Tracker` for a run in MLflow, with files and models. Methods raise the errors of MLflow."""

    mlflow: Any  # the module `mlflow`
    client: Any
    id: str
    resumed: bool = False

    def log_params(self, params: Mapping[str, object]) -> None:
        """Log the settings of a new run. Long values are shortened, because a single long value would make MLflow refuse all settings."""
        if self.resumed:
            return
        entries = [self.mlflow.entities.Param(_name(name), str(value)[:_LONGEST]) for name, value in params.items()]
        self.client.log_batch(self.id, params=entries)

    def name_of(self, metric: str) -> str:
        return _name(metric)

    def last_steps(self) -> dict[str, int]:
        names = self.client.get_run(self.id).data.metrics if self.resumed else ()
        return {name: max(metric.step for metric in self.client.get_metric_history(self.id, name)) for name in names}

    def log_metrics(self, values: Iterable[Number]) -> None:
        """Log finite numbers. NaN is omitted, because two NaN values at one step would break the tables of MLflow."""
        now = int(time() * 1000)
        metrics = [self.mlflow.entities.Metric(_name(name), value, now, step) for name, value, step in values]
        self.client.log_batch(self.id, metrics=metrics)

    def log_files(self, paths: Iterable[Path]) -> None:
        """Store files and folders as artifacts of the run."""
        for path in paths:
            self.client.log_artifact(self.id, str(path))

    def log_model(self, name: str, state: TrainState) -> None:
        """Log a state as a model and register the model."""
        with TemporaryDirectory() as folder:
            save_state(Path(folder) / "state.safetensors", state)
            self.register(name, folder, weights="state.safetensors")

    def register(self, name: str, folder: str, **flavor: str) -> None:
        """Log the files of a folder as a model and register the model. `flavor` describes the files."""
        model = self.mlflow.models.Model(artifact_path="model", run_id=self.id)
        model.add_flavor("mlxfp", **flavor).save(f"{folder}/MLmodel")
        self.client.log_artifacts(self.id, folder, "model")
        if not self.client.search_registered_models(f"name = '{name}'"):
            self.client.create_registered_model(name)
        self.client.create_model_version(name, f"runs:/{self.id}/model", self.id)

    def end(self, status: str) -> None:
        self.client.set_terminated(self.id, status)

    def end_children(self, status: str) -> None:
        """Set the status of all unfinished nested runs."""
        experiment = self.client.get_run(self.id).info.experiment_id
        for child in self.client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{self.id}' and attributes.status = 'RUNNING'"):
            self.client.set_terminated(child.info.run_id, status)


def _name(name: str) -> str:
    """Replace the characters that MLflow does not accept in a name."""
    return _ODD.sub("_", name)


def begin_mlflow_run(  # noqa: PLR0913  # settings of MLflow
    experiment: str, *, uri: str | None = None, name: str | None = None, parent: str | None = None, run: str | None = None, step: int = 0
) -> MlflowRun:
    """Start a run in MLflow, or continue an earlier run.

    `run` is the id of a run to continue. Without `run`, for `step` > 0, continue the last run with the same `name` and `parent`.

    A missing experiment is created. Files of an experiment in SQLite are stored next to the database instead of MLflow's default, the
    working folder. Raises `OSError` at once if the server does not answer; the MLflow client would retry silently for minutes.

    >>> import mlxfp as fp
    >>> fp.observers.begin_mlflow_run("titanic", uri="http://localhost:1")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ConnectionRefusedError: [Errno 111] Connection refused

    See also: `log_mlflow`, `Tracker`.
    """
    mlflow = optional("mlflow", extra="tracking", needed_by="observers.begin_mlflow_run")
    address = urlsplit(uri or "")
    if address.scheme in ("http", "https") and address.hostname and address.scheme not in getproxies():
        create_connection((address.hostname, address.port or {"http": 80, "https": 443}[address.scheme]), timeout=_PATIENCE).close()
    client = mlflow.MlflowClient(tracking_uri=uri)
    if run is not None:
        return MlflowRun(mlflow, client, run)
    known = client.get_experiment_by_name(experiment)
    number, tags = None if known is None else str(known.experiment_id), {} if parent is None else {"mlflow.parentRunId": parent}
    if number is None:
        file = None if uri is None or not uri.startswith(_SQLITE) else Path(uri.removeprefix(_SQLITE)).resolve()
        location = {} if file is None else {"artifact_location": (file.parent / f"{file.stem}-artifacts").as_uri()}
        number = str(client.create_experiment(experiment, **location))
    if step and name is not None:
        named = {"attributes.run_name": name, **{f"tags.`{tag}`": value for tag, value in tags.items()}}
        query = " and ".join(f"{key} = {_quoted(value)}" for key, value in named.items())
        for last in client.search_runs([number], query, order_by=["attributes.start_time DESC"], max_results=1):
            client.update_run(last.info.run_id, status="RUNNING")
            return MlflowRun(mlflow, client, last.info.run_id, resumed=True)
    return MlflowRun(mlflow, client, client.create_run(number, tags=tags, run_name=name).info.run_id)


def _quoted(text: str) -> str:
    mark = '"' if "'" in text else "'"
    return f"{mark}{text}{mark}"
