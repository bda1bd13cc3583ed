"""Stages over examples: map, filter, flatten, choose ranges."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import repeat
from typing import Any, TypeVar, overload

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen
from toolz import identity

from mlxfp.core.chunks import (
    KEY,
    ROW,
    Example,
    Indices,
    RecordBatch,
    Schema,
    check_schema,
    equal_chunks,
    from_rows,
    no_rows,
    row_keys,
    source_rows,
    to_rows,
    visible,
    with_hidden_of,
)
from mlxfp.core.datasets import Combinator, Dataset
from mlxfp.core.execution import run, start
from mlxfp.core.identity import comparable
from mlxfp.core.nodes import brief
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.sources import Position, SourceTraits
from mlxfp.core.stages import RowWise, Stage, State, Traits, seeded
from mlxfp.data.rows.calling import call, generators
from mlxfp.data.rows.row_views import ByPlace
from mlxfp.support.checks import check_callable, check_integer, check_not_negative, check_positive, explain_call
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
    """Turn every example into another one: what `function` returns replaces it.

    `function` must be pure: it may run again after a resume. Without `schema`, the types are those of what it returns for the first 128
    rows; a later value of another type raises `SchemaError` naming the row. An exception in `function` keeps its traceback and gains the
    row. Per-row Python: for speed over whole columns, use `map_chunks`; several workers share it under `prefetch(2, workers=4)`.

    With `seed`, for augmentation, `function` also gets a numpy generator for this row, valid during this call: what it draws depends on
    the seed, the epoch and the row only. Two stages with one seed draw the same numbers.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": 1}, {"x": 2}])
    >>> list(fp.pipe(rows, fp.map(lambda row: {"y": row["x"] * 10})))
    [{'y': 10}, {'y': 20}]
    >>> list(fp.pipe(rows, fp.map(lambda row, random: {"y": row["x"] + random.integers(100)}, seed=0)))
    [{'y': 32}, {'y': 55}]
    """
    check_callable(function=function)
    check_schema(schema)
    if seed is not None:
        check_integer(seed=seed)
    return _Map(function, schema, seed)


@explain_call
def map_chunks(function: Callable[[RecordBatch], RecordBatch], *, schema: Schema | None = None) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Turn every chunk into another one with the same number of rows, a `pyarrow.RecordBatch` each.

    Each row must depend on the row in its place alone: where a chunk starts and ends means nothing. `function` gets the visible columns
    only. Without `schema`, it is the one of the result for the first rows; a chunk that differs raises `SchemaError`.

    >>> import mlxfp as fp
    >>> import pyarrow as pa, pyarrow.compute as pc
    >>> double = fp.map_chunks(lambda chunk: pa.record_batch({"x": pc.multiply(chunk["x"], 2)}))
    >>> list(fp.pipe(fp.from_examples([{"x": 1}, {"x": 2}]), double))
    [{'x': 2}, {'x': 4}]
    """
    check_callable(function=function)
    check_schema(schema)
    return _MapChunks(function, schema)


@explain_call
def filter(predicate: Callable[[dict[str, Any]], bool]) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Keep the examples for which `predicate` is true.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.filter(lambda row: row["x"] % 2 == 0)))
    [{'x': 0}, {'x': 2}, {'x': 4}]

    See also: `filter_by` for conditions on columns, which are met by whole columns at once.
    """
    check_callable(predicate=predicate)
    return _Filter(predicate)


@explain_call
def flat_map(
    function: Callable[[dict[str, Any]], Iterable[Example]], *, schema: Schema | None = None
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Turn every example into any number of examples, in order; an empty tuple drops it.

    Schemas and errors are as for `map`. Each of the new examples has its own key, so augmentation treats them apart.

    >>> import mlxfp as fp
    >>> words = fp.flat_map(lambda row: ({"word": word} for word in row["text"].split()))
    >>> list(fp.pipe(fp.from_examples([{"text": "to be"}, {"text": ""}]), words))
    [{'word': 'to'}, {'word': 'be'}]
    """
    check_callable(function=function)
    check_schema(schema)
    return _FlatMap(function, schema)


@explain_call
def take(count: int, *, redraw: bool = False) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Keep the first `count` items: examples, groups or batches. Reading stops there.

    Behind a `shuffle`, the first items are others in each epoch, so `take` and `skip` do not make parts that stay apart: `split` and
    `train_valid_test` do. Reading more than one epoch then warns, unless `redraw=True` says that this is meant.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.take(2)))
    [{'x': 0}, {'x': 1}]
    """
    check_positive(count=count)
    return Combinator(_Take, {"count": count} | ({"redraw": True} if redraw else {}))


@explain_call
def skip(count: int, *, redraw: bool = False) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Leave out the first `count` items; without reading them where rows can be taken by number. For `redraw` see `take`.

    >>> import mlxfp as fp
    >>> list(fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.skip(3)))
    [{'x': 3}, {'x': 4}]
    """
    check_not_negative(count=count)
    return Combinator(_Skip, {"count": count} | ({"redraw": True} if redraw else {}))


_MAP_ADVICE = 'map_chunks works on whole columns; or let several workers do it, with prefetch(2, workers=4, kind="processes") at the end.'


