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
    """A run begins. `total` is the number of steps when it will be done, where that is known."""

    total: int | None


@frozen
class Stepped(Event):
    """A step was made. `metrics` are the means since the last reading, and the sum of the weights; empty where none were read."""

    metrics: Mapping[str, float]


@frozen
class EpochEnded(Event):
    """All batches of an epoch were used. `metrics` are the means over those of this run, and the sum of the weights."""

    metrics: Mapping[str, float]


@frozen
class Evaluated(Event):
    """The state was evaluated, by an observer."""

    metrics: Mapping[str, float]


@frozen
class Stopped(Event):
    """A run ends, because all its epochs or all its steps are done."""

    reason: Literal["epochs", "steps"]


Observer = Callable[[Iterable[Event]], Iterator[Event]]
