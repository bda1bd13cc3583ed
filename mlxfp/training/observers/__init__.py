"""Observers: functions from an event stream to an event stream, composed with `pipe`. Other libraries use callbacks.

An observer passes all events on unchanged. An observer may add events, or end the stream to stop the run.
"""

from mlxfp.training.loop.control import Control
from mlxfp.training.loop.events import Observer
from mlxfp.training.observers.evaluating import evaluate_every
from mlxfp.training.observers.event_files import begin_tensorboard_run, log_tensorboard
from mlxfp.training.observers.logs import log_memory, log_metrics, read_log
from mlxfp.training.observers.mlflow_runs import begin_mlflow_run, log_mlflow
from mlxfp.training.observers.plotting import log_panels, plot_run
from mlxfp.training.observers.rate_plateaus import reduce_on_plateau
from mlxfp.training.observers.reacting import on_event
from mlxfp.training.observers.reporting import progress
from mlxfp.training.observers.saving import checkpoint, checkpoint_best
from mlxfp.training.observers.stopping import early_stopping, stop_on_signal, time_budget
from mlxfp.training.observers.tracking import Tracker
from mlxfp.training.observers.wandb_runs import begin_wandb_run, log_wandb

__all__ = [
    "Control",
    "Observer",
    "Tracker",
    "begin_mlflow_run",
    "begin_tensorboard_run",
    "begin_wandb_run",
    "checkpoint",
    "checkpoint_best",
    "early_stopping",
    "evaluate_every",
    "log_memory",
    "log_metrics",
    "log_mlflow",
    "log_panels",
    "log_tensorboard",
    "log_wandb",
    "on_event",
    "plot_run",
    "progress",
    "read_log",
    "reduce_on_plateau",
    "stop_on_signal",
    "time_budget",
]


def __dir__() -> list[str]:
    return __all__
