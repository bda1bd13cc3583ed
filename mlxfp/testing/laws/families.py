"""Families of objects with the same laws, such as all stages or all collators.

A family decides whether an object belongs to the family, and provides the laws of the object and the random cases for checking them.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from hypothesis import reject
from hypothesis import strategies as st

from mlxfp.core.arrow.gathering import takeable
from mlxfp.core.arrow.named_arrays import host_array
from mlxfp.core.chunks import Schema, from_rows, number_rows
from mlxfp.core.datasets import Combinator, Dataset
from mlxfp.core.describing import schema as schema_of
from mlxfp.core.examples import Examples
from mlxfp.core.execution import iterate
from mlxfp.core.nodes import Part, brief
from mlxfp.core.pipelines import compose
from mlxfp.core.sources import Source
from mlxfp.core.stages import Stage
from mlxfp.data.lengths.batching import batch
from mlxfp.support.errors import ArgumentError, ArgumentTypeError, SchemaError
from mlxfp.testing.laws import collators, contents, cursors, datasets, losses, numbers, processes, stages, training
from mlxfp.testing.probing import from_chunks
from mlxfp.testing.strategies.tabular import examples as rows_of
from mlxfp.testing.strategies.tabular import for_functions, rechunkings, schemas, tables

if TYPE_CHECKING:
    from mlxfp.training.loop.events import Event
    from mlxfp.training.steps.state import TrainState

__tracebackhide__ = True

Rows = st.SearchStrategy[Sequence[Mapping[str, Any]]]
Inputs = Mapping[str, Any]  # maps the names of a law's arguments to values
_EPOCHS = st.integers(0, 2)
_COPIES = 10  # maximum number of times a collator is copied, because copying a tokenizer takes 0.1 s
_IN_A_PROCESS = 20  # maximum number of datasets that are sent to a new process
_SHORT = 24  # number of items up to which all cursors of a dataset are checked; in longer datasets, hypothesis chooses the cursors
_MOST_INDICES = 50  # maximum number of different indices in a random test of index access
_LOOK_UPS = 25  # maximum number of random tests of index access, because every test reads the whole dataset for comparison
_BETWEEN = 4  # maximum number of checked cursors in a random test of a long dataset, apart from the first and the last cursor
_READINGS = 3  # maximum number of random cases in a check of a dataset, because each case reads the dataset many times
_STEPS = 6  # number of training steps, enough for a start, a middle and an end


@frozen
class Subject:
    """Stage, collator or other part, with the arguments of `check` for this part. Pass a `Subject` to `laws_of` or `parametrize_with_laws`.

    >>> import mlxfp as fp
    >>> Subject(fp.batch(2), ahead=0).family.name
    'stage'
    """

    part: Any
    schema: Schema | None = field(default=None, kw_only=True)
    examples: Rows | None = field(default=None, kw_only=True)
    ahead: int | None = field(default=None, kw_only=True)
    views: bool = field(default=False, kw_only=True)
    masks: Mapping[str, str] | None = field(default=None, kw_only=True)
    padding: Mapping[str, float] | None = field(default=None, kw_only=True)
    labels: Mapping[str, tuple[str, int, int]] | None = field(default=None, kw_only=True)
    carries: Mapping[str, str] | None = field(default=None, kw_only=True)
    dtypes: Mapping[str, str] | None = field(default=None, kw_only=True)
    state: "TrainState | None" = field(default=None, kw_only=True)
    batches: "Dataset[dict[str, Any]] | None" = field(default=None, kw_only=True)
    arrays: "st.SearchStrategy[tuple[Any, ...]] | None" = field(default=None, kw_only=True)
    events: "Sequence[Event] | None" = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        unused = [name for name in _ARGUMENTS if self.gives(name) and name not in self.family.takes]
        if unused:
            raise ArgumentError(
                f"The laws of a {self.family.name} do not use {', '.join(unused)}, got {brief(self.part)}. "
                f"Remove {' and '.join(f'{name}=' for name in unused)}. Arguments in use: {', '.join(self.family.takes) or 'none'}."
            )

    @property
    def family(self) -> "Family":
        """Family of the object in `part`, such as the family of stages. Raises `ArgumentTypeError` if no family accepts the object."""
        match = next((family for family in FAMILIES if family.fits(self)), None)
        if match is None:
            raise ArgumentTypeError(
                f"check takes a dataset, source, stage, collator, metric, observer or train step, got {type(self.part).__name__}: "
                f"{self.part!r:.80}. For other values, call the functions of fp.testing.laws."
            )
        return match

    def gives(self, *names: str) -> bool:
        """Return True if at least one argument in `names` has a value other than None and False."""
        values = (getattr(self, name) for name in names)
        return any(value is not None and value is not False for value in values)


@frozen
class Trial:
    """Several laws that are checked with the same random cases.

    - `inputs`: function that converts the random values of a case to the arguments of the laws.
    - `note`: function that returns an additional line for the error message of a failing case.
    - `unfit`: function that returns the error message if too few random cases are valid inputs for the laws.
    - `columns`: names of the columns in the argument `schema`, or None.
    - `coverage`: function that returns a sentence about the extent of the check, such as the checked cursors of a long dataset.
    - `shrink=False`: hypothesis does not search for a smaller failing case.
    - `pool`: another trial, or None. With a pool, the laws are called once, and `inputs` gets all random cases of the pool as `cases`.
    """

    laws: tuple[Callable[..., None], ...]
    inputs: Callable[..., Iterator[Inputs]]
    cases: Callable[[], Mapping[str, st.SearchStrategy[Any]]] = dict
    most: int | None = None
    note: Callable[..., str] | None = None
    unfit: Callable[[], str] | None = None
    columns: Sequence[str] | None = None
    coverage: Callable[[], str] | None = None
    shrink: bool = True
    pool: "Trial | None" = None
    drawn: list[Inputs] = field(factory=list, init=False, repr=False)


@frozen
class Family:
    """Kind of object that `check` accepts, such as stages or collators, with the laws of these objects.

    - `fits(subject)`: return True if an object belongs to the family.
    - `takes`: names of the arguments of `check` that apply to these objects.
    - `trials(subject)`: yield each `Trial` of an object: laws, and the random cases for a check of the laws.
    """

    name: str
    fits: Callable[[Subject], bool]
    takes: tuple[str, ...]
    trials: Callable[[Subject], Iterator[Trial]]


def _of_datasets(subject: Subject) -> Iterator[Trial]:
    dataset = Dataset(subject.part) if isinstance(subject.part, Source) else subject.part
    _check_ends(dataset)

    def inputs(**case: Any) -> Iterator[Inputs]:
        yield {"value": dataset, "dataset": dataset, "source": dataset.source, **case}

    @cache
    def count() -> int:
        return sum(1 for _ in iterate(dataset))

    def readings() -> Mapping[str, st.SearchStrategy[Any]]:
        sample = st.lists(st.integers(0, max(0, count() - 1)), max_size=_BETWEEN)
        return {"epoch": _EPOCHS, "after": st.none() if count() <= _SHORT else sample}

    def coverage() -> str:
        if count() <= _SHORT:
            return f"Cursors were checked after each of {count():,} items."
        return (
            f"Of {count():,} items, cursors were checked after the first item, the last item and up to {_READINGS * _BETWEEN} random "
            f"items. To check every cursor, pass at most {_SHORT} items, for example with fp.take({_SHORT})."
        )

    def indices() -> Mapping[str, st.SearchStrategy[Any]]:
        most = min(count(), _MOST_INDICES)
        drawn = st.lists(st.integers(0, count() - 1), min_size=1, max_size=2 * most) if most else st.just([])
        return {"epoch": _EPOCHS, "indices": drawn.map(lambda some: np.array(some, np.int64))}

    yield Trial((datasets.assert_value,), inputs)
    yield Trial((datasets.assert_reads, *_LAWS_OF_DATASETS), inputs, readings, most=_READINGS, coverage=coverage, shrink=False)
    yield Trial((processes.assert_same_in_new_process,), lambda: iter([{"datasets": [dataset], "epoch": 1}]))
    if dataset.level == "examples" and dataset.indexable:
        yield Trial((datasets.assert_random_access,), inputs, indices, most=_LOOK_UPS)


def _check_ends(dataset: Dataset[Any]) -> None:
    """Raise `ArgumentError` for an endless dataset, because the laws read every item."""
    if dataset.endless:
        raise ArgumentError(f"The laws read every item, but this dataset is endless: {dataset!r}. Put fp.take(count) after it.")


_LAWS_OF_DATASETS = (
    datasets.assert_repeatable,
    datasets.assert_described,
    stages.assert_pure_stages,
    cursors.assert_resumable,
    cursors.assert_plans_agree,
    cursors.assert_selects_columns,
)


def _of_stages(subject: Subject) -> Iterator[Trial]:
    stage, ahead = subject.part, subject.ahead
    transform = stage if "examples" in getattr(stage, "accepts", ("examples",)) else compose(batch(2), stage)
    refusals = deque[SchemaError](maxlen=1)

    def inputs(chunkings: tuple[Any, Any], epoch: int) -> Iterator[Inputs]:
        chunks, others = chunkings
        dataset = transform(from_chunks(chunks))
        _check_ends(dataset)
        try:
            schema_of(dataset)
        except SchemaError as error:
            refusals.append(error)
            reject()
        yield {"dataset": dataset, "transform": transform, "chunks": chunks, "others": others, "epoch": epoch, "ahead": ahead}

    def note(chunkings: tuple[Any, Any], epoch: int) -> str:
        rows, (sizes, others) = pa.Table.from_batches(chunkings[0]).to_pylist(), ([len(chunk) for chunk in cut] for cut in chunkings)
        return f"The rows: {rows}, in chunks of {sizes}, or of {others}, in epoch {epoch}."

    def cases() -> Mapping[str, st.SearchStrategy[Any]]:
        if subject.examples is None:
            kinds = schemas().map(for_functions) if subject.schema is None else st.just(_takeable(subject.schema))
            drawn = kinds.flatmap(tables)
        else:
            schema = subject.schema
            # skip empty lists, because an empty list of rows has no columns
            rows = subject.examples if schema is not None else subject.examples.filter(len)
            drawn = rows.map(lambda some: pa.Table.from_batches([from_rows(some, schema, range(len(some)))]))
        return {"chunkings": drawn.flatmap(lambda table: st.tuples(rechunkings(table), rechunkings(table))), "epoch": _EPOCHS}

    def pooled(cases: Sequence[Inputs]) -> Iterator[Inputs]:
        datasets = [transform(from_chunks(case["chunkings"][0])) for case in cases]
        yield {"datasets": datasets[-_IN_A_PROCESS:]}

    stage_laws = (
        *((cursors.assert_replay_is_bounded,) if isinstance(stage, Stage) else ()),
        *((stages.assert_lazy,) if ahead is not None else ()),
    )

    def unfit() -> str:
        return (
            f"{brief(stage)} can process too few of the random tables to check its laws. Describe the accepted tables: "
            f"check(stage, schema=...) or check(stage, examples=...).{''.join(f' The last error: {error}' for error in refusals)}"
        )

    yield Trial((datasets.assert_value,), lambda: iter([{"value": stage}]))
    laws = (datasets.assert_built_lazily, *_LAWS_OF_DATASETS, stages.assert_chunks_do_not_matter, stages.assert_fits_itself, *stage_laws)
    trial = Trial(laws, inputs, cases, note=note, unfit=unfit, columns=None if subject.schema is None else subject.schema.names)
    yield trial
    yield Trial((processes.assert_same_in_new_process,), pooled, pool=trial)


def _takeable(schema: Schema) -> Schema:
    """Replace the view types of text and bytes in a schema by `large_string` and `large_binary`, as sources do."""
    return pa.schema([field.with_type(takeable(field.type)) for field in schema], schema.metadata)


def _of_collators(subject: Subject) -> Iterator[Trial]:
    collator, kinds, drawn_examples = subject.part, subject.schema, subject.examples
    if kinds is None and drawn_examples is None:
        raise ArgumentError(
            f"check needs inputs for the collator {brief(collator)}. Pass schema= or examples=, for example "
            "check(collator, examples=strategies.examples(schema)). A train step needs state= and batches=, a metric needs arrays=, and an "
            "observer needs events=. For a function of datasets, pass compose(function)."
        )
    views, columns = subject.views or isinstance(collator, Part), None if kinds is None else kinds.names
    unused = collators.copied(collator)

    def of_lists(examples: Sequence[Mapping[str, Any]], seed_of_the_order: int) -> Iterator[Inputs]:
        order = np.random.default_rng(seed_of_the_order).permutation(len(examples)).tolist()
        yield {"collator": collator, "examples": [dict(example) for example in examples], "order": order}

    def of_views(examples: Sequence[Mapping[str, Any]], seed_of_the_order: int) -> Iterator[Inputs]:
        for list_inputs in of_lists(examples, seed_of_the_order):
            yield {**list_inputs, "examples": Examples(number_rows(from_rows(examples, kinds, range(len(examples))), 0, 0))}

    def of_copies(examples: Sequence[Mapping[str, Any]]) -> Iterator[Inputs]:
        yield {"collator": unused, "examples": [dict(example) for example in examples]}

    def groups() -> Mapping[str, st.SearchStrategy[Any]]:
        # skip empty lists, because a collator needs at least one example
        return {"examples": rows_of(kinds, min_rows=1) if drawn_examples is None else drawn_examples.filter(len)}

    def ordered() -> Mapping[str, st.SearchStrategy[Any]]:
        return {**groups(), "seed_of_the_order": st.integers(0, 99)}

    def coverage() -> str:
        remedy = 'To check a mask, give the names of the mask and of the marked column: masks={"attention_mask": "input_ids"}.'
        return "" if subject.masks else f"Masks were not checked. {remedy}"

    stated = contents.stated_laws(subject.masks, subject.padding, subject.labels, subject.carries, subject.dtypes)
    first = (collators.assert_pure_collator, collators.assert_permutes)
    more = (collators.assert_an_example_stands_alone, numbers.assert_keeps_integers, numbers.assert_shapes_ignore_numbers, *stated)
    if views:
        yield Trial(first, of_lists, ordered, columns=columns)
        yield Trial((*first, collators.assert_list_and_view_agree, *more), of_views, ordered, columns=columns)
    else:
        yield Trial((*first, *more), of_lists, ordered, columns=columns)
    yield Trial((collators.assert_keeps_no_state,), of_copies, groups, most=_COPIES, coverage=coverage)


def _of_metrics(subject: Subject) -> Iterator[Trial]:
    def inputs(arrays: tuple[Any, ...], cuts: list[int]) -> Iterator[Inputs]:
        count = len(arrays[0])
        edges = sorted({0, count, *(cut % count for cut in cuts if count)})
        yield {"metric": subject.part, "arrays": arrays, "sizes": [after - before for before, after in pairwise(edges)]}

    def ignored(arrays: tuple[Any, ...]) -> Iterator[Inputs]:
        values = {int(name): value for name, value in (subject.padding or {}).items()}
        for index, value in ({**dict.fromkeys(_ignored_labels(arrays), _IGNORED), **values}).items():
            yield {"metric": subject.part, "arrays": arrays, "index": index, "value": value}

    drawn = subject.arrays.filter(lambda arrays: len(arrays[0]) > 0) if subject.arrays is not None else st.nothing()
    yield Trial((losses.assert_merges,), inputs, lambda: {"arrays": drawn, "cuts": st.lists(st.integers(0, 99), max_size=3)})
    yield Trial((losses.assert_ignores,), ignored, lambda: {"arrays": drawn})


_IGNORED = -100  # torch, transformers and `fp.losses` ignore tokens with this label


def _ignored_labels(arrays: tuple[Any, ...]) -> list[int]:
    """Return the indices of the label arrays: integer arrays whose only negative value is -100."""
    numbers = [host_array(array) for array in arrays]
    return [index for index, array in enumerate(numbers) if array.dtype.kind == "i" and set(array[array < 0].tolist()) == {_IGNORED}]


def _of_observers(subject: Subject) -> Iterator[Trial]:
    def inputs() -> Iterator[Inputs]:
        yield {"observer": subject.part, "events": subject.events}

    yield Trial((training.assert_keeps_events, training.assert_observes_lazily), inputs)


def _of_steps(subject: Subject) -> Iterator[Trial]:
    step, state, batches = subject.part, subject.state, subject.batches
    if state is None or batches is None:
        raise ArgumentError("check needs both state= and batches= for a train step: a state to start from, and a dataset to train on.")
    if hasattr(step, "start") and not state.extra:
        state = step.start(state)  # `step.start` adds extra arrays to the state, such as averaged weights or loss scales

    def first() -> Iterator[Inputs]:
        yield {"step": step, "state": state, "batch": next(iter(batches))}

    def saved() -> Iterator[Inputs]:
        with TemporaryDirectory() as folder:
            yield {"state": state, "folder": Path(folder)}

    def stopped() -> Iterator[Inputs]:
        for saved_inputs in saved():
            for stop in range(1, _STEPS):
                yield {**saved_inputs, "step": step, "batches": batches, "stop": state.step + stop, "steps": state.step + _STEPS}

    yield Trial((training.assert_uses_parameters, training.assert_pure_step, training.assert_compiled_equals_eager), first)
    yield Trial((training.assert_saves,), saved)
    yield Trial((training.assert_continues,), stopped)


def _is(*kinds: type) -> Callable[[Subject], bool]:
    return lambda subject: isinstance(subject.part, kinds)


def _given(*names: str) -> Callable[[Subject], bool]:
    return lambda subject: callable(subject.part) and (not names or subject.gives(*names))


_STATED = ("masks", "padding", "labels", "carries", "dtypes")
# An object belongs to the first family in this list that accepts the object.
# The arguments of `check` decide the family of a function: `arrays` for a metric, `events` for an observer.
FAMILIES = (
    Family("dataset", _is(Dataset, Source), (), _of_datasets),
    Family("stage", _is(Stage, Combinator, type(compose())), ("schema", "examples", "ahead"), _of_stages),
    Family("train step", _given("state", "batches"), ("state", "batches"), _of_steps),
    Family("metric", _given("arrays"), ("arrays", "padding"), _of_metrics),
    Family("observer", _given("events"), ("events",), _of_observers),
    Family("collator", _given(), ("schema", "examples", "views", *_STATED), _of_collators),
)
_ARGUMENTS = tuple(dict.fromkeys(name for family in FAMILIES for name in family.takes))


def law_name(law: Callable[..., None]) -> str:
    """Return the name of a law. A `partial` has the name of its law."""
    named: Any = law.func if isinstance(law, partial) else law
    return str(named.__name__)
