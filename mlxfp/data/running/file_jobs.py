"""What workers are given by `write`: the tasks of a file and the steps after them, or a file that is done, to read it."""

from collections.abc import Iterator
from typing import Any

import attrs
from attrs import field, frozen

from mlxfp.core.chunks import RecordBatch, concat_chunks
from mlxfp.core.running.segments import Job, Result
from mlxfp.core.sources import Task
from mlxfp.data.manifests import File
from mlxfp.data.running.written_folders import WrittenFolder


class KeptError(Exception):
    """Ends the work on files: a stage that starts without a state has kept rows for the next chunk."""


@frozen(eq=False)
class TaskSequence(Task):
    """Tasks one after the other."""

    tasks: tuple[Task, ...]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(task.rows for task in self.tasks)

    def read(self) -> RecordBatch:
        """Read the rows of all tasks."""
        return concat_chunks([task.read() for task in self.tasks])

    def sent_to(self, workers: str) -> Task:
        """Return the tasks as workers of this kind can do them."""
        return TaskSequence(tuple(task.sent_to(workers) for task in self.tasks))


@frozen(eq=False)
class WriteFile(Job):
    """The job of one file: read its tasks, run the steps, write the file."""

    out: WrittenFolder = field(kw_only=True)
    place: int = field(kw_only=True)
    after: bytes = field(kw_only=True)  # the cursor at its end

    def run(self) -> Result:
        """Write the file. If a step has kept rows, there is no file, and the result is not complete."""
        try:
            self.out.write_file(self.place, self._chunks(), lambda: self.after)
        except KeptError:
            return Result([], complete=False)
        return Result([], complete=True)

    def sent_to(self, workers: str) -> "WriteFile":
        """Return the job as workers of this kind can do it."""
        return attrs.evolve(self, task=self.task.sent_to(workers))

    def _chunks(self) -> Iterator[RecordBatch]:
        sequence: Any = self.task
        first = self.first
        for task in sequence.tasks:
            result = Job(task, self.epoch, first, self.segment).run()
            if not result.complete:
                raise KeptError
            first += task.rows
            yield from result.chunks


@frozen(eq=False)
class CheckFile(Job):
    """Reads a file that is done. The result is complete if the file is as it was written."""

    out: WrittenFolder = field(kw_only=True)
    file: File = field(kw_only=True)

    def run(self) -> Result:
        """Read the file."""
        return Result([], complete=self.file.is_whole(self.out.folder))
