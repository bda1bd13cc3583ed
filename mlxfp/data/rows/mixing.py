"""Joining datasets: end to end, in turns, in proportion."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import cached_property
from itertools import accumulate
from numbers import Real
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import read_lists
from mlxfp.core.chunks import LEAF_BITS, Indices, RecordBatch, Schema, concat_chunks, number_joined, source_rows
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.describing import length
from mlxfp.core.execution import row_count, row_task, run, start
from mlxfp.core.nodes import check_dataset, known_length, leaves
from mlxfp.core.planning import head
from mlxfp.core.sources import Position, Source, SourceTraits, Task, check_ends, warn_redrawn
from mlxfp.data.rows.repeating import FOREVER
from mlxfp.support.checks import check_choice, check_types, explain_call
from mlxfp.support.errors import ArgumentError, DataError, PipelineError, SchemaError
from mlxfp.support.terminal import columns_text

Item = TypeVar("Item")
Measure = Literal["examples", "tokens"]
Stop = Literal["first", "all", "restart"]
Times = NDArray[np.float64]
_Mark = tuple[int, int, int, Cursor | None]  # of a dataset: what it gave as `by` counts it, items, passes or -1 if it has ended, cursor


@explain_call
def concat(datasets: Sequence[Dataset[Item]]) -> Dataset[Item]:
    """Join datasets end to end; they have the same columns and types.

    >>> import mlxfp as fp
    >>> list(fp.concat([fp.from_examples([{"x": 1}]), fp.from_examples([{"x": 2}])]))
    [{'x': 1}, {'x': 2}]
    """
    joined = _joinable(datasets, "concat")
    for dataset in joined[:-1]:
        check_ends(dataset, "concat")
    return Dataset(_Concat(joined))


@explain_call
def interleave(datasets: Sequence[Dataset[Item]]) -> Dataset[Item]:
    """Take one item of each dataset in turn; one that has ended is left out from then on.

    >>> import mlxfp as fp
    >>> a, b = (fp.from_examples([{"x": x} for x in text]) for text in ("abc", "12"))
    >>> "".join(row["x"] for row in fp.interleave([a, b]))
    'a1b2c'
    """
    joined = _joinable(datasets, "interleave")
    return Dataset(Mix(joined, (1.0,) * len(joined), "examples", "all"))


@explain_call
def mix(datasets: Sequence[Dataset[Item]], weights: Sequence[float], *, by: Measure = "examples", stop: Stop = "restart") -> Dataset[Item]:
    """Mix datasets in proportion to `weights`, deterministically: the next item is of the dataset that is furthest behind its share.

    `by="tokens"` counts the tokens in `input_ids` instead of examples, and works before `batch`. When a dataset ends, the mixture ends
    (`stop="first"`), goes on without it ("all"), or starts it again with its next epoch, endlessly ("restart"). A dataset of weight 0
    gives nothing. Shares are exact at every moment to within one item of each dataset. Raises `DataError` where a dataset that restarts
    has no items; warns where each of its epochs has other rows (see `take`).

    >>> import mlxfp as fp
    >>> from itertools import islice
    >>> a, b = (fp.from_examples([{"x": x}]) for x in "ab")
    >>> "".join(row["x"] for row in islice(fp.mix([a, b], [3, 1]), 12))
    'abaaabaaabaa'

    See also: `mixture_proportions` for what each dataset has given.
    """
    joined = _joinable(datasets, "mix")
    check_choice(("examples", "tokens"), by=by)
    check_choice(("first", "all", "restart"), stop=stop)
    check_types((Sequence, np.ndarray), weights=weights)
    for weight in weights:
        check_types(Real, weight=weight)
    if len(weights) != len(joined):
        raise ArgumentError(f"mix needs one weight for each dataset, got {len(weights)} for {len(joined)}.")
    if min(weights) < 0 or not 0 < sum(weights) < float("inf"):
        raise ArgumentError(f"weights must be at least 0 and not all 0, got {list(weights)}.")
    if by == "tokens" and joined[0].level != "examples":
        raise PipelineError(f'mix(by="tokens") takes examples, got {joined[0].level}. Mix before batch.')
    if stop == "restart":
        for dataset in joined:
            warn_redrawn(dataset, stacklevel=3)  # the line with mix
    return Dataset(Mix(joined, tuple(map(float, weights)), by, stop))


def _joinable(datasets: Any, name: str) -> tuple[Dataset[Any], ...]:
    if not isinstance(datasets, Sequence) or not datasets:
        raise ArgumentError(f"{name} takes a list of at least one dataset, got {datasets!r:.60}.")
    for dataset in datasets:
        check_dataset(dataset, name)
    levels = [dataset.level for dataset in datasets]
    if len(set(levels)) > 1:
        raise PipelineError(f"{name} joins datasets of one level, got {', '.join(levels)}. Put batch and collate after {name}.")
    return tuple(datasets)


@frozen(repr=False)
class _Joined(Source):
    datasets: tuple[Dataset[Any], ...]

    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, level=self.datasets[0].level, head=self.head, children_at=self.children_at)

    @abstractmethod
    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return the datasets that have begun, each with its cursor."""

    def schema(self) -> Schema:
        schemas = [dataset.plan.schema for dataset in self.datasets]
        for place, schema in enumerate(schemas):
            if not schema.equals(schemas[0]):
                raise SchemaError(
                    f"Joined datasets have the same columns; number 0 has {columns_text(schemas[0])}, number {place} has "
                    f"{columns_text(schema)}. Use select_columns, rename_columns or map before joining them."
                )
        return schemas[0]

    def version(self) -> Any:
        return tuple(dataset.source.version() for dataset in self.datasets)

    def head(self) -> Iterator[RecordBatch]:
        for place, dataset in enumerate(self.datasets):
            yield from (self.marked(chunk, place) for chunk in head(dataset))

    def marked(self, chunk: Any, place: int) -> Any:
        """Say in the hidden columns which dataset a chunk comes from."""
        return chunk if isinstance(chunk, dict) else number_joined(chunk, place, self.first_leaf(place))  # a batch has no such columns

    def first_leaf(self, place: int) -> int:
        """Count the leaf sources of the datasets before one."""
        return self._first_leaves[place]

    @cached_property
    def _first_leaves(self) -> tuple[int, ...]:
        return tuple(accumulate((sum(1 for _ in leaves(dataset)) for dataset in self.datasets), initial=0))


