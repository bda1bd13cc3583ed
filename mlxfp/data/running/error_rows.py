"""Leaving out rows that fail, with an exact list of them.

`on_error` runs everything before it with hooks that keep a row that fails in its place, marked: every chunk has a hidden column
`__error__`, which says for each row which stage failed on it and why; where it is not null, the row's other values mean nothing. Failed
rows pass by the stages that work on rows; the ones that fail are found by halving the chunk. In between, a failed row is a row like any
other: shuffled, counted, kept by `load`, taken by number. `on_error` takes the marked rows out.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.checks import check_choice, check_types
from mlxfp.core.chunks import KEY, ROW, Example, RecordBatch, Schema, concat_chunks, number_as, source_rows, visible
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, Wrapper, with_hooks
from mlxfp.core.errors import ArgumentError, DataError, PipelineError, SchemaError
from mlxfp.core.execution import Around, Rows, Step, run, start
from mlxfp.core.nodes import check_dataset, children
from mlxfp.core.planning import SAMPLE_ROWS
from mlxfp.core.row_names import Origin, locate, row_name
from mlxfp.core.sources import Position, Source
from mlxfp.core.stages import Stage, State, check_level
from mlxfp.data.running.replaying import reached

Policy = Literal["raise", "skip"]

ERROR = "__error__"
FORGIVEN = 10  # rows that may fail whatever the rate: two bad rows among the first hundred say little about a million

_REASON = pa.struct([("stage", pa.string()), ("reason", pa.string())])
_LONGEST_REASON = 200  # characters
_ROWS_RETRIED = 256  # rows taken by number at a time once a source has failed: they may be large


def on_error(policy: Policy, *, max_rate: float = 0.001) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Leave out the rows on which a stage before this one fails (`"skip"`), instead of stopping at the first (`"raise"`).

    Each is remembered, with the stage and the reason, and `skipped_rows` lists them. Any exception counts, in your functions and in the
    stages of this package; rows are tried again in smaller chunks to find the ones that fail, so functions must be pure. When more than
    `max_rate` of the rows so far were left out, and more than 10, a `DataError` says so. A malformed line in a file cannot be skipped:
    where the next row begins is not known. Of a source with random access (a dataset of another library, say), rows that cannot be read
    are skipped.

    It works on everything before it, through shuffling, joining and loading, so one is enough, and a second one is refused. Put it after
    `shuffle` and before `batch`: what comes out has no random access, for its length is known only by reading.

    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.rows.map_filter import map
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rows = from_examples([{"x": "1"}, {"x": "two"}, {"x": "3"}])
    >>> list(pipe(rows, map(lambda row: {"x": int(row["x"])}), on_error("skip")))
    [{'x': 1}, {'x': 3}]
    """
    check_choice(("raise", "skip"), policy=policy)
    check_types((int, float), max_rate=max_rate)
    if not 0 < max_rate <= 1:
        raise ArgumentError(f'max_rate must be above 0 and at most 1, got {max_rate}. To allow no error, use on_error("raise").')
    return _Skipping(policy, max_rate)


@frozen
class SkippedRow:
    """A row that was left out: where it comes from, the stage that failed on it, and the error.

    >>> from mlxfp.core.row_names import Origin
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> SkippedRow(Origin(from_examples([{"x": "two"}]).source, 0), "map(int)", "ValueError: invalid literal").stage
    'map(int)'
    """

    origin: Origin
    stage: str
    reason: str


