"""Datasets: a dataset is a frozen value that holds a source and a tuple of stages.

    Source --chunks--> Stage --chunks--> Stage --groups--> collate --batches-->

- A **source** (`sources.py`) yields chunks (`pyarrow.RecordBatch`), each with the position after the chunk.
- A **stage** (`stages.py`) is a pure state machine over chunks: `start` returns a state, `step` maps (state, chunk) to (state, chunks),
  `finish` returns the remaining chunks. States are immutable, so a snapshot of a run is a tuple of references (`cursors.py`).
- A **dataset** is immutable. It can be printed, compared, pickled and fingerprinted. `planning.py` plans a dataset once, and the loop in
  `execution.py` runs the plan.
- A **wrapper** (`Wrapper`) is a source that holds a dataset. Operations across chunks (shuffle, repeat, prefetch) are wrappers.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Never, NoReturn, overload

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core import pipelines
from mlxfp.core.arrow.conditions import Condition
from mlxfp.core.chunks import Example, RecordBatch, Schema, to_rows, visible
from mlxfp.core.cursors import Cursor
from mlxfp.core.describing import length, schema
from mlxfp.core.examples import Examples
from mlxfp.core.execution import in_a_thread, iterate, read_all, row_count, take_rows
from mlxfp.core.identity import Division, Identity, divide, identify
from mlxfp.core.nodes import Item, Part, Pipeline, brief, check_dataset, children, decoders, flat_parts, known_length, label
from mlxfp.core.notebooks.pipelines import dataset_html
from mlxfp.core.planning import Resolved, head, plan, resolve
from mlxfp.core.running.segments import Segment
from mlxfp.core.running.steps import NO_HOOKS, AsWritten, Hooks, Plan, SourceCalls
from mlxfp.core.sources import Position, Source, SourceTraits, check_ends
from mlxfp.core.stages import LEVELS, Level, Stage, check_level
from mlxfp.support.checks import check_types, resolve_index
from mlxfp.support.errors import ArgumentTypeError, MlxfpError, PipelineError, SchemaError
from mlxfp.support.foreign_names import name_hint

_PIPED = "Stages are functions here: fp.pipe(rows, stage, ...), or rows.pipe(stage, ...)."


@frozen(repr=False)
class Dataset(Pipeline[Item], Generic[Item]):
    """A lazy, immutable sequence of examples, groups or batches: a source and the stages after the source.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": 1}, {"x": 2}])
    >>> rows, rows[1], list(rows)
    (pipe(from_examples(2 rows)), {'x': 2}, [{'x': 1}, {'x': 2}])
    """

    source: Source
    stages: tuple[Stage, ...] = ()
    hooks: Hooks = field(default=NO_HOOKS, kw_only=True)  # functions that wrap the methods of the source and stages; see `with_hooks`
    columns: tuple[str, ...] | None = field(default=None, kw_only=True, eq=False)  # names of the columns to read; None: all columns

    @cached_property
    def traits(self) -> SourceTraits:
        """Properties of the source for the planner. Cached, because enclosing sources such as `shuffle` read the properties often."""
        return self.source.traits

    @property
    def level(self) -> Level:
        """What the dataset yields: `examples`, `groups` or `batches`."""
        return next((stage.emits for stage in reversed(self.stages) if stage.emits is not None), self.traits.level)

    @property
    def parts(self) -> tuple[Source | Stage, ...]:
        """The source and the stages, in order."""
        return (self.source, *self.stages)

    @property
    def indexable(self) -> bool:
        """True if the source has random access and every stage maps one row to one row."""
        return self.source.indexable and all(stage.traits.row_wise for stage in self.stages)

    @property
    def endless(self) -> bool:
        """True if an epoch is known to have no end."""
        return self.traits.endless

    @property
    def reorders(self) -> bool:
        """True if the order of the items changes between epochs."""
        return self.traits.reorders or any(stage.traits.reorders for stage in self.stages)

    @property
    def redraws(self) -> bool:
        """True if the set of rows changes between epochs, as for `take` after `shuffle`."""
        return self.traits.redraws

    @cached_property
    def resolved(self) -> Resolved:
        """Stages with known output schemas, and the schema after each stage. Computed once, from the first rows if necessary."""
        __tracebackhide__ = True  # pytest and IPython omit frames with this local variable from tracebacks
        return resolve(self)

    @cached_property
    def plan(self) -> Plan:
        """Optimized plan of the dataset. Cached."""
        __tracebackhide__ = True
        return plan(self, self.columns)

    @cached_property
    def calls(self) -> SourceCalls:
        """Functions that read the source. Cached, because random access calls these functions for single rows."""
        return self.hooks.source(self.source)

    @cached_property
    def planned_calls(self) -> SourceCalls:
        return self.hooks.source(self.plan.source)

    @cached_property
    def row_segment(self) -> Segment:
        """Steps that compute output rows in random access. Only a dataset with random access has these steps."""
        return Segment(self.plan.steps, self.hooks)

    @cached_property
    def identity(self) -> Identity:
        """Text and fingerprint of the source and of each stage. Cached, because a fingerprint can need all rows of a table."""
        return identify(self)

    @cached_property
    def division(self) -> Division:
        """Number of ranks and batch size of the pipeline. Cached."""
        return divide(self)

    def __iter__(self) -> Iterator[Item]:
        """Yield the items of epoch 0: dicts, `Examples`, or batches."""
        return _without_cursors(iterate(self))

    def __aiter__(self) -> AsyncIterator[Item]:
        """Yield the items of epoch 0 for `async for`. A separate thread makes the items."""
        return in_a_thread(iter(self))

    def __await__(self) -> Any:
        """Raise `ArgumentTypeError`: a dataset is not awaitable."""
        raise ArgumentTypeError(f"A dataset cannot be awaited, got await on {self!r}. Iterate: `async for item in dataset`, or aiterate.")

    def __len__(self) -> int:
        """Return the number of items in an epoch, as `length` does. Raises `ArgumentTypeError` if `length` returns None."""
        if self.endless:
            raise ArgumentTypeError(f"An endless dataset has no length: {self!r}. Add take(count) to the pipeline.")
        try:
            count = length(self)
        except (MlxfpError, OSError) as error:  # `list(dataset)` calls `len` first, and ignores only a TypeError.
            raise ArgumentTypeError(f"The length of {self!r} cannot be computed: {error}") from error
        if count is None:
            raise ArgumentTypeError(
                f"The number of items is known only after reading the data, and len() reads no data: {self!r}. Count the items with "
                "sum(1 for _ in dataset), or add load() or cache(path) to the pipeline."
            )
        return count

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the rows of epoch 0 as an Arrow stream, as in `pyarrow.table(dataset)` or `polars.DataFrame(dataset)`.

        Raises `PipelineError` after `batch` and for endless data. Raises `SchemaError` if a column name contains a zero byte, because Arrow
        streams cut off a name at a zero byte. If a stage fails, the reading library raises an error of its own type with the mlxfp message.
        """
        reader = rows_reader(self, "An Arrow stream")
        if "\0" in reader.schema.to_string(show_field_metadata=False, show_schema_metadata=False):
            raise SchemaError(
                f"Arrow streams cut off a column name at a zero byte: got {reader.schema.names} from {self!r}. "
                "Rename the column with rename_columns, or use to_table."
            )
        return reader.__arrow_c_stream__(requested_schema)

    def __bool__(self) -> bool:
        """Return True, even for an empty dataset, because a check for items could read data."""
        return True

    @overload
    def __getitem__(self: "Dataset[Example]", index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Examples: ...
    def __getitem__(self, index: int | slice) -> Any:
        """Return an item of epoch 0; for a slice, `Examples` or a list of groups. Raises `RowIndexError` or `PipelineError`."""
        if isinstance(index, str):
            raise ArgumentTypeError(
                f"A dataset is indexed by row number, got [{index!r}] on {self!r}. For the values of a column, write [row[{index!r}] "
                f"for row in rows]. For a dataset with only this column, write fp.pipe(rows, fp.select_columns([{index!r}]))."
            )
        check_types((int, np.integer, slice), index=index)
        check_indexable(self, f"dataset[{index}]", f"Write next(iter({self.level})), or print(fp.inspect.preview({self.level})).")
        rows_at = resolve_index(index, row_count(self), self.level, self)
        if self.level == "groups":
            groups = [Examples(take_rows(self, 0, np.array([number])), decoders(self)) for number in np.atleast_1d(rows_at)]
            return groups if isinstance(index, slice) else groups[0]
        rows = take_rows(self, 0, np.atleast_1d(np.asarray(rows_at, np.int64)))
        return Examples(rows, decoders(self)) if isinstance(index, slice) else to_rows(rows)[0]

    pipe = pipelines.pipe  # method form: rows.pipe(f, g) is pipe(rows, f, g)

    def __or__(self, stage: Never) -> NoReturn:
        """Raise `ArgumentTypeError`: use `pipe` instead of an operator to add a stage."""
        raise ArgumentTypeError(f"An operator such as | or >> cannot add a stage to a dataset: got {brief(stage)} after {self!r}. {_PIPED}")

    __rshift__ = __or__

    # The condition hides `__getattr__` from type checkers. Otherwise, a type checker would accept any attribute name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            """Raise `AttributeError`. For a method name of another library, the message shows the same operation in mlxfp."""
            ours = name_hint(name) or (f"fp.pipe(rows, fp.{name}(...))" if name in import_module("mlxfp").__all__ else "")
            if not ours:
                object.__getattribute__(self, name)  # raises the standard AttributeError
            raise AttributeError(f"A dataset has no attribute {name!r}. Write {ours}. {_PIPED}")

    def __repr__(self) -> str:
        return f"pipe({', '.join(map(repr, flat_parts(self)))})"

    def _repr_html_(self) -> str:
        """Show the parts and the first rows in a notebook."""
        return dataset_html(self)


@frozen(repr=False)
class Wrapper(Source):
    """Base class of a source that reads one other dataset, `self.dataset`. Positions in the source hold cursors of this dataset.

    >>> import mlxfp as fp
    >>> from mlxfp.core.execution import run, start
    >>> @frozen(repr=False)
    ... class Twice(fp.parts.Wrapper):
    ...     def read(self, epoch, position):
    ...         for chunk, cursor in run(self.dataset, start(epoch, position)):
    ...             yield chunk.take([i // 2 for i in range(2 * chunk.num_rows)]), cursor
    ...     def size(self, count):
    ...         return 2 * count
    >>> list(fp.Dataset(Twice(fp.from_examples([{"x": 1}, {"x": 2}]))))
    [{'x': 1}, {'x': 1}, {'x': 2}, {'x': 2}]
    """

    dataset: Dataset[Any]

    @property
    def traits(self) -> SourceTraits:
        """Properties of this source for the planner, derived from the inner dataset and from the methods of this class."""
        return attrs.evolve(
            super().traits,
            level=self.dataset.level,
            exact_length=self.exact_length,
            head=self.head,
            restricted=self.restricted,
            children_at=self.children_at,
            before=self.before,
            notes=self.notes,
            advice="",
        )

    def schema(self) -> Schema:
        __tracebackhide__ = True
        return self.dataset.plan.schema

    def size(self, count: int) -> int | None:
        """Return the number of items of this source for an inner dataset of `count` items."""
        return count

    def length(self) -> int | None:
        """Return the length if known without reading data, otherwise None."""
        count = known_length(self.dataset)
        return None if count is None else self.size(count)

    def exact_length(self) -> int | None:
        """Return the length, even if cached rows must be read first."""
        count = length(self.dataset)
        return None if count is None else self.size(count)

    def version(self) -> Any:
        return self.dataset.source.version()

    def head(self) -> Iterator[RecordBatch]:
        """Yield the first chunks of `self.dataset` in stored order, for schema inference."""
        return head(self.dataset)

    def notes(self) -> tuple[str, ...]:
        """Return the notes for `explain`."""
        return ()

    def restricted(self, columns: Sequence[str], conditions: tuple[Condition, ...]) -> Source:
        """Return a source that reads only `columns` of the inner dataset. Return `self` if the source itself needs column values."""
        if not self.traits.keeps_rows or self.dataset.hooks.changes.as_written:
            return self
        less: Dataset[Any] = attrs.evolve(self.dataset, columns=tuple(columns))
        object.__setattr__(less, "resolved", self.dataset.resolved)  # inferred schemas stay valid for fewer columns
        return attrs.evolve(self, dataset=less)

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return a pair (inner dataset, cursor of the inner dataset) for each cursor in a position of this source."""
        positions = position if isinstance(position, tuple) else (position,)
        return tuple((self.dataset, cursor) for cursor in positions if isinstance(cursor, Cursor))

    def before(self, chunk: RecordBatch, after: Position) -> Position | None:
        """Return the position before a chunk of examples, or None if unknown. See `SourceTraits.before`."""
        return None


def _items(options: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(options.items())


@frozen(repr=False)
class Combinator:
    """Function from a dataset to a dataset, such as the result of `take(3)`. The new dataset reads its rows from the given dataset.

    >>> import mlxfp as fp
    >>> fp.take(3), type(fp.take(3)) is fp.parts.Combinator
    (take(count=3), True)
    """

    source: Callable[..., Source]
    options: tuple[tuple[str, Any], ...] = field(converter=_items)
    accepts: frozenset[Level] = frozenset(LEVELS)

    def __call__(self, dataset: Dataset[Any]) -> Dataset[Any]:
        """Wrap the dataset."""
        check_level(dataset, self, self.accepts)
        source = self.source(dataset, **dict(self.options))
        if source.traits.gathers:
            check_ends(dataset, self)
        return Dataset(source)

    def __repr__(self) -> str:
        return f"{label(self.source)}({', '.join(f'{name}={brief(value)}' for name, value in self.options)})"


def _without_cursors(items: Iterator[tuple[Item, Any]]) -> Iterator[Item]:
    __tracebackhide__ = True  # pytest and IPython omit frames with this local variable from tracebacks
    for item, _ in items:
        yield item


def with_hooks(dataset: Dataset[Any], hooks: Callable[[Dataset[Any]], Hooks]) -> Dataset[Any]:
    """Return a copy of a dataset with the hooks that the function `hooks` returns for the dataset. Inner datasets also get new hooks."""

    def renewed(value: Any) -> Any:
        if isinstance(value, Dataset):
            return with_hooks(value, hooks)
        if isinstance(value, tuple) and any(isinstance(item, Dataset) for item in value):
            return tuple(map(renewed, value))
        return value

    source: Any = dataset.source
    if children(source):
        fields = {attribute.name: getattr(source, attribute.name) for attribute in attrs.fields(type(source)) if attribute.init}
        source = attrs.evolve(source, **{name: new for name, old in fields.items() if (new := renewed(old)) is not old})
    return attrs.evolve(dataset, source=source, hooks=hooks(dataset))


def unoptimized(dataset: Dataset[Any]) -> Dataset[Any]:
    """Return a copy of a dataset without optimizations, also in inner datasets. Tests compare optimized runs with the copy."""
    return with_hooks(dataset, lambda inner: AsWritten(inner.hooks))


def to_table(dataset: Dataset[Any]) -> pa.Table:
    """Read all rows of epoch 0 into an Arrow table.

    Raises `PipelineError` after `batch` and for endless data. To process rows chunk by chunk without a table in memory, pass the
    dataset to `pyarrow.RecordBatchReader.from_stream(dataset)`, DuckDB, or any other reader of Arrow streams.

    >>> import mlxfp as fp
    >>> fp.to_table(fp.from_examples([{"x": 1}, {"x": 2}])).to_pydict()
    {'x': [1, 2]}

    See also: `from_table` for the other direction.
    """
    check_dataset(dataset, to_table)
    return rows_reader(dataset, "to_table").read_all()


def rows_reader(dataset: Dataset[Any], reader: str) -> pa.RecordBatchReader:
    """Return a reader that yields the rows of epoch 0 without the columns `__row__` and `__key__`. Closing the reader ends its threads.

    The argument `reader` is the name of the calling function, for errors. Raises `PipelineError` for groups, batches and endless datasets.
    """
    if dataset.level != "examples":
        raise PipelineError(f"{reader} takes examples, got {dataset.level} from {dataset.parts[-1]!r}. Put this step before batch.")
    check_ends(dataset, reader)
    return pa.RecordBatchReader.from_batches(schema(dataset), (visible(chunk) for chunk in read_all(dataset, reader=reader)))


def check_indexable(dataset: Dataset[Any], stage: object, remedy: str = "Put this step before batch.") -> None:
    """Raise `PipelineError` unless the dataset has random access and yields examples or groups. The error message ends with `remedy`."""
    if not dataset.indexable:
        _ = dataset.resolved  # This line raises `SchemaError` for an unknown column.
    if dataset.level != "examples" and not (dataset.level == "groups" and dataset.indexable):
        raise PipelineError(f"{stage} needs single examples, got {dataset.level} from {dataset.parts[-1]!r}. {remedy}")
    check_ends(dataset, stage)
    if not dataset.indexable:
        part: Part = next((part for part in dataset.stages if not part.traits.row_wise), dataset.source)
        raise PipelineError(f"{stage} needs random access, but {part!r} has no random access. Put load() or cache(path) after this part.")
