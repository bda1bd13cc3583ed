"""Stage `on_error`, which skips failed rows, and the function `skipped_rows`, which lists all skipped rows."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray
from toolz import identity

from mlxfp.core.chunks import Example, RecordBatch, source_rows
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset, with_hooks
from mlxfp.core.nodes import check_dataset, children
from mlxfp.core.row_names import Origin, locate, row_name
from mlxfp.core.stages import Stage, State, Traits, check_level
from mlxfp.data.running.failed_rows import MarkFailed, split_failed
from mlxfp.data.running.replaying import reached
from mlxfp.data.sources.line_files import LineSource
from mlxfp.data.sources.row_chunks import ERROR
from mlxfp.support.checks import check_choice, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, PipelineError

Policy = Literal["raise", "skip"]

FORGIVEN = 10  # Up to 10 failed rows never raise an error during an epoch: the share of failed rows is unreliable at the start.
_USUAL_RATE = 0.001


@explain_call
def on_error(policy: Policy, *, max_rate: float | None = None) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Skip rows on which an earlier stage fails (`"skip"`), or stop at the first failed row (`"raise"`).

    Any exception counts as a failure, in user functions and in stages of mlxfp. To find the failed rows, a failed chunk runs again in
    smaller chunks, so functions must be pure. `skipped_rows` lists the skipped rows with the stage and the reason.

    The argument `max_rate` limits the share of skipped rows. Too many skipped rows raise `DataError`:

    - During an epoch: more than 10 rows, and more than `max_rate` of the rows so far, were skipped.
    - At the end of an epoch: more than `max_rate` of the rows of the epoch were skipped.

    Without `max_rate`, an epoch may skip 10 rows or 0.1 % of its rows, whichever is more.

    Malformed records in CSV, JSON lines and text files are skipped too, with file and line in the reason. After an unclosed
    quote, the rest of the file is skipped. With random access (for example a dataset of another library), unreadable rows are skipped.

    `on_error` covers all earlier stages, including stages before a shuffle, mixture or `load`, so a second `on_error` raises
    `PipelineError`. Put `on_error` after `shuffle` and before `batch`. The result has no random access, because the number of rows is
    unknown before reading.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": "1"}, {"x": "two"}, {"x": "3"}])
    >>> list(fp.pipe(rows, fp.map(lambda row: {"x": int(row["x"])}), fp.on_error("skip")))
    [{'x': 1}, {'x': 3}]
    """
    check_choice(("raise", "skip"), policy=policy)
    if max_rate is not None:
        check_types((int, float), max_rate=max_rate)
        if not 0 < max_rate <= 1:
            raise ArgumentError(f'max_rate must be above 0 and at most 1, got {max_rate}. To allow no error, use on_error("raise").')
    return _Skipping(policy, max_rate)


@frozen
class SkippedRow:
    """Row skipped by `on_error`: origin of the row, failed stage and error message.

    >>> import mlxfp as fp
    >>> origin = fp.inspect.Origin(fp.from_examples([{"x": "two"}]).source, 0)
    >>> SkippedRow(origin, "map(int)", "ValueError: invalid literal").stage
    'map(int)'
    """

    origin: Origin
    stage: str
    reason: str


@explain_call
def skipped_rows(dataset: Dataset[Any], cursor: Cursor) -> tuple[SkippedRow, ...]:
    """Return the rows skipped by `on_error("skip")` up to the cursor, in order. The last cursor of a run gives all skipped rows.

    Skipped rows are stored in the cursor, also by `Cursor.to_bytes`. Rows skipped in the current source chunk are recomputed. If a `repeat`
    follows `on_error`, the list covers the current pass.

    Raises `PipelineError` if the dataset has no `on_error`, or if a later stage reads the whole dataset at once and loses the list (`load`,
    `cache`, or `shuffle` in memory). Put `on_error` after such a stage.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": "1"}, {"x": "two"}, {"x": "3"}])
    >>> numbers = fp.pipe(rows, fp.map(lambda row: {"x": int(row["x"])}), fp.on_error("skip"))
    >>> *_, (row, cursor) = fp.iterate(numbers)
    >>> [(each.origin.row, each.reason) for each in fp.inspect.skipped_rows(numbers, cursor)]
    [(1, "ValueError: invalid literal for int() with base 10: 'two'")]
    """
    check_dataset(dataset, skipped_rows)
    runs = list(reached(dataset, cursor))[::-1]
    lists = [(run.dataset, state[1]) for run in runs for stage, state in run.states if isinstance(stage, OnError)]
    if not lists and not lists_all(dataset):  # Before the first row, the cursor contains no state of `on_error`, and `lists` is empty.
        raise PipelineError(
            'There is no list of skipped rows: the pipeline has no on_error("skip"), or a later stage reads the whole dataset at once. '
            f'Put on_error("skip") after load, cache and shuffle, in {dataset!r}.'
        )
    return tuple(SkippedRow(locate(owner, row), stage, reason) for owner, entries in lists for row, stage, reason in entries)