def skipped_rows(dataset: Dataset[Any], cursor: Cursor) -> tuple[SkippedRow, ...]:
    """Return the rows that `on_error("skip")` had left out when the run came to the cursor, in that order; at its end, all of them.

    They are part of the cursor, also after `Cursor.to_bytes`; those of the source chunk in hand are found by feeding it again. Where
    `repeat` follows, they are those of the current pass. Raises `PipelineError` if the dataset has no `on_error`, or if a stage after it
    reads everything at once and so keeps no list (`load`, `cache`, a `shuffle` in memory): put `on_error` behind that.

    >>> from mlxfp.core.execution import iterate
    >>> from mlxfp.core.pipelines import pipe
    >>> from mlxfp.data.rows.map_filter import map
    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rows = from_examples([{"x": "1"}, {"x": "two"}, {"x": "3"}])
    >>> numbers = pipe(rows, map(lambda row: {"x": int(row["x"])}), on_error("skip"))
    >>> *_, (row, cursor) = iterate(numbers)
    >>> [(each.origin.row, each.reason) for each in skipped_rows(numbers, cursor)]
    [(1, "ValueError: invalid literal for int() with base 10: 'two'")]
    """
    check_dataset(dataset, skipped_rows)
    found = [(run.dataset, run.dataset.source.entries(run.position)) for run in reached(dataset, cursor) if _skips(run.dataset)]
    if not found:
        raise PipelineError(
            'There is no list of skipped rows: the pipeline has no on_error("skip"), or a stage after it reads everything at once. '
            f"Put it behind load, cache and shuffle, in {dataset!r}."
        )
    return tuple(SkippedRow(locate(owner, row), stage, reason) for owner, entries in found for row, stage, reason in entries)


def _skips(dataset: Any) -> bool:
    return isinstance(dataset.source, OnError)


@frozen
class _Skipping:
    """What `on_error` returns."""

    policy: Policy
    max_rate: float

    def __call__(self, dataset: Dataset[Example]) -> Dataset[Example]:
        check_level(dataset, self, frozenset({"examples"}))
        if self.policy == "raise":
            return dataset
        parts = list(_parts(dataset))
        if any(isinstance(part, OnError) for part in parts):
            raise PipelineError(
                f"on_error works on everything before it, so one is enough, got a second one after {dataset!r}. Leave one out."
            )
        if not any(isinstance(part, Stage) or part.indexable for part in parts):
            raise PipelineError(
                f"{self!r} skips rows on which a stage before it fails, and there is no stage: got {dataset!r}. Put it after map and the "
                "other stages. Lines of a file that cannot be parsed are not skipped, for where the next row begins is not known."
            )
        return Dataset(OnError(with_hooks(dataset, lambda held: MarkFailed(held.hooks)), self.policy, self.max_rate))

    def __repr__(self) -> str:
        return f"on_error({self.policy!r}, max_rate={self.max_rate})"


def _parts(dataset: Dataset[Any]) -> Iterator[Any]:
    for child in children(dataset.source):
        yield from _parts(child)
    yield from dataset.parts


