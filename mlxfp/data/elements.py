"""Stages over examples: map, filter, flatten, choose columns and ranges."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, repeat
from typing import Any, TypeVar, overload

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.checks import check_callable, check_columns, check_integer, check_not_negative, check_positive, check_unique
from mlxfp.core.chunks import (
    HIDDEN,
    KEY,
    ROW,
    Example,
    RecordBatch,
    Schema,
    from_rows,
    hide_beside,
    no_rows,
    row_keys,
    source_rows,
    to_rows,
    visible,
)
from mlxfp.core.cursors import run, start
from mlxfp.core.datasets import Combinator, Dataset, Position, RowWise, Stage, State
from mlxfp.core.errors import ArgumentError, ArgumentTypeError, SchemaError
from mlxfp.core.inference import SAMPLE_ROWS
from mlxfp.core.parts import brief
from mlxfp.core.randomness import fold_in_rows, fold_into_rows
from mlxfp.core.stepping import flush, push
from mlxfp.data.batching import batch
from mlxfp.data.views import Indices, View
from mlxfp.data.working import call, generators, in_order

Item = TypeVar("Item")
Row = TypeVar("Row", bound="Example | Sequence[Example]")


@overload
def map(
    function: Callable[[Example], Example], *, schema: Schema | None = None, workers: int = 1
) -> Callable[[Dataset[Row]], Dataset[Row]]: ...
@overload
def map(
    function: Callable[[Example, np.random.Generator], Example], *, seed: int, schema: Schema | None = None, workers: int = 1
) -> Callable[[Dataset[Row]], Dataset[Row]]: ...
def map(
    function: Callable[..., Example], *, schema: Schema | None = None, seed: int | None = None, workers: int = 1
) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Turn every example into another one: what `function` returns replaces it.

    `function` must be pure: it may run again after a resume. Without `schema`, the types are those of what it returns for the first 128
    rows; a later value of another type raises `SchemaError` naming the row. An exception in `function` keeps its traceback and gains the
    row. Per-row Python: for speed over whole columns, use `map_chunks`.

    With `seed`, for augmentation, `function` also gets a numpy generator of the row's own, good for this call: what it draws depends on
    the seed, the epoch and the row, and on nothing else. Two stages with one seed draw the same numbers.

    `workers` threads share the rows of a chunk: faster where `function` releases Python's lock, as reading files and decoding images do,
    slower where not. Nothing that can be seen depends on it, so it is no part of the fingerprint: a run may continue with another number.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> rows = from_examples([{"x": 1}, {"x": 2}])
    >>> list(pipe(rows, map(lambda row: {"y": row["x"] * 10})))
    [{'y': 10}, {'y': 20}]
    >>> list(pipe(rows, map(lambda row, random: {"y": row["x"] + random.integers(100)}, seed=0)))
    [{'y': 32}, {'y': 55}]
    """
    check_callable(function=function)
    check_positive(workers=workers)
    if seed is not None:
        check_integer(seed=seed)
    return _Map(function, schema, seed, workers)


def map_chunks(function: Callable[[RecordBatch], RecordBatch], *, schema: Schema | None = None) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Turn every chunk into another one with the same number of rows, a `pyarrow.RecordBatch` each.

    Each row must depend on the row in its place alone: where a chunk starts and ends means nothing. `function` gets the visible columns
    only. Without `schema`, it is the one of the result for the first rows; a chunk that differs raises `SchemaError`.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> import pyarrow as pa, pyarrow.compute as pc
    >>> double = map_chunks(lambda chunk: pa.record_batch({"x": pc.multiply(chunk["x"], 2)}))
    >>> list(pipe(from_examples([{"x": 1}, {"x": 2}]), double))
    [{'x': 2}, {'x': 4}]
    """
    check_callable(function=function)
    return _MapChunks(function, schema)


def filter(predicate: Callable[[Example], bool]) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Keep the examples for which `predicate` is true.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> list(pipe(from_examples([{"x": i} for i in range(5)]), filter(lambda row: row["x"] % 2 == 0)))
    [{'x': 0}, {'x': 2}, {'x': 4}]
    """
    check_callable(predicate=predicate)
    return _Filter(predicate)


def flat_map(
    function: Callable[[Example], Iterable[Example]], *, schema: Schema | None = None
) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Turn every example into any number of examples, in order; an empty tuple drops it.

    Schemas and errors are as for `map`. Each of the new examples has its own key, so augmentation treats them apart.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> words = flat_map(lambda row: ({"word": word} for word in row["text"].split()))
    >>> list(pipe(from_examples([{"text": "to be"}, {"text": ""}]), words))
    [{'word': 'to'}, {'word': 'be'}]
    """
    check_callable(function=function)
    return _FlatMap(function, schema)


def take(count: int) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Keep the first `count` items: examples, groups or batches. Reading stops there.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> list(pipe(from_examples([{"x": i} for i in range(5)]), take(2)))
    [{'x': 0}, {'x': 1}]
    """
    check_positive(count=count)
    return Combinator(_Take, {"count": count})


