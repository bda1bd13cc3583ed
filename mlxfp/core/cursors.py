"""The run loop, and cursors: where a run is, as a value.

While a source chunk is pushed through the stages, the position before it and the states before it are remembered. The cursor of the
n-th item that comes out is (that snapshot, n). To resume: restore the states, read from the position, drop n items. So the work that is
done again is bounded by one source chunk, for every pipeline.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import field, frozen

from mlxfp.core.checks import check_not_negative
from mlxfp.core.chunks import number_rows, to_rows
from mlxfp.core.errors import ArgumentTypeError, CursorError, CursorMismatchError
from mlxfp.core.examples import Examples
from mlxfp.core.identity import Identity, comparable, difference
from mlxfp.core.nodes import check_dataset, children
from mlxfp.core.serialization import pack, unpack
from mlxfp.core.stepping import flush, push

if TYPE_CHECKING:
    from mlxfp.core.datasets import Dataset, Position, State

Item = TypeVar("Item")

_ROWS_AT_ONCE = 256  # rows made into dicts at a time: an early stop wastes little, and Arrow's cost per call is shared


@frozen
class Snapshot:
    """A run between two source chunks."""

    epoch: int
    position: "Position" = None
    rows: int = 0  # source rows before the position: they number the rows that follow
    states: "tuple[State, ...] | None" = field(default=None, eq=comparable)  # None: every stage at its start


@frozen
class Cursor:
    """Where a run is: after `done` items of what follows a snapshot. Immutable; `iterate(dataset, cursor)` continues exactly there.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> rows = from_examples([{"x": 1}, {"x": 2}])
    >>> row, cursor = next(iterate(rows))
    >>> list(iterate(rows, Cursor.from_bytes(cursor.to_bytes())))[0][0], cursor.epoch
    ({'x': 2}, 0)
    """

    base: Snapshot = field(repr=False)
    done: int
    owner: "Dataset[Any] | Identity | None" = field(default=None, repr=False, eq=False)  # None inside a source that holds datasets

    @property
    def epoch(self) -> int:
        """The epoch that the run is in."""
        return self.base.epoch

    @property
    def identity(self) -> Identity:
        """What the parts of the cursor's pipeline are: (text, fingerprint) of each."""
        owner = self.owner
        return owner if isinstance(owner, tuple) else () if owner is None else owner.identity

    def to_bytes(self) -> bytes:
        """Write the cursor: versioned, with a checksum, Arrow data as IPC and the rest as JSON; nothing in it is ever executed.

        Raises `FingerprintError` if the pipeline holds something that cannot be told apart from its like.
        """
        return pack((self.identity, self), _KINDS)

    @staticmethod
    def from_bytes(data: bytes) -> "Cursor":
        """Read what `to_bytes` wrote; raises `CursorError` for anything else."""
        match unpack(data, _KINDS):
            case (tuple() as owner, Cursor(base=Snapshot(epoch=int(), rows=int(), states=None | tuple()) as base, done=int(done))):
                if all(isinstance(part, tuple) and tuple(map(type, part)) == (str, str) for part in owner):
                    return Cursor(base, done, owner)
        raise CursorError("The cursor cannot be read: its parts are not those of a cursor. Use what Cursor.to_bytes() returned.")


_KINDS: dict[str, type] = {"cursor": Cursor, "snapshot": Snapshot}


def iterate(dataset: "Dataset[Item]", cursor: Cursor | None = None, *, epoch: int = 0) -> Iterator[tuple[Item, Cursor]]:
    """Yield every item with the cursor after it; a cursor that is given continues exactly where it stands.

    Items are dicts before `batch`, `Examples` after it, and `dict[str, mx.array]` after `collate`. `epoch` selects the order and the
    randomness of a fresh run; a cursor brings its own. Raises `CursorMismatchError` for a cursor of another pipeline.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> numbers = from_examples([{"x": i} for i in range(4)])
    >>> items = list(iterate(numbers))
    >>> cursor = Cursor.from_bytes(items[1][1].to_bytes())
    >>> [item for item, _ in iterate(numbers, cursor)]
    [{'x': 2}, {'x': 3}]

    See also: `aiterate` for `async for`.
    """
    check_dataset(dataset, iterate)
    check_not_negative(epoch=epoch)
    if cursor is None:
        return _items(dataset, Cursor(Snapshot(epoch), 0, dataset))
    _check_cursor(dataset, cursor)
    return _items(dataset, Cursor(cursor.base, cursor.done, dataset))


