"""Plans of pipelines, and hooks around the calls of their parts."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from attrs import evolve, frozen

from mlxfp.core.chunks import Indices, RecordBatch, Schema
from mlxfp.core.sources import IndexTask, Position, Source, Task, Tasks, first_chunks
from mlxfp.core.stages import Level, Stage, State

__tracebackhide__ = True  # pytest hides the frames of this module, to show the user function
ALL_STAGES = 1 << 30  # more than any pipeline has

Read = Callable[[int, Position], Iterator[tuple[Any, Position]]]
Fed = tuple[State, Iterable[Any]]
Calls = Sequence[tuple["Step", Callable[[State, Any], Fed]]]
Rows = Callable[[], Iterator[RecordBatch]]


@frozen
class Step:
    """One call for each chunk: a stage, or one that does the work of several neighbouring stages.

    The step does the work of the stages from `index` to before `stop`; the state is kept at `index`. The host part and the device part of a
    step have its `index`, also as `stop`; so has a step that only leaves out columns, which has no text. `schema` is what comes out if
    nothing is left out. `text` is how the stages were written.
    """

    stage: Stage
    index: int
    stop: int
    schema: Schema
    text: str


@frozen(eq=False)
class Plan:
    """What runs in place of a pipeline as it was written, with the same items and cursors. Computed once, by `planning.py`.

    Without workers, all `steps` run in order in one thread. Workers run `segment` on tasks of the source and `host` on groups, and `device`
    makes the items of these groups. If `host` or `device` fails, `groups` run on the group, for the error.
    """

    source: Source
    segment: tuple[Step, ...]  # leading steps without a state: chunk -> chunks
    stages: tuple[Step, ...]  # the steps between `segment` and `groups`
    groups: tuple[Step, ...]  # trailing steps without a state, one group -> one group or batch; none if not worth a worker
    host: tuple[Step, ...]  # the part of `groups` that needs no arrays
    device: tuple[Step, ...]  # the rest of `groups`
    declared: tuple[Stage, ...]  # the stages of the pipeline, with declared schemas: a cursor holds their states
    level: Level
    schema: Schema  # of the chunks that come out; after `collate`: of the groups that go in
    text: str  # the source as it was written, for errors
    rewrites: tuple[str, ...] = ()  # changes, for `explain`

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps, in order."""
        return (*self.segment, *self.stages, *self.groups)

    @property
    def costly(self) -> bool:
        """True if reading the source or a step is expensive enough for a worker."""
        return self.source.traits.costly() or are_costly(self.steps)


def are_costly(steps: Iterable[Step]) -> bool:
    """Return whether steps are expensive enough for a worker."""
    return any(step.stage.traits.projection is None for step in steps)  # projections are free


@frozen
class Changes:
    """Changes of the plan and the items by hooks."""

    as_written: int = 0  # number of leading stages without optimization
    fuses: bool = True  # consecutive row-wise stages may run as one step
    marks: str = ""  # name of an added hidden column; caches separate rows with and without the column
    collates: bool = True  # False: yield groups instead of batches


@frozen(eq=False)
class SourceCalls:
    """The functions of a source that a run calls."""

    schema: Callable[[], Schema]
    read: Read
    tasks: Callable[[int, Position], Tasks]
    task: Callable[[int, Indices], Task]
    exact_length: Callable[[], int | None]
    head: Callable[[], Iterator[RecordBatch]]


def calls_of(source: Source) -> SourceCalls:
    """Return the functions of a source."""
    traits = source.traits
    task, length, head = traits.task or partial(IndexTask, source), traits.exact_length or source.length, partial(first_chunks, source)
    return SourceCalls(source.schema, source.read, source.tasks, task, length, head)


@frozen
class Hooks:
    """Wrappers around the calls of the parts of a running pipeline.

    These change nothing. Subclasses override what they change, and leave the rest to the hooks that they are put around (`inner`).
    One that changes `read` of a source also changes `tasks`.
    """

    inner: "Hooks | None" = None

    @property
    def changes(self) -> Changes:
        """The changes to the plan and the items."""
        return Changes() if self.inner is None else self.inner.changes

    def source(self, source: Source) -> SourceCalls:
        """Return the functions to call for a source."""
        return calls_of(source) if self.inner is None else self.inner.source(source)

    def infer(self, stage: Stage, place: int) -> Callable[[Schema, Rows], Stage]:
        """Return the function that declares the schema of the stage at an index."""
        return stage.infer if self.inner is None else self.inner.infer(stage, place)

    def step(self, step: Step) -> Callable[[State, Any], Fed]:
        """Return the function that runs a step on a chunk."""
        return step.stage.step if self.inner is None else self.inner.step(step)

    def finish(self, step: Step) -> Callable[[State], Iterable[Any]]:
        """Return the function that finishes a step."""
        return step.stage.finish if self.inner is None else self.inner.finish(step)


@frozen
class AsWritten(Hooks):
    """Hooks that run every stage as a separate step, without optimization."""

    @property
    def changes(self) -> Changes:
        """All stages run as written."""
        return evolve(super().changes, as_written=ALL_STAGES)


NO_HOOKS = Hooks()


def blame(error: Exception, stages: str) -> None:
    """Add a note with the failing stages to an error, once."""
    if not any(note.startswith("while running ") for note in getattr(error, "__notes__", ())):
        error.add_note(f"while running {stages}")


def push(calls: Calls, states: list[State], chunks: Iterable[Any]) -> Iterable[Any]:
    """Run the steps in order on chunks. Updates `states` in place.

    Lazy: a chunk is fed to a step when what comes out of it is asked for.
    """
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
