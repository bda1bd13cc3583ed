"""A trial evaluation of the first batch before a run, to report errors before hours of training."""

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from contextvars import ContextVar
from functools import partial
from inspect import getclosurevars, isfunction
from typing import Any, Generic, TypeVar, overload

from attrs import frozen
from mlx import nn

from mlxfp.evaluation.metrics.totals import to_numpy
from mlxfp.training.steps.modules import split_arrays
from mlxfp.training.steps.sharding import shards_of
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import Batch

R = TypeVar("R")

_IN_TRIAL: ContextVar[bool] = ContextVar("in_trial", default=False)


class _TrialEnded(BaseException):
    """Control-flow exception that ends a trial evaluation after the first batch. `error` is None if the batch caused no error.

    Derived from `BaseException`, so that `except Exception` in user code does not catch the exception.
    """

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error


@frozen(eq=False)
class Predictor(Generic[R]):
    """A function built by `predict`, called with (state, batches) or (batches)."""

    _model: nn.Module
    _function: Callable[[TrainState, Iterable[Batch]], R]

    @overload
    def __call__(self, state: TrainState, batches: Iterable[Batch]) -> R: ...
    @overload
    def __call__(self, batches: Iterable[Batch], /) -> R: ...
    def __call__(self, state: Any, batches: Any = None) -> R:
        """Return the result of a state on all batches. Without a state, use the current arrays of the model."""
        if batches is None:
            params, buffers = split_arrays(self._model)
            current = TrainState(params, buffers, {}, step=0, seed=0, shards=shards_of(self._model, params, buffers))
            return self._function(current, state)
        return self._function(state, batches)


class Evaluator(Predictor[dict[str, float]]):
    """A function built by `evaluate`, called with (state, batches) or (batches). A trial evaluation ends after the first batch."""


def with_trial_errors(evaluate: Callable[[TrainState, Iterable[Batch]], R], state: TrainState, batches: Iterable[Batch]) -> R:
    """Evaluate a state on all batches. In a trial evaluation, an error ends the trial."""
    try:
        return evaluate(state, batches)
    except Exception as error:
        if _IN_TRIAL.get():
            raise _TrialEnded(error) from error
        raise


def supports_trial(validate: Callable[[TrainState], Mapping[str, float]]) -> bool:
    """Return True if a validation function calls a function built by `evaluate`.

    Functions built by `evaluate` can stop after one batch of a trial evaluation. Other validation functions get no trial evaluation,
    because their duration and side effects are unknown.
    """
    if isinstance(validate, partial):
        return any(map(supports_trial, [validate.func, *validate.args, *validate.keywords.values()]))
    if isfunction(validate):
        names = getclosurevars(validate)
        return any(isinstance(value, Evaluator) for value in [*names.nonlocals.values(), *names.globals.values()])
    return isinstance(validate, Evaluator)


def run_trial(validate: Callable[[TrainState], Mapping[str, float]], state: TrainState) -> None:
    """Run a validation function for one batch before the training, to find mistakes early.

    Raise errors of functions built by `evaluate`. Ignore errors of other code: weight averaging, for example, may fail before step 1.
    """
    token, failed = _IN_TRIAL.set(True), None
    try:
        validate(state)
    except _TrialEnded as ended:
        failed = ended.error
    except Exception:  # noqa: BLE001, S110  # ignored until a real evaluation, see the docstring
        pass
    finally:
        _IN_TRIAL.reset(token)
    if failed is not None:
        raise failed


def end_trial(results: Generator[Any, None, None]) -> None:
    """In a trial evaluation, raise `_TrialEnded` after the first result. Outside a trial, do nothing.

    If there are no results, this function returns normally, and the evaluation then raises the error for missing batches.
    """
    if _IN_TRIAL.get():
        with closing(results):
            for result in results:
                to_numpy(result)
                raise _TrialEnded
