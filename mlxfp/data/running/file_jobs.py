"""Jobs that `write` sends to workers. A job writes a file, or checks a finished file."""

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
    """Exception for a file that a worker cannot write alone, because a stage holds back rows until the next file is read.

    After this exception, `write` starts again and writes the files one by one in the calling thread.
    """


@frozen(eq=False)
class TaskSequence(Task):
    """Task that reads the rows of several tasks, one task after the other, as one chunk."""

    tasks: tuple[Task, ...]

    @property
    def rows(self) -> int:
        """Total number of rows."""
        return sum(task.rows for task in self.tasks)

    def read(self) -> RecordBatch:
        return concat_chunks([task.read() for task in self.tasks])

    def sent_to(self, workers: str) -> Task:
        return TaskSequence(tuple(task.sent_to(workers) for task in self.tasks))


@frozen(eq=False)
class WriteFile(Job):
    """Job that writes one output file. The job reads source rows, runs the stages and writes the resulting rows."""

    out: WrittenFolder = field(kw_only=True)
    index: int = field(kw_only=True)
    after: bytes = field(kw_only=True)  # cursor at the end of the file

    def run(self) -> Result:
        """Write the file. If a stage keeps rows for the next chunk, no file is written, and the result is marked as incomplete."""
        try:
            self.out.write_file(self.index, self._chunks(), lambda: self.after)
        except KeptError:
            return Result([], complete=False)
        return Result([], complete=True)

    def sent_to(self, workers: str) -> "WriteFile":
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
    """Job that checks a written file. The result has `complete=True` if the file is undamaged."""

    out: WrittenFolder = field(kw_only=True)
    file: File = field(kw_only=True)

    def run(self) -> Result:
        return Result([], complete=self.file.is_whole(self.out.folder))
