"""Functions that join datasets: end to end, with one item from each dataset in turn, or in proportion to weights."""

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
# Progress of a dataset: amount given (examples or tokens), items given, number of passes (-1 after the end), cursor.
_Mark = tuple[int, int, int, Cursor | None]


@explain_call
def concat(datasets: Sequence[Dataset[Item]]) -> Dataset[Item]:
    """Join datasets end to end. All datasets need the same columns and types.

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
    """Take one item from each dataset in turn. A dataset without further items is left out.

    >>> import mlxfp as fp
    >>> a, b = (fp.from_examples([{"x": x} for x in text]) for text in ("abc", "12"))
    >>> "".join(row["x"] for row in fp.interleave([a, b]))
    'a1b2c'
    """
    joined = _joinable(datasets, "interleave")
    return Dataset(Mix(joined, (1.0,) * len(joined), "examples", "all"))


@explain_call
def mix(datasets: Sequence[Dataset[Item]], weights: Sequence[float], *, by: Measure = "examples", stop: Stop = "restart") -> Dataset[Item]:
    """Mix datasets deterministically in proportion to `weights`. The next item comes from the dataset furthest below its share.

    `by="tokens"` measures shares by the number of tokens in `input_ids` instead of examples, and works only before `batch`. A dataset of
    weight 0 contributes nothing. At any time, each share is exact within one item per dataset.

    `stop` selects what happens when a dataset ends: `"first"` ends the mixture, `"all"` continues without this dataset, and `"restart"`
    begins the next epoch of this dataset, so the mixture is endless.

    Raises `DataError` if a restarted dataset has no items. Warns if a restarted dataset has other rows in each epoch (see `take`).

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
            warn_redrawn(dataset, stacklevel=3)  # The warning points to the line that calls `mix`.
    return Dataset(Mix(joined, tuple(map(float, weights)), by, stop))


def _joinable(datasets: Any, name: str) -> tuple[Dataset[Any], ...]:
    if not isinstance(datasets, Sequence) or not datasets:
        raise ArgumentError(f"{name} takes a list of at least one dataset, got {datasets!r:.60}.")
    for dataset in datasets:
        check_dataset(dataset, name)
    levels = [dataset.level for dataset in datasets]
    if len(set(levels)) > 1:
        raise PipelineError(f"{name} joins datasets with items of one kind, got {', '.join(levels)}. Put batch and collate after {name}.")
    return tuple(datasets)


@frozen(repr=False)
class _Joined(Source):
    datasets: tuple[Dataset[Any], ...]

    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, level=self.datasets[0].level, head=self.head, children_at=self.children_at)

    @abstractmethod
    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        """Return the datasets that have been started, each with its cursor."""

    def schema(self) -> Schema:
        schemas = [dataset.plan.schema for dataset in self.datasets]
        for index, schema in enumerate(schemas):
            if not schema.equals(schemas[0]):
                raise SchemaError(
                    f"Joined datasets need the same columns; dataset 0 has {columns_text(schemas[0])}, dataset {index} has "
                    f"{columns_text(schema)}. Use select_columns, rename_columns or map before joining the datasets."
                )
        return schemas[0]

    def version(self) -> Any:
        return tuple(dataset.source.version() for dataset in self.datasets)

    def head(self) -> Iterator[RecordBatch]:
        for index, dataset in enumerate(self.datasets):
            yield from (self.marked(chunk, index) for chunk in head(dataset))

    def marked(self, chunk: Any, index: int) -> Any:
        """Write the index of the dataset into a hidden column of a chunk. Batches have no hidden columns and stay unchanged."""
        return chunk if isinstance(chunk, dict) else number_joined(chunk, index, self.first_leaf(index))

    def first_leaf(self, index: int) -> int:
        """Return the number of data sources in the datasets before dataset `index`.

        The number identifies the first data source of this dataset.
        """
        return self._first_leaves[index]

    @cached_property
    def _first_leaves(self) -> tuple[int, ...]:
        return tuple(accumulate((sum(1 for _ in leaves(dataset)) for dataset in self.datasets), initial=0))


