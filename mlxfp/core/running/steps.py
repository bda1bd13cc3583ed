"""What runs in place of a pipeline, and how its parts are called."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from mlxfp.core.chunks import RecordBatch, Schema
from mlxfp.core.sources import Position, Source, Task, Tasks
from mlxfp.core.stages import Level, Stage, State

__tracebackhide__ = True  # pytest leaves the frames of this module out; what is of interest is the user's function behind them
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
        return bool(self.source.costly or are_costly(self.steps))


def are_costly(steps: Iterable[Step]) -> bool:
    """Return whether steps are expensive enough for a worker."""
    return not all(step.stage.instant for step in steps)


@frozen
class Hooks:
    """How the parts of a pipeline are called while it runs: each method returns the function to call.

    These change nothing. Subclasses override what they change, and leave the rest to the hooks that they are put around (`inner`).
    One that overrides `read` also overrides `tasks`.
    """

    inner: "Hooks | None" = None

    @property
    def as_written(self) -> int:
        """How many stages, from the first, run as they were written: each a step, on all columns of the source."""
        return 0 if self.inner is None else self.inner.as_written

    @property
    def fuses(self) -> bool:
        """Whether stages in a row that turn each row into one row may run as one step."""
        return self.inner is None or self.inner.fuses

    @property
    def marks(self) -> str:
        """The hidden column that they add to rows: rows that are kept with it are kept apart from those without."""
        return "" if self.inner is None else self.inner.marks

    @property
    def collates(self) -> bool:
        """Whether batches are made: else groups come out in their place."""
        return self.inner is None or self.inner.collates

    def schema(self, source: Source) -> Callable[[], Schema]:
        """Return what finds the schema of a source."""
        return source.schema if self.inner is None else self.inner.schema(source)

    def read(self, source: Source) -> Read:
        """Return what reads a source."""
        return source.read if self.inner is None else self.inner.read(source)

    def tasks(self, source: Source) -> Callable[[int, Position], Tasks]:
        """Return what cuts the reading of a source into tasks."""
        return source.tasks if self.inner is None else self.inner.tasks(source)

    def task(self, source: Source) -> Callable[[int, NDArray[np.int64]], Task]:
        """Return what makes a task of taking rows of a source by number."""
        return source.task if self.inner is None else self.inner.task(source)

    def exact_length(self, source: Source) -> Callable[[], int | None]:
        """Return what counts the rows of a source, reading those that are kept if need be."""
        return source.exact_length if self.inner is None else self.inner.exact_length(source)

    def head(self, source: Source) -> Callable[[], Iterator[RecordBatch]]:
        """Return what reads the first rows of a source, which schemas are inferred from."""
        return source.head if self.inner is None else self.inner.head(source)

    def infer(self, stage: Stage, place: int) -> Callable[[Schema, Rows], Stage]:
        """Return what declares the schema of the stage at a place."""
        return stage.infer if self.inner is None else self.inner.infer(stage, place)

    def step(self, step: Step) -> Callable[[State, Any], Fed]:
        """Return what feeds a chunk to a step."""
        return step.stage.step if self.inner is None else self.inner.step(step)

    def finish(self, step: Step) -> Callable[[State], Iterable[Any]]:
        """Return what ends a step."""
        return step.stage.finish if self.inner is None else self.inner.finish(step)


@frozen
class AsWritten(Hooks):
    """Runs every stage as a step of its own, in the order and with the columns of the pipeline as it was written."""

    @property
    def as_written(self) -> int:
        """All of them."""
        return ALL_STAGES


NO_HOOKS = Hooks()


def blame(error: Exception, stages: str) -> None:
    """Add a note to an error that names the stages it was raised in, unless it has one."""
    if not any(note.startswith("while running ") for note in getattr(error, "__notes__", ())):
        error.add_note(f"while running {stages}")


def push(calls: Calls, states: list[State], chunks: Iterable[Any]) -> Iterable[Any]:
    """Feed chunks to the first step, and what comes out to the steps after it; `states` is updated in place.

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
