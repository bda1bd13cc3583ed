"""The training loop, as a stream of events."""

import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence, Sized
from contextlib import closing
from functools import partial
from itertools import count
from math import isclose
from typing import Any, TypeVar

from attrs import evolve, frozen

from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.core.resharding import resharded
from mlxfp.evaluation.metrics.totals import Totals, compute, merge
from mlxfp.models.bounds import BoundError
from mlxfp.runtime import warn_if_slow
from mlxfp.support.checks import check_callable, check_positive, check_types, explain_call
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, DataError
from mlxfp.training.loop.control import Control
from mlxfp.training.loop.event_streams import EventStream, stop_interrupted
from mlxfp.training.loop.events import EpochEnded, Evaluated, Evaluation, Event, RunStarted, StateChanged, Stepped, Stopped, Warned
from mlxfp.training.loop.feeding import check_batches, check_epochs, epoch_start, why_empty, with_cursors, with_row
from mlxfp.training.loop.nonfinite import check_finite
from mlxfp.training.loop.plateaus import Mode, PlateauTracker
from mlxfp.training.loop.rank_agreement import check_same_parameters, in_step, same_number, watched
from mlxfp.training.loop.running_metrics import RunningMetrics, read_numbers, total
from mlxfp.training.optimization.hyperparameters import hyperparameters
from mlxfp.training.optimization.learning_rates import configured_rates, learning_rates
from mlxfp.training.steps.state import TrainState, check_state
from mlxfp.training.steps.steps import Batch, Step, TrainStep

E = TypeVar("E", bound=Event)
R = TypeVar("R")


@explain_call
def fit(  # noqa: PLR0913  # independent settings of the loop
    step: Step,
    state: TrainState,
    batches: Iterable[Batch],
    *,
    epochs: int | None = None,
    steps: int | None = None,
    cursor: Cursor | None = None,
    history: Sequence[Evaluation] = (),
    running: RunningMetrics | None = None,
    control: Control | None = None,
    log_every: int = 10,
) -> Iterator[Event]:
    """Train lazily. Yield an event at the start, after every step, after every epoch, and at the end.

    The run ends after `epochs` epochs or at step number `steps`, whichever comes first. The default is one epoch. Both numbers count from
    the first step of training, even if the run continues from a checkpoint. `batches` is a dataset, or an iterable to iterate over once per
    epoch. Endless data require `steps`, otherwise `fit` raises `PipelineError`.

    Three arguments continue a run from a checkpoint or an event. `cursor` is the position in a dataset. `history` has the evaluations so
    far, for observers such as `early_stopping`. `running` has the metrics of the unfinished epoch, for the means at the end of the epoch.
    With `control`, observers can change the state between two steps (see `Control`).

    The device stays busy: the next batch is prepared during a step, and the loop waits for the device only every `log_every` steps, to read
    the metrics. Nothing runs until the events are consumed. The run stops when the consumer stops.

    A `Warned` event reports a probable mistake: a state with completed steps but no `cursor`, a learning rate in the state that differs
    from the rate of the step, or a run without an update.

    Raises `DataError` for an epoch without batches or with weight 0. For an id or label out of range, raises `DataError` with the
    source row before the step. Raises `NonFiniteError` if a loss is not finite. The check happens when the metrics are read, and covers
    all steps since the last reading.

    >>> import mlxfp as fp
    >>> import mlx.core as mx
    >>> from mlx import nn
    >>> model, optimizer = nn.Linear(1, 1), fp.optimizers.adamw(0.1)
    >>> step = fp.train_step(model, lambda model, batch: fp.losses.mse(model(batch["x"]), batch["y"]), optimizer)
    >>> batches = [{"x": mx.array([[1.0], [2.0]]), "y": mx.array([[3.0], [6.0]])}] * 50
    >>> end = fp.last(fp.fit(step, fp.train_state(model, optimizer), batches, epochs=2))
    >>> end.step, end.reason
    (100, 'epochs')

    See also: `mlxfp.training.observers` for what to do with the events, `load_latest` to continue a run.
    """
    check_callable(step=step)
    check_state(state)
    check_types((type(None), Cursor), cursor=cursor)
    check_types((type(None), RunningMetrics), running=running)
    check_types((type(None), Control), control=control)
    check_batches("fit", batches)
    if cursor is not None and not isinstance(batches, Dataset):
        raise ArgumentTypeError(
            f"The argument cursor= needs a dataset, but the batches are a {type(batches).__name__}. Build the batches with a pipeline."
        )
    epochs = 1 if epochs is None and steps is None else epochs
    if running is None or cursor is None:
        running = RunningMetrics()
    if cursor is not None:
        cursor = resharded(batches, cursor)  # type: ignore[arg-type]  # checked above: a dataset
    run = _Run(step, batches, epochs, steps, log_every, control or Control(), control is not None)
    begin = _Progress(state, cursor, 0 if cursor is None else cursor.epoch, running, (None,) * len(running.unread))
    run.check(begin)
    return EventStream(watched(run.ranks, _trained(run, begin, tuple(history))))


