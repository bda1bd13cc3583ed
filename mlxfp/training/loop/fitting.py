"""The loops around a step: training as a stream of events, evaluation, prediction."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from functools import partial
from itertools import count
from typing import Any, TypeVar

import mlx.core as mx
from attrs import evolve, frozen
from mlx import nn

from mlxfp.core.checks import check_callable, check_positive, check_types
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.core.errors import ArgumentError, ArgumentTypeError, DataError, PipelineError
from mlxfp.core.execution import iterate, start
from mlxfp.core.trees import flatten
from mlxfp.evaluation.metrics.totals import Measured, Totals, compute, merge
from mlxfp.evaluation.predictions import to_numpy
from mlxfp.runtime import warn_if_slow
from mlxfp.training.loop.events import Change, EpochEnded, Evaluated, Evaluation, Event, RunStarted, Steered, Stepped, Stopped
from mlxfp.training.loop.plateaus import Mode, watch
from mlxfp.training.loop.running_metrics import Tally, numbers, total
from mlxfp.training.steps.batches import arrays_of, telling
from mlxfp.training.steps.nonfinite import Place, check_finite
from mlxfp.training.steps.state import TrainState, with_tally
from mlxfp.training.steps.steps import Batch, Step, sum_and_weight
from mlxfp.training.steps.transforms import functional, jit

R = TypeVar("R")

Fed = tuple[Batch, Cursor | None]
Measure = Callable[[Any, dict[str, Any]], Mapping[str, tuple[mx.array, mx.array] | Measured]]


def fit(  # noqa: PLR0913  # each is a plain word of the loop
    step: Step,
    state: TrainState,
    batches: Iterable[Batch],
    *,
    epochs: int | None = None,
    steps: int | None = None,
    cursor: Cursor | None = None,
    history: Sequence[Evaluation] = (),
    log_every: int = 10,
) -> Iterator[Event]:
    """Train, lazily: yield an event for the start, every step, the end of every epoch, and the end.

    The run ends after `epochs` or when the state has made `steps`, whichever comes first; after one epoch if neither is given. Both
    count from the very beginning, so a run that continues from a checkpoint is given the same numbers. `batches` is a dataset, which
    is iterated anew each epoch, from `cursor` on if there is one; or anything else that can be iterated every epoch. `history` is for
    observers that remember evaluations, such as `early_stopping`: a checkpoint has it.

    The device is kept busy: metrics are read only every `log_every` steps, and while a step is computed the next batch is prepared.
    Nothing happens until the events are consumed, and whoever stops consuming stops the run. Raises `DataError` for an epoch without
    batches, and `NonFiniteError`, when the metrics are read, for a loss that was no number in any step since the last reading.

    >>> from mlxfp.training.losses import mse
    >>> from mlxfp.training.optimization.optimizers import adamw
    >>> from mlxfp.training.steps.state import train_state
    >>> from mlxfp.training.steps.steps import train_step
    >>> model, optimizer = nn.Linear(1, 1), adamw(0.1)
    >>> step = train_step(model, lambda model, batch: mse(model(batch["x"]), batch["y"]), optimizer)
    >>> batches = [{"x": mx.array([[1.0], [2.0]]), "y": mx.array([[3.0], [6.0]])}] * 50
    >>> end = last(fit(step, train_state(model, optimizer), batches, epochs=2))
    >>> end.step, end.reason
    (100, 'epochs')

    See also: `mlxfp.training.observers` for what to do with the events, `load_latest` to continue a run.
    """
    plan = _Plan(1 if epochs is None and steps is None else epochs, steps, log_every, cursor, tuple(history))
    check_callable(step=step)
    check_types(TrainState, state=state)
    check_types((type(None), Cursor), cursor=cursor)
    _check_batches("fit", batches)
    if cursor is not None and not isinstance(batches, Dataset):
        raise ArgumentTypeError(f"A cursor continues a dataset, and the batches are a {type(batches).__name__}. Make them with a pipeline.")
    plan.check(state)
    return _run(step, state, batches, plan)


def last(events: Iterable[Event]) -> Event:
    """Consume all events and return the last one; its `state` is the trained one.

    Raises `ArgumentError` if there are none.

    >>> last(iter([]))
    Traceback (most recent call last):
    mlxfp.core.errors.ArgumentError: There are no events, so there is no last one. A stream can be consumed once: call fit again.
    """
    final = deque(events, maxlen=1)
    if not final:
        raise ArgumentError("There are no events, so there is no last one. A stream can be consumed once: call fit again.")
    return final[0]


def best(events: Iterable[Event], metric: str, *, mode: Mode) -> Evaluated:
    """Consume all events and return the evaluation with the best `metric`, the first of equals; its `state` is the best one.

    Raises `ArgumentError` if no evaluation has the metric, or only NaN.

    >>> from mlxfp.training.loop.events import Evaluated
    >>> evaluations = [Evaluated(TrainState({}, {}, {}, step, 0), None, 0, {"loss": loss}) for step, loss in ((1, 0.5), (2, 0.3), (3, 0.4))]
    >>> best(evaluations, "loss", mode="min").step
    2
    """
    watched, found = watch(metric, mode), None
    for event in events:
        if isinstance(event, Evaluated):
            before, watched = watched, watched.after(event.metrics)
            found = event if watched.best != before.best else found
    if found is None:
        raise ArgumentError(f"No evaluation has a number for {metric!r}, so none is the best. Put evaluate_every into the pipe.")
    return found


def evaluate(model: nn.Module, measure: Measure) -> Callable[[TrainState, Iterable[Batch]], dict[str, float]]:
    """Make a function (state, batches) -> {name: number} that evaluates states of the model.

    `measure(model, batch)` returns what metrics say of a batch by name: (sum, weight), or what one of `mlxfp.metrics` returns. These
    are merged over the batches and computed at the end, so the numbers do not depend on how the examples are batched. Dropout is off.
    Compiled once, so make it once. What it makes raises `DataError` if there are no batches or a metric has no weight.

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

    def measured(model: nn.Module, batch: dict[str, Any]) -> dict[str, tuple[mx.array, mx.array] | Measured]:
        found = measure(model, batch)
        if not isinstance(found, Mapping):
            raise ArgumentTypeError(
                f"measure(model, batch) returns metrics by name, as in {{'loss': mse(...)}}, got {type(found).__name__}. Put it in a dict."
            )
        return {name: one if isinstance(one, Measured) else sum_and_weight(one) for name, one in found.items()}

    return partial(_evaluate, _compiled("measure", model, measured))


