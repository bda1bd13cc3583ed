"""Hooks for `on_error`. A failed row stays in the data, marked as failed, until `on_error` removes the row.

The hidden column `__error__` contains the failed stage and the reason, or null for a valid row. Other values of a failed row have no
meaning.

Stages that treat each row alone run only on the valid rows. If such a stage fails on a chunk, the chunk is halved repeatedly to find the
failed rows. All other operations, such as shuffling, counting, `load` and reading by index, treat failed rows like valid rows.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import KEY, ROW, RecordBatch, Schema, concat_chunks, number_as, visible
from mlxfp.core.nodes import children
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.running.steps import ALL_STAGES, Changes, Hooks, Read, Rows, SourceCalls, Step
from mlxfp.core.sources import IndexTask, Position, Source, SourceTraits, chunk_tasks, marked
from mlxfp.core.stages import Stage, State
from mlxfp.data.sources.row_chunks import ERROR, REASON
from mlxfp.support.errors import PipelineError, SchemaError

_LONGEST_REASON = 200  # maximum number of characters in the reason of a failed row
_ROWS_RETRIED = 256  # Number of rows per chunk, if rows are read by index after an error. The number is small, because rows may be large.


@frozen
class MarkFailed(Hooks):
    """Hooks that mark failed rows instead of raising their errors.

    A resume position has three parts: the position of the source, the index of the next row, and True if rows are read by index.
    """

    # Number of leading stages that mark failed rows. These stages run one by one, so that the failed stage is known.
    as_written: int = ALL_STAGES

    @property
    def changes(self) -> Changes:
        """Changes to the plan: an error column is added, and the first `as_written` stages run one by one.

        If these stages were merged, the failed stage would be unknown.
        """
        return evolve(super().changes, as_written=self.as_written, marks=ERROR)

    def source(self, source: Source) -> SourceCalls:
        """Mark malformed records and unreadable rows of `source`. If `source` has child datasets, the children mark their own rows."""
        marking = marked(source)
        calls = super().source(marking)
        if children(source):
            return calls
        read = self._reading(marking, calls)
        return evolve(
            calls,
            read=read,
            tasks=lambda epoch, position: chunk_tasks(read(epoch, position)),
            task=lambda epoch, indices: IndexTask(_Marked(self, source), epoch, indices),
            head=lambda: (chunk for chunk, _ in read(0, None)),
        )

    def _reading(self, source: Source, calls: SourceCalls) -> Read:
        """Return a function that reads the source.

        If reading in order fails and the source has random access, the function reads rows by index and marks unreadable rows.
        """

        def read(epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
            _check_reserved(source)
            inner, at, by_number = position or (None, 0, False)
            if not by_number:
                try:
                    for chunk, after in calls.read(epoch, inner):
                        numbered = number_as(chunk, epoch, np.arange(at, at + chunk.num_rows))
                        at += chunk.num_rows
                        yield _as_marked(numbered), (after, at, False)
                except Exception as error:
                    if not source.indexable:
                        error.add_note("on_error cannot skip this error: without random access, the start of the next row is unknown")
                        raise
                else:
                    return
            count = calls.exact_length() or 0
            for first in range(at, count, _ROWS_RETRIED):
                stop = min(first + _ROWS_RETRIED, count)
                yield self.take(source)(epoch, np.arange(first, stop)), (None, stop, True)

        return read

    def take(self, source: Source) -> Any:
        """Return a function that reads rows of a data source by index and marks unreadable rows."""
        _check_reserved(source)
        inner = source.take

        def take(epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
            try:
                numbered = number_as(inner(epoch, indices), epoch, indices)
                return _well(visible(numbered).schema, numbered)
            except MemoryError:
                raise
            except Exception as error:
                if len(indices) == 1:
                    numbers = number_as(pa.record_batch({"": indices}), epoch, indices)
                    return _failed_row(source.schema(), numbers, _reason(repr(source), error))
                if not len(indices):
                    raise
            half = len(indices) // 2
            return concat_chunks([take(epoch, indices[:half]), take(epoch, indices[half:])])

        return take

    def infer(self, stage: Stage, index: int) -> Any:
        """Infer the schema of a stage from rows on which neither earlier stages nor this stage fail."""
        inner = super().infer(stage, index)
        if index >= self.as_written:
            return inner

        def infer(schema: Schema, rows: Rows) -> Stage:
            def good() -> Iterator[RecordBatch]:
                return (split_failed(chunk, repr(stage))[0] for chunk in rows())

            try:
                return inner(schema, good)
            except Exception:  # noqa: BLE001  # user functions raise any class
                return inner(schema, lambda: _fitting(stage, schema, good()))

        return infer

    def step(self, step: Step) -> Any:
        """Run a stage on the valid rows, and mark the rows on which the stage fails. The stage must treat each row alone."""
        call = super().step(step)
        if not self._watches(step):
            return call

        def fed(state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
            out: list[RecordBatch] = []
            state = feed(state, chunk, out)
            return state, (concat_chunks(out),) if step.stage.traits.row_wise else out

        def feed(state: State, chunk: RecordBatch, out: list[RecordBatch]) -> State:
            """Run the stage on a whole chunk. If the stage fails, run the stage on each half of the chunk.

            A chunk may be halved, because chunk boundaries have no meaning.
            """
            errors = _errors(chunk, step.text)
            if not _any(errors):
                try:
                    after, parts = call(state, chunk.drop_columns([ERROR]))
                    valid = [_well(step.schema, part) for part in parts]
                except MemoryError:
                    raise
                except Exception as error:
                    if not chunk.num_rows:
                        raise
                    errors = _reason(step.text, error)
                else:
                    out.extend(valid)
                    return after
            if chunk.num_rows == 1:
                out.append(_failed_row(step.schema, chunk, errors))
                return state
            half = chunk.num_rows // 2
            return feed(feed(state, chunk.slice(0, half), out), chunk.slice(half), out)

        return fed

    def finish(self, step: Step) -> Any:
        """Return a function that yields the rows that a stage holds until the end of the data. All of these rows are marked as valid."""
        call = super().finish(step)
        return (lambda state: (_well(step.schema, part) for part in call(state))) if self._watches(step) else call

    def _watches(self, step: Step) -> bool:
        """Return True if the rows on which a stage fails are marked as failed. Returns False if the error of the stage is raised instead.

        Stages that group rows raise their errors, because no row can be removed from a group.
        """
        return step.index < self.as_written and "examples" in step.stage.accepts and step.stage.emits is None


@frozen(eq=False)
class _Marked:
    """Source that marks an unreadable row in the error column instead of raising the error."""

    hooks: MarkFailed
    source: Source

    @property
    def traits(self) -> SourceTraits:
        return self.source.traits

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        chunk: RecordBatch = self.hooks.take(self.source)(epoch, indices)
        return chunk


def _as_marked(chunk: RecordBatch) -> RecordBatch:
    """Return a source chunk with an error column. Rows already marked as failed stay marked."""
    if ERROR not in chunk.schema.names:
        return _well(visible(chunk).schema, chunk)
    return _with_errors(visible(chunk.drop_columns([ERROR])).schema, chunk, chunk.column(ERROR))


def _check_reserved(source: Source) -> None:
    if ERROR in source.schema().names:
        raise SchemaError(f"The column name {ERROR!r} is reserved for on_error; rename the column of {source!r}.")


def _fitting(stage: Stage, schema: Schema, chunks: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Yield the rows from which a stage can infer its schema. Rows on which the stage fails are left out."""
    for chunk in chunks:
        for first in range(0, chunk.num_rows, SAMPLE_ROWS):
            yield from _fitting_part(stage, schema, chunk.slice(first, SAMPLE_ROWS))


