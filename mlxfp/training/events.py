"""Events: what happens in a run, as frozen values. `fit` yields them, observers see and add to them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from attrs import frozen

from mlxfp.core.cursors import Cursor
from mlxfp.training.state import TrainState


@frozen
class Event:
    """Something that happened in a run. The state and the cursor after it are a checkpoint: `fit` continues exactly from there.

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
class RunStarted(Event):
    """A run begins. `total` is the number of steps when it will be done, where that is known.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> RunStarted(state, None, 0, total=100).total
    100
    """

    total: int | None


@frozen
class Stepped(Event):
    """A step was made. `metrics` are the means since the last reading, and the sum of the weights; empty where none were read.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> Stepped(state, None, 0, {"loss": 0.5}).metrics
    {'loss': 0.5}
    """

    metrics: Mapping[str, float]


@frozen
class EpochEnded(Event):
    """All batches of an epoch were used. `metrics` are the means over those of this run, and the sum of the weights.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> EpochEnded(state, None, 0, {"loss": 0.5}).metrics
    {'loss': 0.5}
    """

    metrics: Mapping[str, float]


@frozen
class Evaluated(Event):
    """The state was evaluated, by an observer.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> Evaluated(state, None, 0, {"accuracy": 0.9}).metrics
    {'accuracy': 0.9}
    """

    metrics: Mapping[str, float]


@frozen
class Stopped(Event):
    """A run ends, because all its epochs or all its steps are done.

    >>> state = TrainState({}, {}, {}, step=7, seed=0)
    >>> Stopped(state, None, 0, reason="epochs").reason
    'epochs'
    """

    reason: Literal["epochs", "steps"]


Observer = Callable[[Iterable[Event]], Iterator[Event]]