def skips_rows(dataset: Dataset[Any]) -> bool:
    """Return True if a pipeline contains `on_error`."""
    return any(isinstance(part, OnError) for part in _parts(dataset))


def lists_all(dataset: Dataset[Any]) -> bool:
    """Return True if the final cursor lists all skipped rows. A stage after `on_error` that stores or joins datasets loses the list."""
    datasets = children(dataset.source)
    inside = len(datasets) == 1 and not dataset.source.traits.gathers and lists_all(datasets[0])
    return inside or any(isinstance(stage, OnError) for stage in dataset.stages)


@frozen
class _Skipping:
    """Combinator that `on_error` returns."""

    policy: Policy
    max_rate: float | None

    def __call__(self, dataset: Dataset[Example]) -> Dataset[Example]:
        check_level(dataset, self, frozenset({"examples"}))
        if self.policy == "raise":
            return dataset
        parts = list(_parts(dataset))
        if skips_rows(dataset):
            raise PipelineError(f"on_error covers all earlier stages, got a second on_error after {dataset!r}. Remove one on_error.")
        if not any(isinstance(part, Stage | LineSource) or part.indexable for part in parts):
            raise PipelineError(
                f"{self!r} needs an earlier stage that can fail, got {dataset!r}. Put on_error after map and the other stages."
            )
        marked = with_hooks(dataset, lambda child: MarkFailed(child.hooks))
        watched = MarkFailed(dataset.hooks, as_written=len(dataset.stages))  # Mark failed rows only in the stages before `on_error`.
        return attrs.evolve(marked, hooks=watched, stages=(*dataset.stages, OnError(self.policy, self.max_rate)))

    def __repr__(self) -> str:
        return f"on_error({self.policy!r}{'' if self.max_rate is None else f', max_rate={self.max_rate}'})"


def _parts(dataset: Dataset[Any]) -> Iterator[Any]:
    for child in children(dataset.source):
        yield from _parts(child)
    yield from dataset.parts


@frozen(repr=False)
class OnError(Stage):
    """Stage that removes the rows that `MarkFailed` has marked as failed.

    The state is a pair: number of rows read, and tuple of removed rows. Each removed row is stored as (source row, stage, reason).
    """

    policy: Policy
    max_rate: float | None = None  # maximum share of failed rows; None: 10 rows or 0.1 % of the rows of an epoch, whichever is more

    def start(self, epoch: int) -> State:
        return 0, ()

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        """Remove failed rows. Raises `DataError` if too many rows have failed."""
        seen, entries = state
        valid, failed = split_failed(chunk, repr(self))
        if failed is not None:
            positions = np.flatnonzero(chunk.column(ERROR).is_valid().to_numpy(zero_copy_only=False))
            errors = zip(source_rows(failed).tolist(), failed.column(ERROR).to_pylist(), strict=True)
            entries += tuple((row, error["stage"], error["reason"]) for row, error in errors)
            self._check(seen + positions + 1, entries)
        return (seen + chunk.num_rows, entries), (valid,)

    def finish(self, state: State) -> Iterable[RecordBatch]:
        """Raise `DataError` if too many rows of the epoch have failed."""
        seen, entries = state
        if self.max_rate is not None and len(entries) > self.max_rate * seen:
            raise self._too_many(len(entries), seen, entries)
        return ()

    @property
    def traits(self) -> Traits:
        return Traits(longest_row=identity, notes=lambda: (f"skips rows on which earlier stages fail, up to {self.rate:.2%} of the rows",))

    @property
    def rate(self) -> float:
        """Maximum share of failed rows."""
        return _USUAL_RATE if self.max_rate is None else self.max_rate

    def _check(self, seen: NDArray[np.int64], entries: tuple[Any, ...]) -> None:
        """Raise `DataError` if too many rows have failed: more than 10 rows, and more than `max_rate` of the rows read so far.

        The argument `entries` lists all failed rows, in order. The argument `seen` has one number for each failed row of the current chunk:
        the number of rows read up to and including the failed row.
        """
        counts = np.arange(len(entries) - len(seen), len(entries)) + 1
        beyond = np.flatnonzero(counts > np.maximum(FORGIVEN, self.rate * seen))
        if len(beyond):
            raise self._too_many(int(counts[beyond[0]]), int(seen[beyond[0]]), entries)

    def _too_many(self, count: int, rows: int, entries: tuple[Any, ...]) -> DataError:
        causes = [(stage, reason) for _, stage, reason in entries[:count]]
        summary = "; ".join(
            f"{times:,} times {cause[1]} in {cause[0]}, first for source row {row_name(entries[causes.index(cause)][0])}"
            for cause, times in Counter(causes).most_common(3)
        )
        return DataError(
            f"Too many rows fail: {count:,} of the first {rows:,} ({count / rows:.2%}), above max_rate={self.rate} of on_error. "
            f"Most often: {summary}. Fix the data or the stage, or increase max_rate."
        )
