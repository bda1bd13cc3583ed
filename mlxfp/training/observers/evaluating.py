"""Evaluation during a run, and a look at its data before the run begins."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from mlxfp.distributed import Ranks
from mlxfp.support.checks import check_callable, check_positive, check_text, check_types, explain_call
from mlxfp.training.loop.events import EpochEnded, Evaluated, Event, Observer, RunStarted, Stepped
from mlxfp.training.loop.looking import look_at, looks
from mlxfp.training.loop.plateaus import evaluation_of
from mlxfp.training.steps.state import TrainState

Validate = Callable[[TrainState], Mapping[str, float]]


@explain_call
def evaluate_every(validate: Validate, *, steps: int | None = None, name: str | None = None, ranks: Ranks | None = None) -> Observer:
    """Evaluate the state after every epoch, or after every `steps` steps, and add an `Evaluated` event with the metrics.

    Where `validate` calls a function of `evaluate`, as in `lambda state: check(state, valid)`, it is called once before the run begins, up
    to the first batch of that function, so that a mistake in the pipeline or the metrics is an error now and not after many steps.

    For several validation datasets use several, each with a `name`: the metrics are then called `name/metric`. When a run continues, an
    evaluation that was due at its first step is made if it is not in the history.

    With `ranks` all processes evaluate, each on the rows that its `validate` reads, and get the metrics of rank 0: so observers that decide
    by them, such as `early_stopping` and `reduce_on_plateau`, decide alike on all.

    >>> import mlxfp as fp
    >>> events = [fp.events.EpochEnded(fp.TrainState({}, {}, {}, 7, 0), None, 0, {})]
    >>> [event.metrics for event in fp.pipe(events, fp.observers.evaluate_every(lambda state: {"accuracy": 0.5}, name="hard"))]
    [{}, {'hard/accuracy': 0.5}]

    See also: `evaluate`, which makes functions of (state, batches).
    """
    check_callable(validate=validate)
    if steps is not None:
        check_positive(steps=steps)
    if name is not None:
        check_text(name=name)
    check_types((type(None), Ranks), ranks=ranks)
    return partial(_evaluate_every, validate=validate, steps=steps, prefix=f"{name}/" if name else "", ranks=ranks)


def _evaluate_every(events: Iterable[Event], *, validate: Validate, steps: int | None, prefix: str, ranks: Ranks | None) -> Iterator[Event]:
    made: set[int] = set()  # the steps of evaluations before this run
    for event in events:
        if isinstance(event, RunStarted):
            made = {each.step for each in event.history if any(evaluation_of(name) == prefix[:-1] for name in each.metrics)}
            if looks(validate):  # before the observers behind this one begin logs and files
                with _noted("while looking at the first batch of validate(state) of evaluate_every, before the run"):
                    look_at(validate, event.state)
        yield event
        if _due(event, steps) and event.step not in made:
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
            f"{where}; it takes a state and returns numbers by name. With check = evaluate(...), pass lambda state: check(state, batches)."
        )
        raise


def _due(event: Event, steps: int | None) -> bool:
    if steps is None:
        return isinstance(event, EpochEnded)
    return isinstance(event, Stepped | RunStarted) and event.step > 0 and event.step % steps == 0