@frozen(repr=False)
class OnError(Wrapper):
    """The rows of a dataset that marks those that fail, without these.

    The position is (cursor, rows seen, what was left out): (source row, stage, reason) of each.
    """

    policy: Policy
    max_rate: float = 0.001

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        """Take the failed rows out; raise `DataError` when they are too many."""
        cursor, seen, entries = position or (None, 0, ())
        with closing(run(self.dataset, start(epoch, cursor))) as chunks:
            for chunk, cursor in chunks:
                well, failed = _split_failed(chunk)
                if failed is not None:
                    places = np.flatnonzero(chunk.column(ERROR).is_valid().to_numpy(zero_copy_only=False))
                    found = zip(source_rows(failed).tolist(), failed.column(ERROR).to_pylist(), strict=True)
                    entries += tuple((row, each["stage"], each["reason"]) for row, each in found)
                    self._check(seen + places + 1, entries)
                seen += chunk.num_rows
                yield well, (cursor, seen, entries)

    def entries(self, position: Position) -> tuple[tuple[int, str, str], ...]:
        """Return what had been left out at a position."""
        return () if position is None else position[2]

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return the dataset with its cursor."""
        return () if position is None else ((self.dataset, position[0]),)

    def size(self, count: int) -> None:
        """Say that the length depends on the data."""

    def exact_length(self) -> None:
        """Say the same, without reading what is kept."""

    def head(self) -> Iterator[RecordBatch]:
        """Yield the first rows that do not fail."""
        return (_split_failed(chunk)[0] for chunk in super(OnError, self).head())

    def notes(self) -> tuple[str, ...]:
        """Say what it does."""
        return (f"skips rows that fail before it, up to {self.max_rate:.2%} of them",)

    def _check(self, seen: NDArray[np.int64], entries: tuple[Any, ...]) -> None:
        """Raise if at one of the last rows, the `seen`-th ones, too many had been left out."""
        counts = np.arange(len(entries) - len(seen), len(entries)) + 1
        beyond = np.flatnonzero(counts > np.maximum(FORGIVEN, self.max_rate * seen))
        if len(beyond):
            count, rows = int(counts[beyond[0]]), int(seen[beyond[0]])
            whys = [(stage, reason) for _, stage, reason in entries[:count]]
            said = "; ".join(
                f"{times:,} times {why[1]} in {why[0]}, first for source row {row_name(entries[whys.index(why)][0])}"
                for why, times in Counter(whys).most_common(3)
            )
            raise DataError(
                f"Too many rows fail: {count:,} of the first {rows:,} ({count / rows:.2%}), above max_rate={self.max_rate} of on_error. "
                f"Most often: {said}. Fix the data or the stage, or allow more."
            )


@frozen
class MarkFailed(Around):
    """Marks rows that fail, in their places. Positions of sources are (that of the source, number of the next row, by number or not)."""

    @property
    def planned(self) -> Any:
        """Run what was written: which stage failed on a row is part of what comes out."""
        return "as written"

    @property
    def marks(self) -> str:
        """The column of errors."""
        return ERROR

    def read(self, source: Source) -> Any:
        """Read rows; where a source with random access fails, go on by number, so that rows that cannot be read become failed ones."""
        if children(source):
            return self.inner.read(source)
        _check_reserved(source)

        def read(epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
            inner, at, by_number = position or (None, 0, False)
            if not by_number:
                try:
                    for chunk, after in self.inner.read(source)(epoch, inner):
                        numbered = number_as(chunk, epoch, np.arange(at, at + chunk.num_rows))
                        at += chunk.num_rows
                        yield _well(visible(numbered).schema, numbered), (after, at, False)
                except Exception as error:
                    if not source.indexable:
                        error.add_note(
                            "on_error cannot skip this: where the next row of a source without random access begins is not known"
                        )
                        raise
                else:
                    return
            count = source.exact_length() or 0
            for first in range(at, count, _ROWS_RETRIED):
                stop = min(first + _ROWS_RETRIED, count)
                yield self.take(source)(epoch, np.arange(first, stop)), (None, stop, True)

        return read

    def take(self, source: Source) -> Any:
        """Take rows; one that cannot be taken becomes a failed row."""
        inner = self.inner.take(source)
        if children(source):
            return inner
        _check_reserved(source)

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

    def head(self, source: Source) -> Any:
        """Read the first rows as `read` does."""
        if children(source):
            return self.inner.head(source)
        return lambda: (chunk for chunk, _ in self.read(source)(0, None))

    def infer(self, stage: Stage) -> Any:
        """Infer a schema from the rows that do not fail, before the stage or on it."""

        def infer(schema: Schema, rows: Rows) -> Stage:
            def good() -> Iterator[RecordBatch]:
                return (_split_failed(chunk)[0] for chunk in rows())

            try:
                return self.inner.infer(stage)(schema, good)
            except Exception:  # noqa: BLE001  # whatever a user's function raises
                return self.inner.infer(stage)(schema, lambda: _fitting(stage, schema, good()))

        return infer

    def step(self, step: Step) -> Any:
        """Let failed rows pass by a stage that works on rows, and mark those on which it fails."""
        call = self.inner.step(step)
        if not _works_on_rows(step.stage):
            return call

        def fed(state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
            out: list[RecordBatch] = []
            state = feed(state, chunk, out)
            return state, (concat_chunks(out),) if step.stage.rowwise else out

        def feed(state: State, chunk: RecordBatch, out: list[RecordBatch]) -> State:
            """Give the stage a chunk: whole, if that goes well, else one half after the other. Chunk boundaries mean nothing."""
            errors = _errors(chunk, step.text)
            if not _any(errors):
                try:
                    after, parts = call(state, chunk.drop_columns([ERROR]))
                    made = [_well(step.schema, part) for part in parts]
                except MemoryError:
                    raise
                except Exception as error:
                    if not chunk.num_rows:
                        raise
                    errors = _reason(step.text, error)
                else:
                    out.extend(made)
                    return after
            if chunk.num_rows == 1:
                out.append(_failed_row(step.schema, chunk, errors))
                return state
            half = chunk.num_rows // 2
            return feed(feed(state, chunk.slice(0, half), out), chunk.slice(half), out)

        return fed

    def finish(self, step: Step) -> Any:
        """Mark the rows that a stage still held."""
        call = self.inner.finish(step)
        return (lambda state: (_well(step.schema, part) for part in call(state))) if _works_on_rows(step.stage) else call


def _works_on_rows(stage: Stage) -> bool:
    """Whether a stage gives rows for rows: groups are no place to take rows out of."""
    return "examples" in stage.accepts and stage.emits is None


def _check_reserved(source: Source) -> None:
    if ERROR in source.schema().names:
        raise SchemaError(f"The column name {ERROR!r} is reserved for on_error; rename the column of {source!r}.")


def _fitting(stage: Stage, schema: Schema, chunks: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Leave out the rows on which a stage cannot infer its schema."""
    for chunk in chunks:
        for first in range(0, chunk.num_rows, SAMPLE_ROWS):
            yield from _fitting_part(stage, schema, chunk.slice(first, SAMPLE_ROWS))


