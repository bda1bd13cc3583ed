"""Sharding of a dataset: each rank (process) reads its own rows. The global batches are the same for any number of ranks."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import Indices, RecordBatch, Schema, concat_chunks, set_column, set_field
from mlxfp.core.cursors import Cursor
from mlxfp.core.datasets import Combinator, Dataset
from mlxfp.core.execution import row_count, start
from mlxfp.core.nodes import Share
from mlxfp.core.sources import Position, SourceTraits, Task
from mlxfp.core.stages import Stage
from mlxfp.data.row_views import Rows, View, check_reorders
from mlxfp.support.checks import check_choice, check_integer, check_positive, explain_call
from mlxfp.support.errors import ArgumentError, SchemaError

Ends = Literal["uneven", "drop", "pad"]


@frozen
class World:
    """Division of `size` processes into model copies of `tensor * pipeline` processes each.

    Ranks are ordered as in Megatron-LM: tensor-parallel ranks are adjacent, then pipeline stages, then data-parallel copies. All ranks of a
    copy read the same rows, and different copies read disjoint rows: `shard(world.copy, world.copies)`.

    >>> [(World(rank, 4, tensor=2).copy, World(rank, 4, tensor=2).copies) for rank in range(4)]
    [(0, 2), (0, 2), (1, 2), (1, 2)]
    """

    rank: int
    size: int
    tensor: int = 1
    pipeline: int = 1

    def __attrs_post_init__(self) -> None:
        check_positive(size=self.size, tensor=self.tensor, pipeline=self.pipeline)
        check_integer(rank=self.rank)
        if not 0 <= self.rank < self.size:
            raise ArgumentError(f"rank must be from 0 to {self.size - 1}, got rank={self.rank}.")
        if self.size % (self.tensor * self.pipeline):
            raise ArgumentError(
                f"size={self.size} ranks cannot be divided into model copies of tensor * pipeline = {self.tensor} * {self.pipeline} ranks. "
                "Change size, tensor or pipeline, so that the product divides size."
            )

    @property
    def copies(self) -> int:
        """Number of model copies, equal to the number of data shards."""
        return self.size // (self.tensor * self.pipeline)

    @property
    def copy(self) -> int:
        """Index of the model copy of this rank, equal to the shard index."""
        return self.rank // (self.tensor * self.pipeline)


@explain_call
def shard(index: int, count: int, *, ends: Ends = "uneven") -> Callable[[Dataset[Rows]], Dataset[Rows]]:
    """Keep every `count`-th example, starting at `index`: the rows i with i % count == index.

    Use `shard` after `shuffle` and before `batch`. With batches of size b on each of `count` ranks, the global batches of b * count rows
    contain the same rows for any `count`, so the number of ranks may change between epochs.

    `ends` selects the treatment of the last rows if `count` does not divide the number of rows:

    - `"uneven"`: the first ranks get one more row.
    - `"drop"`: the last rows, too few for all ranks, are dropped.
    - `"pad"`: a rank without a last row repeats the last row of the dataset. The column `weight` (float32) is 0 for a repeated row
      and 1 for other rows. Raises `SchemaError` if the rows already have a column `weight`.

    >>> import mlxfp as fp
    >>> [row["x"] for row in fp.pipe(fp.from_examples([{"x": i} for i in range(5)]), fp.shard(1, 2))]
    [1, 3]

    See also: `World` for ranks that share a model.
    """
    check_integer(index=index)
    check_positive(count=count)
    check_choice(("uneven", "drop", "pad"), ends=ends)
    if not 0 <= index < count:
        raise ArgumentError(f"index must be from 0 to {count - 1}, got index={index} of count={count}.")
    return Combinator(_Shard, {"index": index, "count": count, "ends": ends}, frozenset({"examples", "groups"}))


@frozen(repr=False)
class _Shard(View):
    index: int
    count: int
    ends: Ends = "uneven"

    def __attrs_post_init__(self) -> None:
        check_reorders(self.dataset, self)

    @property
    def traits(self) -> SourceTraits:
        share = Share(self.count, 0, attrs.evolve(self, index=0, count=1), self.position_after)
        # A stream must be read with all columns, because a cursor may hold a whole row.
        return attrs.evolve(super().traits, share=share, keeps_rows=self.indexable)

    def schema(self) -> Schema:
        schema = super().schema()
        return _with_weight(schema) if self.ends == "pad" else schema

    def rows(self, indices: Indices, epoch: int) -> Indices:
        return np.minimum(indices * self.count + self.index, row_count(self.dataset) - 1)

    def task(self, epoch: int, indices: Indices) -> Task:
        task = super().task(epoch, indices)
        if self.ends != "pad":
            return task
        real = indices * self.count + self.index < row_count(self.dataset)
        return _Weighted(task, np.repeat(real, self.group_sizes(epoch, indices)) if self.dataset.level == "groups" else real)

    def head(self) -> Iterator[RecordBatch]:
        chunks = super().head()
        return (_weighted(chunk, np.ones(chunk.num_rows, bool)) for chunk in chunks) if self.ends == "pad" else chunks

    def size(self, count: int) -> int:
        if self.ends == "uneven":
            return (count - self.index + self.count - 1) // self.count
        return count // self.count if self.ends == "drop" else -(-count // self.count)

    def position_after(self, epoch: int, position: Position, rows: int) -> Position:
        """Return the resume position of this rank after reading `rows` rows. `position` is an earlier resume position of any rank."""
        if self.indexable:
            return rows, self.first_rows if position is None else position[1]
        base = start(epoch, position).base
        if base.states is None:
            return Cursor(base, rows)
        *states, (seen, _, last) = base.states
        done = (seen - self.index + self.count - 1) // self.count  # number of rows of this rank among the first `seen` rows
        return Cursor(attrs.evolve(base, states=(*states, (seen, None, last))), rows - done)

    def streamed(self) -> Stage:
        return _EveryNth(self.index, self.count, self.ends)


@frozen(eq=False)
class _Weighted(Task):
    task: Task
    real: NDArray[np.bool_]

    @property
    def rows(self) -> int:
        return len(self.real)

    def read(self) -> RecordBatch:
        return _weighted(self.task.read(), self.real)

    def part(self, first: int, stop: int) -> Task | None:
        part = self.task.part(first, stop)
        return None if part is None else _Weighted(part, self.real[first:stop])

    def sent_to(self, workers: str) -> Task:
        return _Weighted(self.task.sent_to(workers), self.real)


@frozen(repr=False)
class _EveryNth(Stage):
    """Stage that keeps every `count`-th row, for one rank of `count` ranks.

    The state is a tuple of three entries:

    - number of rows seen
    - for `ends="drop"`: row that is held back until every other rank has a row, too; None if no row is held back
    - for `ends="pad"`: last row seen, or None
    """

    index: int
    count: int
    ends: Ends

    def start(self, epoch: int) -> Any:
        return 0, None, None

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        seen, incomplete, _ = state
        first = (self.index - seen) % self.count
        selected = chunk.take(pa.array(np.arange(first, chunk.num_rows, self.count)))
        seen, last = seen + chunk.num_rows, chunk.slice(max(0, chunk.num_rows - 1))
        if self.ends == "uneven":
            return (seen, None, None), (selected,)
        if self.ends == "pad":
            return (seen, None, last if chunk.num_rows else state[2]), (_weighted(selected, np.ones(selected.num_rows, bool)),)
        rows = selected if incomplete is None else concat_chunks([incomplete, selected])
        pending = seen % self.count > self.index  # True if this rank has one row more than the last rank
        # `max` is needed if the number of ranks changed before a resume: `rows` may be empty although `pending` is True.
        whole = max(0, rows.num_rows - pending)
        return (seen, rows.slice(whole) if pending else None, None), (rows.slice(0, whole),)

    def finish(self, state: Any) -> Iterable[RecordBatch]:
        seen, _, last = state
        if self.ends != "pad" or not 0 < seen % self.count <= self.index:
            return ()
        return (_weighted(last, np.zeros(1, bool)),)

    def schema(self, schema: Schema) -> Schema:
        return _with_weight(schema) if self.ends == "pad" else schema


def _with_weight(schema: Schema) -> Schema:
    if "weight" in schema.names:
        raise SchemaError(
            "shard(ends='pad') adds a column 'weight' with 0 for repeated rows, and would replace the column 'weight' of the rows. "
            "Rename the column before shard with rename_columns({'weight': 'example_weight'})."
        )
    return set_field(schema, "weight", pa.float32())


def _weighted(chunk: RecordBatch, real: np.ndarray[Any, Any]) -> RecordBatch:
    return set_column(chunk, "weight", pa.array(real.astype(np.float32)))
