"""Evaluation and prediction with a model and a training state, batch by batch."""

import warnings
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
from mlxfp.core.nodes import inner_parts
from mlxfp.core.sources import check_ends
from mlxfp.distributed import Ranks
from mlxfp.evaluation.metrics.totals import Measured, Totals, compute, merge, to_numpy
from mlxfp.models.bounds import BoundError
from mlxfp.models.layers import check_module, derived_key, random_key
from mlxfp.support.checks import check_returns, check_types, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.support.progress import Progress
from mlxfp.support.trees import TreeDef, flatten, unflatten
from mlxfp.training.loop.feeding import check_batches, epoch_start, with_cursors, with_row
from mlxfp.training.loop.looking import Evaluator, Predictor, end_trial, with_trial_errors
from mlxfp.training.loop.rank_agreement import exchanged
from mlxfp.training.steps.accumulating import sum_and_weight
from mlxfp.training.steps.batches import add_batch_note, arrays_of
from mlxfp.training.steps.drawing import drawing_from, given_key
from mlxfp.training.steps.modules import split_arrays
from mlxfp.training.steps.sharding import check_ranks, shards_of
from mlxfp.training.steps.state import TrainState, check_state
from mlxfp.training.steps.steps import Batch
from mlxfp.training.steps.transforms import functional, jit

R = TypeVar("R")

_ROUNDS = 16  # number of batches per rank between two exchanges of messages with other ranks

Measure = Callable[[Any, dict[str, Any]], Totals]


@explain_call
def evaluate(model: nn.Module, measure: Measure, *, ranks: Ranks | None = None) -> Evaluator:
    """Return a function (state, batches) -> {name: number} that evaluates states of the model.

    `function(batches)` evaluates the current arrays of the model, for example after `load`.

    `measure(model, batch)` returns the metrics of a batch by name: (sum, weight), or the result of a function in `mlxfp.metrics`. Metrics
    are merged over all batches and computed at the end, so the numbers do not depend on the batch size. Dropout is off. Random numbers
    from MLX's global generator, or from the key of `measure(model, batch, key)`, differ between batches and repeat in every evaluation.
    Call `evaluate` once and reuse the function, because each call of `evaluate` compiles again. The function raises `DataError` if there
    are no batches or a metric has a total weight of 0.

    With `ranks`, all processes call the function with the same batches, without `shard`. Each process measures a part of the batches, and
    all processes get the numbers of a run with one process. Raises `ArgumentError` if the batches of the ranks differ, and `RankError` if
    another rank fails. A model divided between ranks requires `ranks`, because all ranks must compute at the same time.

    >>> from mlxfp.evaluation.metrics import accuracy
    >>> from mlxfp.training.optimization.optimizers import adamw
    >>> from mlxfp.training.steps.state import train_state
    >>> model = nn.Linear(2, 2)
    >>> model.weight, model.bias = mx.eye(2), mx.zeros(2)
    >>> check = evaluate(model, lambda model, batch: {"accuracy": accuracy(model(batch["x"]), batch["y"])})
    >>> check(train_state(model, adamw(0.1)), [{"x": mx.eye(2), "y": mx.array([0, 0])}, {"x": mx.eye(2)[:1], "y": mx.array([0])}])
    {'accuracy': 0.6666666666666666}
    >>> check([{"x": mx.eye(2), "y": mx.array([0, 1])}])
    {'accuracy': 1.0}

    See also: `observers.evaluate_every` to evaluate during a run.
    """
    _check_function("evaluate", model, '{"loss": fp.losses.mse(model(batch["x"]), batch["y"])}', measure=measure)
    check_types((type(None), Ranks), ranks=ranks)
    run = _compiled("measure", model, measure, _metrics)
    measured = partial(_evaluate, ranks, run, together=_computes_together("evaluate", model, ranks))
    return Evaluator(model, partial(with_trial_errors, measured))