@explain_call
def last(events: Iterable[Event]) -> Event:
    """Consume all events and return the last event. The `state` of this event is the trained state.

    `Warned` events become Python warnings. Ctrl-C stops the run, but not the program. The function then warns and returns a `Stopped`
    event with the reason "interrupted", from which the run can be continued. A second Ctrl-C, or Ctrl-C before the first step, raises
    `KeyboardInterrupt`. Raises `ArgumentError` if there are no events.

    >>> last(iter([]))
    Traceback (most recent call last):
    mlxfp.support.errors.ArgumentError: last(events) got no events. An event stream can be read only once. Call fit again for a new stream.
    """
    first: Event | None = None
    final: Event | None = None
    try:
        for final in _with_warnings(events):
            first = first or final
    except KeyboardInterrupt as error:
        if first is None or final is None or final.step == first.step or isinstance(error.__context__, KeyboardInterrupt):
            raise  # re-raise if no step was completed, or if the user pressed Ctrl-C twice
        stop_interrupted("last", events, final)
        return final if isinstance(final, Stopped) else final.derive(Stopped, "interrupted")
    if final is None:
        raise ArgumentError("last(events) got no events. An event stream can be read only once. Call fit again for a new stream.")
    return final


def _with_warnings(events: Iterable[Event]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, Warned):
            warnings.warn(event.message, RuntimeWarning, stacklevel=4)  # the warning names the caller of `last` or `best`
        yield event


@explain_call
def best(events: Iterable[Event], metric: str, *, mode: Mode) -> Evaluated:
    """Consume all events and return the evaluation with the best `metric`. The first of equal evaluations wins.

    Ctrl-C stops the run, but not the program. The function then warns and returns the best evaluation so far, or raises
    `KeyboardInterrupt` if there is no evaluation. Raises `ArgumentError` if no evaluation has the metric, or all values are NaN.

    >>> from mlxfp.training.loop.events import Evaluated
    >>> evaluations = [Evaluated(TrainState({}, {}, {}, step, 0), None, 0, {"loss": loss}) for step, loss in ((1, 0.5), (2, 0.3), (3, 0.4))]
    >>> best(evaluations, "loss", mode="min").step
    2
    """
    tracker, best_event = PlateauTracker(metric, mode), None
    try:
        for event in _with_warnings(events):
            if isinstance(event, Evaluated):
                before, tracker = tracker, tracker.after(event.metrics)
                best_event = event if tracker.best != before.best else best_event
    except KeyboardInterrupt as error:
        if best_event is None or isinstance(error.__context__, KeyboardInterrupt):
            raise
        stop_interrupted("best", events, best_event)
    if best_event is None:
        raise ArgumentError(f"No evaluation has a number for {metric!r}, so there is no best evaluation. Put evaluate_every into the pipe.")
    return best_event