def skip(count: int) -> Callable[[Dataset[Item]], Dataset[Item]]:
    """Leave out the first `count` items; without reading them where rows can be taken by number.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> list(pipe(from_examples([{"x": i} for i in range(5)]), skip(3)))
    [{'x': 3}, {'x': 4}]
    """
    check_not_negative(count=count)
    return Combinator(_Skip, {"count": count})


def select_columns(columns: Sequence[str]) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Keep these columns, in this order; raises `SchemaError` for one that is not there.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> list(pipe(from_examples([{"x": 1, "y": 2, "z": 3}]), select_columns(["z", "x"])))
    [{'z': 3, 'x': 1}]
    """
    return _SelectColumns(_names(columns))


def drop_columns(columns: Sequence[str]) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Leave these columns out; raises `SchemaError` for one that is not there.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> list(pipe(from_examples([{"x": 1, "y": 2}]), drop_columns(["y"])))
    [{'x': 1}]
    """
    return _DropColumns(_names(columns))


def rename_columns(names: Mapping[str, str]) -> Callable[[Dataset[Row]], Dataset[Row]]:
    """Rename columns from the old names to the new; raises `SchemaError` if an old one is missing or a new one is taken.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.sources import from_examples
    >>> list(pipe(from_examples([{"x": 1, "y": 2}]), rename_columns({"x": "y", "y": "x"})))
    [{'y': 1, 'x': 2}]
    """
    if not names:
        raise ArgumentError("rename_columns needs at least one name, got none.")
    return _RenameColumns(tuple(names.items()))


@frozen(repr=False)
class _Map(RowWise):
    function: Callable[..., Example]
    declared: Schema | None = None
    seed: int | None = None
    workers: int = field(default=1, eq=False)  # how it runs, not what it gives

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        numbers, rows = source_rows(chunk), to_rows(chunk)
        keys = None if self.seed is None else fold_into_rows(row_keys(chunk), "map", self.seed)

        def work(some: slice) -> list[Example]:
            drawn = repeat(()) if keys is None else ((random,) for random in generators(keys[some]))
            cases = zip(rows[some], numbers[some], drawn)  # noqa: B905  # there may be no end to what is drawn
            return [_mapping(call(self.function, row, number, *extra), number, self) for row, number, extra in cases]

        return hide_beside(from_rows(in_order(work, len(rows), workers=self.workers), self.declared, numbers), chunk)

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> "Stage":
        return self if self.declared is not None else _declare(self, schema, rows)

    def schema(self, schema: Schema) -> Schema:
        return self.declared


@frozen(repr=False)
class _MapChunks(RowWise):
    function: Callable[[RecordBatch], RecordBatch]
    declared: Schema | None = None

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        if self.declared is not None and not chunk.num_rows:  # a filter may leave nothing, which a user's function need not expect
            return hide_beside(no_rows(self.declared), chunk)
        made = self.function(visible(chunk))
        if not isinstance(made, pa.RecordBatch):
            raise ArgumentTypeError(f"{brief(self.function)} must return a pyarrow.RecordBatch, got {type(made).__name__}, in {self!r}.")
        if made.num_rows != chunk.num_rows:
            raise SchemaError(
                f"{brief(self.function)} returned {made.num_rows} rows for {chunk.num_rows}, in {self!r}. "
                "Use filter or flat_map to change the number of rows."
            )
        if self.declared is not None and not made.schema.equals(self.declared):
            raise SchemaError(
                f"{brief(self.function)} returned {_fields(made.schema)} where {_fields(self.declared)} was declared or found for the "
                f"first rows, in {self!r} at source row {source_rows(chunk)[:1]}. Cast the columns, or declare them with schema=."
            )
        return hide_beside(made, chunk)

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> "Stage":
        return self if self.declared is not None else _declare(self, schema, rows)

    def schema(self, schema: Schema) -> Schema:
        return self.declared


