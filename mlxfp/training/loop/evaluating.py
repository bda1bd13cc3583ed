"""Evaluation and prediction with the states of a model, batch by batch."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import mlx.core as mx
from mlx import nn
from toolz import identity

from mlxfp.core.checks import check_callable, check_types, explain_call
from mlxfp.core.datasets import Dataset
from mlxfp.core.errors import ArgumentTypeError, DataError
from mlxfp.core.sources import check_ends
from mlxfp.core.trees import flatten
from mlxfp.evaluation.metrics.totals import Measured, compute, merge, to_numpy
from mlxfp.models.bounds import BoundError
from mlxfp.models.layers import random_key
from mlxfp.training.loop.feeding import check_batches, epoch_start, with_cursors, with_row
from mlxfp.training.loop.looking import Looking, end_look
from mlxfp.training.steps.batches import add_batch_note, arrays_of
from mlxfp.training.steps.drawing import drawing_from, given_key
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import Batch, sum_and_weight
from mlxfp.training.steps.transforms import functional, jit

R = TypeVar("R")

Measure = Callable[[Any, dict[str, Any]], Mapping[str, tuple[mx.array, mx.array] | Measured]]


@explain_call
def evaluate(model: nn.Module, measure: Measure) -> Callable[[TrainState, Iterable[Batch]], dict[str, float]]:
    """Make a function (state, batches) -> {name: number} that evaluates states of the model.

    `measure(model, batch)` returns metrics of a batch by name: (sum, weight), or the result of one of `mlxfp.metrics`. These
    are merged over the batches and computed at the end, so the numbers do not depend on how the examples are batched. Dropout is off.
    What the model or `measure` draws from MLX's global generator, or from the key of a `measure(model, batch, key)`, is the same in
    every evaluation and differs by batch. Compiled once, so make it once. The function raises `DataError` if there are no batches or a
    metric has no weight.

    >>> from mlxfp.evaluation.metrics import accuracy
    >>> from mlxfp.training.optimization.optimizers import adamw
    >>> from mlxfp.training.steps.state import train_state
    >>> model = nn.Linear(2, 2)
    >>> model.weight, model.bias = mx.eye(2), mx.zeros(2)
    >>> check = evaluate(model, lambda model, batch: {"accuracy": accuracy(model(batch["x"]), batch["y"])})
    >>> check(train_state(model, adamw(0.1)), [{"x": mx.eye(2), "y": mx.array([0, 0])}, {"x": mx.eye(2)[:1], "y": mx.array([0])}])
    {'accuracy': 0.6666666666666666}

    See also: `observers.evaluate_every` to do so during a run.
    """
    check_callable(measure=measure)
    return Looking(partial(_evaluate, _compiled("measure", model, measure, _metrics)))


@explain_call
def predict(model: nn.Module, forward: Callable[[Any, dict[str, Any]], Any]) -> Callable[[TrainState, Iterable[Batch]], Iterator[Any]]:
    """Make a function (state, batches) -> iterator of predictions, one numpy array (or tree of them) a batch, in order.

    `forward(model, batch)` returns MLX arrays; the iterator yields copies that are safe to keep, bfloat16 as float32.
    Dropout is off; random numbers, also from the key of a `forward(model, batch, key)`, are the same in every call and differ by batch.
    Compiled once, so make it once. Join the rows of all batches with `np.concatenate(list(...))`.

    >>> from mlxfp.training.optimization.optimizers import adamw
    >>> from mlxfp.training.steps.state import train_state
    >>> model = nn.Linear(2, 2)
    >>> answers = predict(model, lambda model, batch: model(batch["x"]).argmax(axis=-1))
    >>> [rows.shape for rows in answers(train_state(model, adamw(0.1)), [{"x": mx.zeros((3, 2))}, {"x": mx.zeros((1, 2))}])]
    [(3,), (1,)]
    """
    check_callable(forward=forward)
    return partial(_results, "predict", _compiled("forward", model, forward, identity))


def _metrics(found: Any) -> dict[str, tuple[mx.array, mx.array] | Measured]:
    if not isinstance(found, Mapping):
        raise ArgumentTypeError(
            f"measure(model, batch) returns metrics by name, as in {{'loss': mse(...)}}, got {type(found).__name__}. Put it in a dict."
        )
    return {name: one if isinstance(one, Measured) else sum_and_weight(one) for name, one in found.items()}


def _compiled(
    name: str, model: nn.Module, function: Callable[..., Any], finish: Callable[[Any], R]
) -> Callable[[TrainState, Batch, int], R]:
    """Compile a function of a model and a batch, or also a key, into one of a state, a batch and its number, in evaluation mode."""
    module = functional(model).emptied()

    def run(params: Any, buffers: Any, batch: dict[str, Any], key: mx.array) -> R:
        with drawing_from(key ^ random_key(0, "generator")):
            return finish(module.apply(given_key(function, key), params, buffers, batch)[0])

    compiled = jit(run)

    def call(state: TrainState, batch: Batch, number: int) -> R:
        arrays = arrays_of(batch)
        try:
            return compiled(state.params, state.buffers, arrays, random_key(0, "evaluation", number))
        except Exception as error:
            add_batch_note(error, name, batch, compiled=True)
            raise

    return call


def _evaluate(run: Callable[[TrainState, Batch, int], Any], state: TrainState, batches: Iterable[Batch]) -> dict[str, float]:
    if isinstance(batches, Dataset):
        check_ends(batches, "evaluate")
    results = _results("evaluate", run, state, batches)
    end_look(_called(run, state, batches))
    parts = list(results)
    if not parts:
        raise DataError("There are no batches to evaluate on. Give a dataset or a list; a generator can be read once only.")
    return compute(merge(parts))


def _results(function: str, run: Callable[[TrainState, Batch, int], Any], state: TrainState, batches: Iterable[Batch]) -> Iterator[Any]:
    check_types(TrainState, state=state)
    check_batches(function, batches)
    return map(to_numpy, _ahead(_called(run, state, batches)))


def _called(run: Callable[[TrainState, Batch, int], R], state: TrainState, batches: Iterable[Batch]) -> Generator[R, None, None]:
    before = epoch_start(batches, 0)
    for number, (batch, after) in enumerate(with_cursors(batches, None, 0)):
        try:
            result = run(state, batch, number)
        except BoundError as error:
            raise with_row(error, batches, before) from None
        yield result
        before = after


def _ahead(results: Iterable[R]) -> Iterator[R]:
    """Yield every result after the next one was given to the device, so that the device need not wait."""
    waiting: list[R] = []
    for result in results:
        mx.async_eval(flatten(result)[1])
        yield from waiting
        waiting = [result]
    yield from waiting