@frozen
class _Run:
    """The constant part of a run: the arguments of `fit`."""

    step: Step
    batches: Iterable[Batch]
    epochs: int | None
    steps: int | None
    log_every: int
    control: Control
    controlled: bool  # True if observers may change the state

    def check(self, begin: "_Progress") -> None:
        counts = {"epochs": self.epochs, "steps": self.steps, "log_every": self.log_every}
        check_positive(**{name: value for name, value in counts.items() if value is not None})
        if self.steps is not None and begin.state.step > self.steps:
            raise ArgumentError(
                f"The state has made {begin.state.step} steps, more than steps={self.steps}. steps counts from the start of training."
            )
        if self.epochs is not None and begin.cursor is not None and begin.epoch >= self.epochs:
            raise ArgumentError(
                f"The cursor is in epoch {begin.epoch}, counted from 0, but epochs={self.epochs} ends the training before this epoch. "
                "epochs counts from the start of training."
            )
        check_epochs(self.batches, self.epochs, self.steps, stacklevel=5)

    @property
    def variants(self) -> int:
        return getattr(self.step, "variants", 0)

    @property
    def ranks(self) -> Any:
        return self.step.ranks if isinstance(self.step, TrainStep) else None

    def look(self, progress: "_Progress", batch: Batch) -> None:
        if isinstance(self.step, TrainStep):
            self.step.look(progress.state, batch)

    def warnings(self, begin: "_Progress") -> Iterator[str]:
        """Yield warnings about probable mistakes in the arguments of `fit`."""
        state = begin.state
        if self.done(begin):
            return
        if state.step and begin.cursor is None and isinstance(self.batches, Dataset):
            yield (
                f"The state has made {state.step} steps, and fit got no cursor, so the data begin again at the first batch. To continue a "
                "run, pass cursor=, history= and running= of the checkpoint; to begin another run with trained weights, pass "
                "attrs.evolve(state, step=0)."
            )
        if isinstance(self.step, TrainStep):
            yield from _other_rates(self.step, state, changes=self.controlled)

    def total(self, begin: "_Progress") -> int | None:
        """Return the total number of steps when the run ends, or None if unknown."""
        size = length(self.batches) if isinstance(self.batches, Dataset) else len(self.batches) if isinstance(self.batches, Sized) else None
        before = begin.state.step if begin.cursor is None else 0  # without a cursor, epoch 0 begins after the earlier steps of the state
        by_epochs = None if self.epochs is None or size is None else self.epochs * size + before
        if self.epochs is not None and by_epochs is None:
            return None
        return min(total for total in (by_epochs, self.steps) if total is not None)

    def reads(self, step: int) -> bool:
        return step % self.log_every == 0 or step == self.steps

    def done(self, progress: "_Progress") -> bool:
        return progress.state.step == self.steps


@frozen
class _Progress:
    """Values of a run that change in every step. `unread` has the cursor before each step whose metrics have not been read yet."""

    state: TrainState
    cursor: Cursor | None
    epoch: int
    running: RunningMetrics
    unread: tuple[Cursor | None, ...] = ()

    def event(self, kind: type[E], *values: Any) -> E:
        return kind(self.state, self.cursor, self.epoch, *values, running=self.running)


def _trained(run: _Run, progress: _Progress, history: tuple[Evaluation, ...]) -> Iterator[Event]:
    """Run the training loop: feed batches to the step, read metrics, and yield events."""
    first, is_resumed = progress.state.step, progress.cursor is not None
    warn_if_slow()
    run.control.take()  # discard old requests: state changes requested before this run
    settings = (hyperparameters(run.step.optimizer), run.step.pretrained) if isinstance(run.step, TrainStep) else ()
    yield progress.event(RunStarted, run.total(progress), history, *settings)
    yield from (progress.event(Warned, message) for message in run.warnings(progress))
    resume, size = progress.cursor, same_number(run.ranks, run.batches, progress.state.step)
    check_same_parameters(run.ranks, progress.state)
    epochs = count(progress.epoch) if run.epochs is None else range(progress.epoch, run.epochs)
    for epoch in () if run.done(progress) else epochs:
        if resume is None:
            progress = _Progress(progress.state, epoch_start(run.batches, epoch), epoch, RunningMetrics())
        with closing(_feed(run.batches, resume, epoch)) as feed:  # after an error, `closing` ends the threads that prepare batches
            for batch, after in in_step(run.ranks, feed, progress.state.step, None if resume else size, run.reads):
                if run.controlled:
                    progress = yield from _changed(run, progress)
                variants = run.variants
                progress = _stepped(run, progress, batch, after)
                progress, means = _read(run, progress)
                yield progress.event(Stepped, means, run.variants > variants)
                if run.done(progress):
                    break
            else:
                yield progress.event(EpochEnded, _epoch_means(run, progress))
        resume = None
        if run.done(progress):
            break
    progress = yield from _changed(run, progress)
    if not run.done(progress):
        last = progress.state.step
        if isinstance(run.step, TrainStep) and first < last < run.step.accumulate:
            cure = f"because accumulate={run.step.accumulate}. Decrease accumulate=, or train longer."
            yield progress.event(Warned, f"The run made {last} steps and no update, {cure}")
        if is_resumed and not last:
            cure = "and the state has made no step. To train, leave out cursor=; to continue a run, pass the state of its checkpoint."
            yield progress.event(Warned, f"The run made no step, because its cursor is at the end of the data, {cure}")
    yield progress.event(Stopped, "steps" if run.done(progress) else "epochs")


