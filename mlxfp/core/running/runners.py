"""The active runner of the thread that reads a dataset, if any. The runners are in `data/running/pools.py`."""

from collections.abc import Generator
from contextvars import ContextVar
from typing import Protocol

from mlxfp.core.chunks import RecordBatch
from mlxfp.core.running.segments import Job, Result
from mlxfp.core.sources import Position, Task

Jobs = Generator[tuple[Job, Position], None, None]


class Runner(Protocol):
    """Runs jobs in other threads or processes: in order, with a bounded number in flight."""

    def map(self, jobs: Jobs, *, whole: bool) -> Generator[tuple[tuple[Job, Position], Result], None, None]:
        """Yield each job and the position after its task, in order, with the result. `whole` jobs are not cut: groups."""
        ...

    def read(self, task: Task) -> RecordBatch:
        """Let the workers read a task, and wait for the rows."""
        ...


RUNNER: ContextVar[Runner | None] = ContextVar("runner", default=None)  # None: everything runs in the thread that reads


def read_now(task: Task) -> RecordBatch:
    """Read a task, with the workers of the active runner if there is one."""
    __tracebackhide__ = True
    runner = RUNNER.get()
    return task.read() if runner is None else runner.read(task)
