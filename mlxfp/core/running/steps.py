"""Plans (executable forms of pipelines), and hooks: functions that run around or instead of the methods of sources and stages."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from attrs import evolve, frozen

from mlxfp.core.chunks import Indices, RecordBatch, Schema
from mlxfp.core.sources import IndexTask, Position, Source, Task, Tasks, first_chunks
from mlxfp.core.stages import Level, Stage, State

__tracebackhide__ = True  # pytest omits all frames of this module from tracebacks
ALL_STAGES = 1 << 30  # value of `Changes.as_written` that turns off the optimization of all stages

Read = Callable[[int, Position], Iterator[tuple[Any, Position]]]
Fed = tuple[State, Iterable[Any]]
Calls = Sequence[tuple["Step", Callable[[State, Any], Fed]]]
Rows = Callable[[], Iterator[RecordBatch]]


@frozen
class Step:
    """Unit of execution: one stage, several combined stages, or a part of `collate`. A run calls the step for each chunk.

    The step runs the stages from `index` to `stop` (exclusive). For a part of `collate`, and for a step that only drops unused columns,
    `stop` equals `index`. `schema` is the output schema with all columns. `text` is the repr of the stages, or empty.
    """

    stage: Stage
    index: int
    stop: int
    schema: Schema
    text: str


@frozen(eq=False)
class Plan:
    """Executable form of a pipeline, computed once in `planning.py`.

    Without workers, one thread runs all `steps` in order. With workers, the steps are divided:

    - Workers run `segment` (the first steps, on source rows) and `host` (the steps of `groups` that create no MLX arrays).
    - The reading thread runs `stages` (the steps between `segment` and `groups`) and `device` (the other steps of `groups`).
    - If a step of `host` or `device` fails, the reading thread runs `groups` again to raise the error.
    """

    source: Source
    segment: tuple[Step, ...]  # leading stateless steps; workers run these steps on source rows
    stages: tuple[Step, ...]  # steps between `segment` and `groups`; the reading thread runs these steps
    groups: tuple[Step, ...]  # last steps, which turn each group into one item; empty if the steps are too cheap for workers
    host: tuple[Step, ...]  # steps of `groups` that workers run; these steps create no MLX arrays
    device: tuple[Step, ...]  # steps in `groups` that create MLX arrays; the reading thread runs these steps
    declared: tuple[Stage, ...]  # stages as written by the user, with known output schemas; cursors hold the states of these stages
    level: Level
    schema: Schema  # schema of the output chunks; batches have no schema, so `collate` keeps the schema of its input
    text: str  # repr of the source, for error messages
    rewrites: tuple[str, ...] = ()  # optimizations, for `explain`

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in order."""
        return (*self.segment, *self.stages, *self.groups)

    @property
    def costly(self) -> bool:
        """True if reading the source or running a step is expensive enough for a worker."""
        return self.source.traits.costly() or are_costly(self.steps)


def are_costly(steps: Iterable[Step]) -> bool:
    """Return True if a step is expensive enough for a worker."""
    return any(step.stage.traits.projection is None for step in steps)  # projections are free


@frozen
class Changes:
    """Changes that hooks make to the plan or to the items of a run."""

    as_written: int = 0  # number of stages at the start of the pipeline that the planner does not optimize
    fuses: bool = True  # True if consecutive row-wise stages may run as one step
    marks: str = ""  # name of a column that hooks add to the rows, or ""; `cache` stores rows with the column separately
    collates: bool = True  # False if the run yields groups instead of batches


@frozen(eq=False)
class SourceCalls:
    """Functions that read a source during a run. Hooks can replace them."""

    schema: Callable[[], Schema]
    read: Read
    tasks: Callable[[int, Position], Tasks]
    task: Callable[[int, Indices], Task]
    exact_length: Callable[[], int | None]
    head: Callable[[], Iterator[RecordBatch]]


def calls_of(source: Source) -> SourceCalls:
    """Return the functions that read a source without hooks."""
    traits = source.traits
    task, length, head = traits.task or partial(IndexTask, source), traits.exact_length or source.length, partial(first_chunks, source)
    return SourceCalls(source.schema, source.read, source.tasks, task, length, head)


@frozen
class Hooks:
    """Functions that run around or instead of the methods of sources and stages.

    The base class changes nothing. A subclass overrides some methods. All other calls go to the hooks in `inner`, if any. A subclass that
    changes `read` of a source must change `tasks` in the same way, because a run with workers calls `tasks` instead of `read`.
    """

    inner: "Hooks | None" = None

    @property
    def changes(self) -> Changes:
        """Changes that the hooks make to the plan and the items of a pipeline."""
        return Changes() if self.inner is None else self.inner.changes

    def source(self, source: Source) -> SourceCalls:
        """Return the functions that a run calls to read a source."""
        return calls_of(source) if self.inner is None else self.inner.source(source)

    def infer(self, stage: Stage, index: int) -> Callable[[Schema, Rows], Stage]:
        """Return the function that infers the schema of a stage. The argument `index` is the index of the stage."""
        return stage.infer if self.inner is None else self.inner.infer(stage, index)

    def step(self, step: Step) -> Callable[[State, Any], Fed]:
        """Return the function that runs a step of the pipeline. The function takes a state and a chunk."""
        return step.stage.step if self.inner is None else self.inner.step(step)

    def finish(self, step: Step) -> Callable[[State], Iterable[Any]]:
        """Return the function that takes the final state of a step and returns the last output chunks of the step."""
        return step.stage.finish if self.inner is None else self.inner.finish(step)


@frozen
class AsWritten(Hooks):
    """Hooks that run every stage as a separate step, without optimization."""

    @property
    def changes(self) -> Changes:
        return evolve(super().changes, as_written=ALL_STAGES)


NO_HOOKS = Hooks()


def blame(error: Exception, stages: str) -> None:
    """Add a note with the repr of the failing stages to an error, unless the error already has such a note."""
    if not any(note.startswith("while running ") for note in getattr(error, "__notes__", ())):
        error.add_note(f"while running {stages}")


def push(calls: Calls, states: list[State], chunks: Iterable[Any]) -> Iterable[Any]:
    """Run the steps in order on chunks, and update `states` in place. A step runs only when its output is requested."""
    for step, call in calls:
        chunks = _feed(step, call, states, chunks)
    return chunks


def _feed(step: Step, call: Callable[[State, Any], Fed], states: list[State], chunks: Iterable[Any]) -> Iterator[Any]:
    __tracebackhide__ = True
    index = step.index
    for chunk in chunks:
        try:
            states[index], out = call(states[index], chunk)
        except Exception as error:
            blame(error, step.text)
            raise
        yield from out