def _feed(batches: Iterable[Batch], cursor: Cursor | None, epoch: int) -> Generator[tuple[Batch, Cursor | None], None, None]:
    """Yield each batch with the cursor after the batch, or with None for batches without cursors. Raises `DataError` for an empty epoch."""
    empty = cursor is None  # no error if a cursor at the end of an epoch leaves no batches
    for item in with_cursors(batches, cursor, epoch):
        empty = False
        yield item
    if empty:
        raise DataError(f"There was no batch in epoch {epoch}. {why_empty(batches)}")


def _changed(run: _Run, progress: _Progress) -> Generator[Event, None, _Progress]:
    """Apply the state changes requested through `Control`, such as a new learning rate. Yield a `StateChanged` event for each change."""
    for change, reason in run.control.take():
        state = change(progress.state)
        check_state(state)
        progress = evolve(progress, state=state)
        yield progress.event(StateChanged, reason)
    return progress


def _stepped(run: _Run, progress: _Progress, batch: Batch, after: Cursor | None) -> _Progress:
    try:
        state, metrics = run.step(progress.state, batch)
    except BoundError as error:
        raise with_row(error, run.batches, progress.cursor) from None
    unread = (*progress.unread, progress.cursor)
    return _Progress(state, after, progress.epoch, progress.running.after(metrics), unread)


def _read(run: _Run, progress: _Progress) -> tuple[_Progress, dict[str, float]]:
    """Return the new progress, and the mean metrics of the last `log_every` steps. At steps between two readings, return no metrics."""
    if not run.reads(progress.state.step):
        return progress, {}
    totals = _unread_totals(run, progress)
    # The running totals grow only at multiples of `log_every` steps, even if a run ends at another step.
    # An interrupted run adds up metrics in the same order as an uninterrupted run, so the sums are bit-identical.
    if progress.state.step % run.log_every == 0:
        running = RunningMetrics(merge([progress.running.totals, totals]))
        progress = evolve(progress, running=running, unread=())
    return progress, compute(totals)


def _epoch_means(run: _Run, progress: _Progress) -> dict[str, float]:
    """Return the mean of each metric over an epoch. Raises `DataError` if all batches of the epoch have weight 0."""
    means = compute(merge([progress.running.totals, _unread_totals(run, progress)]))
    if means.get("weight") == 0:
        raise DataError(
            f"All batches of epoch {progress.epoch} have weight 0 in the loss, so no step changed the parameters. The batches have no "
            "labels, or all labels are ignored. Check the labels and masks of a batch: fp.inspect.preview(batches)."
        )
    return means


def _unread_totals(run: _Run, progress: _Progress) -> Totals:
    values = read_numbers(progress.running.unread)
    shared = run.ranks is not None and run.ranks.world.copies > 1
    check_finite(values, progress.state.step, progress.unread, run.batches, partial(run.look, progress), shared=shared)
    return total(values)


_CLOSE = 1e-3  # relative tolerance, because compiled float32 schedules round differently from Python


def _other_rates(step: TrainStep, state: TrainState, *, changes: bool) -> Iterator[str]:
    """Yield a warning if the state has another learning rate than the step. `changes=True`: observers may change the rate."""
    rates = learning_rates(state.opt)
    for rate, (new_rate, scheduled) in zip(rates, configured_rates(step.optimizer, state.opt), strict=True):
        if new_rate is None or isclose(rate, new_rate, rel_tol=_CLOSE) or (changes and not scheduled):
            continue
        if scheduled:
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
