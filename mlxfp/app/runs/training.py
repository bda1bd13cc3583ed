"""Training of one model of a run. Training continues from the last checkpoint and finally writes the weights to a file."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from attrs import evolve, field, frozen
from mlx import nn
from mlx.optimizers import SGD

from mlxfp import Dataset, TrainState, evaluate, events, fit, length, load_latest, load_state, observers, pipe, save_state, train_state
from mlxfp.app.run_folders.folders import BEST, CHECKPOINTS, LOG, MODEL, RESULT, FoldFolder
from mlxfp.app.runs.events import FoldBegan, Noted, RunEvent, Trained
from mlxfp.app.runs.plans import Step, Training
from mlxfp.app.tasks.objectives import Goal, evaluation_state
from mlxfp.distributed import Ranks
from mlxfp.observers import Control
from mlxfp.support.errors import CheckpointError, NonFiniteError

_STOPPING, _HELD_OUT = "stopping", "held_out"  # names of the evaluation for early stopping, and of the evaluation on held-out rows
NOTHING_LEFT = 0  # rank 0 sends this number instead of a fold number when all folds are trained
DIVERGENCE_REMEDY = "Begin another run, as in name=second, with a lower optimizer.learning_rate or with optimizer.clip_norm=1."


@frozen
class Work:
    """A model to train, with training and evaluation batches. `rows` is the number of training rows."""

    model: nn.Module = field(repr=False)
    goal: Goal
    batches: Dataset[Any]
    held_out: Dataset[Any]
    rows: int
    seed: int


@frozen
class _Training:
    """State of the training of one model, with equal values on every rank."""

    how: Training
    work: Work
    files: FoldFolder
    ranks: Ranks | None

    @property
    def name(self) -> str:
        return _STOPPING if self.how.decided else _HELD_OUT

    def step(self) -> tuple[Step, TrainState]:
        """Return the training step and the initial state."""
        work, how = self.work, self.how
        updates = max(2, how.epochs * (length(work.batches) or 0) // how.accumulate)
        optimizer = how.optimizer(work.goal, updates=updates, params=work.model.trainable_parameters())
        step = how.step(work.model, work.goal, optimizer, self.ranks)
        state = train_state(work.model, optimizer, seed=work.seed)
        return step, step.start(state) if hasattr(step, "start") else state  # plain functions lack `start`

    def events(self, step: Step, begin: events.Checkpoint, *writing: observers.Observer) -> Iterator[events.Event]:
        """Train the model and yield the events. The observers in `writing` receive the events last."""
        how, work, control = self.how, self.work, Control()
        check, held_out = evaluate(work.model, work.goal.measure, ranks=self.ranks), work.held_out
        stream: Iterator[events.Event] = pipe(
            fit(
                step,
                begin.state,
                work.batches,
                epochs=how.epochs,
                cursor=begin.cursor,
                history=begin.history,
                running=begin.running,
                control=control,
                log_every=how.every,
            ),
            partial(_without_rate_warnings, first=begin.state.step),
            observers.evaluate_every(lambda state: check(evaluation_state(state), held_out), steps=how.evaluate_every, name=self.name),
            *how.observers(f"{self.name}/loss", self.files / BEST, control, self.ranks),
            *([] if how.seconds is None else [observers.time_budget(how.seconds, ranks=self.ranks)]),
            *writing,
        )
        return stream


def _without_rate_warnings(stream: Iterable[events.Event], *, first: int) -> Iterator[events.Event]:
    """Drop the warnings before the first step. Only a larger number of epochs changes the schedule, and `resume` reports this number."""
    return (event for event in stream if not (isinstance(event, events.Warned) and event.step == first))


def train(  # noqa: PLR0913, PLR0917
    how: Training, run: Path, work: Work, files: FoldFolder, extra: Sequence[observers.Observer], ranks: Ranks | None = None
) -> Iterator[RunEvent]:
    """Start or continue the training of a model, write the final weights and yield the events. With ranks, this process is rank 0."""
    training = _Training(how, work, files, ranks)
    step, start = training.step()
    begin = load_latest(files / CHECKPOINTS, start)
    if how.patient and begin.history and not (files / BEST).is_file():
        rmtree(files / CHECKPOINTS)  # train again from the beginning, because the best state is lost
        begin = events.Checkpoint(start)
    yield FoldBegan(run, files.fold, work.rows, begin.state.step)
    if ranks is not None:
        ranks.gather([files.fold, begin.state.step])

    stream = training.events(
        step,
        begin,
        observers.checkpoint(files / CHECKPOINTS, steps=how.checkpoint_every, keep=how.keep),
        *extra,
        observers.log_metrics(files / LOG),
        *([observers.progress()] if how.progress else []),
    )
    end: events.Event | None = None
    try:
        for event in stream:
            end = event
            yield Trained(run, files.fold, event)
    except NonFiniteError as error:
        error.add_note(
            f"The training in {(files / LOG).parent} diverged. {DIVERGENCE_REMEDY} Another remedy: set training.skip_nonfinite=true."
        )
        raise
    assert end is not None
    # There is no best state if the time limit ended the training before the first evaluation.
    state = load_state(files / BEST, begin.state).state if how.patient and (files / BEST).is_file() else end.state
    save_state(files / MODEL, _weights(state))


def join(how: Training, work: Work, files: FoldFolder, ranks: Ranks, begun: int) -> None:
    """Train a model on a rank other than 0, together with rank 0. The argument `begun` is the first step.

    If `begun` is above 0, all ranks load the checkpoint of rank 0. One checkpoint is enough, because all ranks get the same batches.
    """
    training = _Training(how, work, files, ranks)
    step, start = training.step()
    begin = load_latest(files / CHECKPOINTS, start) if begun else events.Checkpoint(start)
    for _ in training.events(step, begin):
        pass


def without_damage(run: Path, files: FoldFolder) -> Iterator[RunEvent]:
    """Remove the damaged files and the result of a finished fold. Yield a message for each damaged file."""
    for path in files.damaged():
        yield Noted(run, f"{path} is missing or damaged, and is computed again.")
        path.unlink(missing_ok=True)
        (files / RESULT).unlink(missing_ok=True)


@contextmanager
def naming_the_cure() -> Iterator[None]:
    """Add a remedy to errors about unreadable checkpoint files: remove the file, and run the command again."""
    try:
        yield
    except CheckpointError as error:
        error.add_note("Remove the file and run the command again. Missing files are computed again.")
        raise


def load_weights(files: FoldFolder, model: nn.Module) -> TrainState:
    """Read the final weights from the file even if they are still in memory, so that predictions use the saved weights."""
    return load_state(files / MODEL, _weights(train_state(model, SGD(0.0), seed=0))).state


def _weights(state: TrainState) -> TrainState:
    """Return the state for prediction, without the optimizer state."""
    return evolve(evaluation_state(state), opt={}, extra={})
