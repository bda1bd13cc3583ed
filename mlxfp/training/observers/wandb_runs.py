"""Runs in Weights & Biases."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from attrs import frozen

from mlxfp.distributed import Ranks
from mlxfp.support.atomic_files import write_whole
from mlxfp.support.checks import check_text
from mlxfp.support.errors import ArgumentError
from mlxfp.support.optional import optional
from mlxfp.training.loop.events import Observer
from mlxfp.training.observers.first_rank import on_first_rank
from mlxfp.training.observers.tracking import Number, track

_RECORD = "mlxfp.json"  # file in the folder of a run: the name, the id, and the last logged step of each metric
_RESERVED = "metric/"  # prefix added to metric names that W&B reserves for itself


def log_wandb(
    project: str, *, name: str | None = None, group: str | None = None, params: Mapping[str, Any] | None = None, ranks: Ranks | None = None
) -> Observer:
    """Log a run to Weights & Biases: `params` as the configuration, and metrics by step, with the names of `log_mlflow`.

    W&B reads its environment variables: `WANDB_MODE=offline` writes the run to the folder `wandb` without a network, for `wandb sync`.
    `WANDB_DIR` is the parent of this folder, and `WANDB_ENTITY` the account. Runs of the same `group` are shown together. A run continued
    from a checkpoint logs to the last run of the folder with this `name`, without duplicates. With `ranks`, only rank 0 logs.

    A separate thread calls W&B, so W&B never stops or delays training. Each error message appears once as a `Warned` event and as a warning
    of the logger `mlxfp`. Raises `MissingExtraError` if W&B is not installed.

    >>> log_wandb("titanic", name=7)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: name must be a string, got name=7.

    See also: `log_mlflow`, `log_tensorboard`.
    """
    check_text(**{key: value for key, value in {"project": project, "name": name, "group": group}.items() if value is not None})
    optional("wandb", extra="wandb", needed_by="observers.log_wandb")
    begin = partial(begin_wandb_run, project, name=name, group=group, params=dict(params or {}))
    return on_first_rank(ranks, partial(track, source="log_wandb", begin=begin, params={}))


@frozen
class WandbRun:
    """A `Tracker` for a run in Weights & Biases. Methods raise the errors of W&B."""

    run: Any
    record: Path
    name: str | None
    steps: dict[str, int]  # last logged step of each metric, also saved in the file `record`

    def log_params(self, params: Mapping[str, object]) -> None:
        """Do nothing: the configuration is passed at the start of a run."""

    def name_of(self, metric: str) -> str:
        """Return the metric name. A name that begins with an underscore gets a prefix, because W&B reserves such names."""
        return f"{_RESERVED}{metric}" if metric.startswith("_") else metric

    def last_steps(self) -> dict[str, int]:
        return dict(self.steps)

    def log_metrics(self, values: Sequence[Number]) -> None:
        """Log numbers in the order of their steps, because W&B ignores numbers of earlier steps."""
        for step in sorted({step for _, _, step in values}):
            self.run.log({name: value for name, value, at in values if at == step}, step=step)
        self.steps.update({name: step for name, _, step in sorted(values, key=lambda value: value[2])})
        self._write()

    def end(self, status: str) -> None:
        self._write()
        self.run.finish(exit_code=int(status != "FINISHED"))

    def _write(self) -> None:
        content = {"project": self.run.project, "name": self.name, "id": self.run.id, "steps": self.steps}
        write_whole(self.record, json.dumps(content).encode())


def begin_wandb_run(
    project: str, *, name: str | None = None, group: str | None = None, params: Mapping[str, Any] | None = None, step: int = 0
) -> WandbRun:
    """Start a run in a W&B project. For `step` > 0, continue the last run with this `name` in the folder `wandb`.

    Raises `ArgumentError` without a login, because W&B would ask for an API key and wait.

    >>> import mlxfp as fp
    >>> fp.observers.begin_wandb_run(7)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: project must be a string, got project=7.

    See also: `log_wandb`, `Tracker`.
    """
    check_text(project=project)
    wandb: Any = optional("wandb", extra="wandb", needed_by="observers.begin_wandb_run")
    session = wandb.setup().settings
    if session.mode == "online" and not wandb.login(prompt=False):
        raise ArgumentError(
            f"The project {project!r} of W&B needs a login, and no API key is configured. Run: wandb login. To log to a folder without a "
            "network, set the environment variable WANDB_MODE=offline."
        )
    last = _last_run(Path(session.wandb_dir), project, name) if step and name is not None else {}
    quiet = wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True, disable_code=True)
    run = wandb.init(
        project=project,
        name=name,
        group=group,
        config=dict(params or {}),
        settings=quiet,
        id=last.get("id"),
        resume="allow" if last else None,
        reinit="create_new",
    )
    return WandbRun(run, Path(run.settings.sync_dir) / _RECORD, name, dict(last.get("steps", {})))


def _last_run(folder: Path, project: str, name: str) -> dict[str, Any]:
    """Return the record of the last run with this name, or an empty dict. The order of the runs follows from their folder names."""
    for path in sorted(folder.glob(f"*run-*/{_RECORD}"), key=lambda path: path.parent.name.partition("run-")[2], reverse=True):
        record: dict[str, Any] = json.loads(path.read_bytes())
        if (record["project"], record["name"]) == (project, name):
            return record
    return {}
