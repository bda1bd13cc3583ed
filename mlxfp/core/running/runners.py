"""Who runs jobs: the runner of the thread that reads a dataset, if it has one. What runners there are: `data/running/workers.py`."""

from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from mlxfp.core.running.segments import Job
from mlxfp.core.sources import Position, Task, Tasks


class Done(NamedTuple):
    """A task that was run: what it made, or None, where it is to be run here, for the error that workers met, if any."""

    task: Task
    after: Position
    made: list[Any] | None
    error: BaseException | None = None


class Runner(Protocol):
    """Maps jobs over tasks in other threads or processes: in order, with a bounded number in flight."""

    def map(self, tasks: Tasks, job_of: Callable[..., Job], *, whole: bool) -> Generator[Done, None, None]:
        """Yield each task, in order, with what `job_of(task, measured=...)` has made. `whole` jobs are not cut, as a group is not."""
        ...


RUNNER: ContextVar[Runner | None] = ContextVar("runner", default=None)  # None: everything runs in the thread that reads
