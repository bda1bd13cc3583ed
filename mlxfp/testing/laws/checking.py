"""All laws that apply to a value, checked at once under hypothesis."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, reject, settings
from hypothesis import strategies as st
from hypothesis.errors import FailedHealthCheck, FlakyFailure, Unsatisfiable

from mlxfp.core.chunks import Example, RecordBatch, Schema, from_rows, number_rows
from mlxfp.core.datasets import Combinator, Dataset
from mlxfp.core.describing import schema as schema_of
from mlxfp.core.errors import ArgumentError, ArgumentTypeError, SchemaError
from mlxfp.core.examples import Examples
from mlxfp.core.nodes import Part, brief
from mlxfp.core.pipelines import compose
from mlxfp.core.sources import Source
from mlxfp.core.stages import Stage
from mlxfp.data.lengths.batching import batch
from mlxfp.testing.laws import collators, contents, cursors, datasets, stages, training
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies.tabular import examples as rows_of
from mlxfp.testing.strategies.tabular import rechunkings, tables

if TYPE_CHECKING:
    from mlxfp.training.steps.state import TrainState
    from mlxfp.training.steps.steps import Batch

__tracebackhide__ = True

Rows = st.SearchStrategy[Sequence[Mapping[str, Any]]]
_EPOCHS = st.integers(0, 2)
_COPIES = 10  # cases for which a collator is copied, with all that it keeps: a tokenizer takes 0.1 s
_STEPS = 6  # enough steps for a start, a middle and an end


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
) -> None:
    """Check every law that applies to a dataset, source, stage, collator or train step, under hypothesis.

    - A **dataset** or source: use a short one, because the laws look at every item, and resume after each.
    - A **stage**, or a `compose` of stages and of functions of datasets: it gets random tables, cut into chunks at random. Tables that
      it cannot process (`SchemaError` when it is built) are left out; `schema` or `examples` say which ones it can. With `ahead`, the
      number of rows that it may read ahead, laziness is checked too: for stages that keep the order of rows.
    - A **collator**, or any other function from a list of dicts to arrays of any library: it gets random groups of `schema` or `examples`
      (one is needed). Those of mlxfp also get them as views, and others with `views=True`, as `fp.collate` passes them. What an array of
      the batch holds is checked where that is stated: `masks` maps each mask to the column whose values it marks, `padding` an array to
      the value on padding, `labels` to (column of tokens, how many places on, value where there is no label) as in
      `{"labels": ("input_ids", 1, -100)}`, `carries` to the column whose values it holds, `dtypes` to the name of its dtype.
    - A **train step**, with a `state` to start from and `batches` to train on. Compiling takes some time.

    `schema` draws any values of its types (for a collator, use fields that are not nullable). `examples` is a strategy of sequences of
    mappings, such as `strategies.examples(schema)`, or one that draws realistic values; with both, `schema` gives the types. Hypothesis'
    own settings, `settings.register_profile`, say how many cases are drawn.

    Raises `AssertionError` with the law that is broken and the smallest case that was found, `ArgumentError` for arguments that the laws
    of the value do not need, and `ArgumentTypeError` for any other value.

    >>> import mlxfp as fp
    >>> ids = st.lists(st.builds(dict, input_ids=st.lists(st.integers(1, 99))), min_size=1)
    >>> check(fp.collators.text(pad_id=0), examples=ids, masks={"attention_mask": "input_ids"})
    >>> check(fp.batch(2), ahead=0)
    """
    __tracebackhide__ = True  # for IPython, which asks functions and not modules
    stated = {"masks": masks, "padding": padding, "labels": labels, "carries": carries, "dtypes": dtypes}
    given = {"schema": schema, "examples": examples, "ahead": ahead, "views": views or None, **stated, "state": state, "batches": batches}
    kind = _kind(subject, trains=state is not None or batches is not None)
    unused = [name for name, value in given.items() if value is not None and name not in _TAKES[kind]]
    if unused:
        raise ArgumentError(
            f"The laws of a {kind} do not use {', '.join(unused)}, got {brief(subject)}. "
            f"Leave it out. They use: {', '.join(_TAKES[kind]) or 'nothing more'}."
        )
    if kind == "dataset":
        _check_dataset(Dataset(subject) if isinstance(subject, Source) else subject)
    elif kind == "stage":
        _check_stage(subject, schema, examples, ahead)
    elif kind == "collator":
        _check_collator(subject, schema, examples, stated, views=views or isinstance(subject, Part))
    else:
        _check_step(subject, state, batches)


_TAKES = {
    "dataset": (),
    "stage": ("schema", "examples", "ahead"),
    "collator": ("schema", "examples", "views", "masks", "padding", "labels", "carries", "dtypes"),
    "train step": ("state", "batches"),
}


def _kind(subject: object, *, trains: bool) -> str:
    if isinstance(subject, Dataset | Source):
        return "dataset"
    if isinstance(subject, Stage | Combinator | type(compose())):
        return "stage"
    if not callable(subject):
        raise ArgumentTypeError(
            f"check takes a dataset, source, stage, collator or train step, got {type(subject).__name__}: {subject!r:.80}. "
            "For other values, call the laws themselves."
        )
    return "train step" if trains else "collator"


def _check_dataset(dataset: Dataset[Any]) -> None:
    __tracebackhide__ = True
    datasets.assert_value(dataset)

    def every_law_holds(epoch: int) -> None:
        datasets.assert_reads(dataset.source, epoch=epoch)
        _assert_laws_of_datasets(dataset, epoch)

    def random_access_is_exact(epoch: int, indices: list[int]) -> None:
        datasets.assert_random_access(dataset, np.array(indices, np.int64), epoch=epoch)

    _run(every_law_holds, epoch=_EPOCHS)
    count = len(list(dataset)) if dataset.level == "examples" and dataset.indexable else 0
    if count:
        _run(random_access_is_exact, epoch=_EPOCHS, indices=st.lists(st.integers(0, count - 1), min_size=1, max_size=2 * count))


def _assert_laws_of_datasets(dataset: Dataset[Any], epoch: int) -> None:
    datasets.assert_repeatable(dataset, epoch=epoch)
    datasets.assert_described(dataset, epoch=epoch)
    stages.assert_pure_stages(dataset, epoch=epoch)
    cursors.assert_resumable(dataset, epoch=epoch)
    cursors.assert_plans_agree(dataset, epoch=epoch)


def _check_stage(stage: Any, schema: Schema | None, examples: Rows | None, ahead: int | None) -> None:
    __tracebackhide__ = True
    datasets.assert_value(stage)
    transform = stage if "examples" in getattr(stage, "accepts", ("examples",)) else compose(batch(2), stage)

    def every_law_holds(chunkings: tuple[Any, Any], epoch: int) -> None:
        try:
            hold(*chunkings, epoch)
        except AssertionError as error:
            rows, (sizes, others) = pa.Table.from_batches(chunkings[0]).to_pylist(), ([len(chunk) for chunk in cut] for cut in chunkings)
            error.add_note(f"The rows: {rows}, in chunks of {sizes}, or of {others}, in epoch {epoch}.")
            raise

    def hold(chunks: Sequence[RecordBatch], others: Sequence[RecordBatch], epoch: int) -> None:
        dataset = transform(from_chunks(chunks))
        try:
            schema_of(dataset)
        except SchemaError:
            reject()
        datasets.assert_built_lazily(transform, chunks)
        _assert_laws_of_datasets(dataset, epoch)
        stages.assert_chunks_do_not_matter(transform, chunks, others, epoch=epoch)
        if isinstance(stage, Stage):
            cursors.assert_replay_is_bounded(transform, chunks, epoch=epoch)
        if ahead is not None:
            stages.assert_lazy(transform, chunks, ahead=ahead, epoch=epoch)

    if examples is None:
        drawn = tables(schema)
    else:
        rows = examples if schema is not None else examples.filter(len)  # without a row there are no columns
        drawn = rows.map(lambda some: pa.Table.from_batches([from_rows(some, schema, range(len(some)))]))
    cuts = drawn.flatmap(lambda table: st.tuples(rechunkings(table), rechunkings(table)))
    try:
        _run(every_law_holds, chunkings=cuts, epoch=_EPOCHS)
    except (FailedHealthCheck, Unsatisfiable) as error:
        raise ArgumentError(
            f"{brief(stage)} can process too few of the tables that were drawn to check its laws. Say which ones it can process: "
            "check(stage, schema=...) or check(stage, examples=...)."
        ) from error


def _check_collator(collator: Any, schema: Schema | None, examples: Rows | None, stated: Mapping[str, Any], *, views: bool) -> None:
    __tracebackhide__ = True
    if schema is None and examples is None:
        raise ArgumentError(
            f"check needs to know what the collator {brief(collator)} takes. Pass schema= or examples=, as in "
            "check(collator, examples=strategies.examples(schema)). A train step needs state= and batches=. "
            "For a function of datasets, pass compose(function)."
        )

    unused = collators.copied(collator)

    def no_state_is_kept(examples: Sequence[Example]) -> None:
        collators.assert_keeps_no_state(unused, [dict(example) for example in examples])

    def every_law_holds(examples: Sequence[Example], seed_of_the_order: int) -> None:
        order = np.random.default_rng(seed_of_the_order).permutation(len(examples)).tolist()
        groups: list[Sequence[Example]] = [[dict(example) for example in examples]]
        if views:
            groups.append(Examples(number_rows(from_rows(examples, schema, range(len(examples))), 0, 0)))
        for group in groups:
            collators.assert_pure_collator(collator, group)
            collators.assert_permutes(collator, group, order)
        if views:
            collators.assert_list_and_view_agree(collator, examples)
        collators.assert_an_example_stands_alone(collator, groups[-1])
        contents.assert_holds(collator, groups[-1], **stated)

    groups = rows_of(schema, min_rows=1) if examples is None else examples.filter(len)  # never empty
    _run(every_law_holds, examples=groups, seed_of_the_order=st.integers(0, 99))
    _run(no_state_is_kept, most=_COPIES, examples=groups)


def _check_step(step: Any, state: "TrainState | None", batches: "Dataset[Batch] | None") -> None:
    __tracebackhide__ = True
    if state is None or batches is None:
        raise ArgumentError("check needs both state= and batches= for a train step: a state to start from, and a dataset to train on.")
    first = next(iter(batches))
    training.assert_pure_step(step, state, first)
    training.assert_compiled_equals_eager(step, state, first)
    with TemporaryDirectory() as folder:
        training.assert_saves(state, Path(folder))
        for stop in range(1, _STEPS):
            steps = (state.step + stop, state.step + _STEPS)
            training.assert_continues(step, state, batches, stop=steps[0], steps=steps[1], folder=Path(folder))


def _run(law: Callable[..., None], *, most: int | None = None, **strategies: st.SearchStrategy[Any]) -> None:
    """Run a law under hypothesis, with the current settings; show only the smallest failure, not one for each law."""
    __tracebackhide__ = True
    calm = settings(
        max_examples=min(settings().max_examples, most or settings().max_examples),
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=set(HealthCheck) - {HealthCheck.filter_too_much},
        phases=set(settings().phases) - {Phase.explain},  # it takes longer than all other phases, and the laws explain themselves
    )
    try:
        calm(given(**strategies)(law))()
    except FlakyFailure as flaky:  # what the value remembers of earlier calls cannot be repeated
        first = next((error for error in flaky.exceptions if isinstance(error, AssertionError)), flaky)
        first.add_note("The same case passed when it was run again, so earlier calls matter: something is kept between calls.")
        raise first.with_traceback(_of_the_user(first.__traceback__)) from None
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