@explain_call
def predict(model: nn.Module, forward: Callable[[Any, dict[str, Any]], Any], *, ranks: Ranks | None = None) -> Predictor[Iterator[Any]]:
    """Return a function for predictions. `function(state, batches)` yields one NumPy array or tree of arrays per batch, in order.

    `function(batches)` predicts with the current arrays of the model, for example after `load`. `forward(model, batch)` returns MLX arrays.
    The iterator yields copies that are safe to keep; bfloat16 becomes float32. `np.concatenate(list(...))` joins the rows of all batches.

    Dropout is off. Random numbers, including the key of `forward(model, batch, key)`, differ between batches and repeat in every call. Call
    `predict` once and reuse the function, because each call of `predict` compiles again.

    With `ranks`, all processes call the function with all batches, without `shard`. Each process predicts a part of the batches, and all
    processes get the predictions of all batches, in order. All processes must exhaust the iterator.

    >>> from mlxfp.training.optimization.optimizers import adamw
    >>> from mlxfp.training.steps.state import train_state
    >>> model = nn.Linear(2, 2)
    >>> answers = predict(model, lambda model, batch: model(batch["x"]).argmax(axis=-1))
    >>> [rows.shape for rows in answers(train_state(model, adamw(0.1)), [{"x": mx.zeros((3, 2))}, {"x": mx.zeros((1, 2))}])]
    [(3,), (1,)]
    >>> next(answers([{"x": mx.zeros((3, 2))}])).shape
    (3,)
    """
    _check_function("predict", model, 'model(batch["x"])', forward=forward)
    check_types((type(None), Ranks), ranks=ranks)
    run = _compiled("forward", model, forward, identity)
    return Predictor(model, partial(_results, "predict", ranks, run, together=_computes_together("predict", model, ranks)))


def _check_function(caller: str, model: object, example: str, **function: Any) -> None:
    """Raise `ArgumentTypeError` for a wrong model or function. `example` is the body of a function that works."""
    ((name, value),) = function.items()
    check_module(model, f"fp.{caller}(model, {name})(state, batches)")
    if not callable(value):
        raise ArgumentTypeError(
            f"{caller} takes a function of a model and a batch, got {type(value).__name__}. Write {caller}(model, lambda model, batch: "
            f"{example})(state, batches)."
        )
    check_returns(**function)


def _computes_together(function: str, model: nn.Module, ranks: Ranks | None) -> bool:
    """Return True if each rank holds only a part of the parameters, so that all ranks must compute the same number of batches."""
    params, buffers = split_arrays(model)
    shards = shards_of(model, params, buffers)
    check_ranks(model, shards, ranks, function)
    return shards is not None and bool(shards.wrapped)


def _metrics(metrics: Any) -> dict[str, tuple[mx.array, mx.array] | Measured]:
    if not isinstance(metrics, Mapping):
        raise ArgumentTypeError(
            f"measure(model, batch) returns metrics by name, as in {{'loss': mse(...)}}, got {type(metrics).__name__}. Return a dict."
        )
    return {name: value if isinstance(value, Measured) else sum_and_weight(value) for name, value in metrics.items()}


def _compiled(
    name: str, model: nn.Module, function: Callable[..., Any], finish: Callable[[Any], R]
) -> Callable[[TrainState, Batch, int], R]:
    """Compile `function(model, batch)` or `function(model, batch, key)` in evaluation mode.

    The result is a function (state, batch, batch index).
    """
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
    end_trial(call() for call in _calls(run, state, batches))
    parts = list(results)
    if not parts:
        raise DataError("There are no batches to evaluate on. Give a dataset or a list; a generator can be read once only.")
    return compute(merge(parts))


def _results(  # noqa: PLR0913  # arguments of `predict` and the compiled function
    function: str,
    ranks: Ranks | None,
    run: Callable[[TrainState, Batch, int], Any],
    state: TrainState,
    batches: Iterable[Batch],
    *,
    together: bool,
) -> Iterator[Any]:
    if isinstance(state, nn.Module):
        raise ArgumentTypeError(f"{function} has its model already. Pass the batches only: {function}(model, function)(batches).")
    check_state(state)
    check_batches(function, batches)
    if function == "predict" and isinstance(batches, Dataset):
        warning = _order_warning(batches)
        if warning:
            warnings.warn(warning, RuntimeWarning, stacklevel=2)
    calls = _calls(run, state, batches)
    results = _computed(calls)
    if ranks is not None and ranks.world.size > 1:
        results = _of_all_ranks(function, ranks, batches, calls, together=together)
    return _shown(function, batches, results)