def predict(model: nn.Module, forward: Callable[[Any, dict[str, Any]], Any]) -> Callable[[TrainState, Iterable[Batch]], Iterator[Any]]:
    """Make a function (state, batches) -> iterator of predictions, one numpy array (or tree of them) a batch, in order.

    `forward(model, batch)` returns MLX arrays; what the iterator yields are copies that are safe to keep, bfloat16 as float32.
    Dropout is off. Compiled once, so make it once. Join the rows of all batches with `np.concatenate(list(...))`.

    >>> from mlxfp.training.optimization.optimizers import adamw
    >>> from mlxfp.training.steps.state import train_state
    >>> model = nn.Linear(2, 2)
    >>> answers = predict(model, lambda model, batch: model(batch["x"]).argmax(axis=-1))
    >>> [rows.shape for rows in answers(train_state(model, adamw(0.1)), [{"x": mx.zeros((3, 2))}, {"x": mx.zeros((1, 2))}])]
    [(3,), (1,)]
    """
    check_callable(forward=forward)
    return partial(_predict, _compiled("forward", model, forward))


@frozen
class _Plan:
    epochs: int | None
    steps: int | None
    log_every: int
    cursor: Cursor | None
    history: tuple[Evaluation, ...]

    def check(self, state: TrainState) -> None:
        counts = {"epochs": self.epochs, "steps": self.steps, "log_every": self.log_every}
        check_positive(**{name: value for name, value in counts.items() if value is not None})
        if self.steps is not None and state.step > self.steps:
            raise ArgumentError(f"The state has made {state.step} steps, more than steps={self.steps}; steps counts from the start.")
        if self.epochs is not None and self.cursor is not None and self.cursor.epoch >= self.epochs:
            raise ArgumentError(
                f"The cursor is in epoch {self.cursor.epoch}, counted from 0, and epochs={self.epochs} ends before it; "
                "epochs counts from the start of training."
            )

    def epochs_from(self, first: int) -> Iterable[int]:
        return count(first) if self.epochs is None else range(first, self.epochs)

    def total(self, state: TrainState, batches: Iterable[Batch]) -> int | None:
        """Say how many steps there will be at the end, if that is known."""
        size = length(batches) if isinstance(batches, Dataset) else len(batches) if isinstance(batches, Sized) else None
        by_epochs = None if self.epochs is None or size is None else self.epochs * size + (state.step if self.cursor is None else 0)
        if self.epochs is not None and by_epochs is None:
            return None
        return min(total for total in (by_epochs, self.steps) if total is not None)


