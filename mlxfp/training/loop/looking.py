"""A look at the first batch of an evaluation before a run begins: what is wrong with it is said before hours of training."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from contextvars import ContextVar
from functools import partial
from inspect import getclosurevars, isfunction
from typing import Any

from attrs import frozen

from mlxfp.evaluation.metrics.totals import to_numpy
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import Batch

_LOOKING: ContextVar[bool] = ContextVar("looking", default=False)


class _Looked(BaseException):
    """The first batch was evaluated, or failed; not an `Exception`, so that no function of a user catches it."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error


@frozen
class Looking:
    """A function (state, batches) of `evaluate`, which ends in a look after its first batch."""

    _evaluate: Callable[[TrainState, Iterable[Batch]], dict[str, float]]

    def __call__(self, state: TrainState, batches: Iterable[Batch]) -> dict[str, float]:
        """Evaluate a state on all batches."""
        if not _LOOKING.get():
            return self._evaluate(state, batches)
        try:
            return self._evaluate(state, batches)
        except Exception as error:
            raise _Looked(error) from error


def looks(validate: Callable[[TrainState], Mapping[str, float]]) -> bool:
    """Tell whether a function names one of `evaluate`, so that a look at it ends after one batch.

    Others are not called before a run: who knows what they do, and how long.
    """
    if isinstance(validate, partial):
        return any(map(looks, [validate.func, *validate.args, *validate.keywords.values()]))
    if isfunction(validate):
        names = getclosurevars(validate)
        return any(isinstance(value, Looking) for value in [*names.nonlocals.values(), *names.globals.values()])
    return isinstance(validate, Looking)


def look_at(validate: Callable[[TrainState], Mapping[str, float]], state: TrainState) -> None:
    """Call a function of a state up to the first batch of an evaluation in it, and raise an error of this evaluation.

    What the function does before may need a state after a step, such as averaged weights: its own errors wait for a real evaluation.
    """
    token, failed = _LOOKING.set(True), None
    try:
        validate(state)
    except _Looked as looked:
        failed = looked.error
    except Exception:  # noqa: BLE001, S110  # see above
        pass
    finally:
        _LOOKING.reset(token)
    if failed is not None:
        raise failed


def end_look(results: Generator[Any, None, None]) -> None:
    """In a look, wait for the first result and leave; where there is none, the evaluation goes on to its own error."""
    if _LOOKING.get():
        with closing(results):
            for result in results:
                to_numpy(result)
                raise _Looked