@frozen(repr=False)
class _Concat(_Joined):
    @property
    def traits(self) -> SourceTraits:
        return evolve(super().traits, costly=self.costly, task=self.task, exact_length=self.exact_length, before=self.before)

    @property
    def indexable(self) -> bool:
        return self.datasets[0].level == "examples" and all(dataset.indexable for dataset in self.datasets)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        first, cursor = position or (0, None)
        for index in range(first, len(self.datasets)):
            with closing(run(self.datasets[index], start(epoch, cursor))) as chunks:
                for chunk, cursor in chunks:
                    yield self.marked(chunk, index), (index, cursor)
            cursor = None

    def costly(self) -> bool:
        return any(dataset.plan.costly for dataset in self.datasets)

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return self.task(epoch, indices).read()

    def task(self, epoch: int, indices: NDArray[np.int64]) -> Task:
        ends = np.cumsum([row_count(dataset) for dataset in self.datasets])
        owners = np.searchsorted(ends, indices, side="right")
        order = np.argsort(owners, kind="stable")
        needed = np.unique(owners).tolist() or [0]
        starts = np.concatenate([[0], ends])
        parts = tuple(row_task(self.datasets[p], epoch, indices[order][owners[order] == p] - starts[p]) for p in needed)
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return _Gathered(parts, tuple(needed), tuple(map(self.first_leaf, needed)), inverse)

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        return () if position is None or position[1] is None else ((self.datasets[position[0]], position[1]),)

    def before(self, chunk: RecordBatch, after: Position) -> Position:
        index, cursor = after
        return index, cursor.back(chunk.num_rows)

    def length(self) -> int | None:
        return _sum(known_length(dataset) for dataset in self.datasets)

    def exact_length(self) -> int | None:
        return _sum(length(dataset) for dataset in self.datasets)


@frozen(eq=False)
class _Gathered(Task):
    """Task that reads rows from several datasets and puts the rows in the order of the mixture."""

    parts: tuple[Task, ...]
    owners: tuple[int, ...]  # for each part, the index of its dataset
    leaves: tuple[int, ...]  # for each part, the number of data sources in the datasets before
    order: Indices  # final order of the concatenated rows

    @property
    def rows(self) -> int:
        return len(self.order)

    def read(self) -> RecordBatch:
        parts = zip(self.parts, self.owners, self.leaves, strict=True)
        return concat_chunks([number_joined(part.read(), index, leaf) for part, index, leaf in parts]).take(pa.array(self.order))

    def sent_to(self, workers: str) -> Task:
        return _Gathered(tuple(part.sent_to(workers) for part in self.parts), self.owners, self.leaves, self.order)