@frozen(repr=False)
class _UserFunction(Stage):
    """A function of the user's whose schema is declared, or that of what it returns for the first rows."""

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
        __tracebackhide__ = True  # pytest and IPython leave this frame out: the user's function comes after it
        numbers, rows = source_rows(chunk), to_rows(chunk)
        drawn: Iterable[tuple[Any, ...]] = repeat(())
        if self.seed is not None:
            drawn = ((random,) for random in generators(fold_into_rows(row_keys(chunk), "map", self.seed)))
        cases = zip(rows, numbers, drawn)  # noqa: B905  # there may be no end to what is drawn
        made = [
            _mapping(call(self.function, row, number, *extra), number, self)
            for __tracebackhide__ in (True,)  # of the frame that a comprehension has in Python 3.11
            for row, number, extra in cases
        ]
        return with_hidden_of(from_rows(made, self._schema, numbers), chunk)


@frozen(repr=False)
class _MapChunks(_UserFunction, RowWise):
    traits = Traits(row_wise=True, advice="Look for loops over rows in it: pyarrow.compute and numpy work on whole columns.")

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        __tracebackhide__ = True
        if self._schema is not None and not chunk.num_rows:  # a filter may leave nothing, which a user's function need not expect
            return with_hidden_of(no_rows(self._schema), chunk)
        made = self.function(visible(chunk))
        if not isinstance(made, pa.RecordBatch):
            raise ArgumentTypeError(f"{brief(self.function)} must return a pyarrow.RecordBatch, got {type(made).__name__}, in {self!r}.")
        if made.num_rows != chunk.num_rows:
            raise SchemaError(
                f"{brief(self.function)} returned {made.num_rows} rows for {chunk.num_rows}, in {self!r}. "
                "Use filter or flat_map to change the number of rows."
            )
        if self._schema is not None and not made.schema.equals(self._schema):
            raise SchemaError(
                f"{brief(self.function)} returned {columns_text(made.schema)} where {columns_text(self._schema)} was declared or found for "
                f"the first rows, in {self!r} at source row {source_rows(chunk)[:1]}. Cast the columns, or declare them with schema=."
            )
        return with_hidden_of(made, chunk)


@frozen(repr=False)
class _FlatMap(_UserFunction):
    traits = Traits(advice="Where one row gives one row, map_chunks works on whole columns.")

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        __tracebackhide__ = True
        numbers, keys = source_rows(chunk), row_keys(chunk)
        rows_of = _listed(self.function)
        made = [call(rows_of, row, number) for __tracebackhide__ in (True,) for row, number in zip(to_rows(chunk), numbers, strict=True)]
        counts = np.array([len(rows) for rows in made], np.int64)
        rows = [_mapping(row, n, self) for part, n in zip(made, numbers, strict=True) for row in part]
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        origins, new_keys = np.repeat(numbers, counts), fold_in_rows(np.repeat(fold_into_rows(keys, "flat_map"), counts), within)
        out = from_rows(rows, self._schema, origins)
        return state, (out.append_column(ROW, pa.array(origins)).append_column(KEY, pa.array(new_keys)),)


@frozen(repr=False)
class _Filter(Stage):
    predicate: Callable[[dict[str, Any]], bool] = field(eq=comparable)
    traits = Traits(longest_row=identity, advice="Where rows are left out late, filter before the expensive stages.")

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        __tracebackhide__ = True
        rows = zip(to_rows(chunk), source_rows(chunk), strict=True)
        kept = [bool(call(self.predicate, row, number)) for __tracebackhide__ in (True,) for row, number in rows]
        return state, (chunk.filter(pa.array(kept, pa.bool_())),)


@frozen(repr=False)
class _Take(ByPlace):
    count: int

    @property
    def traits(self) -> SourceTraits:
        return attrs.evolve(super().traits, endless=False)

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return indices

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        cursor, left = position or (None, self.count)
        if not left:
            return
        with closing(run(self.dataset, start(epoch, cursor))) as chunks:
            for chunk, cursor in chunks:
                kept = chunk.slice(0, left) if self.dataset.level == "examples" else chunk
                left -= kept.num_rows if self.dataset.level == "examples" else 1
                yield kept, (cursor, left)
                if not left:
                    return

    def size(self, count: int) -> int:
        return min(self.count, count)


@frozen(repr=False)
class _Skip(ByPlace):
    count: int

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return indices + self.count

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        cursor, left = position or (None, self.count)
        with closing(run(self.dataset, start(epoch, cursor))) as chunks:
            for chunk, cursor in chunks:
                size = chunk.num_rows if self.dataset.level == "examples" else 1
                if size > left:
                    yield chunk.slice(left) if left else chunk, (cursor, 0)
                left = max(0, left - size)

    def size(self, count: int) -> int:
        return max(0, count - self.count)


def _listed(function: Callable[[dict[str, Any]], Iterable[Example]]) -> Callable[[dict[str, Any]], list[Example]]:
    def listed(row: dict[str, Any]) -> list[Example]:
        __tracebackhide__ = True
        return list(function(row))

    return listed


def _mapping(row: Any, number: int, stage: Stage) -> Example:
    if not isinstance(row, Mapping):
        raise ArgumentTypeError(f"The function of {stage!r} must return a mapping, got {type(row).__name__} for source row {number}.")
    return row


def _declare(stage: Any, rows: Callable[[], Iterator[RecordBatch]]) -> Stage:
    """Run a stage on the first rows that reach it, 128 at a time until some come out, and declare the schema that they have.

    Where none come out, nothing is known of it: it has no columns.
    """
    __tracebackhide__ = True
    found = pa.schema([])
    for sample in equal_chunks(rows(), SAMPLE_ROWS):
        if made := [out for out in stage.step((), sample)[1] if out.num_rows]:
            found = visible(made[0]).schema
            break
    declared: Stage = attrs.evolve(stage, schema=found)
    return declared
