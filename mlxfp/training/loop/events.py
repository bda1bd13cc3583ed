"""Events: what happens in a run, as frozen values. `fit` yields them, observers see and add to them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from attrs import field, frozen

from mlxfp.core.cursors import Cursor
from mlxfp.training.steps.state import TrainState

Change = Callable[[TrainState], TrainState]


def _ignore(change: Change, reason: str) -> None:
    """Steer nothing: the events are of no run that goes on."""


@frozen
class Event:
    """Something that happened in a run. The state and the cursor after it are a checkpoint: `fit` continues exactly from there.

    What else happens at the same step, such as an evaluation, happens again then, unless it is in the history that `fit` is given.
    Epochs count from 0. The cursor is None where the batches are not a dataset, or none was read yet.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> Event(state, None, 0).step
    7
    """

    state: TrainState
    cursor: Cursor | None
    epoch: int

    @property
    def step(self) -> int:
        """The number of steps made."""
        return self.state.step


@frozen
class Evaluation:
    """What an evaluation found, without the state: what checkpoints keep of it, for observers that remember.

    >>> Evaluation(100, {"accuracy": 0.9}).step
    100
    """

    step: int
    metrics: Mapping[str, float]


@frozen
class RunStarted(Event):
    """A run begins. `total` is the number of steps when it will be done, where that is known; `history` what `fit` was given.

    `steer(change, reason)` is the one way back from an observer to the run: before its next step the run goes on with
    `change(state)`, and says so with a `Steered` event.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> RunStarted(state, None, 0, total=100).total
    100
    """

    total: int | None
    history: tuple[Evaluation, ...] = ()
    steer: Callable[[Change, str], None] = field(default=_ignore, eq=False, repr=False)


@frozen
class Stepped(Event):
    """A step was made. `metrics` are the means since the last reading, `weight` among them; empty where none were read.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> Stepped(state, None, 0, {"loss": 0.5}).metrics
    {'loss': 0.5}
    """

    metrics: Mapping[str, float]


@frozen
class EpochEnded(Event):
    """All batches of an epoch were used. `metrics` are the means over its steps, `weight` among them.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> EpochEnded(state, None, 0, {"loss": 0.5}).metrics
    {'loss': 0.5}
    """

    metrics: Mapping[str, float]


@frozen
class Steered(Event):
    """The state was changed between two steps, as an observer had asked; this is the new one.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> Steered(state, None, 0, reason="learning rate x 0.5").reason
    'learning rate x 0.5'
    """

    reason: str


@frozen
class Evaluated(Event):
    """The state was evaluated, by `evaluate_every`.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> Evaluated(state, None, 0, {"accuracy": 0.9}).metrics
    {'accuracy': 0.9}
    """

    metrics: Mapping[str, float]


@frozen
class CheckpointSaved(Event):
    """A checkpoint of this state, which may be some steps old by now, was written by `checkpoint`: the file is complete.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> CheckpointSaved(state, None, 0, path=Path("best.safetensors")).path.name
    'best.safetensors'
    """

    path: Path


@frozen
class MemoryRead(Event):
    """The memory of MLX, in bytes, as `memory` found it: in use, the most so far, and kept for reuse.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> MemoryRead(state, None, 0, active=1000, peak=3000, cache=500).peak
    3000
    """

    active: int
    peak: int
    cache: int


@frozen
class Warned(Event):
    """Something went wrong that is no reason to stop, such as a tracking server that is away.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> Warned(state, None, 0, message="log_mlflow: no connection").message
    'log_mlflow: no connection'
    """

    message: str


@frozen
class Stopped(Event):
    """A run ends: all its `epochs` or all its `steps` are done, or an observer ended it and gives its own name as the reason.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> Stopped(state, None, 0, reason="epochs").reason
    'epochs'
    """

    reason: str


Observer = Callable[[Iterable[Event]], Iterator[Event]]
