"""State of a run at a cursor: positions of the sources and states of the stages.

A cursor inside a source chunk stores the states at the start of the chunk. The states at the cursor are computed from the chunk again.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

from attrs import evolve, field, frozen

from mlxfp.core.cursors import Cursor
from mlxfp.core.execution import execute, first_states, iterate
from mlxfp.core.nodes import Pipeline
from mlxfp.core.planning import as_written
from mlxfp.core.running.steps import Hooks, SourceCalls, Step
from mlxfp.core.sources import Position, Source
from mlxfp.core.stages import Stage, State


@frozen
class Reached:
    """State of a run between two items: the position of the source, and the stages with their states."""

    dataset: Pipeline[Any]
    position: Position
    states: tuple[tuple[Stage, State], ...]


def reached(dataset: Pipeline[Any], cursor: Cursor) -> Iterator[Reached]:
    """Yield the state of a dataset at a cursor, and then the states of its child datasets.

    A state has two parts:

    - state of each stage after the last item before the cursor, or after all items if the cursor is at the end of the data
    - position of the source after the chunk with the last item before the cursor

    The function reads no more rows than a resumed run reads for its next item. Raises `CursorMismatchError` for a cursor of another
    pipeline.
    """
    iterate(dataset, cursor)  # This call raises an error if the cursor belongs to another pipeline.
    return _reached(dataset, cursor)


def _reached(dataset: Pipeline[Any], cursor: Cursor) -> Iterator[Reached]:
    state = replay(dataset, cursor)
    yield state
    for child, child_cursor in dataset.source.traits.children_at(state.position):
        yield from _reached(child, child_cursor)


@frozen(eq=False)
class _Record(Hooks):
    """Hooks that store the latest position and states of a run."""

    states: dict[int, State] = field(kw_only=True)
    positions: list[Position] = field(kw_only=True)

    def source(self, source: Source) -> SourceCalls:
        calls = super().source(source)

        def read(epoch: int, position: Position) -> Iterator[tuple[Any, Position]]:
            for chunk, after in calls.read(epoch, position):
                self.positions[:] = [after]
                yield chunk, after

        return evolve(calls, read=read)

    def step(self, step: Step) -> Any:
        call = super().step(step)

        def fed(state: State, chunk: Any) -> Any:
            after, out = call(state, chunk)
            self.states[step.index] = after
            return after, out

        return fed


def replay(dataset: Pipeline[Any], cursor: Cursor) -> Reached:
    """Run the pipeline up to the cursor. Return the position of the source and the states of the stages at the cursor."""
    written = as_written(dataset)
    record = _Record(dataset.hooks, states=dict(enumerate(first_states(written, cursor))), positions=[cursor.base.position])

    def now() -> Reached:
        return Reached(dataset, record.positions[0], tuple((stage, record.states[index]) for index, stage in enumerate(written.declared)))

    remaining, result = cursor.done, now() if not cursor.done else None
    with closing(_items(written, cursor.back(cursor.done), record)) as items:
        try:
            for size in items:
                if result is not None:
                    return result
                remaining -= size
                if remaining <= 0:
                    result = now()
        except Exception:
            if result is None:
                raise
            return result  # An item after the cursor caused the error, so the result at the cursor is valid.
    return now()


def _items(plan: Any, cursor: Cursor, hooks: Hooks) -> Any:
    """Yield the number of items in each output chunk."""
    for item, _ in execute(plan, cursor, hooks):
        yield item.num_rows if plan.level == "examples" else 1
