"""Evaluation and prediction with the states of a model, batch by batch."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import mlx.core as mx
from mlx import nn
from toolz import identity

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import progress_of
from mlxfp.core.identity import comparable
from mlxfp.core.sources import check_ends
from mlxfp.distributed import Ranks
from mlxfp.evaluation.metrics.totals import Measured, compute, merge, to_numpy
from mlxfp.models.bounds import BoundError
from mlxfp.models.layers import derived_key, random_key
from mlxfp.support.checks import check_callable, check_types, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.support.progress import Progress
from mlxfp.support.trees import TreeDef, flatten, unflatten
from mlxfp.training.loop.feeding import check_batches, epoch_start, with_cursors, with_row
from mlxfp.training.loop.looking import Looking, end_look
from mlxfp.training.loop.rank_agreement import exchanged
from mlxfp.training.steps.accumulating import sum_and_weight
from mlxfp.training.steps.batches import add_batch_note, arrays_of
from mlxfp.training.steps.drawing import drawing_from, given_key
from mlxfp.training.steps.modules import split_arrays
from mlxfp.training.steps.sharding import check_ranks, shards_of
from mlxfp.training.steps.state import TrainState
from mlxfp.training.steps.steps import Batch
from mlxfp.training.steps.transforms import functional, jit

R = TypeVar("R")

_ROUNDS = 16  # batches of each rank between two messages

Measure = Callable[[Any, dict[str, Any]], Mapping[str, tuple[mx.array, mx.array] | Measured]]


@explain_call
def evaluate(
    model: nn.Module, measure: Measure, *, ranks: Ranks | None = None
) -> Callable[[TrainState, Iterable[Batch]], dict[str, float]]:
    """Make a function (state, batches) -> {name: number} that evaluates states of the model.

    `measure(model, batch)` returns metrics of a batch by name: (sum, weight), or the result of one of `mlxfp.metrics`. These
    are merged over the batches and computed at the end, so the numbers do not depend on how the examples are batched. Dropout is off.
    What the model or `measure` draws from MLX's global generator, or from the key of a `measure(model, batch, key)`, is the same in
    every evaluation and differs by batch. Compiled once, so make it once. The function raises `DataError` if there are no batches or a
    metric has no weight.

    With `ranks`, all processes call the function with the same batches, without `shard`: each measures its part of them, and all get the
    numbers of one process that measures all. Raises `ArgumentError` where their batches are not the same, and `RankError` where another
    rank fails. A model that is divided between ranks needs them, because all must compute at the same time.

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
    check_types((type(None), Ranks), ranks=ranks)
    run = _compiled("measure", model, measure, _metrics)
    return Looking(partial(_evaluate, ranks, run, together=_computes_together("evaluate", model, ranks)))


@explain_call
def predict(
    model: nn.Module, forward: Callable[[Any, dict[str, Any]], Any], *, ranks: Ranks | None = None
) -> Callable[[TrainState, Iterable[Batch]], Iterator[Any]]:
    """Make a function (state, batches) -> iterator of predictions, one numpy array (or tree of them) a batch, in order.

    `forward(model, batch)` returns MLX arrays; the iterator yields copies that are safe to keep, bfloat16 as float32.
    Dropout is off; random numbers, also from the key of a `forward(model, batch, key)`, are the same in every call and differ by batch.
    Compiled once, so make it once. Join the rows of all batches with `np.concatenate(list(...))`.

    With `ranks`, all processes call it with the same batches, without `shard`: each predicts its part of them, and all get the predictions
    of all batches, in order. All must go through the iterator to its end.

    >>> from mlxfp.training.optimization.optimizers import adamw
    >>> from mlxfp.training.steps.state import train_state
    >>> model = nn.Linear(2, 2)
    >>> answers = predict(model, lambda model, batch: model(batch["x"]).argmax(axis=-1))
    >>> [rows.shape for rows in answers(train_state(model, adamw(0.1)), [{"x": mx.zeros((3, 2))}, {"x": mx.zeros((1, 2))}])]
    [(3,), (1,)]
    """
    check_callable(forward=forward)
    check_types((type(None), Ranks), ranks=ranks)
    run = _compiled("forward", model, forward, identity)
    return partial(_results, "predict", ranks, run, together=_computes_together("predict", model, ranks))


def _computes_together(function: str, model: nn.Module, ranks: Ranks | None) -> bool:
    """Tell whether all ranks must compute equally many batches, because each has only a part of the parameters."""
    params, buffers = split_arrays(model)
    shards = shards_of(model, params, buffers)
    check_ranks(model, shards, ranks, function)
    return shards is not None and bool(shards.wrapped)


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
        with drawing_from(derived_key(key, "generator")):
            return finish(module.apply(given_key(function, key), params, buffers, batch)[0])

    run.__name__ = name
    compiled = jit(run)

    def call(state: TrainState, batch: Batch, number: int) -> R:
        arrays = arrays_of(batch)
        try:
            return compiled(state.params, state.buffers, arrays, random_key(0, "evaluation", number))
        except Exception as error:
            add_batch_note(error, name, batch, compiled=True)
            raise

    return call