async def aiterate(dataset: "Dataset[Item]", cursor: Cursor | None = None, *, epoch: int = 0) -> AsyncIterator[tuple[Item, Cursor]]:
    """Yield what `iterate` yields, for `async for`: the work happens in one thread of its own.

    >>> from mlxfp.data.sources.in_memory import from_examples
    >>> async def total():
    ...     return sum([item["x"] async for item, _ in aiterate(from_examples([{"x": 1}, {"x": 2}]))])
    >>> asyncio.run(total())
    3
    """
    items: Any = iterate(dataset, cursor, epoch=epoch)
    loop, end = asyncio.get_running_loop(), object()
    with ThreadPoolExecutor(1, "mlxfp-aiterate") as worker:  # one thread: MLX arrays that are not evaluated must not change threads
        try:
            while (item := await loop.run_in_executor(worker, next, items, end)) is not end:
                yield item  # type: ignore[misc]  # not `end`, so what iterate yields
        finally:
            worker.submit(items.close).result()


def run(dataset: "Dataset[Any]", cursor: Cursor) -> Generator[tuple[Any, Cursor], None, None]:
    """Yield chunks (batches after `collate`), each with the cursor after it. Sources that hold datasets are built on this."""
    try:
        yield from _run(dataset, cursor)
    except Exception as error:
        if not children(dataset.source):  # the datasets that a source holds say it themselves
            error.add_note(f"reading from {(dataset.written or dataset).source!r}, epoch {cursor.epoch}")
        raise


def _run(dataset: "Dataset[Any]", cursor: Cursor) -> Iterator[tuple[Any, Cursor]]:
    source, stages = dataset.optimized.source, dataset.optimized.resolved.stages
    base, done, owner = cursor.base, cursor.done, cursor.owner
    by_row, arrow = dataset.level == "examples", source.level != "batches"
    states = [stage.start(base.epoch) for stage in stages] if base.states is None else list(base.states)
    rows = base.rows
    for chunk, after in source.read(base.epoch, base.position):
        if arrow:
            numbered, rows = number_rows(chunk, base.epoch, rows), rows + chunk.num_rows
        else:
            numbered = chunk
        before, base = base, Snapshot(base.epoch, after, rows, tuple(states))
        if stages or by_row or done:
            try:
                done = yield from _emit(push(stages, states, 0, (numbered,)), before, done, owner, by_row=by_row)
            except Exception as error:
                if (file := source.file_of(before.position)) is not None:
                    error.add_note(f"with rows of {file}")
                raise
            base = Snapshot(base.epoch, after, rows, tuple(states))
        else:  # one chunk is one item, so the cursor is the position itself
            yield numbered, Cursor(base, 0, owner)
    yield from _emit(flush(stages, states), base, done, owner, by_row=by_row)


def start(epoch: int, position: "Cursor | None") -> Cursor:
    """Say where a source that holds a dataset lets it begin: at the position, else at the start of the epoch."""
    return Cursor(Snapshot(epoch), 0) if position is None else position


def _emit(chunks: Iterable[Any], base: Snapshot, skip: int, owner: Any, *, by_row: bool) -> Generator[tuple[Any, Cursor], None, int]:
    """Count the items that come out after a snapshot, leaving out the first `skip`; return how many of these are still to come."""
    done = 0
    for chunk in chunks:
        size = chunk.num_rows if by_row else 1
        done += size
        if done > skip and size:
            fresh = min(size, done - skip)
            yield chunk if fresh == size else chunk.slice(size - fresh), Cursor(base, done, owner)
    return max(0, skip - done)


def _items(dataset: "Dataset[Any]", cursor: Cursor) -> Iterator[tuple[Any, Cursor]]:
    if dataset.level == "batches":
        yield from run(dataset, cursor)
    elif dataset.level == "groups":
        for chunk, after in run(dataset, cursor):
            yield Examples(chunk), after
    else:
        for chunk, after in run(dataset, cursor):
            for first in range(0, chunk.num_rows, _ROWS_AT_ONCE):
                done = after.done - chunk.num_rows + first
                for place, row in enumerate(to_rows(chunk.slice(first, _ROWS_AT_ONCE)), 1):
                    yield row, Cursor(after.base, done + place, cursor.owner)


def _check_cursor(dataset: "Dataset[Any]", cursor: Cursor) -> None:
    if not isinstance(cursor, Cursor):
        raise ArgumentTypeError(
            f"A cursor is what iterate yields beside each item, got {type(cursor).__name__}: {cursor!r:.60}. "
            "Of bytes, Cursor.from_bytes makes one; an epoch is named, as in epoch=1."
        )
    if cursor.owner is dataset:
        return
    found = difference(cursor.identity, dataset.identity)
    if found is not None:
        raise CursorMismatchError(
            f"The cursor belongs to another pipeline. First difference: the cursor has {found[0]}, the pipeline {found[1]}. "
            "Iterate over the pipeline that made the cursor, or start this one without a cursor."
        )
    states = cursor.base.states
    if states is not None and len(states) != len(dataset.stages):
        raise CursorError(f"The cursor holds the states of {len(states)} stages, and the pipeline has {len(dataset.stages)}: {dataset!r}.")