def _order_warning(batches: Dataset[Any]) -> str | None:
    if batches.reorders:
        return "predict got shuffled batches, so the predictions are in the shuffled order. Leave shuffle out of the pipeline."
    if _regroups(batches):
        return (
            "predict got batches of bucket_by_length, so the predictions are in the order of the buckets. Use batch or batch_by_tokens, "
            "which keep the order of the rows."
        )
    return None


def _regroups(dataset: Dataset[Any]) -> bool:
    return any(getattr(stage, "regroups", False) for stage in dataset.stages) or any(map(_regroups, inner_parts(dataset.source)))


def _shown(function: str, batches: Iterable[Batch], results: Iterator[Any]) -> Iterator[Any]:
    """Yield results and display the progress."""
    with progress_of(batches, function) if isinstance(batches, Dataset) else Progress(function, unit="batches") as progress:
        yield from progress.over(results)


def _of_all_ranks(
    function: str, ranks: Ranks, batches: Iterable[Batch], calls: Iterator[Callable[[], Any]], *, together: bool
) -> Iterator[Any]:
    """Divide the batches between the copies of the model. Yield the results of all batches, in order, on every rank."""
    world, pipeline = ranks.world, comparable(batches) if isinstance(batches, Dataset) else ""
    structure: TreeDef | None = None

    def make() -> tuple[Any, ...]:
        nonlocal structure
        count = 0
        own_calls: list[Callable[[], Any]] = []
        other_calls: list[Callable[[], Any]] = []
        for count, call in enumerate(islice(calls, world.copies * _ROUNDS), 1):
            if (count - 1) % world.copies == world.copy:
                own_calls.append(call)
            elif not other_calls:
                other_calls.append(call)
        short = len(own_calls) * world.copies < count
        # If `together` is True, each rank stores a part of the parameters, so every forward pass needs all ranks.
        # A rank without a next batch computes a batch of another rank and discards the result, so that no rank waits forever.
        # A rank without any batch learns the structure of the results from a discarded result.
        extra_calls = other_calls[:1] if short and (together or (structure is None and not own_calls)) else []
        with ranks.waiting() if together or world.tensor > 1 else nullcontext():
            results = list(_computed(own_calls + extra_calls))
        if structure is None and count:
            structure = flatten(results[0])[0]
        return (
            pipeline if isinstance(pipeline, str) else "",
            count,
            tuple(tuple(flatten(result)[1]) for result in results[: len(own_calls)]),
        )

    while True:
        pipelines, counts, results = zip(*exchanged(ranks, function, make), strict=True)
        if len(set(pipelines)) > 1 or len(set(counts)) > 1:
            raise ArgumentError(
                f"With ranks, {function} needs the same batches on all ranks and divides the batches itself. The batches of rank "
                f"{world.rank} differ from another rank; numbers of batches: {', '.join(map(str, counts))}. Remove shard and all other "
                "parts of the pipeline that depend on the rank."
            )
        for index in range(counts[0]):
            assert structure is not None
            yield unflatten(structure, results[index % world.copies * world.tensor][index // world.copies])
        if counts[0] < world.copies * _ROUNDS:
            return


def _calls(run: Callable[[TrainState, Batch, int], R], state: TrainState, batches: Iterable[Batch]) -> Iterator[Callable[[], R]]:
    """Yield one function per batch. A call of the function computes the result of the batch."""

    def call(batch: Batch, number: int, before: Cursor | None) -> R:
        try:
            return run(state, batch, number)
        except BoundError as error:
            raise with_row(error, batches, before) from None

    before = epoch_start(batches, 0)
    for number, (batch, after) in enumerate(with_cursors(batches, None, 0)):
        yield partial(call, batch, number, before)
        before = after


def _computed(calls: Iterable[Callable[[], Any]]) -> Iterator[Any]:
    """Convert results to NumPy arrays and yield the arrays. The next batch is queued before each conversion, so the device stays busy."""
    waiting: list[Any] = []
    for call in calls:
        result = call()
        mx.async_eval(flatten(result)[1])
        yield from map(to_numpy, waiting)
        waiting = [result]
    yield from map(to_numpy, waiting)