def _evaluate(
    ranks: Ranks | None, run: Callable[[TrainState, Batch, int], Any], state: TrainState, batches: Iterable[Batch], *, together: bool
) -> dict[str, float]:
    if isinstance(batches, Dataset):
        check_ends(batches, "evaluate")
    results = _results("evaluate", ranks, run, state, batches, together=together)
    end_look(call() for call in _calls(run, state, batches))
    parts = list(results)
    if not parts:
        raise DataError("There are no batches to evaluate on. Give a dataset or a list; a generator can be read once only.")
    return compute(merge(parts))


def _results(  # noqa: PLR0913  # as above
    function: str,
    ranks: Ranks | None,
    run: Callable[[TrainState, Batch, int], Any],
    state: TrainState,
    batches: Iterable[Batch],
    *,
    together: bool,
) -> Iterator[Any]:
    check_types(TrainState, state=state)
    check_batches(function, batches)
    calls = _calls(run, state, batches)
    found = _computed(calls)
    if ranks is not None and ranks.world.size > 1:
        found = _of_all_ranks(function, ranks, batches, calls, together=together)
    return _shown(function, batches, found)


def _shown(function: str, batches: Iterable[Batch], results: Iterator[Any]) -> Iterator[Any]:
    """Yield results, and show how far that is."""
    with progress_of(batches, function) if isinstance(batches, Dataset) else Progress(function, unit="batches") as progress:
        yield from progress.over(results)


def _of_all_ranks(
    function: str, ranks: Ranks, batches: Iterable[Batch], calls: Iterator[Callable[[], Any]], *, together: bool
) -> Iterator[Any]:
    """Compute every result with one copy of the model, in turn, and yield all of them, in order."""
    world, pipeline = ranks.world, comparable(batches) if isinstance(batches, Dataset) else ""
    structure: TreeDef | None = None

    def make() -> tuple[Any, ...]:
        nonlocal structure
        count = 0
        own: list[Callable[[], Any]] = []
        others: list[Callable[[], Any]] = []
        for count, call in enumerate(islice(calls, world.copies * _ROUNDS), 1):
            if (count - 1) % world.copies == world.copy:
                own.append(call)
            elif not others:
                others.append(call)
        short = len(own) * world.copies < count
        # With no batch of its own it looks at that of another; or because the others need its part of the parameters.
        more = others[:1] if short and (together or (structure is None and not own)) else []
        with ranks.waiting() if together or world.tensor > 1 else nullcontext():
            results = list(_computed(own + more))
        if structure is None and count:
            structure = flatten(results[0])[0]
        return pipeline if isinstance(pipeline, str) else "", count, tuple(tuple(flatten(result)[1]) for result in results[: len(own)])

    while True:
        pipelines, counts, results = zip(*exchanged(ranks, function, make), strict=True)
        if len(set(pipelines)) > 1 or len(set(counts)) > 1:
            raise ArgumentError(
                f"With ranks, {function} needs the same batches on all of them, and divides them itself; got other ones on rank "
                f"{world.rank} than on another: {', '.join(map(str, counts))} batches. Leave out shard, and what else depends on the rank."
            )
        for place in range(counts[0]):
            assert structure is not None
            yield unflatten(structure, results[place % world.copies * world.tensor][place // world.copies])
        if counts[0] < world.copies * _ROUNDS:
            return


def _calls(run: Callable[[TrainState, Batch, int], R], state: TrainState, batches: Iterable[Batch]) -> Iterator[Callable[[], R]]:
    """Yield what computes the result of each batch."""
    before = epoch_start(batches, 0)
    for number, (batch, after) in enumerate(with_cursors(batches, None, 0)):
        yield partial(_call, run, state, batches, batch, number, before)
        before = after


def _call(  # noqa: PLR0913, PLR0917  # what is known of one batch
    run: Callable[[TrainState, Batch, int], R],
    state: TrainState,
    batches: Iterable[Batch],
    batch: Batch,
    number: int,
    before: Cursor | None,
) -> R:
    try:
        return run(state, batch, number)
    except BoundError as error:
        raise with_row(error, batches, before) from None


def _computed(calls: Iterable[Callable[[], Any]]) -> Iterator[Any]:
    """Yield results as arrays of numpy, every one after the next was given to the device, so that the device need not wait."""
    waiting: list[Any] = []
    for call in calls:
        result = call()
        mx.async_eval(flatten(result)[1])
        yield from map(to_numpy, waiting)
        waiting = [result]
    yield from map(to_numpy, waiting)
