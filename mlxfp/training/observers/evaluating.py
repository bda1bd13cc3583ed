"""Evaluation during a run, with a trial evaluation of the first batch before the run."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_positive, check_text, check_types, explain_call
from mlxfp.support.errors import ArgumentTypeError
from mlxfp.training.loop.events import EpochEnded, Evaluated, Event, Observer, RunStarted, Stepped
from mlxfp.training.loop.looking import run_trial, supports_trial
from mlxfp.training.loop.plateaus import evaluation_of
from mlxfp.training.steps.state import TrainState

Validate = Callable[[TrainState], Mapping[str, float]]


@explain_call
def evaluate_every(validate: Validate, *, steps: int | None = None, name: str | None = None, ranks: Ranks | None = None) -> Observer:
    """Evaluate the state after every epoch, or after every `steps` steps. Add an `Evaluated` event with the metrics.

    The function `validate` returns the metrics of a state, for example `lambda state: check(state, valid)` with `check = evaluate(...)`.
    If `validate` calls a function built by `evaluate`, the first batch is evaluated once before the run, to report mistakes early.

    For several validation datasets, use several observers with different values of `name`. Their metrics are called `name/metric`. A run
    may end after a checkpoint but before the evaluation of the same step. The continued run then begins with the missing evaluation.

    With `ranks`, every rank calls its own `validate`, but the event has the metrics of rank 0 on all ranks. Observers such as
    `early_stopping` and `reduce_on_plateau` therefore decide identically on all ranks.

    >>> import mlxfp as fp
    >>> events = [fp.events.EpochEnded(fp.TrainState({}, {}, {}, 7, 0), None, 0, {})]
    >>> [event.metrics for event in fp.pipe(events, fp.observers.evaluate_every(lambda state: {"accuracy": 0.5}, name="hard"))]
    [{}, {'hard/accuracy': 0.5}]

    See also: `evaluate`, which makes functions of (state, batches).
    """
    if not callable(validate):
        raise ArgumentTypeError(
            f"evaluate_every takes a function of the state, got {type(validate).__name__}: {validate!r:.60}. Write "
            "evaluate_every(lambda state: check(state, valid))."
        )
    if steps is not None:
        check_positive(steps=steps)
    if name is not None:
        check_text(name=name)
    check_types((type(None), Ranks), ranks=ranks)
    return partial(_evaluate_every, validate=validate, steps=steps, prefix=f"{name}/" if name else "", ranks=ranks)


def _evaluate_every(events: Iterable[Event], *, validate: Validate, steps: int | None, prefix: str, ranks: Ranks | None) -> Iterator[Event]:
    evaluated: set[int] = set()  # steps of the evaluations in the history
    for event in events:
        if isinstance(event, RunStarted):
            evaluated = {
                evaluation.step for evaluation in event.history if any(evaluation_of(name) == prefix[:-1] for name in evaluation.metrics)
            }
            if supports_trial(validate):  # a trial run of `validate` reports errors before other observers create files
                with _noted("in a trial of validate(state) of evaluate_every on the first batch, before the run"):
                    run_trial(validate, event.state)
        yield event
        if _due(event, steps) and event.step not in evaluated:
            with _noted(f"while running validate(state) of evaluate_every at step {event.step}"):
                metrics = {f"{prefix}{metric}": float(value) for metric, value in dict(validate(event.state)).items()}
            if ranks is not None:
                metrics = dict(zip(metrics, ranks.gather(list(metrics.values()))[0], strict=True))
            yield event.derive(Evaluated, metrics)


@contextmanager
def _noted(where: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(
            f"{where}. validate takes a state and returns numbers by name. With check = evaluate(...), pass lambda state: check(state, "
            "batches)."
        )
        raise


def _due(event: Event, steps: int | None) -> bool:
    if steps is None:
        return isinstance(event, EpochEnded)
    return isinstance(event, Stepped | RunStarted) and event.step > 0 and event.step % steps == 0
