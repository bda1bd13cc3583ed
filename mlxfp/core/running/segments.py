"""Jobs for workers. A job reads rows (its task) and runs stateless steps of a pipeline on the rows (its segment).

The result depends only on the job, so a job may run in any process and may run again.
"""

from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

from attrs import frozen

from mlxfp.core.chunks import Indices, RecordBatch, number_as, number_rows
from mlxfp.core.running.steps import Calls, Hooks, Step, push
from mlxfp.core.sources import Task
from mlxfp.core.stages import is_empty

__tracebackhide__ = True


@frozen(eq=False)
class Segment:
    """Consecutive stateless steps that workers run on chunks. Each worker process receives the steps only once."""

    steps: tuple[Step, ...]
    hooks: Hooks

    @cached_property
    def calls(self) -> Calls:
        """Pairs of a step and the function that runs the step on a chunk."""
        return [(step, self.hooks.step(step)) for step in self.steps]

    def run(self, chunk: RecordBatch) -> "Result":
        __tracebackhide__ = True
        states: Any = defaultdict(tuple)
        chunks = list(push(self.calls, states, (chunk,)))
        return Result(chunks, complete=keep_nothing(states.values()))


def keep_nothing(states: Iterable[Any]) -> bool:
    """Return True if the states of all steps are empty, so that no step keeps rows."""
    return all(map(is_empty, states))


@frozen(eq=False)
class RowTask(Task):
    """Task that reads rows of an indexable dataset by index, and runs the row-wise steps of the dataset on the rows."""

    task: Task
    epoch: int
    indices: Indices
    segment: Segment
    text: str  # repr of the source, added to errors as a note; empty for a source that reads other datasets

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.indices)

    def read(self) -> RecordBatch:
        __tracebackhide__ = True
        try:
            (chunk,) = self.segment.run(number_as(self.task.read(), self.epoch, self.indices)).chunks
        except Exception as error:
            if self.text:
                error.add_note(f"reading from {self.text}, epoch {self.epoch}")
            raise
        return chunk

    def part(self, first: int, stop: int) -> Task | None:
        part = self.task.part(first, stop)
        return None if part is None else RowTask(part, self.epoch, self.indices[first:stop], self.segment, self.text)

    def sent_to(self, workers: str) -> Task:
        """Return a task for workers. If workers cannot read the rows, this process reads the rows now, and workers run the steps."""
        sent = self.task.sent_to(workers)
        return self if sent is self.task else RowTask(sent, self.epoch, self.indices, self.segment, self.text)


class Result(NamedTuple):
    """Output chunks of a job, and the time that the job took.

    `complete` is False if the job failed, or if a step keeps rows for the next chunk. The reading thread then repeats the steps.
    """

    chunks: list[RecordBatch]
    complete: bool
    error: BaseException | None = None
    seconds: float = 0.0
    cpu: float = 0.0  # CPU time in seconds


@frozen(eq=False)
class Job:
    """Work for a worker: read the rows of a task, and run the steps of `segment` on the rows. `first` is the index of the first row."""

    task: Task
    epoch: int
    first: int
    segment: Segment

    def read(self) -> RecordBatch:
        """Read the rows of the task, and append the hidden columns `__row__` and `__key__`."""
        __tracebackhide__ = True
        return number_rows(self.task.read(), self.epoch, self.first)

    def run(self) -> Result:
        __tracebackhide__ = True
        return self.segment.run(self.read())

    def part(self, first: int, stop: int) -> "Job | None":
        """Return a job for the rows `first:stop` of this job, or None if the task cannot be split."""
        task = self.task.part(first, stop)
        return None if task is None else Job(task, self.epoch, self.first + first, self.segment)

    def sent_to(self, workers: str) -> "Job":
        """Return a copy of the job that workers can run. The argument `workers` is "threads" or "processes".

        Rows that only this process can read are read immediately.
        """
        return Job(self.task.sent_to(workers), self.epoch, self.first, self.segment)
