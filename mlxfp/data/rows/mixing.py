"""Functions that join datasets. They read one dataset after another, alternate between datasets, or mix in given proportions."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from attrs import evolve, frozen
from numpy.typing import NDArray

from mlxfp.core.arrow.ragged import read_lists
from mlxfp.core.chunks import LEAF_BITS, Indices, RecordBatch, Schema, concat_chunks, source_rows
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Dataset
from mlxfp.core.execution import run, start
from mlxfp.core.sources import Position, SourceTraits, check_ends, warn_redrawn
from mlxfp.data.rows.joining import Concat, Joined, joinable
from mlxfp.data.rows.mixture_weights import Times, Weights, weights_for
from mlxfp.data.rows.repeating import FOREVER
from mlxfp.support.checks import check_choice, explain_call
from mlxfp.support.errors import DataError, PipelineError, SchemaError
from mlxfp.support.terminal import columns_text

Item = TypeVar("Item")
Measure = Literal["examples", "tokens"]
Stop = Literal["first", "all", "restart"]
# Progress of a dataset: cost of the yielded items (see `Mix.costs`), number of yielded items, number of passes (-1: ended), cursor.
_Mark = tuple[int, int, int, Cursor | None]


@explain_call
def concat(datasets: Sequence[Dataset[Item]]) -> Dataset[Item]:
    """Join datasets end to end. All datasets need the same columns and types.

    >>> import mlxfp as fp
    >>> list(fp.concat([fp.from_examples([{"x": 1}]), fp.from_examples([{"x": 2}])]))
    [{'x': 1}, {'x': 2}]
    """
    joined = joinable(datasets, "concat")
    for dataset in joined[:-1]:
        check_ends(dataset, "concat")
    return Dataset(Concat(joined))


@explain_call
def interleave(datasets: Sequence[Dataset[Item]]) -> Dataset[Item]:
    """Take one item from each dataset in turn. A dataset without further items is left out.

    >>> import mlxfp as fp
    >>> a, b = (fp.from_examples([{"x": x} for x in text]) for text in ("abc", "12"))
    >>> "".join(row["x"] for row in fp.interleave([a, b]))
    'a1b2c'
    """
    joined = joinable(datasets, "interleave")
    return Dataset(Mix(joined, weights_for(len(joined), [1] * len(joined)), "examples", "all"))


@explain_call
def mix(
    datasets: Sequence[Dataset[Item]],
    weights: Sequence[float] | Mapping[int, Sequence[float]],
    *,
    by: Measure = "examples",
    stop: Stop = "restart",
) -> Dataset[Item]:
    """Mix datasets deterministically in proportion to `weights`. The next item comes from the dataset furthest below its share.

    With N datasets, the number of items from each dataset is at any time within N items of its exact share. A dataset of weight 0
    contributes no items. `by="tokens"` measures shares in tokens of the column `input_ids` instead of examples, and works only before
    `batch`.

    If `weights` is a mapping, the weights change during the run. For example, `{0: [3, 1], 10_000: [1, 1]}` has the weights 3 and 1 for the
    first 10,000 items of the mixture, and equal weights afterwards. The keys count items, or tokens with `by="tokens"`. With
    `stop="all"`, the keys also count the items that an ended dataset would have added.

    The argument `stop` selects what happens when a dataset ends:

    - `"first"` ends the mixture.
    - `"all"` continues without this dataset.
    - `"restart"` begins the next epoch of this dataset, so the mixture is endless.

    Raises `DataError` if a restarted dataset has no items. Warns if a restarted dataset has other rows in each epoch (see `take`).

    >>> import mlxfp as fp
    >>> from itertools import islice
    >>> a, b = (fp.from_examples([{"x": x}]) for x in "ab")
    >>> "".join(row["x"] for row in islice(fp.mix([a, b], [3, 1]), 12))
    'abaaabaaabaa'
    >>> "".join(row["x"] for row in islice(fp.mix([a, b], {0: [1, 0], 4: [1, 1], 8: [0, 1]}), 12))
    'aaaaababbbbb'

    See also: `mixture_proportions` for the share that each dataset has contributed.
    """
    joined = joinable(datasets, "mix")
    check_choice(("examples", "tokens"), by=by)
    check_choice(("first", "all", "restart"), stop=stop)
    checked = weights_for(len(joined), weights)
    if by == "tokens" and joined[0].level != "examples":
        raise PipelineError(f'mix(by="tokens") takes examples, got {joined[0].level}. Mix before batch.')
    if stop == "restart":
        for dataset in joined:
            warn_redrawn(dataset, stacklevel=3)  # The warning points to the line that calls `mix`.
    return Dataset(Mix(joined, checked, by, stop))


@frozen(repr=False)
class Mix(Joined):
    """Source that mixes datasets. Each item gets a due time, and items are sorted by due time.

    The due time of an item depends on n, the number of items (or tokens) that its dataset yields before the item. With constant weights,
    the due time is n divided by the weight of the dataset.
    """

    weights: Weights
    by: Measure = "examples"
    stop: Stop = "restart"

    @property
    def traits(self) -> SourceTraits:
        """Properties that the planner needs. The value of `stop` decides whether the mixture is endless.

        - `"restart"`: the mixture is always endless.
        - `"first"`: the mixture ends with the first dataset that ends. It is endless if all datasets are endless.
        - `"all"`: the mixture ends when all datasets have ended. It is endless if at least one dataset is endless.

        Datasets of weight 0 do not count.
        """
        endless = [dataset.endless for dataset, positive in zip(self.datasets, self.weights.positive, strict=True) if positive]
        return evolve(super().traits, before=self.before, endless=self.stop == "restart" or (all if self.stop == "first" else any)(endless))

    def schema(self) -> Schema:
        schema = super().schema()
        if self.by == "tokens" and "input_ids" not in schema.names:
            raise SchemaError(f'mix(by="tokens") needs the column input_ids, but the columns are {columns_text(schema)}.')
        return schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        """Yield chunks of items in the order of the mixture. Each chunk comes with its resume position.

        A resume position consists of four tuples, each with one entry per dataset:

        - total cost of the yielded items: number of tokens for `by="tokens"`, otherwise number of items
        - number of yielded items
        - number of completed passes, or -1 for a dataset that has ended
        - cursor of the dataset
        """
        marks: list[_Mark] = list(zip(*position, strict=True)) if position else [(0, 0, 0, None)] * len(self.datasets)
        with ExitStack() as stack:
            readers = {
                index: _Reader(self, index, epoch, mark)
                for index, (positive, mark) in enumerate(zip(self.weights.positive, marks, strict=True))
                if positive and mark[2] >= 0
            }
            for reader in readers.values():
                stack.callback(reader.close)
            while True:
                ended = [index for index, reader in readers.items() if not reader.fill()]
                # With stop="first", an ended dataset stays in `readers`. The mixture then ends when the next item of this dataset is due.
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
        """Count the items of each of the N datasets before a resume position, int64[2, N].

        Row 0 counts tokens if `by="tokens"`, and items otherwise. Row 1 always counts items.
        """
        return np.array(position[:2] if position else np.zeros((2, len(self.datasets))), np.int64)

    def given_in(self, chunk: RecordBatch) -> NDArray[np.int64]:
        """Count the items from each of the N datasets in `chunk`, int64[2, N].

        Row 0 counts tokens if `by="tokens"`, and items otherwise. Row 1 always counts items.
        """
        owners, costs = self.owners(chunk), self.costs(chunk)
        return np.array([np.bincount(owners, amounts, len(self.datasets)) for amounts in (costs, None)], np.int64)

    def costs(self, chunk: Any) -> Indices:
        """Return the cost of each item in a chunk, int64[N]. The cost is the number of tokens if `by="tokens"`, and 1 otherwise."""
        if self.datasets[0].level != "examples":
            return np.ones(1, np.int64)
        if self.by == "examples":
            return np.ones(chunk.num_rows, np.int64)
        lengths: Indices = np.diff(read_lists(chunk.column("input_ids"))[1])
        return lengths.clip(1)  # An empty row counts as one token. Otherwise a dataset of empty rows would fill the whole mixture.

    def owners(self, chunk: RecordBatch) -> Indices:
        """Return the index of the source dataset of each row: int64[N]."""
        return np.searchsorted(self.first_leaves[1:], source_rows(chunk) >> LEAF_BITS, side="right")

    def _due(self, readers: "dict[int, _Reader]") -> Any:
        """Remove and return the next items of the mixture from the buffers. Return None if a dataset must be read first."""
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
    """Reader and buffer for one dataset of a mixture. Each buffered item has a due time, which is its sort key in the mixture."""

    def __init__(self, mixture: Mix, index: int, epoch: int, mark: _Mark) -> None:
        self._mixture, self._index, self._epoch = mixture, index, epoch
        self.given, self.items, self.passes, self.cursor = mark
        self.times: Times = self._due([0])  # due times (sort keys) of the buffered items, then the due time of the next item
        self._chunk: Any = None
        self._after: Cursor | None = self.cursor
        self._chunks = self._run(self.cursor)

    def _run(self, cursor: Cursor | None) -> Any:
        passes = FOREVER if self._mixture.stop == "restart" else 1
        return run(self._mixture.datasets[self._index], start(self._epoch * passes + self.passes, cursor))

    @property
    def mark(self) -> _Mark:
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
            self.cursor, self.times = after, self._due([0])
            return
        if after is not None and self._mixture.datasets[0].level == "examples":
            self.cursor = after.back(chunk.num_rows)  # The cursor must not skip rows still in the buffer.
        costs = self._mixture.costs(chunk)
        self.times = self._due(np.concatenate([[0], np.cumsum(costs)]))

    def _due(self, more: Any) -> Times:
        """Return the due times (sort keys) of M items, float64[M]. `more[i]` counts the items or tokens in the buffer before item i."""
        return self._mixture.weights.due(self._index, self.given + np.asarray(more))
