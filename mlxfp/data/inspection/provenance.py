"""Provenance of rows: the source rows of an item, and the results of all parts of a pipeline for a source row."""

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import islice
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.chunks import LEAF_BITS, RecordBatch, Schema, number_as, number_joined, source_rows, to_rows
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, with_hooks
from mlxfp.core.execution import execute, iterate, run, start
from mlxfp.core.nodes import check_dataset, inner_parts, leaves
from mlxfp.core.planning import as_written
from mlxfp.core.row_names import Origin, locate
from mlxfp.core.running.steps import ALL_STAGES, Changes, Hooks, Plan, Step
from mlxfp.core.sources import Position, Source, SourceTraits, exact_length
from mlxfp.data.inspection.previews import show_value
from mlxfp.data.running.error_rows import OnError
from mlxfp.support.checks import check_not_negative
from mlxfp.support.errors import ArgumentError, PipelineError
from mlxfp.support.html import clip
from mlxfp.support.terminal import COLUMNS, printed

_WITHOUT = 1_000  # maximum number of characters in the list of removed columns


def row_origins(dataset: Dataset[Any], step: int, *, cursor: Cursor | None = None, epoch: int = 0) -> tuple[Origin, ...]:
    """Return the source rows of the item with index `step`, counted from the start or from `cursor`.

    Runs the pipeline up to this item, without `collate`. A row made from several source rows (`pack`, `windows`) has the origin of
    the first source row. Raises `ArgumentError` if the pipeline has fewer items.

    >>> import mlxfp as fp
    >>> groups = fp.pipe(fp.from_examples([{"x": i} for i in range(100)]), fp.shuffle(seed=0), fp.batch(4))
    >>> [origin.row for origin in fp.inspect.row_origins(groups, 20)] == [row["x"] for row in list(groups)[20]]
    True

    See also: `trace_row`, which shows what becomes of a row.
    """
    check_dataset(dataset, row_origins)
    check_not_negative(step=step)
    if cursor is not None:
        iterate(dataset, cursor)  # Raises an error if cursor and pipeline do not match.
    grouped = with_hooks(dataset, uncollated)
    with closing(run(grouped, start(epoch, cursor))) as items:
        chunks = (chunk for chunk, _ in items)
        if grouped.level == "examples":
            chunks = (chunk.slice(row, 1) for chunk in chunks for row in range(chunk.num_rows))
        item = next(islice(chunks, step, None), None)
    if item is None:
        raise ArgumentError(f"There is no item {step} (counted from 0): the run has fewer items, in {dataset!r}.")
    if isinstance(item, dict):
        raise PipelineError(f"The batches of {dataset.source!r} have no row numbers. Make the batches with batch and collate.")
    return tuple(locate(dataset, number) for number in source_rows(item))


@frozen
class _Uncollated(Hooks):
    """Hooks that skip all stages that output batches, such as `collate`."""

    passed: frozenset[int] = field(kw_only=True)  # indices of the stages that output batches

    @property
    def changes(self) -> Changes:
        return attrs.evolve(super().changes, as_written=ALL_STAGES, collates=False)

    def step(self, step: Step) -> Any:
        return (lambda state, chunk: (state, (chunk,))) if step.index in self.passed else super().step(step)


def uncollated(dataset: Dataset[Any]) -> Hooks:
    """Return `Hooks` for a run that skips `collate`. The run then yields groups instead of batches."""
    levels = [attrs.evolve(dataset, stages=dataset.stages[: index + 1]).level for index in range(len(dataset.stages))]
    return _Uncollated(dataset.hooks, passed=frozenset(index for index, level in enumerate(levels) if level == "batches"))


@frozen(eq=False)
class Passed:
    """Output of one part of a pipeline (source or stage) when `trace_row` runs the pipeline on a single row.

    The output is a tuple of rows, a tuple of batches (after `collate`), or an error.
    """

    part: str
    items: tuple[Mapping[str, Any], ...]
    error: str | None = None


@frozen(eq=False, repr=False)
class RowTrace:
    """Results of all parts of a pipeline for a traced row, for printing."""

    origin: Origin
    steps: tuple[Passed, ...]

    def __repr__(self) -> str:
        lines = [f"row {self.origin.row} of {self.origin.source!r}"]
        before: tuple[Mapping[str, Any], ...] = ()
        for step in self.steps:
            lines += [step.part, *(f"    {line}" for line in _news(before, step))]
            before = step.items
        return "\n".join(lines)


def trace_row(dataset: Dataset[Any], row: int, *, epoch: int = 0) -> RowTrace:
    """Run each part of a pipeline on a single source row, and return the results of all parts.

    `row` is a row number, as in `Examples.rows` and `Origin.number`. If the pipeline has a single source, `row` is the index in the source.
    Stages that reorder, repeat or store rows pass the row on unchanged. `filter` may drop the row. Grouping stages return a group with
    only this row. Random stages use the same random numbers for the row as in a full run of the epoch.

    A part that fails ends the trace, and the result contains the error. Raises `ArgumentError` for an unknown row.

    >>> import mlxfp as fp
    >>> def square(row):
    ...     return {"x": row["x"], "y": row["x"] ** 2}
    >>> fp.inspect.trace_row(fp.pipe(fp.from_examples([{"x": i} for i in range(9)]), fp.map(square), fp.shuffle(seed=0)), 3)
    row 3 of from_examples(9 rows)
    from_examples(9 rows)
        x: 3
    map(function=square)
        y: 9
    shuffle(seed=0)
        the same

    See also: `row_origins`, which finds the rows of a step; `preview` for the first items.
    """
    check_dataset(dataset, trace_row)
    check_not_negative(row=row)
    if row >> LEAF_BITS >= len(list(leaves(dataset))):
        raise ArgumentError(f"There is no source for row {row} in {dataset!r}. Use a row number from Examples.rows.")
    origin = locate(dataset, row)
    return RowTrace(origin, tuple(_stages_of_row(dataset, row >> LEAF_BITS, origin.row, epoch)))


