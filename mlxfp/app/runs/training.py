"""The training of one model in a run: from its last checkpoint to the file of its weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from attrs import evolve, field, frozen
from mlx import nn
from mlx.optimizers import SGD

from mlxfp import Dataset, TrainState, evaluate, events, fit, length, load_latest, load_state, observers, pipe, save_state, train_state
from mlxfp.app.run_folders.folders import BEST, CHECKPOINTS, LOG, MODEL, RESULT, FoldFolder
from mlxfp.app.runs.events import FoldBegan, Noted, RunEvent, Trained
from mlxfp.app.runs.plans import Training
from mlxfp.app.tasks.objectives import Goal, evaluation_state
from mlxfp.distributed import Ranks
from mlxfp.observers import Control
from mlxfp.support.errors import CheckpointError, NonFiniteError
from mlxfp.training.loop.checkpoint_files import name_of
from mlxfp.training.loop.checkpoints import Checkpoint
from mlxfp.training.steps.steps import TrainStep

_STOPPING, _HELD_OUT = "stopping", "held_out"  # rows that decide when to stop; rows that are watched, and decide nothing
NOTHING_LEFT = 0  # in place of the number of a fold, which begins with 1: rank 0 tells the others that there is nothing left to train
DIVERGED = "Begin another run, as in name=second, with a lower optimizer.learning_rate, with optimizer.clip_norm=1"


@frozen
class Work:
    """A model to train, with its batches and those to evaluate with; `rows` is how many rows it trains on."""

    model: nn.Module = field(repr=False)
    goal: Goal
    batches: Dataset[Any]
    held_out: Dataset[Any]
    rows: int
    seed: int


@frozen
class _Training:
    """What every rank has of a training."""

    how: Training
    work: Work
    files: FoldFolder
    ranks: Ranks | None

    @property
    def name(self) -> str:
        return _STOPPING if self.how.decided else _HELD_OUT

    def step(self) -> tuple[TrainStep, TrainState]:
        """Make the step, and the state before the first."""
        work, how = self.work, self.how
        updates = max(2, how.epochs * (length(work.batches) or 0) // how.accumulate)
        optimizer = how.optimizer(work.goal, updates=updates, params=work.model.trainable_parameters())
        step = how.step(work.model, work.goal, optimizer, self.ranks)
        return step, step.start(train_state(work.model, optimizer, seed=work.seed))

    def events(self, step: TrainStep, begin: Checkpoint, *writing: observers.Observer) -> Iterator[events.Event]:
        """Train, with the observers that decide something; then come those that write."""
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
            observers.evaluate_every(lambda state: check(evaluation_state(state), held_out), steps=how.evaluate_every, name=self.name),
            *how.observers(f"{self.name}/loss", self.files / BEST, control, self.ranks),
            *writing,
        )
        return stream


def train(  # noqa: PLR0913, PLR0917  # a training, its output folder, observers and ranks
    how: Training, run: Path, work: Work, files: FoldFolder, extra: Sequence[observers.Observer], ranks: Ranks | None = None
) -> Iterator[RunEvent]:
    """Train a model, or continue, and write the weights that predict; yield what happens. With ranks, this is rank 0."""
    training = _Training(how, work, files, ranks)
    step, start = training.step()
    begin = load_latest(files / CHECKPOINTS, start)
    if how.patient and begin.history and not (files / BEST).is_file():
        rmtree(files / CHECKPOINTS)  # the best state so far is lost, so the training starts over
        begin = Checkpoint(start)
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
        error.add_note(f"The training of fold {files.fold} diverged. {DIVERGED}, or with training.skip_nonfinite=true.")
        raise
    assert end is not None
    # There is no best state where the time was up before the first evaluation.
    state = load_state(files / BEST, begin.state).state if how.patient and (files / BEST).is_file() else end.state
    save_state(files / MODEL, _weights(state))


def join(how: Training, work: Work, files: FoldFolder, ranks: Ranks, begun: int) -> None:
    """Train a model together with rank 0, which begins at a step; its checkpoints are those of all ranks, as all have the same batches."""
    training = _Training(how, work, files, ranks)
    step, start = training.step()
    begin = load_state(files / CHECKPOINTS / name_of(begun), start) if begun else Checkpoint(start)
    for _ in training.events(step, begin):
        pass


def without_damage(run: Path, files: FoldFolder) -> Iterator[RunEvent]:
    """Remove the files of finished work that are missing or have changed, and its result with them; say which are made again."""
    for path in files.damaged():
        yield Noted(run, f"{path} is missing or damaged, and is made again.")
        path.unlink(missing_ok=True)
        (files / RESULT).unlink(missing_ok=True)


@contextmanager
def naming_the_cure() -> Iterator[None]:
    """Say what to do about a checkpoint that cannot be read."""
    try:
        yield
    except CheckpointError as error:
        error.add_note("Remove that file and run again: whatever is missing is made again.")
        raise


def load_weights(files: FoldFolder, model: nn.Module) -> TrainState:
    """Read the weights from the file even if they are in memory: the saved weights must be those that predict."""
    return load_state(files / MODEL, _weights(train_state(model, SGD(0.0), seed=0))).state


def _weights(state: TrainState) -> TrainState:
    """Return the weights that predict, without the parts of a state that only training needs."""
    return evolve(evaluation_state(state), opt={}, extra={})
