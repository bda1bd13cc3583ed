"""Stages that map, filter, flatten and truncate examples."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import repeat
from typing import Any, TypeVar, overload

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from toolz import identity

from mlxfp.core.arrow.gathering import equal_chunks
from mlxfp.core.chunks import (
    KEY,
    ROW,
    Example,
    Indices,
    RecordBatch,
    Schema,
    check_fields,
    check_schema,
    from_rows,
    no_rows,
    row_keys,
    source_rows,
    to_rows,
    visible,
    with_hidden_of,
)
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Combinator, Dataset
from mlxfp.core.execution import run, start
from mlxfp.core.identity import comparable
from mlxfp.core.nodes import brief
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.sources import Position, SourceTraits
from mlxfp.core.stages import RowWise, Stage, State, Traits, seeded
from mlxfp.data.row_views import ByPosition
from mlxfp.data.rows.calling import call, generators
from mlxfp.support.checks import check_callable, check_integer, check_not_negative, check_positive, check_returns, explain_call, not_none
from mlxfp.support.errors import ArgumentTypeError, SchemaError
from mlxfp.support.randomness import fold_in_rows, fold_into_rows
from mlxfp.support.terminal import columns_text

Item = TypeVar("Item")
Row = TypeVar("Row", bound="Example | Sequence[Example]")


@overload
def map(function: Callable[[dict[str, Any]], Example], *, schema: Schema | None = None) -> Callable[[Dataset[Row]], Dataset[Row]]: ...
@overload
def map(
    function: Callable[[dict[str, Any], np.random.Generator], Example], *, seed: int, schema: Schema | None = None
) -> Callable[[Dataset[Row]], Dataset[Row]]: ...
@explain_call
def map(
    function: Callable[..., Example], *, schema: Schema | None = None, seed: int | None = None
) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Replace every example by the result of `function`.

    `function` must be pure, because a resume may call it again for the same row. Without `schema`, types are inferred from the results for
    the first 128 rows. A later value of another type raises `SchemaError` with the row. An exception in `function` keeps its traceback and
    gets a note with the row.

    `function` is called once per row. Two faster ways are `map_chunks`, which works on whole columns, and `prefetch(2, workers=4)`, which
    runs `function` in worker processes.

    With `seed`, `function` also gets a NumPy generator for the row, for example for augmentation. The generator is valid during the call.
    Its numbers depend only on the seed, the epoch and the row. Two stages with the same seed draw the same numbers.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": 1}, {"x": 2}])
    >>> list(fp.pipe(rows, fp.map(lambda row: {"y": row["x"] * 10})))
    [{'y': 10}, {'y': 20}]
    >>> list(fp.pipe(rows, fp.map(lambda row, random: {"y": row["x"] + random.integers(100)}, seed=0)))
    [{'y': 32}, {'y': 55}]
    """
    check_callable(function=function)
    check_returns(function=function)
    check_schema(schema)
    check_integer(**not_none(seed=seed))
    return _Map(function, schema, seed)


@explain_call
def map_chunks(function: Callable[[RecordBatch], RecordBatch], *, schema: Schema | None = None) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Replace every chunk (`pyarrow.RecordBatch`) by the result of `function`, which must have the same number of rows.

    Row i of the result must depend only on row i of the chunk, because chunk boundaries are arbitrary. `function` gets the chunk without
    hidden columns. Without `schema`, the stage takes the schema of the first result. A later result with another schema raises
    `SchemaError`.

    >>> import mlxfp as fp
    >>> import pyarrow as pa, pyarrow.compute as pc
    >>> double = fp.map_chunks(lambda chunk: pa.record_batch({"x": pc.multiply(chunk["x"], 2)}))
    >>> list(fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), double))
    [{'x': 2}, {'x': 4}]
    """
    check_callable(function=function)
    check_returns(function=function)
    check_schema(schema)
    return _MapChunks(function, schema)


@explain_call
def filter(predicate: Callable[[dict[str, Any]], bool]) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Keep the examples for which `predicate` returns True.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.filter(lambda row: row["x"] % 2 == 0)))
    [{'x': 0}, {'x': 2}, {'x': 4}]

    See also: `filter_by` for conditions on columns, which are met by whole columns at once.
    """
    check_callable(predicate=predicate)
    check_returns(predicate=predicate)
    return _Filter(predicate)


