"""Events of a training run, as frozen values. `fit` yields events; observers read events and add their own."""

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


_WEIGHTS = ("model", "params", "weights", "parameters", "module")


@frozen
class Event:
    """An event of a training run, with the state, the cursor and the running metrics after the event.

    State, cursor and metrics form a checkpoint from which `fit` continues exactly. The continued run repeats the evaluations of this step,
    unless the `history` passed to `fit` has these evaluations. Epochs count from 0. The cursor is None before the first batch. The cursor
    is always None if the batches are not a dataset, but for example a list.

    >>> Event(TrainState({}, {}, {}, 7, 0), None, 0).step
    7
    """

    state: TrainState
    cursor: Cursor | None
    epoch: int
    # `running` is keyword-only, because subclasses add fields without a default.
    # `running` is ignored by ==, because its arrays may still be on the device.
    running: RunningMetrics = field(factory=RunningMetrics, kw_only=True, eq=False, repr=False)

    def __getattr__(self, name: str) -> Any:
        advice = " The trained weights are in event.state.params: model.update(event.state.params)." if name in _WEIGHTS else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}.{advice}", name=name, obj=self)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            f"fit yields events, got {type(self).__name__}. Write: for event in fit(...), and use event.state and event.metrics."
        )

    @property
    def step(self) -> int:
        """Number of completed steps."""
        return self.state.step

    @property
    def learning_rates(self) -> list[float]:
        """Learning rates in the state: one per parameter group, or one for all parameters. Empty if the optimizer has no rate."""
        return learning_rates(self.state.opt)

    def derive(self, kind: type[E], *values: Any) -> E:
        """Return an event of the class `kind` with the same state, cursor and epoch, as in `event.derive(Evaluated, {"accuracy": 0.9})`.

        >>> event = Event(TrainState({}, {}, {}, 7, 0), None, 0)
        >>> event.derive(Warned, "no connection").message
        'no connection'
        """
        return kind(self.state, self.cursor, self.epoch, *values, running=self.running)


@frozen
class Evaluation:
    """Step and metrics of an evaluation, without the state. Checkpoints store evaluations for observers that need earlier results.

    >>> Evaluation(100, {"accuracy": 0.9}).step
    100
    """

    step: int
    metrics: Mapping[str, float]


@frozen
class RunStarted(Event):
    """The start of a run. `total` is the final number of steps, or None if unknown. `history` has the evaluations passed to `fit`.

    `optimizer` has the settings of the optimizer, such as the betas. It is empty for a step not built by `train_step`. `pretrained` names
    the models of the Hugging Face hub that provided the initial weights, as `org/name@commit`.

    >>> RunStarted(TrainState({}, {}, {}, 7, 0), None, 0, total=100).total
    100
    """

    total: int | None
    history: tuple[Evaluation, ...] = ()
    optimizer: Mapping[str, Any] = field(factory=dict, eq=False)
    pretrained: tuple[str, ...] = ()


@frozen
class Stepped(Event):
    """A completed step. `fit` reads metrics from the device only every `log_every` steps.

    At these steps, `metrics` has the mean of each metric over the steps since the last reading. The metric `weight` is the mean weight of a
    batch, such as the number of rows. At other steps, `metrics` is empty. `compiled` is True if the step was slower because of compilation
    for a new batch shape.

    >>> Stepped(TrainState({}, {}, {}, 7, 0), None, 0, {"loss": 0.5}).metrics
    {'loss': 0.5}
    """

    metrics: Mapping[str, float]
    compiled: bool = field(default=False, eq=False)  # ignored by ==, because a run and its repetition may compile at different steps


@frozen
class EpochEnded(Event):
    """The end of an epoch. `metrics` has the mean of each metric over the steps of the epoch.

    The metric `weight` is the mean weight of a batch, such as the number of rows.

    >>> EpochEnded(TrainState({}, {}, {}, 7, 0), None, 0, {"loss": 0.5}).metrics
    {'loss': 0.5}
    """

    metrics: Mapping[str, float]


@frozen
class StateChanged(Event):
    """A change of the state between two steps, requested by an observer through `Control`. The event has the new state.

    >>> StateChanged(TrainState({}, {}, {}, 7, 0), None, 0, reason="learning rate x 0.5").reason
    'learning rate x 0.5'
    """

    reason: str


@frozen
class Evaluated(Event):
    """An evaluation of the state by `evaluate_every`.

    >>> Evaluated(TrainState({}, {}, {}, 7, 0), None, 0, {"accuracy": 0.9}).metrics
    {'accuracy': 0.9}
    """

    metrics: Mapping[str, float]


@frozen
class CheckpointSaved(Event):
    """A complete checkpoint file, written by `checkpoint`. The event has the saved state. Training may already be some steps further.

    >>> CheckpointSaved(TrainState({}, {}, {}, 7, 0), None, 0, path=Path("best.safetensors")).path.name
    'best.safetensors'
    """

    path: Path


@frozen
class MemoryRead(Event):
    """MLX memory in bytes, read by `log_memory`: memory in use, peak since the previous reading, and cache kept for reuse.

    >>> MemoryRead(TrainState({}, {}, {}, 7, 0), None, 0, active=1000, peak=3000, cache=500).peak
    3000
    """

    active: int
    peak: int
    cache: int


@frozen
class Warned(Event):
    """A problem that does not end the run, such as an unreachable tracking server.

    >>> Warned(TrainState({}, {}, {}, 7, 0), None, 0, message="log_mlflow: no connection").message
    'log_mlflow: no connection'
    """

    message: str


@frozen
class Stopped(Event):
    """The end of a run. `reason` is "epochs" or "steps" for a complete run, else the reason of the observer that stopped the run.

    >>> Stopped(TrainState({}, {}, {}, 7, 0), None, 0, reason="epochs").reason
    'epochs'
    """

    reason: str


Observer = Callable[[Iterable[Event]], Iterator[Event]]
