"""Skipping failed rows, with an exact list."""

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

FORGIVEN = 10  # rows that may fail whatever the rate: two bad rows among the first hundred say little about a million


@explain_call
def on_error(policy: Policy, *, max_rate: float = 0.001) -> Callable[[Dataset[Example]], Dataset[Example]]:
    """Leave out the rows on which a stage before this one fails (`"skip"`), instead of stopping at the first (`"raise"`).

    Each is remembered, with the stage and the reason, and `skipped_rows` lists them. Any exception counts, in your functions and in the
    stages of this package; rows are tried again in smaller chunks to find the ones that fail, so functions must be pure. When more than
    `max_rate` of the rows so far were left out, and more than 10, a `DataError` says so. Malformed records of CSV, JSON lines and text are
    skipped too, and their reason names file and line; a quote that is never closed takes the rest of its file along. Of a source with
    random access (a dataset of another library, say), rows that cannot be read are skipped.

    It works on everything before it, through shuffling, joining and loading, so one is enough, and a second one is refused. Put it after
    `shuffle` and before `batch`: what comes out has no random access, for its length is known only by reading.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": "1"}, {"x": "two"}, {"x": "3"}])
    >>> list(fp.pipe(rows, fp.map(lambda row: {"x": int(row["x"])}), fp.on_error("skip")))
    [{'x': 1}, {'x': 3}]
    """
    check_choice(("raise", "skip"), policy=policy)
    check_types((int, float), max_rate=max_rate)
    if not 0 < max_rate <= 1:
        raise ArgumentError(f'max_rate must be above 0 and at most 1, got {max_rate}. To allow no error, use on_error("raise").')
    return _Skipping(policy, max_rate)


@frozen
class SkippedRow:
    """A skipped row: its origin, the failed stage, and the error.

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
    """Return the rows that `on_error("skip")` had left out when the run came to the cursor, in that order; at its end, all of them.

    They are part of the cursor, also after `Cursor.to_bytes`; those of the source chunk in hand are found by feeding it again. Where
    `repeat` follows, they are those of the current pass. Raises `PipelineError` if the dataset has no `on_error`, or if a stage after it
    reads everything at once and so keeps no list (`load`, `cache`, a `shuffle` in memory): put `on_error` behind that.

    >>> import mlxfp as fp
    >>> rows = fp.from_examples([{"x": "1"}, {"x": "two"}, {"x": "3"}])
    >>> numbers = fp.pipe(rows, fp.map(lambda row: {"x": int(row["x"])}), fp.on_error("skip"))
    >>> *_, (row, cursor) = fp.iterate(numbers)
    >>> [(each.origin.row, each.reason) for each in fp.inspect.skipped_rows(numbers, cursor)]
    [(1, "ValueError: invalid literal for int() with base 10: 'two'")]
    """
    check_dataset(dataset, skipped_rows)
    runs = list(reached(dataset, cursor))[::-1]
    found = [(run.dataset, state[1]) for run in runs for stage, state in run.states if isinstance(stage, OnError)]
    if not found and not lists_all(dataset):  # else no item has come out
        raise PipelineError(
            'There is no list of skipped rows: the pipeline has no on_error("skip"), or a stage after it reads everything at once. '
            f"Put it behind load, cache and shuffle, in {dataset!r}."
        )
    return tuple(SkippedRow(locate(owner, row), stage, reason) for owner, entries in found for row, stage, reason in entries)


def skips_rows(dataset: Dataset[Any]) -> bool:
    """Return whether a pipeline has an `on_error`."""
    return any(isinstance(part, OnError) for part in _parts(dataset))


def lists_all(dataset: Dataset[Any]) -> bool:
    """Return whether the cursor at the end holds the whole list of `on_error`: nothing after it gathers an epoch, or joins datasets."""
    held = children(dataset.source)
    inside = len(held) == 1 and not dataset.source.traits.gathers and lists_all(held[0])
    return inside or any(isinstance(stage, OnError) for stage in dataset.stages)


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
        if skips_rows(dataset):
            raise PipelineError(
                f"on_error works on everything before it, so one is enough, got a second one after {dataset!r}. Leave one out."
            )
        if not any(isinstance(part, Stage | LineSource) or part.indexable for part in parts):
            raise PipelineError(
                f"{self!r} skips rows on which a stage before it fails, and there is no stage: got {dataset!r}. Put it after map and the "
                "other stages."
            )
        marked = with_hooks(dataset, lambda held: MarkFailed(held.hooks))
        watched = MarkFailed(dataset.hooks, as_written=len(dataset.stages))  # the stages before `on_error` only
        return attrs.evolve(marked, hooks=watched, stages=(*dataset.stages, OnError(self.policy, self.max_rate)))

    def __repr__(self) -> str:
        return f"on_error({self.policy!r}, max_rate={self.max_rate})"


def _parts(dataset: Dataset[Any]) -> Iterator[Any]:
    for child in children(dataset.source):
        yield from _parts(child)
    yield from dataset.parts


@frozen(repr=False)
class OnError(Stage):
    """Takes out the rows that `MarkFailed` has marked. The state is (rows seen, (source row, stage, reason) of each row left out)."""

    policy: Policy
    max_rate: float = 0.001

    def start(self, epoch: int) -> State:
        """Return the state before the first row."""
        return 0, ()

    def step(self, state: State, chunk: RecordBatch) -> tuple[State, Iterable[RecordBatch]]:
        """Take the failed rows out; raise `DataError` when they are too many."""
        seen, entries = state
        well, failed = split_failed(chunk, repr(self))
        if failed is not None:
            places = np.flatnonzero(chunk.column(ERROR).is_valid().to_numpy(zero_copy_only=False))
            found = zip(source_rows(failed).tolist(), failed.column(ERROR).to_pylist(), strict=True)
            entries += tuple((row, each["stage"], each["reason"]) for row, each in found)
            self._check(seen + places + 1, entries)
        return (seen + chunk.num_rows, entries), (well,)

    @property
    def traits(self) -> Traits:
        """A note on the rows that are left out."""
        return Traits(longest_row=identity, notes=lambda: (f"skips rows that fail before it, up to {self.max_rate:.2%} of them",))

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
