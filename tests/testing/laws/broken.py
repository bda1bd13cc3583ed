"""Stages and sources with one mistake each, of the sort that people make. Every law must catch its own."""

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from attrs import field, frozen
from numpy.typing import NDArray
from toolz import identity

import mlxfp as fp
from mlxfp.core.chunks import RecordBatch, Schema, concat_chunks, set_column, set_field
from mlxfp.core.execution import run, start
from mlxfp.core.sources import Position, Source

TABLE = pa.table({"x": range(7)})


@frozen(repr=False)
class CountingStage(fp.RowWise):
    """Counts rows in a list that it keeps, so a second run goes on counting."""

    seen: list[int] = field(factory=lambda: [0], eq=False)

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        numbers = np.arange(chunk.num_rows) + self.seen[0]
        self.seen[0] += chunk.num_rows
        return set_column(chunk, "x", pa.array(numbers))


@frozen(repr=False)
class MutatingState(fp.Stage):
    """Batches by two, but keeps its state in a list that it changes."""

    emits = "groups"

    def start(self, epoch: int) -> Any:
        return {"held": ()}

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        rows = concat_chunks([*state["held"], chunk])
        whole = rows.num_rows // 2 * 2
        state["held"] = (rows.slice(whole),)
        return state, [rows.slice(at, 2) for at in range(0, whole, 2)]


@frozen(repr=False)
class LyingState(fp.Stage):
    """Forgets in its state what it holds: a generator that looks at a variable after the step has returned."""

    emits = "groups"
    accepts = frozenset({"examples"})
    held: list[RecordBatch] = field(factory=list, eq=False)

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        self.held.append(chunk)
        if len(self.held) < 2:
            return state, ()
        out = concat_chunks(list(self.held))
        self.held.clear()
        return state, (out,)


@frozen(repr=False)
class WritingInPlace(fp.RowWise):
    """Adds one to a column in the memory of its input."""

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        values = np.frombuffer(chunk.column("x").buffers()[1], np.int64)
        array = np.ndarray(values.shape, values.dtype, _writable(values))
        array += 1
        return chunk


def _writable(values: NDArray[Any]) -> Any:
    import ctypes

    return (ctypes.c_char * values.nbytes).from_address(values.ctypes.data)


@frozen(repr=False)
class UnwritableState(fp.Stage):
    """Keeps an object in its state that no cursor can write."""

    def start(self, epoch: int) -> Any:
        return object

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return state, (chunk,)


@frozen(repr=False)
class NumberInChunk(fp.RowWise):
    """Numbers the rows of each chunk from zero."""

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return set_column(chunk, "x", pa.array(np.arange(chunk.num_rows)))


@frozen(repr=False)
class DropsLastOfChunk(fp.Stage):
    """Forgets the last row of every chunk."""

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return state, (chunk.slice(0, max(0, chunk.num_rows - 1)),)


@frozen(repr=False)
class OtherRows(fp.Stage):
    """Keeps the values and numbers the rows from 0 in each chunk: only the hidden columns are wrong."""

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return state, (set_column(chunk, "__row__", pa.array(np.arange(chunk.num_rows))),)


@frozen(repr=False)
class GroupPerChunk(fp.Stage):
    """Takes each chunk as it comes for a group."""

    emits = "groups"

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return state, (chunk,)


@frozen(repr=False)
class Hoarder(fp.Stage):
    """Gives its rows only at the end."""

    def start(self, epoch: int) -> Any:
        return ()

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return (*state, chunk), ()

    def finish(self, state: Any) -> Iterable[RecordBatch]:
        return state


@frozen(repr=False)
class HoldsOne(fp.Stage):
    """Gives each chunk when the next one has come: right, but one chunk late."""

    def start(self, epoch: int) -> Any:
        return ()

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return (chunk,), state

    def finish(self, state: Any) -> Iterable[RecordBatch]:
        return state


@frozen(repr=False)
class ReadsOnForCopies(fp.Stage):
    """Gives each row three times, the last time only when the next chunk has come."""

    def start(self, epoch: int) -> Any:
        return ()

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return (chunk,), (*state, chunk, chunk)

    def finish(self, state: Any) -> Iterable[RecordBatch]:
        return state


@frozen(repr=False)
class WrongSchema(fp.RowWise):
    """Says it adds an int8 column and adds an int64 one."""

    def schema(self, schema: Schema) -> Schema:
        return set_field(schema, "y", pa.int8())

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        return set_column(chunk, "y", pa.array(np.arange(chunk.num_rows)))


@frozen(repr=False)
class WrongLength(fp.Stage):
    """Doubles every row and says that it does not."""

    traits = fp.parts.Traits(length=identity)

    def step(self, state: Any, chunk: RecordBatch) -> tuple[Any, Iterable[RecordBatch]]:
        return state, (chunk, chunk)