_Way = Generator[Passed, None, list[Any]]  # generator that yields the result of each part, and returns the result of the last part


def _stages_of_row(dataset: Dataset[Any], leaf: int, row: int, epoch: int) -> _Way:
    """Yield the output of the source and of each stage for a single row.

    The argument `leaf` is the index of a data source among all data sources of the pipeline. The argument `row` is the index of the row
    in this data source.
    """
    chunks = yield from _out_of(dataset.source, leaf, row, epoch)
    for step in as_written(dataset).steps if chunks else ():
        try:
            chunks = chunks if isinstance(step.stage, OnError) else _fed(step, epoch, chunks)
        except Exception as error:  # noqa: BLE001  # the error is the result
            yield Passed(step.text, (), _say(error))
            return []
        yield Passed(step.text, _items(chunks))
        if not chunks:
            return []
    return chunks


def _out_of(source: Source, leaf: int, row: int, epoch: int) -> _Way:
    datasets = inner_parts(source)
    if not datasets:
        try:
            chunks = [_read(source, row, epoch)]
        except ArgumentError:
            raise
        except Exception as error:  # noqa: BLE001  # the error is the result
            yield Passed(repr(source), (), _say(error))
            return []
        yield Passed(repr(source), _items(chunks))
        return chunks
    firsts = np.cumsum([0, *(len(list(leaves(child))) for child in datasets)])
    index = int(np.searchsorted(firsts, leaf, side="right")) - 1
    chunks = yield from _stages_of_row(datasets[index], leaf - int(firsts[index]), row, epoch)
    if source.traits.level != "batches":
        joined = [number_joined(chunk, index, int(firsts[index])) for chunk in chunks] if len(datasets) > 1 else chunks
        chunks = [_completed(chunk, source) for chunk in joined]
    # A `pack` with known row lengths occurs twice: as `source`, and as the last stage of the inner dataset. Yield a single result.
    if chunks and repr(source) != repr(datasets[index].parts[-1]):
        yield Passed(repr(source), _items(chunks))
    return chunks


def _read(source: Source, row: int, epoch: int) -> RecordBatch:
    if source.indexable and row < (exact_length(source) or 0):
        return number_as(source.take(epoch, np.array([row])), epoch, np.array([row]))
    first = 0
    for chunk, _ in source.read(epoch, None):
        if row < first + chunk.num_rows:
            return number_as(chunk.slice(row - first, 1), epoch, np.array([row]))
        first += chunk.num_rows
    raise ArgumentError(f"There is no row {row} in {source!r}: it has {first:,} rows. Use a row number from Examples.rows.")


def _completed(chunk: RecordBatch, source: Source) -> RecordBatch:
    """Append the columns that `source` adds to a chunk, such as `weight` from `shard`. Fill them with 1, the weight of a real row."""
    present = set(chunk.schema.names)
    for column in source.schema():
        if column.name not in present:
            chunk = chunk.append_column(column.name, pa.array([1] * chunk.num_rows).cast(column.type))
    return chunk


def _fed(step: Step, epoch: int, chunks: list[Any]) -> list[Any]:
    """Run a stage on the results of the previous stage."""
    steps = (attrs.evolve(step, index=0),)
    alone = Plan(_Chunks(tuple(chunks)), (), steps, (), (), (), (step.stage,), "groups", step.schema, step.text)
    out = [item for item, _ in execute(alone, start(epoch, None))]
    if not out and step.stage.emits == "groups":
        return chunks  # For a single row, `batch(drop_last=True)` outputs nothing. The next stage then gets the row.
    return [item for item in out if isinstance(item, dict) or item.num_rows]


@frozen(repr=False)
class _Chunks(Source):
    """Source that yields given chunks or batches with row numbers."""

    chunks: tuple[Any, ...]

    traits = SourceTraits(level="batches")

    def schema(self) -> Schema:
        return self.chunks[0].schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        return ((chunk, None) for chunk in self.chunks)


def _items(chunks: Iterable[Any]) -> tuple[Mapping[str, Any], ...]:
    return tuple(item for chunk in chunks for item in ([chunk] if isinstance(chunk, dict) else to_rows(chunk)))


def _say(error: Exception) -> str:
    return "; ".join((f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())))


def _news(before: tuple[Mapping[str, Any], ...], step: Passed) -> Iterator[str]:
    """Yield printable lines about the items after a stage. For one item before and one after the stage, print only changes."""
    if step.error is not None:
        yield f"failed: {step.error}"
    elif not step.items:
        yield "left out"
    elif len(step.items) == len(before) == 1:
        old, new = before[0], step.items[0]
        changed = {name: value for name, value in new.items() if name not in old or not _same(old[name], value)}
        removed = [name for name in old if name not in new]
        yield from _values(changed)
        yield from [f"without {clip(', '.join(map(printed, removed)), _WITHOUT)}"] if removed else []
        yield from [] if changed or removed else ["the same"]
    else:
        for index, item in enumerate(step.items):
            yield from [f"{index + 1} of {len(step.items)}"] if len(step.items) > 1 else []
            yield from _values(item)


def _values(item: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{printed(name)}: {show_value(value)}" for name, value in islice(item.items(), COLUMNS))
    yield from [f"... {len(item):,} columns"] if len(item) > COLUMNS else []


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and bool(np.array_equal(a, b) if hasattr(a, "shape") else a == b)
