"""What a run had reached at a cursor: positions and states at that moment.

A cursor holds the states before the source chunk that its item came from, so they are found by feeding that chunk again.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from attrs import field, frozen

from mlxfp.core.cursors import Cursor
from mlxfp.core.execution import execute, first_states, iterate
from mlxfp.core.nodes import Pipeline
from mlxfp.core.planning import as_written
from mlxfp.core.running.steps import Hooks, Step
from mlxfp.core.sources import Position, Source
from mlxfp.core.stages import Stage, State


@frozen
class Reached:
    """A run of one dataset between two items: the position of its source, and its stages, as they were written, with their states."""

    dataset: Pipeline[Any]
    position: Position
    states: tuple[tuple[Stage, State], ...]


def reached(dataset: Pipeline[Any], cursor: Cursor) -> Iterator[Reached]:
    """Yield what the run of a dataset had reached at the cursor, and what the runs of the datasets in its source had, innermost last.

    The states are those after the item of the cursor and before the next one; after the last item, those at the end. The position is the
    one after the source chunk that the item came from. Reads again at most what a resumed run would read until its next item. Raises
    `CursorMismatchError` for a cursor of another pipeline.
    """
    iterate(dataset, cursor)  # checks that they belong together
    return _reached(dataset, cursor)


def _reached(dataset: Pipeline[Any], cursor: Cursor) -> Iterator[Reached]:
    found = replay(dataset, cursor)
    yield found
    for child, inside in dataset.source.children_at(found.position):
        yield from _reached(child, inside)


@frozen(eq=False)
class _Record(Hooks):
    """Keeps the latest position and states of one run."""

    states: dict[int, State] = field(kw_only=True)
    positions: list[Position] = field(kw_only=True)

    def read(self, source: Source) -> Any:
        call = super().read(source)

        def read(epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
            for chunk, after in call(epoch, position):
                self.positions[:] = [after]
                yield chunk, after

        return read

    def step(self, step: Step) -> Any:
        call = super().step(step)

        def fed(state: State, chunk: Any) -> Any:
            after, out = call(state, chunk)
            self.states[step.index] = after
            return after, out

        return fed


def replay(dataset: Pipeline[Any], cursor: Cursor) -> Reached:
    """Run until the item of the cursor is out, and on until just before the next one."""
    written = as_written(dataset)
    record = _Record(dataset.hooks, states=dict(enumerate(first_states(written, cursor))), positions=[cursor.base.position])

    def now() -> Reached:
        return Reached(dataset, record.positions[0], tuple((stage, record.states[place]) for place, stage in enumerate(written.declared)))

    left, found = cursor.done, now() if not cursor.done else None
    with closing(_items(written, cursor.back(cursor.done), record)) as items:
        try:
            for size in items:
                if found is not None:
                    return found
                left -= size
                if left <= 0:
                    found = now()
        except Exception:
            if found is None:
                raise
            return found  # the next item fails, which says nothing about this one
    return now()


def _items(plan: Any, cursor: Cursor, hooks: Hooks) -> Any:
    """Yield how many items each chunk is that comes out."""
    for item, _ in execute(plan, cursor, hooks):
        yield item.num_rows if plan.level == "examples" else 1
