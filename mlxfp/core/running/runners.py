"""The active runner of the thread that reads a dataset. Runners execute jobs in workers and are defined in `data/running/pools.py`."""

from collections.abc import Generator
from contextvars import ContextVar
from typing import Protocol

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.running.segments import Job, Result
from mlxfp.core.sources import Position, Task

Jobs = Generator[tuple[Job, Position], None, None]


class Runner(Protocol):
    """Protocol of runners: run jobs in order in other threads or processes, with a bounded number in flight."""

    def map(self, jobs: Jobs, *, whole: bool) -> Generator[tuple[tuple[Job, Position], Result], None, None]:
        """Run jobs in workers. Yield ((job, source position after the job), result) for each job, in the order of the jobs.

        If `whole` is False, the runner may split a job between workers.
        """
        ...

    def read(self, task: Task) -> RecordBatch:
        """Return the rows of a task, read by a worker."""
        ...


RUNNER: ContextVar[Runner | None] = ContextVar("runner", default=None)  # active runner; None: the reading thread runs all jobs


def read_now(task: Task) -> RecordBatch:
    """Read the rows of a `Task` in the workers of the active runner. Without an active runner, read the rows in this thread."""
    __tracebackhide__ = True
    runner = RUNNER.get()
    return task.read() if runner is None else runner.read(task)