@frozen(repr=False)
class _Concat(_Joined):
    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, costly=self.costly, task=self.task, exact_length=self.exact_length)

    @property
    def indexable(self) -> bool:
        return self.datasets[0].level == "examples" and all(dataset.indexable for dataset in self.datasets)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        first, cursor = position or (0, None)
        for place in range(first, len(self.datasets)):
            with closing(run(self.datasets[place], start(epoch, cursor))) as chunks:
                for chunk, cursor in chunks:
                    yield self.marked(chunk, place), (place, cursor)
            cursor = None

    def costly(self) -> bool:
        return any(dataset.plan.costly for dataset in self.datasets)

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return self.task(epoch, indices).read()

    def task(self, epoch: int, indices: NDArray[np.int64]) -> Task:
        ends = np.cumsum([row_count(dataset) for dataset in self.datasets])
        places = np.searchsorted(ends, indices, side="right")
        order = np.argsort(places, kind="stable")
        asked = np.unique(places).tolist() or [0]
        starts = np.concatenate([[0], ends])
        parts = tuple(row_task(self.datasets[p], epoch, indices[order][places[order] == p] - starts[p]) for p in asked)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return _Gathered(parts, tuple(asked), tuple(map(self.first_leaf, asked)), back)

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        return () if position is None or position[1] is None else ((self.datasets[position[0]], position[1]),)

    def length(self) -> int | None:
        return _sum(known_length(dataset) for dataset in self.datasets)

    def exact_length(self) -> int | None:
        return _sum(length(dataset) for dataset in self.datasets)


