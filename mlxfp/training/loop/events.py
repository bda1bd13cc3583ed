"""Events: what happens in a run, as frozen values. `fit` yields them; observers read them and add events of their own."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from attrs import field, frozen

from mlxfp.core.cursors import Cursor
from mlxfp.training.loop.running_metrics import RunningMetrics
from mlxfp.training.optimization.learning_rates import learning_rates
from mlxfp.training.steps.state import TrainState

__all__ = [
    "CheckpointSaved",
    "EpochEnded",
    "Evaluated",
    "Evaluation",
    "Event",
    "MemoryRead",
    "RunStarted",
    "StateChanged",
    "Stepped",
    "Stopped",
    "Warned",
]


def __dir__() -> list[str]:
    return __all__


E = TypeVar("E", bound="Event")


@frozen
class Event:
    """Something that happened in a run.

    The state, the cursor and the running metrics after it are a checkpoint: `fit` continues exactly from there. What else happens at
    the same step, such as an evaluation, happens again then, unless it is in the history that `fit` is given. Epochs count from 0. The
    cursor is None where the batches are not a dataset, and before the first batch.

    >>> Event(TrainState({}, {}, {}, 7, 0), None, 0).step
    7
    """

    state: TrainState
    cursor: Cursor | None
    epoch: int
    # kw_only, as subclasses have fields without a default; not compared, as its arrays may still be on the device
    running: RunningMetrics = field(factory=RunningMetrics, kw_only=True, eq=False, repr=False)

    @property
    def step(self) -> int:
        """The number of steps made."""
        return self.state.step

    @property
    def learning_rates(self) -> list[float]:
        """The learning rates in the state: one, or one for each group of parameters; none where the optimizer has none."""
        return learning_rates(self.state.opt)

    def derive(self, kind: type[E], *own: Any) -> E:
        """Make another event of the same moment: `event.derive(Evaluated, {"accuracy": 0.9})`.

        >>> event = Event(TrainState({}, {}, {}, 7, 0), None, 0)
        >>> event.derive(Warned, "no connection").message
        'no connection'
        """
        return kind(self.state, self.cursor, self.epoch, *own, running=self.running)


@frozen
class Evaluation:
    """The metrics of an evaluation without the state: what checkpoints keep of it, for observers that need earlier evaluations.

    >>> Evaluation(100, {"accuracy": 0.9}).step
    100
    """

    step: int
    metrics: Mapping[str, float]


@frozen
class RunStarted(Event):
    """A run begins. `total` is the number of steps at its end, where that is known, and `history` is the argument of `fit`.

    `optimizer` has the settings of the step's optimizer, such as its betas, where the step is one of `train_step`.

    >>> RunStarted(TrainState({}, {}, {}, 7, 0), None, 0, total=100).total
    100
    """

    total: int | None
    history: tuple[Evaluation, ...] = ()
    optimizer: Mapping[str, Any] = field(factory=dict, eq=False)


@frozen
class Stepped(Event):
    """A step was made. `metrics` are the means since the last reading, with `weight`; empty unless they were read.

    `compiled` tells that the step was compiled for it, as it is for every new shape of a batch, so that it took longer than others will.

    >>> Stepped(TrainState({}, {}, {}, 7, 0), None, 0, {"loss": 0.5}).metrics
    {'loss': 0.5}
    """

    metrics: Mapping[str, float]
    compiled: bool = field(default=False, eq=False)  # not compared: what else was compiled before in this process changes nothing


@frozen
class EpochEnded(Event):
    """All batches of an epoch were used. `metrics` are the means over its steps, with `weight`.

    >>> EpochEnded(TrainState({}, {}, {}, 7, 0), None, 0, {"loss": 0.5}).metrics
    {'loss': 0.5}
    """

    metrics: Mapping[str, float]


@frozen
class StateChanged(Event):
    """The state was changed between two steps, as an observer had requested (see `Control`); this event has the new state.

    >>> StateChanged(TrainState({}, {}, {}, 7, 0), None, 0, reason="learning rate x 0.5").reason
    'learning rate x 0.5'
    """

    reason: str


@frozen
class Evaluated(Event):
    """The state was evaluated, by `evaluate_every`.

    >>> Evaluated(TrainState({}, {}, {}, 7, 0), None, 0, {"accuracy": 0.9}).metrics
    {'accuracy': 0.9}
    """

    metrics: Mapping[str, float]


@frozen
class CheckpointSaved(Event):
    """A checkpoint was written by `checkpoint`: the file is complete. The state is the one in it, some steps old by now.

    >>> CheckpointSaved(TrainState({}, {}, {}, 7, 0), None, 0, path=Path("best.safetensors")).path.name
    'best.safetensors'
    """

    path: Path


@frozen
class MemoryRead(Event):
    """The memory of MLX, in bytes, as `log_memory` read it: in use, the peak so far, and kept for reuse.

    >>> MemoryRead(TrainState({}, {}, {}, 7, 0), None, 0, active=1000, peak=3000, cache=500).peak
    3000
    """

    active: int
    peak: int
    cache: int


@frozen
class Warned(Event):
    """Something went wrong that does not end the run, such as a tracking server that does not answer.

    >>> Warned(TrainState({}, {}, {}, 7, 0), None, 0, message="log_mlflow: no connection").message
    'log_mlflow: no connection'
    """

    message: str


@frozen
class Stopped(Event):
    """A run ends: all its `epochs` or all its `steps` are done, or an observer ended it: `reason` says which.

    >>> Stopped(TrainState({}, {}, {}, 7, 0), None, 0, reason="epochs").reason
    'epochs'
    """

    reason: str


Observer = Callable[[Iterable[Event]], Iterator[Event]]