@frozen(repr=False)
class _FlatMap(Stage):
    function: Callable[[Example], Iterable[Example]]
    declared: Schema | None = None

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        numbers, keys = source_rows(chunk), row_keys(chunk)
        made = [call(_listed(self.function), row, number) for row, number in zip(to_rows(chunk), numbers, strict=True)]
        counts = np.array([len(rows) for rows in made], np.int64)
        rows = [_mapping(row, n, self) for part, n in zip(made, numbers, strict=True) for row in part]
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        origins, new_keys = np.repeat(numbers, counts), fold_in_rows(np.repeat(fold_into_rows(keys, "flat_map"), counts), within)
        out = from_rows(rows, self.declared, origins)
        return state, (out.append_column(ROW, pa.array(origins)).append_column(KEY, pa.array(new_keys)),)

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> "Stage":
        return self if self.declared is not None else _declare(self, schema, rows)

    def schema(self, schema: Schema) -> Schema:
        return self.declared


@frozen(repr=False)
class _Filter(Stage):
    predicate: Callable[[Example], bool]

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        rows = zip(to_rows(chunk), source_rows(chunk), strict=True)
        return state, (chunk.filter(pa.array([bool(call(self.predicate, row, number)) for row, number in rows], pa.bool_())),)

    def longest(self, tokens: int | None) -> int | None:
        return tokens


@frozen(repr=False)
class _Take(View):
    count: int

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return indices

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        cursor, left = position or (None, self.count)
        if not left:
            return
        with closing(run(self.dataset, start(epoch, cursor))) as chunks:
            for chunk, cursor in chunks:
                kept = chunk.slice(0, left) if self.level == "examples" else chunk
                left -= kept.num_rows if self.level == "examples" else 1
                yield kept, (cursor, left)
                if not left:
                    return

    def size(self, count: int) -> int:
        return min(self.count, count)


@frozen(repr=False)
class _Skip(View):
    count: int

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return indices + self.count

    def in_order(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        cursor, left = position or (None, self.count)
        with closing(run(self.dataset, start(epoch, cursor))) as chunks:
            for chunk, cursor in chunks:
                size = chunk.num_rows if self.level == "examples" else 1
                if size > left:
                    yield chunk.slice(left) if left else chunk, (cursor, 0)
                left = max(0, left - size)

    def size(self, count: int) -> int:
        return max(0, count - self.count)


@frozen(repr=False)
class _SelectColumns(RowWise):
    columns: tuple[str, ...]

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk.select([*self.columns, *(name for name in chunk.schema.names if name in HIDDEN)])

    def schema(self, schema: Schema) -> Schema:
        check_columns(self.columns, schema.names, "select_columns")
        return pa.schema([schema.field(name) for name in self.columns])

    def longest(self, tokens: int | None) -> int | None:
        return tokens


@frozen(repr=False)
class _DropColumns(RowWise):
    columns: tuple[str, ...]

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return chunk.select([name for name in chunk.schema.names if name not in self.columns])

    def schema(self, schema: Schema) -> Schema:
        check_columns(self.columns, schema.names, "drop_columns")
        return pa.schema([field for field in schema if field.name not in self.columns])

    def longest(self, tokens: int | None) -> int | None:
        return tokens


@frozen(repr=False)
class _RenameColumns(RowWise):
    names: tuple[tuple[str, str], ...]

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        new = dict(self.names)
        return chunk.rename_columns([new.get(name, name) for name in chunk.schema.names])

    def schema(self, schema: Schema) -> Schema:
        new = dict(self.names)
        check_columns(tuple(new), schema.names, "rename_columns")
        names = [new.get(name, name) for name in schema.names]
        taken = sorted({name for name in names if names.count(name) > 1 or name in HIDDEN})
        if taken:
            raise SchemaError(f"rename_columns gives several columns the name {taken[0]!r}, or the name is reserved. Choose another.")
        return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


def _names(columns: Sequence[str]) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise ArgumentTypeError(f"columns must be a list of names, got the string {columns!r}. Write [{columns!r}].")
    if not columns:
        raise ArgumentError("columns must name at least one column, got none.")
    check_unique({"columns": columns})
    return tuple(columns)


def _listed(function: Callable[[Example], Iterable[Example]]) -> Callable[[Example], list[Example]]:
    return lambda row: list(function(row))


def _mapping(row: Any, number: int, stage: Stage) -> Example:
    if not isinstance(row, Mapping):
        raise ArgumentTypeError(f"The function of {stage!r} must return a mapping, got {type(row).__name__} for source row {number}.")
    return row


def _declare(stage: Any, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> Stage:
    """Run a stage on the first rows that reach it, 128 at a time until some come out, and declare the schema that they have."""
    groups, states = (batch(SAMPLE_ROWS),), [None]
    made = [no_rows(schema)]
    for sample in chain(push(groups, states, 0, rows()), flush(groups, states)):
        _, made = stage.step((), sample)
        if made[0].num_rows:
            break
    declared: Stage = attrs.evolve(stage, declared=visible(made[0]).schema)
    return declared


def _fields(schema: Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
