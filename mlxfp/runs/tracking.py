"""A run in MLflow: a parent with a child for each fold. What goes wrong there never ends the run."""

import os
from collections.abc import Callable, Iterator, Mapping
from math import isnan
from pathlib import Path
from socket import create_connection
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from attrs import frozen

from mlxfp.core._optional import optional
from mlxfp.kaggle.validation.out_of_fold import Score
from mlxfp.runs.events import Noted, RunEvent
from mlxfp.runs.files import read_json, write_json
from mlxfp.runs.folders import CONFIG, METRICS, MLFLOW, PICTURE, RECEIPT, flat
from mlxfp.runs.plans import Plan
from mlxfp.training import observers
from mlxfp.training.loop import events
from mlxfp.training.observers.tracking import experiment_in

_PATIENCE = 10.0  # seconds


@frozen
class Tracking:
    """The parent run in MLflow, or nothing: then every method does nothing."""

    plan: Plan
    uri: str | None = None
    parent: str | None = None

    def lost(self) -> Iterator[RunEvent]:
        """Say so if no server answers any more: a fold does without, and the next one asks again."""
        if self.parent is not None:
            yield from _quietly(self.plan, self.uri, lambda client, mlflow: None)

    def fold(self, number: int) -> tuple[events.Observer, ...]:
        """Return the observer that keeps the child run of a fold."""
        if self.parent is None:
            return ()
        params = {"fold": number, **{name: str(value) for name, value in flat(self.plan.config).items() if value is not None}}
        return (observers.log_mlflow(self.plan.data.spec.name, uri=self.uri, name=f"fold {number}", parent=self.parent, params=params),)

    def ended(self, score: Score | None, submission: Path | None) -> Iterator[RunEvent]:
        """Log the results of the whole run, and end the parent run."""
        if self.parent is None:
            return
        folder, run = self.plan.folder, self.parent

        def log(client: Any, mlflow: Any) -> None:
            if score is not None:
                folds = [
                    mlflow.entities.Metric(f"fold/{score.metric}", value, 0, place + 1)
                    for place, value in enumerate(score.folds)
                    if not isnan(value)
                ]
                client.log_batch(run, metrics=[*folds, mlflow.entities.Metric(f"oof/{score.metric}", score.overall, 0, 0)])
            for path in (folder / CONFIG, folder / METRICS, folder / RECEIPT, folder / PICTURE, submission):
                if path is not None and path.is_file():
                    client.log_artifact(run, str(path))
            client.set_terminated(run, "FINISHED")

        yield from _quietly(self.plan, self.uri, log)


def track(plan: Plan) -> Iterator[RunEvent | Tracking]:
    """Begin the parent run, or find it again where the run continues; yield what went wrong, and last the tracking.

    Children that a process left behind when it was killed are ended there as killed. Raises `MissingExtraError` if there is no MLflow.
    """
    uri, file = plan.config.observers.mlflow, plan.folder / MLFLOW
    if uri is None:
        yield Tracking(plan)
        return
    optional("mlflow", extra="tracking", needed_by="observers.mlflow")
    # MLflow tries a request to a server that has died for four minutes, and there is one for every entry of the log.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    known: Mapping[str, Any] = read_json(file) if file.is_file() else {}
    found: list[str] = []

    def begin(client: Any, mlflow: Any) -> None:
        name = plan.data.spec.name
        number = experiment_in(client, name, uri)
        if known.get("uri") == uri:
            found.append(client.get_run(known["run"]).info.run_id)
            for child in client.search_runs([number], f"tags.`mlflow.parentRunId` = '{found[0]}' and attributes.status = 'RUNNING'"):
                client.set_terminated(child.info.run_id, "KILLED")
            return
        run = client.create_run(number, run_name=plan.config.name)
        params = [mlflow.entities.Param(key, str(value)) for key, value in flat(plan.config).items() if value is not None]
        client.log_batch(run.info.run_id, params=params)
        write_json(file, {"uri": uri, "run": run.info.run_id})
        found.append(run.info.run_id)

    yield from _quietly(plan, uri, begin)
    yield Tracking(plan, uri, found[0] if found else None)


def _quietly(plan: Plan, uri: str | None, job: Callable[[Any, Any], None]) -> Iterator[RunEvent]:
    mlflow = optional("mlflow", extra="tracking", needed_by="observers.mlflow")
    try:
        _reach(uri or "")
        job(mlflow.MlflowClient(tracking_uri=uri), mlflow)
    except Exception as error:  # noqa: BLE001  # whatever a tracking server does, the run goes on
        yield Noted(plan.folder, f"MLflow: {type(error).__name__}: {str(error).partition(chr(10))[0]}")


def _reach(uri: str) -> None:
    """Raise `OSError` at once where no server answers: MLflow's client would try for minutes, in silence."""
    address = urlsplit(uri)
    if address.scheme in ("http", "https") and address.hostname and address.scheme not in getproxies():
        create_connection((address.hostname, address.port or {"http": 80, "https": 443}[address.scheme]), timeout=_PATIENCE).close()