@frozen(repr=False)
class Mix(_Joined):
    """Source that merges datasets by a due time of each item.

    The due time of an item is the number of items (or tokens) that its dataset gave before, divided by the weight of the dataset. All
    items that are due before the next read of any dataset are sorted in one step.
    """

    weights: tuple[float, ...]
    by: Measure = "examples"
    stop: Stop = "restart"

    @property
    def traits(self) -> SourceTraits:
        """Traits: endless if datasets restart, if all datasets are endless (`stop="first"`), or if any is endless (`stop="all"`)."""
        endless = [dataset.endless for dataset, weight in zip(self.datasets, self.weights, strict=True) if weight]
        return evolve(super().traits, before=self.before, endless=self.stop == "restart" or (all if self.stop == "first" else any)(endless))

    def schema(self) -> Schema:
        schema = super().schema()
        if self.by == "tokens" and "input_ids" not in schema.names:
            raise SchemaError(f'mix(by="tokens") needs the column input_ids, but the columns are {columns_text(schema)}.')
        return schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Yield the items in the order of their due times, each chunk with the resume position.

        A position has four tuples, each with one entry per dataset: items or tokens given (depending on `by`), items given, completed
        passes (-1 for an ended dataset), and cursors.
        """
        marks: list[_Mark] = list(zip(*position, strict=True)) if position else [(0, 0, 0, None)] * len(self.datasets)
        with ExitStack() as stack:
            readers = {
                index: _Reader(self, index, epoch, mark)
                for index, (weight, mark) in enumerate(zip(self.weights, marks, strict=True))
                if weight and mark[2] >= 0
            }
            for reader in readers.values():
                stack.callback(reader.close)
            while True:
                ended = [index for index, reader in readers.items() if not reader.fill()]
                # With stop="first", an ended dataset stays in `readers`, so that no item with a later due time is given.
                if self.stop != "first":
                    for index in ended:
                        reader = readers.pop(index)
                        reader.close()
                        marks[index] = (reader.given, reader.items, -1, None)
                due = self._due(readers) if readers else None
                if due is None:
                    return
                marks = [readers[index].mark if index in readers else mark for index, mark in enumerate(marks)]
                yield due, tuple(zip(*marks, strict=True))

    def children_at(self, position: Position) -> tuple[tuple[Dataset[Any], Cursor], ...]:
        cursors = position[3] if position else ()
        return tuple((child, cursor) for child, cursor in zip(self.datasets, cursors, strict=False) if cursor is not None)

    def before(self, chunk: RecordBatch, after: Position) -> Position:
        given, items, passes, cursors = after
        costs, counts = self.given_in(chunk)
        back = tuple(cursor.back(count) if count else cursor for cursor, count in zip(cursors, counts.tolist(), strict=True))
        return tuple((given - costs).tolist()), tuple((items - counts).tolist()), passes, back

    def given_at(self, position: Position) -> NDArray[np.int64]:
        """Return the contribution of each of N datasets before a position, int64[2, N].

        Row 0 counts items, or tokens with `by="tokens"`. Row 1 always counts items.
        """
        return np.array(position[:2] if position else np.zeros((2, len(self.weights))), np.int64)

    def given_in(self, chunk: RecordBatch) -> NDArray[np.int64]:
        """Return the contribution of each dataset to a chunk, int64[2, N], as in `given_at`."""
        owners, costs = self.owners(chunk), self.costs(chunk)
        return np.array([np.bincount(owners, weights, len(self.weights)) for weights in (costs, None)], np.int64)

    def costs(self, chunk: Any) -> Indices:
        """Return the cost of each item in a chunk: the number of tokens with `by="tokens"`, else 1: int64[N]."""
        if self.datasets[0].level != "examples":
            return np.ones(1, np.int64)
        if self.by == "examples":
            return np.ones(chunk.num_rows, np.int64)
        lengths: Indices = np.diff(read_lists(chunk.column("input_ids"))[1])
        return lengths.clip(1)  # An empty row counts as one token. Otherwise a dataset of empty rows would fill the whole mixture.

    def owners(self, chunk: RecordBatch) -> Indices:
        """Return the index of the source dataset of each row: int64[N]."""
        return np.searchsorted(self._first_leaves[1:], source_rows(chunk) >> LEAF_BITS, side="right")

    def _due(self, readers: "dict[int, _Reader]") -> Any:
        """Remove and return the buffered items that are due before any dataset must be read again. Return None if no item is due."""
        horizon, first = min((reader.times[-1], index) for index, reader in readers.items())
        counts = {
            index: int(np.searchsorted(reader.times[:-1], horizon, side="right" if index < first else "left"))
            for index, reader in readers.items()
        }
        if not any(counts.values()):
            return None
        if self.datasets[0].level != "examples":
            index = min((index for index in readers if counts[index]), key=lambda index: (readers[index].times[0], index))
            return readers[index].take(1)
        times = np.concatenate([readers[index].times[:count] for index, count in counts.items()])
        rows = concat_chunks([readers[index].take(count) for index, count in counts.items() if count])
        return rows.take(pa.array(np.argsort(times, kind="stable")))


class _Reader:
    """Reader of one dataset of a mixture, with buffered items and their due times. The reader is mutable, so a dataset never stores one."""

    def __init__(self, mixture: Mix, index: int, epoch: int, mark: _Mark) -> None:
        self._mixture, self._index, self._epoch = mixture, index, epoch
        self.given, self.items, self.passes, self.cursor = mark
        self.times: Times = np.array([self.given / mixture.weights[index]])  # due times of the buffered items and of the next item
        self._chunk: Any = None
        self._after: Cursor | None = self.cursor
        self._chunks = self._run(self.cursor)

    def _run(self, cursor: Cursor | None) -> Any:
        passes = FOREVER if self._mixture.stop == "restart" else 1
        return run(self._mixture.datasets[self._index], start(self._epoch * passes + self.passes, cursor))

    @property
    def mark(self) -> _Mark:
        """Progress of this reader: number of examples or tokens yielded, number of items yielded, number of passes, and cursor."""
        return self.given, self.items, self.passes, self.cursor

    def fill(self) -> bool:
        """Buffer at least one item. Return False if the dataset has ended and does not restart."""
        while self._chunk is None:
            item = next(self._chunks, None)
            if item is not None:
                self._hold(self._mixture.marked(item[0], self._index), item[1])
            elif self._mixture.stop != "restart":
                return False
            elif self._after is None:  # A whole pass over the dataset gave no items: a further pass would not help.
                raise DataError(
                    f"mix cannot restart a dataset without items: an epoch of {self._mixture.datasets[self._index]!r} has no items. "
                    'Check the source of this dataset, set its weight to 0, or use stop="all" or stop="first".'
                )
            else:
                self.passes, self.cursor, self._after = self.passes + 1, None, None
                self._chunks = self._run(None)
        return True

    def take(self, count: int) -> Any:
        """Remove and return the first `count` buffered items."""
        if self._mixture.datasets[0].level != "examples":
            items, rest = self._chunk, None
        else:
            items = self._chunk.slice(0, count)
            rest = self._chunk.slice(count) if count < self._chunk.num_rows else None
        costs = self._mixture.costs(items)
        self.given, self.items = self.given + int(costs.sum()), self.items + len(costs)
        self._hold(rest, self._after)
        return items

    def close(self) -> None:
        self._chunks.close()

    def _hold(self, chunk: Any, after: Cursor | None) -> None:
        self._chunk, self._after = chunk, after
        if chunk is None:
            self.cursor, self.times = after, np.array([self.given / self._mixture.weights[self._index]])
            return
        if after is not None and self._mixture.datasets[0].level == "examples":
            self.cursor = after.back(chunk.num_rows)  # The cursor must not skip rows still in the buffer.
        costs = self._mixture.costs(chunk)
        self.times = (self.given + np.concatenate([[0], np.cumsum(costs)])) / self._mixture.weights[self._index]


def _sum(counts: Iterable[int | None]) -> int | None:
    known = list(counts)
    return None if None in known else sum(count for count in known if count is not None)
