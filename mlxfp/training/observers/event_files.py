"""Event files for TensorBoard."""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from time import sleep, time
from typing import Any

from attrs import frozen

from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_types
from mlxfp.support.optional import optional
from mlxfp.training.loop.events import Observer
from mlxfp.training.observers.first_rank import on_first_rank
from mlxfp.training.observers.tracking import Number, track

_PREFIX = "events.out.tfevents."


def log_tensorboard(folder: str | os.PathLike[str], *, params: Mapping[str, Any] | None = None, ranks: Ranks | None = None) -> Observer:
    """Write event files for TensorBoard: metrics by step, named as by `log_mlflow`, and the settings `params` for the HPARAMS tab.

    Each run needs its own folder. To compare runs, pass the parent folder to `tensorboard --logdir`. In TensorBoard, a run from step 0
    replaces all earlier curves of its folder. A run continued from a checkpoint replaces only the values after the checkpoint. The values
    are stored as float32. With `ranks`, only rank 0 writes.

    A separate thread writes the files. A write error does not stop the training: each message appears once as a `Warned` event and as a
    warning of the logger `mlxfp`. TensorFlow is not needed. Raises `MissingExtraError` if tensorboard is not installed.

    >>> log_tensorboard(7)
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentTypeError: folder must be str or PathLike, got int: 7.

    See also: `log_mlflow`, `log_wandb`, `log_metrics`.
    """
    check_types((str, os.PathLike), folder=folder)
    optional("tensorboard", extra="tensorboard", needed_by="observers.log_tensorboard")
    begin = partial(begin_tensorboard_run, folder)
    return on_first_rank(ranks, partial(track, source="log_tensorboard", begin=begin, params=dict(params or {})))


@frozen
class EventFiles:
    """A `Tracker` that writes the event files of a run. Methods raise the errors of the file system."""

    writer: Any
    event: Any  # `event`, `summary`, `settings` and `metadata` are protobuf classes and modules of TensorBoard
    summary: Any
    settings: Any
    metadata: Any

    def log_params(self, params: Mapping[str, object]) -> None:
        if params:
            start = self.settings.SessionStartInfo()
            for name, value in params.items():
                kind = "bool_value" if isinstance(value, bool) else "number_value" if isinstance(value, int | float) else "string_value"
                setattr(start.hparams[name], kind, value if kind != "string_value" else str(value))
            metadata = self.metadata.create_summary_metadata(self.settings.HParamsPluginData(session_start_info=start))
            self._write(summary=self.summary(value=[self.summary.Value(tag=self.metadata.SESSION_START_INFO_TAG, metadata=metadata)]))

    def name_of(self, metric: str) -> str:
        return metric

    def last_steps(self) -> dict[str, int]:
        """Return an empty dict, because a continued run logs all steps again. TensorBoard shows the new values."""
        return {}

    def log_metrics(self, values: Sequence[Number]) -> None:
        for name, value, step in values:
            self._write(step=step, summary=self.summary(value=[self.summary.Value(tag=name, simple_value=value)]))
        self.writer.flush()  # a flush saves the metrics in case the run is killed later, and raises write errors now

    def end(self, status: str) -> None:
        """Close the file. The status is not written, because TensorBoard has no run status."""
        self.writer.close()

    def _write(self, **content: Any) -> None:
        self.writer.add_event(self.event(wall_time=time(), **content))


def begin_tensorboard_run(folder: str | os.PathLike[str], *, step: int = 0) -> EventFiles:
    """Create an event file for a run that starts at `step`. TensorBoard then hides later steps in older files of the same folder.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     run = fp.observers.begin_tensorboard_run(folder)
    ...     run.log_metrics([("accuracy", 0.8, 0)])
    ...     run.end("FINISHED")
    ...     len(list(Path(folder).glob("events.out.tfevents.*")))
    1

    See also: `log_tensorboard`, `Tracker`.
    """
    optional("tensorboard", extra="tensorboard", needed_by="observers.begin_tensorboard_run")
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    names = [path.name for path in Path(folder).glob(f"{_PREFIX}*")]
    while any(name > f"{_PREFIX}{int(time())}" for name in names):
        sleep(0.05)  # wait for the next second, because TensorBoard sorts files by name, and names start with the time in seconds
    writer = EventFileWriter(os.fspath(folder))
    log = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    first = step + 1 if step else 0  # the step of the checkpoint is already logged, so logging continues with the next step
    writer.add_event(event_pb2.Event(wall_time=time(), step=first, session_log=log))
    return EventFiles(writer, event_pb2.Event, summary_pb2.Summary, plugin_data_pb2, metadata)
