"""Functions that check a source, stage, collator or other part against all of its laws. The package Hypothesis draws random cases."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import FailedHealthCheck, FlakyFailure, Unsatisfiable, UnsatisfiedAssumption

from mlxfp.core.chunks import Schema
from mlxfp.core.nodes import brief
from mlxfp.support.errors import ArgumentError, listed
from mlxfp.support.progress import Progress
from mlxfp.testing.laws.families import Rows, Subject, Trial, law_name

if TYPE_CHECKING:
    from hypothesis import strategies as st

    from mlxfp.core.datasets import Dataset
    from mlxfp.training.loop.events import Event
    from mlxfp.training.steps.state import TrainState

__tracebackhide__ = True


def check(  # noqa: PLR0913  # one function for all families, with the arguments of their laws
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
    batches: "Dataset[dict[str, Any]] | None" = None,
    arrays: "st.SearchStrategy[tuple[Any, ...]] | None" = None,
    events: "Sequence[Event] | None" = None,
) -> "LawReport":
    """Check all laws of a dataset, source, stage, collator, metric, observer or train step, with random cases drawn by hypothesis.

    - A **dataset** or source is read several times. If the dataset has more than 24 items, cursors are checked after the first item, the
      last item, and random items between.
    - A **stage**, or a `compose` of stages and dataset functions, gets random tables in random chunks. `schema` or `examples` restrict the
      tables. A table is skipped if the pipeline raises `SchemaError` for the table. `ahead` is the number of rows that a stage may read in
      advance. If `ahead` is set, laziness is checked too, and the stage must keep the row order.
    - A **collator** gets random groups of rows. Any function from a list of dicts to arrays of any library is a collator. `schema` or
      `examples` is required. Collators of mlxfp also get a group as a view of a record batch, which copies no rows. `views=True` also gives
      views to other collators, as `fp.collate` does.
    - A **metric** or loss needs `arrays`: a strategy for tuples of arguments, each of shape [B, ...] with one row per example. A row with
      only ignored labels (-100) must not change the metric. `padding={"2": 0}` states that a row with 0 in array 2, such as a mask,
      must not change the metric either.
    - An **observer** needs the `events` of a run.
    - A **train step** needs an initial `state` and training `batches`. Compilation takes some time.

    `schema` draws arbitrary values of its types (for a collator, use non-nullable fields). `examples` is a strategy for sequences of
    mappings, such as `strategies.examples(schema)` or a strategy for realistic values. If both arguments are given, `schema` gives the
    types. The hypothesis settings (`settings.register_profile`) set the number of cases.

    For a collator, these arguments state the contents of a batch:

    - `masks` maps the name of a mask to the column of marked values.
    - `padding` maps an array to its padding value.
    - `labels` maps an array to (token column, shift, value without a label), for example `{"labels": ("input_ids", 1, -100)}`.
    - `carries` maps an array to the column copied into the array.
    - `dtypes` maps an array to the name of its dtype.

    Returns a report about the checked laws and cases. Checks longer than two seconds show a progress bar. Raises `AssertionError` with the
    broken law and the smallest failing case, `ArgumentError` for arguments that no law of the part uses,
    and `ArgumentTypeError` for any other value.

    >>> from hypothesis import strategies as st
    >>> import mlxfp as fp
    >>> ids = st.lists(st.builds(dict, input_ids=st.lists(st.integers(1, 99))), min_size=1)
    >>> check(fp.collators.text(pad_id=0), examples=ids, masks={"attention_mask": "input_ids"})
    8 laws hold, in ... cases.
    >>> check(fp.from_examples([{"x": 1}, {"x": 2}]))
    10 laws hold, in ... cases. Cursors were checked after each of 2 items.

    See also: `laws_of` for the separate laws, and `testing.parametrize_with_laws` for one test per law.
    """
    __tracebackhide__ = True  # hides this function in the tracebacks of pytest and IPython
    stated = {"masks": masks, "padding": padding, "labels": labels, "carries": carries, "dtypes": dtypes}
    given: dict[str, Any] = {"state": state, "batches": batches, "arrays": arrays, "events": events, **stated}
    checked = Subject(subject, schema=schema, examples=examples, ahead=ahead, views=views, **given)
    trials = tuple(checked.family.trials(checked))
    with Progress(f"check the laws of {brief(subject)}", unit="checks") as progress:
        cases = sum(_run(trial, "every_law_holds", progress) for trial in trials)
    names = dict.fromkeys(law_name(law) for trial in trials for law in trial.laws)
    return LawReport(tuple(names), cases, " ".join(filter(None, (trial.coverage() for trial in trials if trial.coverage is not None))))


@frozen(repr=False)
class LawReport:
    """Result of `check`: the names of the laws, the number of cases, and a sentence about checked cursors or masks not checked."""

    laws: tuple[str, ...]
    cases: int
    coverage: str = ""

    def __repr__(self) -> str:
        return " ".join([f"{len(self.laws)} laws hold, in {self.cases} cases.", *filter(None, [self.coverage])])


@frozen(repr=False)
class Law:
    """A property that a source, stage, collator or other part must have. Call the law without arguments to check the part. See `laws_of`.

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
        """Check the law under hypothesis. Raises `AssertionError` with the smallest failing case."""
        __tracebackhide__ = True  # hides this function in the tracebacks of pytest and IPython
        for trial in self.trials:
            trial_of_law = evolve(trial, laws=tuple(law for law in trial.laws if law_name(law) == self.name))
            try:
                for case in _drawn_cases(trial):
                    _check_case(trial_of_law, case)
            except Exception:
                _run(trial_of_law, self.name)  # let hypothesis find the smallest failing case of the broken law
                raise

    def __repr__(self) -> str:
        return f"{self.name} of {brief(self.subject.part)}"