def _fitting_part(stage: Stage, schema: Schema, part: RecordBatch) -> Iterator[RecordBatch]:
    try:
        stage.infer(schema, lambda: iter((part,)))
    except Exception:  # noqa: BLE001  # the same
        half = part.num_rows // 2
        if half:
            yield from _fitting_part(stage, schema, part.slice(0, half))
            yield from _fitting_part(stage, schema, part.slice(half))
    else:
        yield part


def _split_failed(chunk: RecordBatch) -> tuple[RecordBatch, RecordBatch | None]:
    """Part the rows that are well, without the column of errors, from those that failed, if any, with it."""
    errors = _errors(chunk, "on_error")
    if not _any(errors):
        return chunk.drop_columns([ERROR]), None
    return chunk.filter(errors.is_null()).drop_columns([ERROR]), chunk.filter(errors.is_valid())


def _errors(chunk: RecordBatch, part: str) -> pa.Array:
    place = chunk.schema.get_field_index(ERROR)
    if place < 0:
        raise PipelineError(
            f"on_error cannot follow which rows failed through the stages before {part}: one of them makes rows anew. "
            "Put on_error before that one."
        )
    return chunk.column(place)


def _any(errors: pa.Array) -> bool:
    return bool(errors.null_count < len(errors))


def _well(schema: Schema, chunk: RecordBatch) -> RecordBatch:
    """Mark all rows of a chunk as well."""
    return _with_errors(schema, chunk, pa.nulls(chunk.num_rows, _REASON))


def _with_errors(schema: Schema, chunk: RecordBatch, errors: pa.Array) -> RecordBatch:
    """Lay out a chunk in one order: its columns, the hidden ones, the errors."""
    columns = [chunk.column(name) for name in (*schema.names, ROW, KEY)]
    fields = [*schema, pa.field(ROW, pa.int64()), pa.field(KEY, pa.uint64()), pa.field(ERROR, _REASON)]
    return pa.RecordBatch.from_arrays([*columns, errors], schema=pa.schema(fields))


def _failed_row(schema: Schema, chunk: RecordBatch, errors: pa.Array) -> RecordBatch:
    """Make what stands for one row that failed: nothing but where it comes from, and why."""
    nulls = [pa.nulls(1, kind) for kind in schema.types]
    hidden = [chunk.column(ROW), chunk.column(KEY)]
    return _with_errors(schema, pa.RecordBatch.from_arrays([*nulls, *hidden], names=[*schema.names, ROW, KEY]), errors)


def _reason(part: str, error: Exception) -> pa.Array:
    text = f"{type(error).__name__}: {error}"
    short = text if len(text) <= _LONGEST_REASON else f"{text[: _LONGEST_REASON - 3]}..."
    return pa.array([{"stage": part, "reason": short}], _REASON)
