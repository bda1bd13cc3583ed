"""Errors as data: a row that fails stays in its place, marked, until `on_error` takes it out.

`guard` rewrites a pipeline so that every chunk has a hidden column `__error__`, which says for each row which stage failed on it and why;
where it is not null, the row's other values mean nothing. Every source that holds no dataset is wrapped in `_Watched`, which adds the
column, and every stage that works on rows in `_Guard`, which lets failed rows pass by and finds the ones that fail by halving the chunk.
In between, a failed row is a row like any other: shuffled, counted, kept by `load`, taken by number.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from attrs import field, frozen

from mlxfp.core.chunks import KEY, ROW, RecordBatch, Schema, concat_chunks, number_as, visible
from mlxfp.core.datasets import Dataset, Position, Stage, State, row_count
from mlxfp.core.errors import PipelineError, SchemaError
from mlxfp.core.inference import SAMPLE_ROWS
from mlxfp.core.nodes import Part, children
from mlxfp.core.rewriting import rewrite
from mlxfp.data.running.wrappers import StandInSource, StandInStage

ERROR = "__error__"

_REASON = pa.struct([("stage", pa.string()), ("reason", pa.string())])
_LONGEST_REASON = 200  # characters
_ROWS_RETRIED = 256  # rows taken by number at a time once a source has failed: they may be large


def guard(dataset: Dataset[Any]) -> Dataset[Any]:
    """Rewrite a dataset so that rows that fail come out marked. It prints as before."""
    return rewrite(dataset, lambda source: source if children(source) else _Watched(source), _guarded)


def unguarded(part: Part) -> Any:
    """Return the source or stage that `guard` has wrapped; any other part as it is."""
    return part.source if isinstance(part, _Watched) else part.stage if isinstance(part, _Guard) else part


def split_failed(chunk: RecordBatch, part: Part) -> tuple[RecordBatch, RecordBatch | None]:
    """Part the rows that are well, without the column of errors, from those that failed, if any, with it.

    Raises `PipelineError` where a stage before `part` made rows anew, so that the column is lost.
    """
    errors = _errors(chunk, part)
    if not _any(errors):
        return chunk.drop_columns([ERROR]), None
    return chunk.filter(errors.is_null()).drop_columns([ERROR]), chunk.filter(errors.is_valid())


def _guarded(dataset: Dataset[Any]) -> tuple[Stage, ...]:
    """Guard the stages that give rows for rows: groups are no place to take rows out of."""
    return tuple(_Guard(stage, repr(stage)) if "examples" in stage.accepts and stage.emits is None else stage for stage in dataset.stages)


@frozen(repr=False)
class _Guard(StandInStage):
    """A stage that failed rows pass by, and in which a row that fails becomes a failed row. Prints as the stage."""

    text: str = field(eq=False)  # as it was written: an inferred schema is no part of that
    made: Schema | None = field(default=None, eq=False)  # what comes out of the stage: known once schemas are

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        out: list[RecordBatch] = []
        state = self._feed(state, chunk, out)
        return state, (concat_chunks(out),) if self.rowwise else out

    def finish(self, state: State) -> Iterable[RecordBatch]:
        return map(self._marked, self.stage.finish(state))

    def infer(self, schema: Schema, rows: Callable[[], Iterator[RecordBatch]]) -> Stage:
        def good() -> Iterator[RecordBatch]:
            return (split_failed(chunk, self)[0] for chunk in rows())

        try:
            stage = self.stage.infer(schema, good)
        except Exception:  # noqa: BLE001  # whatever a function of the user's raises
            stage = self.stage.infer(schema, lambda: self._fitting(schema, good()))
        return attrs.evolve(self, stage=stage, made=stage.schema(schema))

    def __repr__(self) -> str:
        return self.text

    def _feed(self, state: State, chunk: RecordBatch, out: list[RecordBatch]) -> State:
        """Give the stage a chunk: whole, if that goes well, else one half after the other. Chunk boundaries mean nothing."""
        errors = _errors(chunk, self)
        if not _any(errors):
            try:
                after, parts = self.stage.step(state, chunk.drop_columns([ERROR]))
                made = [self._marked(part) for part in parts]
            except MemoryError:
                raise
            except Exception as error:
                if not chunk.num_rows:
                    raise
                errors = _reason(self, error)
            else:
                out.extend(made)
                return after
        if chunk.num_rows == 1:
            out.append(_failed_rows(self._schema, chunk, errors))
            return state
        half = chunk.num_rows // 2
        return self._feed(self._feed(state, chunk.slice(0, half), out), chunk.slice(half), out)

    def _fitting(self, schema: Schema, chunks: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        """Leave out the rows on which the stage cannot infer its schema."""
        for chunk in chunks:
            for first in range(0, chunk.num_rows, SAMPLE_ROWS):
                yield from self._fitting_part(schema, chunk.slice(first, SAMPLE_ROWS))

    def _fitting_part(self, schema: Schema, part: RecordBatch) -> Iterator[RecordBatch]:
        try:
            self.stage.infer(schema, lambda: iter((part,)))
        except Exception:  # noqa: BLE001  # the same
            half = part.num_rows // 2
            if half:
                yield from self._fitting_part(schema, part.slice(0, half))
                yield from self._fitting_part(schema, part.slice(half))
        else:
            yield part

    @property
    def _schema(self) -> Schema:
        assert self.made is not None  # only stages with inferred schemas run
        return self.made

    def _marked(self, chunk: RecordBatch) -> RecordBatch:
        return _with_errors(self._schema, chunk, pa.nulls(chunk.num_rows, _REASON))


@frozen(repr=False)
class _Watched(StandInSource):
    """A source of rows that all are well; with random access, rows that cannot be read become failed ones. Prints as the source.

    The position is (that of the source, the number of the next row, whether rows are taken by number from there on).
    """

    def schema(self) -> Schema:
        schema = self.source.schema()
        if ERROR in schema.names:
            raise SchemaError(f"The column name {ERROR!r} is reserved for on_error; rename the column of {self.source!r}.")
        return schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        inner, at, by_number = position or (None, 0, False)
        if not by_number:
            try:
                for chunk, after in self.source.read(epoch, inner):
                    numbered = number_as(chunk, epoch, np.arange(at, at + chunk.num_rows))
                    at += chunk.num_rows
                    yield self._marked(numbered), (after, at, False)
            except Exception as error:
                if not self.indexable:
                    error.add_note("on_error cannot skip this: where the next row of a source without random access begins is not known")
                    raise
            else:
                return
        for first in range(at, row_count(Dataset(self.source)), _ROWS_RETRIED):
            stop = min(first + _ROWS_RETRIED, row_count(Dataset(self.source)))
            yield self.take(epoch, np.arange(first, stop)), (None, stop, True)

    def take(self, epoch: int, indices: Any) -> RecordBatch:
        try:
            return self._marked(number_as(self.source.take(epoch, indices), epoch, indices))
        except MemoryError:
            raise
        except Exception as error:
            if len(indices) == 1:
                numbers = number_as(pa.record_batch({"": indices}), epoch, indices)
                return _failed_rows(self.schema(), numbers, _reason(self, error))
            if not len(indices):
                raise
        half = len(indices) // 2
        return concat_chunks([self.take(epoch, indices[:half]), self.take(epoch, indices[half:])])

    def head(self) -> Iterator[RecordBatch]:
        return (chunk for chunk, _ in self.read(0, None))

    def _marked(self, chunk: RecordBatch) -> RecordBatch:
        return _with_errors(visible(chunk).schema, chunk, pa.nulls(chunk.num_rows, _REASON))


def _errors(chunk: RecordBatch, part: Part) -> pa.Array:
    place = chunk.schema.get_field_index(ERROR)
    if place < 0:
        raise PipelineError(
            f"on_error cannot follow which rows failed through the stages before {part!r}: one of them makes rows anew. "
            "Put on_error before that one."
        )
    return chunk.column(place)


def _any(errors: pa.Array) -> bool:
    return bool(errors.null_count < len(errors))


def _with_errors(schema: Schema, chunk: RecordBatch, errors: pa.Array) -> RecordBatch:
    """Lay out a chunk in one order: its columns, the hidden ones, the errors."""
    columns = [chunk.column(name) for name in (*schema.names, ROW, KEY)]
    fields = [*schema, pa.field(ROW, pa.int64()), pa.field(KEY, pa.uint64()), pa.field(ERROR, _REASON)]
    return pa.RecordBatch.from_arrays([*columns, errors], schema=pa.schema(fields))


def _failed_rows(schema: Schema, chunk: RecordBatch, errors: pa.Array) -> RecordBatch:
    """Make what stands for one row that failed: nothing but where it comes from, and why."""
    nulls = [pa.nulls(1, kind) for kind in schema.types]
    hidden = [chunk.column(ROW), chunk.column(KEY)]
    return _with_errors(schema, pa.RecordBatch.from_arrays([*nulls, *hidden], names=[*schema.names, ROW, KEY]), errors)


def _reason(part: Part, error: Exception) -> pa.Array:
    text = f"{type(error).__name__}: {error}"
    short = text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."
    return pa.array([{"stage": repr(part), "reason": short}], _REASON)