def _run(step: Step, state: TrainState, batches: Iterable[Batch], plan: _Plan) -> Iterator[Event]:
    warn_if_slow()
    asked: deque[tuple[Change, str]] = deque()
    resume = cursor = plan.cursor
    first = 0 if resume is None else resume.epoch
    yield RunStarted(state, cursor, first, plan.total(state, batches), plan.history, lambda *change: asked.append(change))
    epoch = first
    for epoch in plan.epochs_from(first) if state.step != plan.steps else ():
        tally = Tally() if resume is None else state.tally
        state, cursor = with_tally(state, tally), resume or _beginning(batches, epoch)
        places = [Place(state.step - back, None) for back in reversed(range(len(tally.unread)))]  # of steps that are unread
        with closing(_feed(batches, resume, epoch)) as feed:  # whoever prepares the batches must hear of it if the run fails
            for batch, after in feed:
                if asked:
                    state = yield from _steered(state, cursor, epoch, asked)
                state, metrics = step(state, batch)  # the only reference to a state here, so the one before can go
                mx.eval(tally.unread[-1:])  # the step before: the host prepares one batch ahead, and no more
                tally = tally.after(metrics)
                places.append(Place(state.step, cursor))
                cursor, due = after, state.step % plan.log_every == 0
                new = _read(tally, places, batches) if due or state.step == plan.steps else {}
                if due:
                    tally, places = Tally(merge([tally.totals, new])), []
                means, state = compute(new), with_tally(state, tally)
                yield Stepped(state, cursor, epoch, means)
                if state.step == plan.steps:
                    break
            else:
                yield EpochEnded(state, cursor, epoch, compute(merge([tally.totals, _read(tally, places, batches)])))
        resume = None
        if state.step == plan.steps:
            break
    if asked:
        state = yield from _steered(state, cursor, epoch, asked)
    yield Stopped(state, cursor, epoch, "steps" if state.step == plan.steps else "epochs")


def _read(tally: Tally, places: Sequence[Place], batches: Iterable[Batch]) -> Totals:
    """Read the metrics that are unread."""
    values = numbers(tally.unread)
    check_finite(values, places, batches)
    return total(values)


def _beginning(batches: Iterable[Batch], epoch: int) -> Cursor | None:
    return evolve(start(epoch, None), owner=batches) if isinstance(batches, Dataset) else None


def _steered(state: TrainState, cursor: Cursor | None, epoch: int, asked: deque[tuple[Change, str]]) -> Generator[Event, None, TrainState]:
    while asked:
        change, reason = asked.popleft()
        state = change(state)
        check_types(TrainState, state=state)
        yield Steered(state, cursor, epoch, reason)
    return state


def _feed(batches: Iterable[Batch], cursor: Cursor | None, epoch: int) -> Generator[Fed, None, None]:
    empty = cursor is None  # after a cursor there may be nothing left of its epoch
    for fed in iterate(batches, cursor, epoch=epoch) if isinstance(batches, Dataset) else ((batch, None) for batch in batches):
        empty = False
        yield fed
    if empty:
        raise DataError(f"There was no batch in epoch {epoch}. Give fit a dataset or a list; a generator can be read once only.")


def _check_batches(function: str, batches: Iterable[Batch]) -> None:
    if isinstance(batches, Mapping) or not isinstance(batches, Iterable):
        raise ArgumentTypeError(f"{function} takes a dataset or another iterable of dicts, got {type(batches).__name__}.")
    if isinstance(batches, Dataset) and batches.level != "batches":
        raise PipelineError(
            f"{function} takes batches, got {batches.level} from {batches.parts[-1]!r}. Put collate after batch, at the end."
        )


def _compiled(name: str, model: nn.Module, function: Callable[[Any, dict[str, Any]], R]) -> Callable[[TrainState, Batch], R]:
    """Compile a function of a model and a batch into one of a state and a batch, in evaluation mode."""
    module = functional(model).emptied()
    run = jit(lambda params, buffers, batch: module.apply(function, params, buffers, batch)[0])

    def call(state: TrainState, batch: Batch) -> R:
        arrays = arrays_of(batch)
        with telling(name, batch):
            return run(state.params, state.buffers, arrays)

    return call


def _evaluate(run: Callable[[TrainState, Batch], Any], state: TrainState, batches: Iterable[Batch]) -> dict[str, float]:
    check_types(TrainState, state=state)
    _check_batches("evaluate", batches)
    parts = [to_numpy(part) for part in _ahead(run(state, batch) for batch in batches)]
    if not parts:
        raise DataError("There are no batches to evaluate on. Give a dataset or a list; a generator can be read once only.")
    return compute(merge(parts))


def _predict(run: Callable[[TrainState, Batch], Any], state: TrainState, batches: Iterable[Batch]) -> Iterator[Any]:
    check_types(TrainState, state=state)
    _check_batches("predict", batches)
    return map(to_numpy, _ahead(run(state, batch) for batch in batches))


def _ahead(results: Iterable[R]) -> Iterator[R]:
    """Yield every result after the next one was given to the device, so that the device need not wait."""
    waiting: list[R] = []
    for result in results:
        mx.async_eval(flatten(result)[1])
        yield from waiting
        waiting = [result]
    yield from waiting