@frozen(repr=False)
class FakeRowWise(fp.RowWise):
    """Says that each row stands for itself, and subtracts the first row of the chunk."""

    def apply(self, chunk: RecordBatch) -> RecordBatch:
        values = chunk.column("x").to_numpy()
        return set_column(chunk, "x", pa.array(values - values[:1]))


@frozen(repr=False)
class Global:
    """A predicate that reads a global counter."""

    def __call__(self, row: Any) -> bool:
        return next(_TICKS) % 3 > 0

    def __repr__(self) -> str:
        return "Global()"  # a test is named by it


_TICKS = count()


@frozen(repr=False)
class BrokenSource(Source):
    """A table read by twos, which is right unless a method is overridden."""

    table: pa.Table = field(default=TABLE, eq=fp.inspect.fingerprint)

    @property
    def indexable(self) -> bool:
        return True

    def schema(self) -> Schema:
        return self.table.schema

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        for at in range(position or 0, self.table.num_rows, 2):
            yield self.chunk(at), self.after(at)

    def chunk(self, at: int) -> RecordBatch:
        return self.table.slice(at, 2).to_batches()[0]

    def after(self, at: int) -> Position:
        return min(at + 2, self.table.num_rows)

    def length(self) -> int:
        return int(self.table.num_rows)

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return concat_chunks(self.table.take(pa.array(indices)).combine_chunks().to_batches())


class OffByOne(BrokenSource):
    """The position after a chunk is one row too far."""

    def after(self, at: int) -> Position:
        return at + 3


class OneChunkLate(BrokenSource):
    """The position given with a chunk is the one before it."""

    def after(self, at: int) -> Position:
        return at


class Endless(BrokenSource):
    """Reading from the last position starts again."""

    def after(self, at: int) -> Position:
        return (at + 2) % (self.table.num_rows + 1)


class SetPosition(BrokenSource):
    """Positions are sets, which cannot be written."""

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        for at in range(max(position or {0}), self.table.num_rows, 2):
            yield self.chunk(at), {at + 2}


class WrongCount(BrokenSource):
    """Says that it has one row more."""

    def length(self) -> int:
        return int(self.table.num_rows) + 1


class WrongTypes(BrokenSource):
    """Says that its column is an int8."""

    def schema(self) -> Schema:
        return pa.schema({"x": pa.int8()})


class SortsIndices(BrokenSource):
    """Takes rows in the order in which they lie in the table."""

    def take(self, epoch: int, indices: NDArray[np.int64]) -> RecordBatch:
        return super().take(epoch, np.sort(indices))


@frozen(repr=False)
class OnePass(BrokenSource):
    """An iterator in disguise: it can be read once."""

    readings: list[int] = field(factory=list, eq=False)

    def read(self, epoch: int, position: Position) -> Iterator[tuple[RecordBatch, Position]]:
        self.readings.append(epoch)
        return BrokenSource.read(self, epoch, position) if len(self.readings) == 1 else iter(())


@frozen(repr=False)
class ForgetsResume(fp.parts.Wrapper):
    """Starts its dataset again when resumed."""

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        yield from ((chunk, None) for chunk, _ in run(self.dataset, start(epoch, None)))


@frozen(repr=False)
class OrderOfArrival(fp.parts.Wrapper):
    """Prefetches two chunks and gives the second one first."""

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        held: list[Any] = []
        for item in run(self.dataset, start(epoch, position)):
            held.append(item)
            if len(held) == 2:
                yield from reversed(held)
                held = []
        yield from held


@frozen(repr=False)
class SwallowsErrors(fp.parts.Wrapper):
    """Ends where its dataset fails."""

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        try:
            yield from run(self.dataset, start(epoch, position))
        except ValueError:
            return


@frozen(repr=False)
class FailsEarly(fp.parts.Wrapper):
    """Reads everything first, so an error comes before the items that stood before it."""

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        yield from list(run(self.dataset, start(epoch, position)))


@frozen(repr=False)
class Permuted(fp.parts.Wrapper):
    """Gives all rows at once, in an order that a function makes."""

    seed: int
    order: Callable[[NDArray[Any], int, int], NDArray[Any]]

    def read(self, epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
        rows = concat_chunks([chunk for chunk, _ in run(self.dataset, start(epoch, None))])
        if position is None:
            yield rows.take(pa.array(self.order(np.arange(rows.num_rows), self.seed, epoch))), True


def wrapped(kind: Callable[..., Source], *options: Any) -> Callable[[fp.Dataset[Any]], fp.Dataset[Any]]:
    return lambda dataset: fp.Dataset(kind(dataset, *options))
