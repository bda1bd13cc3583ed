"""What should be said before a run goes on from a state: data that begin again, and a learning rate that is not the optimizer's."""

from collections.abc import Iterable, Iterator
from math import isclose

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.training.optimization.learning_rates import learning_rates, own_rates
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import Batch, Step, TrainStep

_CLOSE = 1e-3  # a schedule is computed in float32, and compiled; two settings that differ by less do the same


def warnings_before(step: Step, state: TrainState, batches: Iterable[Batch], cursor: Cursor | None, *, changes: bool) -> Iterator[str]:
    """Yield what is probably a mistake; with `changes`, observers may have changed the rate on purpose."""
    if state.step and cursor is None and isinstance(batches, Dataset):
        yield (
            f"The state has made {state.step} steps, and fit got no cursor, so the data begin again at the first batch. To continue a run, "
            "pass cursor=, history= and running= of its checkpoint; to begin another run with trained weights, pass "
            "attrs.evolve(state, step=0)."
        )
    if isinstance(step, TrainStep):
        yield from _other_rates(step, state, changes=changes)


def _other_rates(step: TrainStep, state: TrainState, *, changes: bool) -> Iterator[str]:
    found = learning_rates(state.opt)
    for rate, own in zip(found, own_rates(step.optimizer, state.opt), strict=True):
        if own is None or isclose(rate, own.rate, rel_tol=_CLOSE) or (changes and not own.scheduled):
            continue
        if own.scheduled:
            yield (
                f"The last update of the state had the learning rate {rate:g}, and the schedule of the step gives {own.rate:g} for it: "
                "the run goes on with the schedule of the step. To continue the run as it began, make the step with the same schedule."
            )
        else:
            yield (
                f"The state has the learning rate {rate:g}, and the optimizer of the step {own.rate:g}: the run goes on with {rate:g}, as "
                'the rate is a part of the state. For the other pass attrs.evolve(state, opt={**state.opt, "learning_rate": '
                f"mx.array({own.rate:g})}})."
            )
        return
