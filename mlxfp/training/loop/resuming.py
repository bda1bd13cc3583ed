"""Warnings about a run: data that start again from the beginning, an unexpected learning rate, and no update."""

from collections.abc import Iterable, Iterator
from math import isclose

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.training.optimization.learning_rates import configured_rates, learning_rates
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import Batch, Step, TrainStep

_CLOSE = 1e-3  # relative tolerance, because compiled float32 schedules round differently from Python


def warnings_before(step: Step, state: TrainState, batches: Iterable[Batch], cursor: Cursor | None, *, changes: bool) -> Iterator[str]:
    """Yield warnings about probable mistakes. `changes` is True if observers may have changed the learning rate on purpose."""
    if state.step and cursor is None and isinstance(batches, Dataset):
        yield (
            f"The state has made {state.step} steps, and fit got no cursor, so the data begin again at the first batch. To continue a run, "
            "pass cursor=, history= and running= of the checkpoint; to begin another run with trained weights, pass "
            "attrs.evolve(state, step=0)."
        )
    if isinstance(step, TrainStep):
        yield from _other_rates(step, state, changes=changes)


def warnings_after(step: Step, first: int, last: int, *, continued: bool) -> Iterator[str]:
    """Yield warnings about a run from step `first` to step `last` without an update. `continued` is True for a run with a cursor."""
    if first == last == 0 and continued:
        yield (
            "The run made no step: the state is new, and the cursor is at the end of the last epoch. Pass the state of the checkpoint with "
            "the cursor, or increase epochs=."
        )
    elif isinstance(step, TrainStep) and first < last < step.accumulate:
        yield f"The run made {last} steps and no update, because accumulate={step.accumulate}. Decrease accumulate=, or train longer."


def _other_rates(step: TrainStep, state: TrainState, *, changes: bool) -> Iterator[str]:
    rates = learning_rates(state.opt)
    for rate, optimizer_rate in zip(rates, configured_rates(step.optimizer, state.opt), strict=True):
        if optimizer_rate is None or isclose(rate, optimizer_rate.rate, rel_tol=_CLOSE) or (changes and not optimizer_rate.scheduled):
            continue
        new_rate = optimizer_rate.rate
        if optimizer_rate.scheduled:
            yield (
                f"The last update of the state used the learning rate {rate:g}, but the schedule of the step gives {new_rate:g} for this "
                "update. The run continues with the schedule of the step. To keep the old schedule, build the step with the old schedule."
            )
        else:
            yield (
                f"The state has the learning rate {rate:g}, but the optimizer of the step has {new_rate:g}. The run continues with "
                f"{rate:g} from the state. To use {new_rate:g}, pass attrs.evolve(state, opt={{**state.opt, "
                f'"learning_rate": mx.array({new_rate:g})}}).'
            )
        return
