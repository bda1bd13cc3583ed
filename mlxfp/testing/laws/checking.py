"""All laws that apply to a value, checked at once or one by one, under hypothesis."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import getdoc, signature
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import FailedHealthCheck, FlakyFailure, Unsatisfiable, UnsatisfiedAssumption

from mlxfp.core.chunks import Schema
from mlxfp.core.nodes import brief
from mlxfp.support.errors import ArgumentError
from mlxfp.testing.laws.families import Rows, Subject, Trial, law_name

if TYPE_CHECKING:
    from hypothesis import strategies as st

    from mlxfp.core.datasets import Dataset
    from mlxfp.training.loop.events import Event
    from mlxfp.training.steps.state import TrainState
    from mlxfp.training.steps.steps import Batch

__tracebackhide__ = True


def check(  # noqa: PLR0913  # one function for every kind of value, each with what its laws need
    subject: Any,
    *,
    schema: Schema | None = None,
    examples: Rows | None = None,
    ahead: int | None = None,
    views: bool = False,
    masks: Mapping[str, str] | None = None,
    padding: Mapping[str, float] | None = None,
    labels: Mapping[str, tuple[str, int, int]] | None = None,
    carries: Mapping[str, str] | None = None,
    dtypes: Mapping[str, str] | None = None,
    state: "TrainState | None" = None,
    batches: "Dataset[Batch] | None" = None,
    arrays: "st.SearchStrategy[tuple[Any, ...]] | None" = None,
    events: "Sequence[Event] | None" = None,
) -> None:
    """Check every law that applies to a dataset, source, stage, collator, metric, observer or train step, under hypothesis.

    - A **dataset** or source: use a short one, because the laws look at every item, and resume after each.
    - A **stage**, or a `compose` of stages and of functions of datasets: it gets random tables, cut into chunks at random. Tables that
      it cannot process (`SchemaError` when it is built) are left out; `schema` or `examples` say which ones it can. With `ahead`, the
      number of rows that it may read ahead, laziness is checked too: for stages that keep the order of rows.
    - A **collator**, or any other function from a list of dicts to arrays of any library: it gets random groups of `schema` or `examples`
      (one is needed). Those of mlxfp also get them as views, and others with `views=True`, as `fp.collate` passes them. What an array of
      the batch holds is checked where that is stated: `masks` maps each mask to the column whose values it marks, `padding` an array to
      the value on padding, `labels` to (column of tokens, how many places on, value where there is no label) as in
      `{"labels": ("input_ids", 1, -100)}`, `carries` to the column whose values it holds, `dtypes` to the name of its dtype.
    - A **metric** or loss, with `arrays`: a strategy of tuples of its arguments, each [B, ...] with a row for each example.
    - An **observer**, with the `events` of a run.
    - A **train step**, with a `state` to start from and `batches` to train on. Compiling takes some time.

    `schema` draws any values of its types (for a collator, use fields that are not nullable). `examples` is a strategy of sequences of
    mappings, such as `strategies.examples(schema)`, or one that draws realistic values; with both, `schema` gives the types. Hypothesis'
    own settings, `settings.register_profile`, say how many cases are drawn.

    Raises `AssertionError` with the law that is broken and the smallest case that was found, `ArgumentError` for arguments that the laws
    of the value do not need, and `ArgumentTypeError` for any other value.

    >>> from hypothesis import strategies as st
    >>> import mlxfp as fp
    >>> ids = st.lists(st.builds(dict, input_ids=st.lists(st.integers(1, 99))), min_size=1)
    >>> check(fp.collators.text(pad_id=0), examples=ids, masks={"attention_mask": "input_ids"})
    >>> check(fp.batch(2), ahead=0)

    See also: `laws_of` for the laws one by one, and `testing.parametrize_with_laws` for a test of each.
    """
    __tracebackhide__ = True  # for IPython, which asks functions and not modules
    stated = {"masks": masks, "padding": padding, "labels": labels, "carries": carries, "dtypes": dtypes}
    given: dict[str, Any] = {"state": state, "batches": batches, "arrays": arrays, "events": events, **stated}
    found = Subject(subject, schema=schema, examples=examples, ahead=ahead, views=views, **given)
    for trial in tuple(found.family.trials(found)):
        _run(trial, "every_law_holds")


@frozen(repr=False)
class Law:
    """A law of a part: call it to check it. Made by `laws_of`.

    >>> import mlxfp as fp
    >>> law = laws_of(fp.batch(2))[0]
    >>> law
    assert_value of batch(size=2)
    >>> law()
    """

    subject: Subject
    name: str
    trials: tuple[Trial, ...]

    def __call__(self) -> None:
        """Check the law under hypothesis. Raises `AssertionError` with the smallest case that breaks it."""
        __tracebackhide__ = True  # for IPython, which asks functions and not modules
        for trial in self.trials:
            alone = evolve(trial, laws=tuple(law for law in trial.laws if law_name(law) == self.name))
            try:
                for case in _drawn(trial):
                    _hold(alone, case)
            except Exception:
                _run(alone, self.name)  # raises for the smallest case that it finds
                raise

    def __repr__(self) -> str:
        return f"{self.name} of {brief(self.subject.part)}"

    @property
    def said(self) -> str:
        """What the law says, in a sentence."""
        law = next(law for law in self.trials[0].laws if law_name(law) == self.name)
        return (getdoc(law.func if isinstance(law, partial) else law) or "").partition("\n")[0].removeprefix("Law: ")


def laws_of(part: Any) -> tuple[Law, ...]:
    """Return the laws that `check` checks for a part, each to be called alone; what needs arguments of `check` is a `Subject`.

    >>> import mlxfp as fp
    >>> [law.name for law in laws_of(fp.from_examples([{"x": 1}]))][:3]
    ['assert_value', 'assert_reads', 'assert_repeatable']
    """
    subject = part if isinstance(part, Subject) else Subject(part)
    trials = tuple(subject.family.trials(subject))
    names = [[law_name(law) for law in trial.laws] for trial in trials]
    return tuple(
        Law(subject, name, tuple(trial for trial, own in zip(trials, names, strict=True) if name in own))
        for name in dict.fromkeys(chain.from_iterable(names))
    )


def _drawn(trial: Trial) -> list[Mapping[str, Any]]:
    """Draw the cases of a trial, once for all its laws: drawing takes longer than most laws."""

    def keep(**case: Any) -> None:
        try:
            deque(trial.inputs(**case), maxlen=0)
        except Exception as error:
            if isinstance(error, UnsatisfiedAssumption):
                raise
            # an error of the part is raised again when a law is checked
        trial.drawn.append(case)

    if not trial.drawn:
        _under_hypothesis(trial, keep, "keep")
    return trial.drawn


def _run(trial: Trial, name: str) -> None:
    """Check the laws of a trial, and raise for the smallest case that breaks one, not one for each law."""
    __tracebackhide__ = True
    _under_hypothesis(trial, lambda **case: _hold(trial, case), name)


def _hold(trial: Trial, case: Mapping[str, Any]) -> None:
    """Check all laws of a trial on a case."""
    __tracebackhide__ = True
    try:
        for inputs in trial.inputs(**case):
            for law in trial.laws:
                law(**{name: inputs[name] for name in signature(law).parameters if name in inputs})
    except Exception as error:
        if trial.note is not None and not isinstance(error, UnsatisfiedAssumption):
            error.add_note(trial.note(**case))
        raise


def _under_hypothesis(trial: Trial, function: Callable[..., None], name: str) -> None:
    """Call a function with the cases of a trial, with the current settings; failures are reported under a name."""
    __tracebackhide__ = True
    cases = trial.cases()
    if not cases:
        function()
        return
    function.__name__ = function.__qualname__ = name
    calm = settings(
        max_examples=min(settings().max_examples, trial.most or settings().max_examples),
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=set(HealthCheck) - {HealthCheck.filter_too_much},
        phases=set(settings().phases) - {Phase.explain},  # it takes longer than all other phases, and the laws explain themselves
    )
    try:
        calm(given(**cases)(function))()
    except FlakyFailure as flaky:  # what the value remembers of earlier calls cannot be repeated
        first = next((error for error in flaky.exceptions if isinstance(error, AssertionError)), flaky)
        first.add_note("The same case passed when it was run again, so earlier calls matter: something is kept between calls.")
        raise first.with_traceback(_of_the_user(first.__traceback__)) from None
    except (FailedHealthCheck, Unsatisfiable) as error:
        if not trial.unfit:
            raise
        raise ArgumentError(trial.unfit) from error
    except Exception as error:  # noqa: BLE001  # whatever it is, it is raised again
        raise error.with_traceback(_of_the_user(error.__traceback__)) from error.__cause__


def _of_the_user(traceback: TracebackType | None) -> TracebackType | None:
    """Leave out the frames of the laws, and of hypothesis around them: what is left is a function of the user that was being checked."""
    rest = traceback
    while traceback is not None:
        if "__tracebackhide__" in traceback.tb_frame.f_globals:
            rest = traceback.tb_next
        traceback = traceback.tb_next
    return rest