def _fitting_part(stage: Stage, schema: Schema, part: RecordBatch) -> Iterator[RecordBatch]:
    try:
        stage.infer(schema, lambda: iter((part,)))
    except Exception:  # noqa: BLE001  # user functions raise any class
        half = part.num_rows // 2
        if half:
            yield from _fitting_part(stage, schema, part.slice(0, half))
            yield from _fitting_part(stage, schema, part.slice(half))
    else:
        yield part


def split_failed(chunk: RecordBatch, part: str) -> tuple[RecordBatch, RecordBatch | None]:
    """Return the valid rows without the error column, and the failed rows with the error column.

    The second value is None if no row failed.
    """
    errors = _errors(chunk, part)
    if not _any(errors):
        return chunk.drop_columns([ERROR]), None
    return chunk.filter(errors.is_null()).drop_columns([ERROR]), chunk.filter(errors.is_valid())


def _errors(chunk: RecordBatch, part: str) -> pa.Array:
    index = chunk.schema.get_field_index(ERROR)
    if index < 0:
        raise PipelineError(
            f"on_error loses failed rows, because a stage before {part} creates new rows. Put on_error before the stage that creates rows."
        )
    return chunk.column(index)


def _any(errors: pa.Array) -> bool:
    return bool(errors.null_count < len(errors))


def _well(schema: Schema, chunk: RecordBatch) -> RecordBatch:
    """Add an error column that marks all rows of a chunk as valid."""
    return _with_errors(schema, chunk, pa.nulls(chunk.num_rows, REASON))


def _with_errors(schema: Schema, chunk: RecordBatch, errors: pa.Array) -> RecordBatch:
    """Return a chunk with its columns in this order: visible columns, hidden columns, error column."""
    columns = [chunk.column(name) for name in (*schema.names, ROW, KEY)]
    fields = [*schema, pa.field(ROW, pa.int64()), pa.field(KEY, pa.uint64()), pa.field(ERROR, REASON)]
    return pa.RecordBatch.from_arrays([*columns, errors], schema=pa.schema(fields))


def _failed_row(schema: Schema, chunk: RecordBatch, errors: pa.Array) -> RecordBatch:
    """Return a chunk with a single failed row. All visible columns are null. The columns `__row__` and `__key__` come from `chunk`."""
    nulls = [pa.nulls(1, kind) for kind in schema.types]
    hidden = [chunk.column(ROW), chunk.column(KEY)]
    return _with_errors(schema, pa.RecordBatch.from_arrays([*nulls, *hidden], names=[*schema.names, ROW, KEY]), errors)


def _reason(part: str, error: Exception) -> pa.Array:
    text = f"{type(error).__name__}: {error}"
    short = text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."
    return pa.array([{"stage": part, "reason": short}], REASON)
