"""Observers that write checkpoints in a separate thread."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

import mlx.core as mx
from attrs import define, field

from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_positive, check_types, explain_call
from mlxfp.support.errors import ArgumentError
from mlxfp.training.loop.checkpoint_files import folder_of, head_of, json_text, name_of, numbered, remove_unfinished
from mlxfp.training.loop.checkpoints import save_state
from mlxfp.training.loop.events import (
    CheckpointSaved,
    EpochEnded,
    Evaluated,
    Evaluation,
    Event,
    Observer,
    RunStarted,
    Stepped,
    Stopped,
    Warned,
)
from mlxfp.training.loop.plateaus import Mode, PlateauTracker, warned_if_unused
from mlxfp.training.observers.first_rank import on_first_rank
from mlxfp.training.optimization.hyperparameters import changed
from mlxfp.training.steps.state import evaluate_state

# A function that writes a checkpoint from an event and further fields, such as the history, and returns the path of the file.
Write = Callable[[Event, Mapping[str, Any]], Path]


@explain_call
def checkpoint(  # noqa: PLR0913  # optional settings with defaults
    folder: str | os.PathLike[str],
    *,
    steps: int | None = None,
    seconds: float | None = None,
    keep: int = 2,
    config: Mapping[str, Any] | None = None,
    ranks: Ranks | None = None,
) -> Observer:
    """Write a checkpoint after every epoch, after every `steps` steps or every `seconds`, and at the end of a run.

    Files are called `step-00001200.safetensors`. The last `keep` files are kept. `load_latest` continues the run bit-identically.

    Training continues while a thread writes the file, so the `CheckpointSaved` event follows some steps later. A file gets its final name
    when the file is complete. A write error is raised at one of the next events.

    States with a non-finite loss are not saved. A continued run repeats the evaluations of the saved step. If a continued run has other
    optimizer settings than the checkpoint, a `Warned` event reports the difference.

    With `ranks`, every rank writes into its own subfolder. `load_latest(folder, like, ranks=ranks)` continues all ranks from the same step.

    Put `checkpoint` after `evaluate_every` and after observers that may end the run. Raises `ArgumentError` at the start if the folder has
    checkpoints of later steps, because `load_latest` would mistake these files for checkpoints of this run.

    >>> from tempfile import TemporaryDirectory
    >>> import mlx.core as mx
    >>> import mlxfp as fp
    >>> states = [fp.TrainState({"w": mx.array(step)}, {}, {}, step, 0) for step in range(5)]
    >>> events = [Stepped(state, None, 0, {"loss": 0.5}) for state in states]
    >>> with TemporaryDirectory() as folder:
    ...     files = [event.path.name for event in fp.pipe(events, checkpoint(folder, steps=2)) if isinstance(event, CheckpointSaved)]
    ...     fp.load_latest(folder, states[0]).state == states[4], files
    (True, ['step-00000002.safetensors', 'step-00000004.safetensors'])

    See also: `checkpoint_best`, `save_state`.
    """
    if steps is not None and seconds is not None:
        raise ArgumentError(f"Pass steps or seconds, got steps={steps!r} and seconds={seconds!r}. For both, use checkpoint twice.")
    if steps is not None:
        check_positive(steps=steps)
    if seconds is not None and not seconds > 0:
        raise ArgumentError(f"seconds must be above 0, got seconds={seconds!r}.")
    check_positive(keep=keep)
    json_text(config or {})  # this call checks the config now, because an error in the writing thread would be raised much later
    check_types((type(None), Ranks), ranks=ranks)
    due = partial(_is_due, steps=steps, seconds=seconds)
    return partial(_checkpoint, folder=folder_of(folder, ranks), due=due, keep=keep, config=config, shared=ranks is not None)


@explain_call
def checkpoint_best(
    path: str | os.PathLike[str], metric: str, *, mode: Mode, config: Mapping[str, Any] | None = None, ranks: Ranks | None = None
) -> Observer:
    """Write a checkpoint to `path` after every evaluation with a new best `metric`. Put `checkpoint_best` after `evaluate_every`.

    The `CheckpointSaved` event comes before the `Evaluated` event. A run continued with its history knows the best value so far. With
    `ranks`, only rank 0 writes, because all ranks have the same state. Raises `ArgumentError` for a model divided between ranks.

    >>> import mlxfp as fp
    >>> from tempfile import TemporaryDirectory
    >>> import mlx.core as mx
    >>> states = [fp.TrainState({"w": mx.array(step)}, {}, {}, step, 0) for step in range(3)]
    >>> events = [fp.events.Evaluated(state, None, 0, {"loss": loss}) for state, loss in zip(states, (0.5, 0.3, 0.4), strict=True)]
    >>> with TemporaryDirectory() as folder:
    ...     _ = list(fp.pipe(events, fp.observers.checkpoint_best(f"{folder}/best.safetensors", "loss", mode="min")))
    ...     fp.load_state(f"{folder}/best.safetensors", states[0]).state.step
    1
    """
    json_text(config or {})
    write = on_first_rank(ranks, partial(_checkpoint_best, path=Path(path), tracker=PlateauTracker(metric, mode), config=config))
    return partial(_of_whole_models, write=write)


def _checkpoint(  # noqa: PLR0913  # settings of `checkpoint`
    events: Iterable[Event],
    *,
    folder: Path,
    due: Callable[[Event, int, float], bool],
    keep: int,
    config: Mapping[str, Any] | None,
    shared: bool,
) -> Iterator[Event]:
    first, last, moment = 0, 0, monotonic()
    with _Saver(partial(_write_numbered, folder=folder, keep=keep, config=config)) as saver:
        for event in events:
            if isinstance(event, RunStarted):
                _check_folder(folder, event.step, drop=shared and event.step > 0)
                first = last = event.step
                message = changed(head_of(folder / name_of(first)).get("optimizer", {}), event.optimizer)
                if message is not None:
                    yield event.derive(Warned, message)
            if saver.after(event):
                yield from saver.wait()
            if due(event, last, moment):
                earlier = tuple(evaluation for evaluation in saver.history if evaluation.step < event.step)
                yield from saver.save(event, earlier)  # save no evaluations of the current step, because the list may still be incomplete
                last, moment = event.step, monotonic()
            if isinstance(event, Stopped) and event.step > first:
                yield from saver.save(event, saver.history)  # save again: the history now has all evaluations of the last step
                yield from saver.wait()
            yield event
        yield from saver.wait()


def _checkpoint_best(events: Iterable[Event], *, path: Path, tracker: PlateauTracker, config: Mapping[str, Any] | None) -> Iterator[Event]:
    with _Saver(partial(_write, path=path, config=config)) as saver:
        for event in warned_if_unused(events, "checkpoint_best", tracker.metric):
            if saver.after(event):
                yield from saver.wait()
            if isinstance(event, RunStarted):
                remove_unfinished(path.parent, path.name)
            before, tracker = tracker, tracker.after_event(event)
            if isinstance(event, Evaluated) and tracker.best != before.best:
                yield from saver.save(event, saver.history)
                yield from saver.wait()  # wait until the file is written: the run may end after this event
            yield event
        yield from saver.wait()


def _of_whole_models(events: Iterable[Event], *, write: Observer) -> Iterator[Event]:
    for event in write(events):
        if isinstance(event, RunStarted) and event.state.shards is not None:
            raise ArgumentError(
                f"checkpoint_best writes one file, but the model is divided between {event.state.shards.count} ranks. Use "
                "checkpoint(folder, ranks=ranks), which writes one file per rank."
            )
        yield event


def _is_due(event: Event, last: int, moment: float, *, steps: int | None, seconds: float | None) -> bool:
    """Return True if `steps` or `seconds` have passed since the last checkpoint, written at step `last` and time `moment`."""
    if not (isinstance(event, EpochEnded) or (isinstance(event, Stepped) and event.metrics and (steps or seconds))):
        return False
    if steps is not None:
        return event.step // steps > last // steps
    return seconds is None or monotonic() - moment >= seconds


@define
class _Saver:
    """A thread that writes one checkpoint at a time. `history` has the evaluations so far."""

    _write: Write
    history: tuple[Evaluation, ...] = ()
    settings: Mapping[str, Any] = field(factory=dict)
    _writing: tuple[Event, Future[Path]] | None = None
    _pool: ThreadPoolExecutor = field(factory=partial(ThreadPoolExecutor, 1, "mlxfp-checkpoint"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            list(self.wait())
        except Exception as failed:
            if error is None or isinstance(error, GeneratorExit):
                raise
            error.add_note(f"and the last checkpoint could not be written: {type(failed).__name__}: {failed}")
        finally:
            self._pool.shutdown()

    def after(self, event: Event) -> bool:
        """Store the evaluations and settings of an event. Return True if a new checkpoint file is complete."""
        if isinstance(event, RunStarted):
            self.history, self.settings = event.history, {"optimizer": event.optimizer, "pretrained": event.pretrained}
        elif isinstance(event, Evaluated):
            self.history += (Evaluation(event.step, event.metrics),)
        return self._writing is not None and self._writing[1].done()

    def save(self, event: Event, history: tuple[Evaluation, ...]) -> Iterator[CheckpointSaved]:
        """Wait until the previous file is complete, then start writing the next file."""
        yield from self.wait()
        evaluate_state(event.state)  # arrays are computed here, because other threads can only read computed arrays
        mx.eval(event.running.unread)
        self._writing = event, self._pool.submit(self._write, event, {"history": history, **self.settings})

    def wait(self) -> Iterator[CheckpointSaved]:
        """If a file is being written, wait until the file is complete and yield a `CheckpointSaved` event."""
        if self._writing is not None:
            (event, future), self._writing = self._writing, None
            yield event.derive(CheckpointSaved, future.result())


def _write(event: Event, extra: Mapping[str, Any], *, path: Path, config: Mapping[str, Any] | None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_state(path, event.state, cursor=event.cursor, running=event.running, config=config, **extra)
    return path


def _write_numbered(event: Event, extra: Mapping[str, Any], *, folder: Path, keep: int, config: Mapping[str, Any] | None) -> Path:
    path = _write(event, extra, path=folder / name_of(event.step), config=config)
    paths = numbered(folder)
    for step in sorted(paths)[:-keep]:
        paths[step].unlink(missing_ok=True)
    return path


def _check_folder(folder: Path, step: int, *, drop: bool) -> None:
    """Raise `ArgumentError` if the folder has checkpoints of steps after `step`. With `drop=True`, remove these checkpoints instead.

    A removed checkpoint is useless, because another rank was killed before it saved a checkpoint of the same step.
    """
    remove_unfinished(folder, "step-*")
    paths = [path for number, path in sorted(numbered(folder).items()) if number > step]
    if drop:
        for path in paths:
            path.unlink()
    elif later := [path.name for path in paths]:
        raise ArgumentError(
            f"The run begins at step {step}, but {folder} has checkpoints of later steps: {', '.join(later)}. "
            "Continue the saved run with load_latest, or use another folder."
        )