@frozen(eq=False)
class _Gathered(Task):
    """Rows of several datasets, in another order."""

    parts: tuple[Task, ...]
    places: tuple[int, ...]  # which of the datasets each part is of
    leaves: tuple[int, ...]  # the number of its first leaf source
    order: Indices  # of the rows of all parts, one after the other

    @property
    def rows(self) -> int:
        return len(self.order)

    def read(self) -> RecordBatch:
        parts = zip(self.parts, self.places, self.leaves, strict=True)
        return concat_chunks([number_joined(part.read(), place, leaf) for part, place, leaf in parts]).take(pa.array(self.order))

    def sent_to(self, workers: str) -> Task:
        return _Gathered(tuple(part.sent_to(workers) for part in self.parts), self.places, self.leaves, self.order)


@frozen(repr=False)
class Mix(_Joined):
    """Every item has a due time: what its dataset gave before it, divided by its weight. Items come in the order of their times.

    So the order is a sort, done for many rows at once: of the rows at hand, those due before any dataset could run out of them.
    """

    weights: tuple[float, ...]
    by: Measure
    stop: Stop

    @property
    def traits(self) -> SourceTraits:
        """An epoch has no end if datasets start again, or if those that the mixture waits for have none."""
        held = [dataset.endless for dataset, weight in zip(self.datasets, self.weights, strict=True) if weight]
        return evolve(super().traits, endless=self.stop == "restart" or (all if self.stop == "first" else any)(held))

    def schema(self) -> Schema:
        """Return the schema that the datasets share."""
        schema = super().schema()
        if self.by == "tokens" and "input_ids" not in schema.names:
            raise SchemaError(f'mix(by="tokens") counts the column input_ids, which is not there. Columns: {columns_text(schema)}.')
        return schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Positions are (what each gave as `by` counts it, items that each gave, passes or -1 if it has ended, cursors)."""
        marks: list[_Mark] = list(zip(*position, strict=True)) if position else [(0, 0, 0, None)] * len(self.datasets)
        with ExitStack() as stack:
            readers = {
                place: _Reader(self, place, epoch, mark)
                for place, (weight, mark) in enumerate(zip(self.weights, marks, strict=True))
                if weight and mark[2] >= 0
            }
            for reader in readers.values():
                stack.callback(reader.close)
            while True:
                ended = [place for place, reader in readers.items() if not reader.fill()]
                if self.stop != "first":  # else it stays, holds nothing, and no item due after its end comes out
                    for place in ended:
                        reader = readers.pop(place)
                        reader.close()
                        marks[place] = (reader.given, reader.items, -1, None)
                due = self._due(readers) if readers else None
                if due is None:
                    return
                marks = [readers[place].mark if place in readers else mark for place, mark in enumerate(marks)]
                yield due, tuple(zip(*marks, strict=True))

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return the datasets that have begun, each with its cursor."""
        cursors = position[3] if position else ()
        return tuple((child, cursor) for child, cursor in zip(self.datasets, cursors, strict=False) if cursor is not None)

    def given_at(self, position: Position) -> NDArray[np.int64]:
        """Return what each dataset had given at a position, as `by` counts it and in items: int64[2, N]."""
        return np.array(position[:2] if position else np.zeros((2, len(self.weights))), np.int64)

    def given_in(self, chunk: RecordBatch) -> NDArray[np.int64]:
        """Return what each dataset gives in a chunk, counted likewise: int64[2, N]."""
        owners, costs = self.owners(chunk), self.costs(chunk)
        return np.array([np.bincount(owners, weights, len(self.weights)) for weights in (costs, None)], np.int64)

    def costs(self, chunk: Any) -> Indices:
        """Say what each item of a chunk counts, as `by` says: int64[N]."""
        if self.traits.level != "examples":
            return np.ones(1, np.int64)
        if self.by == "examples":
            return np.ones(chunk.num_rows, np.int64)
        lengths: Indices = np.diff(read_lists(chunk.column("input_ids"))[1])
        return lengths.clip(1)  # an empty row counts as one token, or a dataset of them would never fall due

    def owners(self, chunk: RecordBatch) -> Indices:
        """Say which of the datasets each row is of: int64[N]."""
        return np.searchsorted(self._first_leaves[1:], source_rows(chunk) >> LEAF_BITS, side="right")

    def _due(self, readers: "dict[int, _Reader]") -> Any:
        """Take the items that are due before any reader runs out of what it holds, or None if there are none."""
        horizon, first = min((reader.times[-1], place) for place, reader in readers.items())
        counts = {
            place: int(np.searchsorted(reader.times[:-1], horizon, side="right" if place < first else "left"))  # at one time, in order
            for place, reader in readers.items()
        }
        if not any(counts.values()):
            return None
        if self.traits.level != "examples":
            place = min((place for place in readers if counts[place]), key=lambda place: (readers[place].times[0], place))
            return readers[place].take(1)
        times = np.concatenate([readers[place].times[:count] for place, count in counts.items()])
        rows = concat_chunks([readers[place].take(count) for place, count in counts.items() if count])
        return rows.take(pa.array(np.argsort(times, kind="stable")))


