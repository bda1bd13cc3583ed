"""What a run had reached when an item came out: the states of all stages at that moment, for those who keep something in them.

A cursor holds the states before the source chunk that its item came from, so they are found by feeding that chunk again.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from mlxfp.core.chunks import number_rows
from mlxfp.core.cursors import Cursor, Snapshot, iterate
from mlxfp.core.nodes import children
from mlxfp.core.stepping import flush, push

if TYPE_CHECKING:
    from mlxfp.core.datasets import Dataset, Stage, State


def states(dataset: "Dataset[Any]", cursor: Cursor) -> "Iterator[tuple[Dataset[Any], Stage, State]]":
    """Yield (dataset, stage, state) for every stage whose state the run keeps, also in the datasets that sources hold.

    The states are those after the item of the cursor and before the next one; after the last item, those at the end. Reads again at most
    what a resumed run would read until its next item. Raises `CursorMismatchError` for a cursor of another pipeline.
    """
    iterate(dataset, cursor)  # checks that they belong together
    return _states(dataset, cursor)


def held(dataset: "Dataset[Any]", cursor: Cursor) -> "Iterator[tuple[Dataset[Any], Cursor]]":
    """Yield the datasets that the source of a dataset holds, with their cursors after the item of this cursor.

    Where a source gives rows, not groups or batches, they are the cursors after the source chunk that the item came from.
    """
    return _held(dataset.source, _reach(dataset, cursor).position)


def _states(dataset: "Dataset[Any]", cursor: Cursor) -> "Iterator[tuple[Dataset[Any], Stage, State]]":
    reached = _reach(dataset, cursor)
    for child, inside in _held(dataset.source, reached.position):
        yield from _states(child, inside)
    for stage, state in zip(dataset.resolved.stages, reached.states or (), strict=True):
        yield dataset, stage, state


def _reach(dataset: "Dataset[Any]", cursor: Cursor) -> Snapshot:
    """Run until the item of the cursor is out, and on until just before the next one."""
    base, left = cursor.base, cursor.done
    stages, by_row = dataset.resolved.stages, dataset.level == "examples"
    states = [stage.start(base.epoch) for stage in stages] if base.states is None else list(base.states)
    position, rows = base.position, base.rows

    def items() -> Iterator[Any]:
        nonlocal position, rows
        for chunk, after in dataset.source.read(base.epoch, position):
            fed = chunk
            if dataset.source.level != "batches":
                fed, rows = number_rows(chunk, base.epoch, rows), rows + chunk.num_rows
            position = after
            yield from push(stages, states, 0, (fed,))
        yield from flush(stages, states)

    found = None if left else Snapshot(base.epoch, position, rows, tuple(states))
    try:
        for item in items():
            size = item.num_rows if by_row else 1
            if found is not None and size:
                return found
            left -= size
            if left <= 0 and found is None:
                found = Snapshot(base.epoch, position, rows, tuple(states))
    except Exception:
        if found is None:
            raise
        return found  # the next item fails, and is none of this one's business
    return Snapshot(base.epoch, position, rows, tuple(states))


def _held(source: Any, position: Any) -> "Iterator[tuple[Dataset[Any], Cursor]]":
    """Pair the datasets that a source holds with their cursors in its position."""
    held = children(source)
    if len(held) == 1:
        yield from ((held[0], cursor) for cursor in _cursors(position))
        return
    match position:
        case (int(place), Cursor() as cursor):  # one after another, as in concat
            yield held[place], cursor
        case (*_, tuple() as cursors) if len(cursors) == len(held):  # side by side, as in mix
            yield from ((child, cursor) for child, cursor in zip(held, cursors, strict=True) if cursor is not None)


def _cursors(position: Any) -> Iterator[Cursor]:
    if isinstance(position, Cursor):
        yield position
    elif isinstance(position, tuple):
        for item in position:
            yield from _cursors(item)