def laws_of(part: Any) -> tuple[Law, ...]:
    """Return the laws of a source, stage, collator or other part of a pipeline. Call a law to check the part.

    Some laws need arguments of `check`, such as `schema`. In this case, pass a `Subject` with the part and these arguments to `laws_of`.

    >>> import mlxfp as fp
    >>> [law.name for law in laws_of(fp.from_examples([{"x": 1}]))][:3]
    ['assert_value', 'assert_reads', 'assert_repeatable']
    """
    subject = part if isinstance(part, Subject) else Subject(part)
    trials = tuple(subject.family.trials(subject))
    names = [[law_name(law) for law in trial.laws] for trial in trials]
    return tuple(
        Law(subject, name, tuple(trial for trial, law_names in zip(trials, names, strict=True) if name in law_names))
        for name in dict.fromkeys(chain.from_iterable(names))
    )


def _drawn_cases(trial: Trial) -> list[Mapping[str, Any]]:
    """Draw random cases for a group of laws. Later calls return the same cases, because drawing takes longer than most checks."""

    def keep(**case: Any) -> None:
        try:
            deque(trial.inputs(**case), maxlen=0)
        except Exception as error:
            if isinstance(error, UnsatisfiedAssumption):
                raise
            # Ignore an error of the checked object for now. Each later check calls the object again and raises the error.
        trial.drawn.append(case)

    if not trial.drawn:
        _under_hypothesis(trial, keep, "keep")
    return trial.drawn


def _run(trial: Trial, name: str, progress: Progress | None = None) -> int:
    """Check the laws of a `Trial` with random cases. Return the number of cases, or raise the error of the smallest failing case."""
    __tracebackhide__ = True
    cases = 0

    def check_case(**case: Any) -> None:
        nonlocal cases
        cases += 1
        _check_case(trial, case, progress)

    _under_hypothesis(trial, check_case, name)
    return cases


def _check_case(trial: Trial, case: Mapping[str, Any], progress: Progress | None = None) -> None:
    __tracebackhide__ = True
    try:
        for inputs in trial.inputs(**case):
            for law in trial.laws:
                law(**{name: inputs[name] for name in signature(law).parameters if name in inputs})
                if progress is not None:
                    progress.update()
    except Exception as error:
        name = error.args[0] if type(error) is KeyError and error.args else None
        if isinstance(name, str) and trial.columns is not None and name not in trial.columns:
            error.add_note(
                f"If {name!r} is a column: schema= has only {listed(map(repr, trial.columns))}. Add the column "
                f"with its type to the schema, such as schema.append(pyarrow.field({name!r}, pyarrow.int64(), nullable=False))."
            )
        if trial.note is not None and not isinstance(error, UnsatisfiedAssumption):
            error.add_note(trial.note(**case))
        raise


def _under_hypothesis(trial: Trial, function: Callable[..., None], name: str) -> None:
    """Call a function with each random case, under the current hypothesis settings. Error reports call the function `name`."""
    __tracebackhide__ = True
    if trial.pool is not None:
        function(cases=_drawn_cases(trial.pool))
        return
    cases = trial.cases()
    if not cases:
        function()
        return
    function.__name__ = function.__qualname__ = name
    limited = settings(
        max_examples=min(settings().max_examples, trial.most or settings().max_examples),
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=set(HealthCheck) - {HealthCheck.filter_too_much},
        # skip the phase `explain` of Hypothesis, which is slow
        phases=set(settings().phases) - {Phase.explain, *(() if trial.shrink else (Phase.shrink,))},
    )
    try:
        limited(given(**cases)(function))()
    except FlakyFailure as flaky:  # a case failed once and then passed, because the checked object keeps state between calls
        first = next((error for error in flaky.exceptions if isinstance(error, AssertionError)), flaky)
        first.add_note("The same case passed in a second run, so the result depends on state kept from earlier calls.")
        raise first.with_traceback(_user_traceback(first.__traceback__)) from None
    except (FailedHealthCheck, Unsatisfiable) as error:
        if trial.unfit is None:
            raise
        raise ArgumentError(trial.unfit()) from error
    except Exception as error:  # noqa: BLE001  # the error is raised again
        raise error.with_traceback(_user_traceback(error.__traceback__)) from error.__cause__


def _user_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """Remove the frames of the laws and of hypothesis at the start of a traceback. The remaining frames belong to the user's function."""
    rest = traceback
    while traceback is not None:
        if "__tracebackhide__" in traceback.tb_frame.f_globals:
            rest = traceback.tb_next
        traceback = traceback.tb_next
    return rest
