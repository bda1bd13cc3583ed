"""What workers run: a task, then the stages without state that come after it, as a pure function of a value."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from itertools import takewhile
from typing import Any, NamedTuple

import attrs
from attrs import frozen

from mlxfp.core.arrow.content import content_bits
from mlxfp.core.chunks import Indices, RecordBatch, number_as, number_rows
from mlxfp.core.running.steps import Calls, Hooks, Plan, Step, push
from mlxfp.core.sources import Task
from mlxfp.core.stages import RowWise, Stage, is_empty, starts_empty

__tracebackhide__ = True


@frozen(eq=False)
class Segment:
    """Steps in a row without state: chunks in, chunks out. Sent to a process once."""

    steps: tuple[Step, ...]
    hooks: Hooks

    @cached_property
    def calls(self) -> Calls:
        """What each step calls."""
        return [(step, self.hooks.step(step)) for step in self.steps]

    @property
    def costly(self) -> bool:
        """Whether it is worth a worker."""
        return any(step.stage.traits.projection is None for step in self.steps)  # choosing columns takes no time

    def run(self, chunk: RecordBatch) -> tuple[list[RecordBatch], bool]:
        """Return what comes out of a chunk, and whether a step has kept something for the next one after all."""
        __tracebackhide__ = True
        states: Any = defaultdict(tuple)
        out = list(push(self.calls, states, (chunk,)))
        return out, not keep_nothing(states.values())


def leading(steps: Sequence[Step], hooks: Hooks) -> Segment:
    """Return the first steps that start without a state, up to where rows are grouped."""
    return Segment(tuple(takewhile(lambda step: step.stage.emits is None and _keeps_nothing(step.stage), steps)), hooks)


class OnGroups(NamedTuple):
    """A plan whose groups workers are to work on: the steps that make groups, theirs, and those that are left.

    Where workers fail, `whole` is done in place of theirs and of what is left.
    """

    before: tuple[Step, ...]
    segment: Segment
    left: tuple[Step, ...]
    whole: tuple[Step, ...]


def on_groups(plan: Plan, hooks: Hooks) -> OnGroups | None:
    """Part a plan at the steps that turn each group into one group, behind the last step with a state, if they are worth a worker.

    What comes after them must give one item for each group, so that an item has the cursor of its group.
    """
    first, steps, host, device = len(leading(plan.steps, hooks).steps), [*plan.steps], list[Step](), list[Step]()
    last: list[Step] = [steps.pop()] if steps and steps[-1].stage.emits == "batches" else []
    if last and last[0].place >= hooks.as_written and (cut := last[0].stage.traits.halves) and (halves := cut(plan.schema)) is not None:
        part = partial(attrs.evolve, last[0], stop=last[0].place)
        steps += [] if halves.grouping is None else [part(stage=halves.grouping)]
        host, device, last = [part(stage=stage) for stage in halves.host], [part(stage=halves.device)], [part(stage=halves.whole)]
    if plan.level == "examples" or any(step.stage.traits.length(1) != 1 or not _keeps_nothing(step.stage) for step in last):
        return None
    behind = [*takewhile(lambda step: isinstance(step.stage, RowWise), reversed(steps[first:]))][::-1]
    segment = Segment((*behind, *host), hooks)
    before = tuple(steps[: len(steps) - len(behind)])
    return OnGroups(before, segment, tuple(device or last), (*behind, *last)) if len(before) > first and segment.costly else None


def keep_nothing(states: Iterable[Any]) -> bool:
    """Return whether states are those of stages that keep nothing."""
    return all(map(is_empty, states))


def _keeps_nothing(stage: Stage) -> bool:
    return starts_empty(stage) and type(stage).finish is Stage.finish


@frozen(eq=False)
class Through(Task):
    """A task and the row-wise steps after it: rows of an indexable dataset, by number."""

    task: Task
    epoch: int
    indices: Indices
    segment: Segment
    text: str  # the innermost source, for errors; else nothing

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.indices)

    def read(self) -> RecordBatch:
        """Take the rows, and run the steps."""
        __tracebackhide__ = True
        try:
            (chunk,), _ = self.segment.run(number_as(self.task.read(), self.epoch, self.indices))
        except Exception as error:
            if self.text:
                error.add_note(f"reading from {self.text}, epoch {self.epoch}")
            raise
        return chunk

    def part(self, first: int, stop: int) -> Task | None:
        """Take fewer."""
        part = self.task.part(first, stop)
        return None if part is None else Through(part, self.epoch, self.indices[first:stop], self.segment, self.text)

    def sent_to(self, workers: str) -> Task:
        """Take the rows here if need be, and run the steps there."""
        sent = self.task.sent_to(workers)
        return self if sent is self.task else Through(sent, self.epoch, self.indices, self.segment, self.text)


class Made(NamedTuple):
    """What a job has made: chunks, the content of the rows that went in, in bits, and whether a step has kept something after all."""

    chunks: list[RecordBatch]
    content: int
    kept: bool


@frozen(eq=False)
class Job:
    """What a worker is given: a task, the number of its first row, and the steps after it."""

    task: Task
    epoch: int
    first: int
    segment: Segment
    measured: bool = False  # whether the content of the rows is asked for

    def run(self) -> Made:
        """Do it."""
        __tracebackhide__ = True
        chunk = self.task.read()
        out, kept = self.segment.run(number_rows(chunk, self.epoch, self.first))
        return Made(out, content_bits(chunk) if self.measured else 0, kept)

    def part(self, first: int, stop: int) -> "Job | None":
        """Return the job of fewer rows; None: its task cannot be cut."""
        task = self.task.part(first, stop)
        return None if task is None else Job(task, self.epoch, self.first + first, self.segment, self.measured)

    def sent_to(self, workers: str) -> "Job":
        """Return the job as workers of this kind can do it."""
        return Job(self.task.sent_to(workers), self.epoch, self.first, self.segment, self.measured)