class _Reader:
    """One dataset of a mixture while it runs: the rows at hand and their due times. Running machinery, never part of a value."""

    def __init__(self, mixture: Mix, place: int, epoch: int, mark: _Mark) -> None:
        self._mixture, self._place, self._epoch = mixture, place, epoch
        self.given, self.items, self.passes, self.cursor = mark
        self.times: Times = np.array([self.given / mixture.weights[place]])  # of the items at hand, then of the one after them
        self._chunk: Any = None
        self._after: Cursor | None = self.cursor
        self._chunks = self._run(self.cursor)

    def _run(self, cursor: Cursor | None) -> Any:
        passes = FOREVER if self._mixture.stop == "restart" else 1
        return run(self._mixture.datasets[self._place], start(self._epoch * passes + self.passes, cursor))

    @property
    def mark(self) -> _Mark:
        """Where it stands, as the position says it."""
        return self.given, self.items, self.passes, self.cursor

    def fill(self) -> bool:
        """Hold at least one item; False when the dataset has ended for good."""
        while self._chunk is None:
            item = next(self._chunks, None)
            if item is not None:
                self._hold(self._mixture.marked(item[0], self._place), item[1])
            elif self._mixture.stop != "restart":
                return False
            elif self._after is None:  # a whole pass gave nothing
                raise DataError(
                    "A mixture that restarts would go on without one of its datasets: an epoch of "
                    f"{self._mixture.datasets[self._place]!r} has no items. "
                    'Look at what it reads; leave it out, give it the weight 0, or end the mixture with stop="all" or "first".'
                )
            else:
                self.passes, self.cursor, self._after = self.passes + 1, None, None
                self._chunks = self._run(None)
        return True

    def take(self, count: int) -> Any:
        """Give the first items that are held."""
        if self._mixture.traits.level != "examples":
            taken, rest = self._chunk, None
        else:
            taken = self._chunk.slice(0, count)
            rest = self._chunk.slice(count) if count < self._chunk.num_rows else None
        costs = self._mixture.costs(taken)
        self.given, self.items = self.given + int(costs.sum()), self.items + len(costs)
        self._hold(rest, self._after)
        return taken

    def close(self) -> None:
        """Stop reading."""
        self._chunks.close()

    def _hold(self, chunk: Any, after: Cursor | None) -> None:
        self._chunk, self._after = chunk, after
        if chunk is None:
            self.cursor, self.times = after, np.array([self.given / self._mixture.weights[self._place]])
            return
        if after is not None and self._mixture.traits.level == "examples":
            self.cursor = after.back(chunk.num_rows)  # the rows at hand are still to come
        costs = self._mixture.costs(chunk)
        self.times = (self.given + np.concatenate([[0], np.cumsum(costs)])) / self._mixture.weights[self._place]


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