@explain_call
def flat_map(
    function: Callable[[dict[str, Any]], Iterable[Example]], *, schema: Schema | None = None
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Replace every example by the examples that `function` returns, in order. An empty tuple drops the example.

    The examples of one row must fit in memory, so `function` must not return an endless generator. Schemas and errors work as in `map`. In
    later stages, augmentation draws different random numbers for each new example.

    >>> import mlxfp as fp
    >>> words = fp.flat_map(lambda row: ({"word": word} for word in row["text"].split()))
    >>> list(fp.pipe(fp.from_examples([{"text": "to be"}, {"text": ""}]), words))
    [{'word': 'to'}, {'word': 'be'}]
    """
    check_callable(function=function)
    check_returns(function=function)
    check_schema(schema)
    return _FlatMap(function, schema)


@explain_call
def take(count: int, *, redraw: bool = False) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Keep the first `count` items: examples, groups or batches. Reading stops after these items.

    After `shuffle`, the first items differ in each epoch. Reading a second epoch then gives a warning. `redraw=True` turns the warning
    off.

    Do not use `take` and `skip` after `shuffle` to create disjoint data, such as training and validation data: an item that `take` keeps in
    one epoch may be an item that `skip` keeps in another epoch. Use `split` or `train_valid_test` instead.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.take(2)))
    [{'x': 0}, {'x': 1}]
    """
    check_positive(count=count)
    return Combinator(_Take, {"count": count} | ({"redraw": True} if redraw else {}))


@explain_call
def skip(count: int, *, redraw: bool = False) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Skip the first `count` items: examples, groups or batches. With random access, skipped rows are not read.

    After `shuffle`, each epoch skips different items. Reading a second epoch then gives a warning. `redraw=True` turns the warning off.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.skip(3)))
    [{'x': 3}, {'x': 4}]
    """
    check_not_negative(count=count)
    return Combinator(_Skip, {"count": count} | ({"redraw": True} if redraw else {}))


_MAP_ADVICE = 'map_chunks works on whole columns. Or use several workers: prefetch(2, workers=4, kind="processes") at the end.'


@frozen(repr=False)
class _UserFunction(Stage):
    """Stage with a user function. The schema is declared by the user, or inferred from the results for the first rows."""

    function: Callable[..., Any] = field(eq=comparable)
    _schema: Schema | None = None

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> "Stage":
        __tracebackhide__ = True
        return self if self._schema is not None else _declare(self, rows)

    def schema(self, schema: Schema) -> Schema:
        return self._schema


@frozen(repr=False)
class _Map(_UserFunction, RowWise):
    seed: int | None = None

    @property
    def traits(self) -> Traits:
        return Traits(row_wise=True, draws=seeded(self), advice=_MAP_ADVICE)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        __tracebackhide__ = True  # Hide this frame in pytest and IPython, so that a traceback ends in the user's function.
        numbers, rows = source_rows(chunk), to_rows(chunk)
        drawn: Iterable[tuple[Any, ...]] = repeat(())
        if self.seed is not None:
            drawn = ((random,) for random in generators(fold_into_rows(row_keys(chunk), "map", self.seed)))
        cases = zip(rows, numbers, drawn)  # noqa: B905  # repeat(()) is endless
        results = [
            _mapping(call(self.function, row, number, *extra), number, self)
            for __tracebackhide__ in (True,)  # In Python 3.11, the separate frame of a comprehension must be hidden as well.
            for row, number, extra in cases
        ]
        return with_hidden_of(from_rows(results, self._schema, numbers), chunk)


@frozen(repr=False)
class _MapChunks(_UserFunction, RowWise):
    traits = Traits(row_wise=True, advice="Replace loops over rows in the function by pyarrow.compute or numpy on whole columns.")

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        __tracebackhide__ = True
        # Skip a chunk without rows, for example after a filter. A user function need not handle such a chunk.
        if self._schema is not None and not chunk.num_rows:
            return with_hidden_of(no_rows(self._schema), chunk)
        result = self.function(visible(chunk))
        if not isinstance(result, pa.RecordBatch):
            raise ArgumentTypeError(
                f"{brief(self.function)} must return a pyarrow.RecordBatch, got {type(result).__name__}, in {self!r}. "
                "For a data frame write pa.record_batch(frame)."
            )
        if result.num_rows != chunk.num_rows:
            raise SchemaError(
                f"{brief(self.function)} returned {result.num_rows} rows for a chunk of {chunk.num_rows} rows, in {self!r}. "
                "Use filter or flat_map to change the number of rows."
            )
        if self._schema is None:
            check_fields(result.schema, f"the result of {brief(self.function)} in {self!r}")
        elif not result.schema.equals(self._schema):
            raise SchemaError(
                f"{brief(self.function)} returned {columns_text(result.schema)} instead of {columns_text(self._schema)} (declared or "
                f"inferred from the first rows), in {self!r} at source row {source_rows(chunk)[:1]}. Cast the columns, or declare them "
                "with schema=."
            )
        return with_hidden_of(result, chunk)


@frozen(repr=False)
class _FlatMap(_UserFunction):
    traits = Traits(advice="If each row gives exactly one row, map_chunks is faster: it works on whole columns.")

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        __tracebackhide__ = True
        numbers, keys = source_rows(chunk), row_keys(chunk)
        rows_of = _listed(self)
        results = [call(rows_of, row, number) for __tracebackhide__ in (True,) for row, number in zip(to_rows(chunk), numbers, strict=True)]
        counts = np.array([len(rows) for rows in results], np.int64)
        rows = [_mapping(row, n, self) for part, n in zip(results, numbers, strict=True) for row in part]
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        origins, new_keys = np.repeat(numbers, counts), fold_in_rows(np.repeat(fold_into_rows(keys, "flat_map"), counts), within)
        out = from_rows(rows, self._schema, origins)
        return state, (out.append_column(ROW, pa.array(origins)).append_column(KEY, pa.array(new_keys)),)


@frozen(repr=False)
class _Filter(Stage):
    predicate: Callable[[dict[str, Any]], bool] = field(eq=comparable)
    traits = Traits(longest_row=identity, advice="Filter before expensive stages if possible.")

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        __tracebackhide__ = True
        rows = zip(to_rows(chunk), source_rows(chunk), strict=True)
        kept = [bool(call(self.predicate, row, number)) for __tracebackhide__ in (True,) for row, number in rows]
        return state, (chunk.filter(pa.array(kept, pa.bool_())),)


@frozen(repr=False)
class _Take(ByPosition):
    count: int

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(super().traits, endless=False)

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return indices

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        cursor, remaining = position or (None, self.count)
        if not remaining:
            return
        with closing(run(self.dataset, start(epoch, cursor))) as chunks:
            for chunk, cursor in chunks:
                if self.dataset.level == "examples":
                    size = min(remaining, chunk.num_rows)
                    chunk, cursor = chunk.slice(0, size), cursor.back(chunk.num_rows - size)  # noqa: PLW2901
                remaining -= chunk.num_rows if self.dataset.level == "examples" else 1
                yield chunk, (cursor, remaining)
                if not remaining:
                    return

    def before(self, chunk: RecordBatch, after: Position) -> Position | None:
        cursor, remaining = after
        return (cursor.back(chunk.num_rows), remaining + chunk.num_rows) if isinstance(cursor, Cursor) else None

    def size(self, count: int) -> int:
        return min(self.count, count)


@frozen(repr=False)
class _Skip(ByPosition):
    count: int

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return indices + self.count

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        cursor, remaining = position or (None, self.count)
        with closing(run(self.dataset, start(epoch, cursor))) as chunks:
            for chunk, cursor in chunks:
                size = chunk.num_rows if self.dataset.level == "examples" else 1
                if size > remaining:
                    yield chunk.slice(remaining) if remaining else chunk, (cursor, 0)
                remaining = max(0, remaining - size)

    def before(self, chunk: RecordBatch, after: Position) -> Position | None:
        cursor, _ = after
        return (cursor.back(chunk.num_rows), 0) if isinstance(cursor, Cursor) else None

    def size(self, count: int) -> int:
        return max(0, count - self.count)


def _listed(stage: _FlatMap) -> Callable[[dict[str, Any]], list[Example]]:
    def listed(row: dict[str, Any]) -> list[Example]:
        __tracebackhide__ = True
        rows = stage.function(row)
        if not isinstance(rows, Iterable):
            raise ArgumentTypeError(
                f"The function of {stage!r} must return a list of mappings, got {type(rows).__name__}. Return [row], or [] to drop the row."
            )
        return list(rows)

    return listed


def _mapping(row: Any, number: int, stage: Stage) -> Example:
    if not isinstance(row, Mapping):
        raise ArgumentTypeError(
            f"The function of {stage!r} must return a mapping, got {type(row).__name__} for source row {number}. Return a dict of columns, "
            'as in {**row, "x": 1}.'
        )
    return row


def _declare(stage: Any, rows: Callable[[], Iterator[RecordBatch]]) -> Stage:
    """Return the stage with the schema of its first results. Chunks of 128 rows are tried until a chunk has results.

    If no chunk has results, the schema has no columns.
    """
    __tracebackhide__ = True
    schema = pa.schema([])
    for sample in equal_chunks(rows(), SAMPLE_ROWS):
        if chunks := [out for out in stage.step((), sample)[1] if out.num_rows]:
            schema = visible(chunks[0]).schema
            break
    declared: Stage = attrs.evolve(stage, schema=schema)
    return declared
