"""Runs in Trackio."""

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_text
from mlxfp.support.optional import optional
from mlxfp.training.loop.events import Observer
from mlxfp.training.observers.tracking import Number, track_project


def log_trackio(
    project: str, *, name: str | None = None, group: str | None = None, params: Mapping[str, Any] | None = None, ranks: Ranks | None = None
) -> Observer:
    """Log a run to Trackio: `params` as the configuration, and metrics by step, with the names of `log_mlflow`.

    Trackio stores projects in SQLite in the folder `TRACKIO_DIR`, or in a Hugging Face Space (`TRACKIO_SPACE_ID`). Show projects with
    `trackio show`. Runs of the same `group` are shown together. A run continued from a checkpoint logs to the last run with this `name`,
    without duplicates. With `ranks`, only rank 0 logs.

    A separate thread calls Trackio, so Trackio never stops or delays training. Each error message appears once as a `Warned` event and as
    a warning of the logger `mlxfp`. Raises `MissingExtraError` if Trackio is not installed.

    >>> log_trackio("titanic", name=7)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: name must be a string, got name=7.

    See also: `log_mlflow`, `log_tensorboard`, `log_metrics`.
    """
    return track_project("trackio", begin_trackio_run, ranks, project=project, name=name, group=group, params=params)


@frozen
class TrackioRun:
    """A `Tracker` for a run in Trackio. Methods raise the errors of Trackio."""

    run: Any
    storage: Any  # module that reads the files of Trackio
    reserved: Sequence[str]
    resumed: bool

    def log_params(self, params: Mapping[str, object]) -> None:
        """Do nothing: the configuration is passed at the start of a run."""

    def name_of(self, metric: str) -> str:
        """Return the metric name, with a prefix if Trackio reserves the name, such as `step`."""
        return f"metric/{metric}" if metric in self.reserved or metric.startswith("__") else metric

    def last_steps(self) -> dict[str, int]:
        last: dict[str, int] = {}
        for row in self.storage.get_logs(self.run.project, self.run.name, run_id=self.run.id) if self.resumed else ():
            last |= {name: max(row["step"], last.get(name, row["step"])) for name in row}
        return last

    def log_metrics(self, values: Sequence[Number]) -> None:
        for step in dict.fromkeys(step for _, _, step in values):
            self.run.log({name: value for name, value, at in values if at == step}, step=step)

    def end(self, status: str) -> None:
        """Finish the run, which writes all pending values. Trackio has no run status, so `status` is not used."""
        self.run.finish()


def begin_trackio_run(
    project: str, *, name: str | None = None, group: str | None = None, params: Mapping[str, Any] | None = None, step: int = 0
) -> TrackioRun:
    """Start a run in a Trackio project, created if necessary. For `step` > 0, continue the last run with this `name`.

    >>> import mlxfp as fp
    >>> fp.observers.begin_trackio_run(7)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: project must be a string, got project=7.

    See also: `log_trackio`, `Tracker`.
    """
    check_text(project=project)
    trackio: Any = optional("trackio", extra="trackio", needed_by="observers.begin_trackio_run")
    storage, reserved = trackio.sqlite_storage.SQLiteStorage, trackio.utils.RESERVED_KEYS
    storage.init_db(project)  # this call raises an error if writing fails, while later calls only warn
    known = {str(run.name) for run in trackio.Api().runs(project)}
    resumed = step > 0 and name in known
    texts = {key.lstrip("_"): value if isinstance(value, bool | int | float) else str(value) for key, value in (params or {}).items()}
    quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    run = trackio.init(project, name=name, group=group, config=texts, resume="must" if resumed else "never", **quiet)
    return TrackioRun(run, storage, reserved, resumed)
