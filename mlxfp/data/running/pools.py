"""Worker pools. A pool runs jobs in threads or processes, yields the results in order, and limits the number of unfinished jobs."""

import resource
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import partial
from time import perf_counter, thread_time
from typing import ClassVar

from attrs import define, field

from mlxfp.core.chunks import RecordBatch, concat_chunks
from mlxfp.core.running.runners import RUNNER, Jobs
from mlxfp.core.running.segments import Job, Result, Segment
from mlxfp.core.running.steps import NO_HOOKS, are_costly
from mlxfp.core.sources import ChunkTask, Position, Task
from mlxfp.data.rows.calling import context_until
from mlxfp.support.errors import WorkerError

_FIRST_ROWS = 16  # number of rows sent to a worker at first, before the time per row is measured
# Wanted time of one piece of work, in seconds: longer than the transfer, but so short that all workers finish almost together.
_SECONDS = 0.03
_UNREAD_BYTES = 256 << 20  # Maximum size of unread results, in bytes. Above this size, no further job is sent to the workers.


class Pool(ABC):
    """Pool of workers that yields results in the order of the jobs.

    A job with many rows is divided into pieces for several workers. The result is the same for pieces of any size, because chunk boundaries
    have no meaning before rows are grouped. The measured time per row determines the size of the next piece.
    """

    kind: ClassVar[str]

    def __init__(self, workers: int) -> None:
        """Set the number of workers, and set the working time to 0."""
        self.workers = workers
        self.busy, self.cpu = 0.0, 0.0  # working time and CPU time in seconds, summed over all workers
        self._lock = threading.Lock()

    @abstractmethod
    def submit(self, job: Job, unwanted: Callable[[], bool]) -> "Future[Result]":
        """Send a job to a worker. `unwanted()` returns True once no consumer waits for the result."""

    @abstractmethod
    def close(self) -> None:
        """Stop all workers and wait for their end."""

    def map(self, jobs: Jobs, *, whole: bool) -> Generator[tuple[tuple[Job, Position], Result], None, None]:
        """Yield each job with its result, in order, as described in `Runner`."""
        flow = _Flow(self, jobs, whole=whole)
        try:
            while (entry := flow.next()) is not None:
                yield (entry.job, entry.after), _result(entry)
        finally:
            flow.close()

    def read(self, task: Task) -> RecordBatch:
        """Read the rows of a task in a worker. If the worker fails, read the rows in this thread, to raise the error of the task."""
        jobs = ((job, None) for job in (Job(task, 0, 0, Segment((), NO_HOOKS)),))
        with closing(self.map(jobs, whole=False)) as results:
            _, result = next(results)
        return concat_chunks(result.chunks) if result.complete else task.read()

    def count(self, result: Result) -> None:
        """Add the working time and the CPU time of a finished piece of a job to the totals of the pool."""
        with self._lock:
            self.busy, self.cpu = self.busy + result.seconds, self.cpu + result.cpu


@define(eq=False)
class _Entry:
    """Job that is sent to the workers in pieces. Each piece has a future. The rows before index `begun` have already been sent."""

    job: Job
    after: Position
    begun: int = 0
    all_given: bool = False
    futures: list["Future[Result]"] = field(factory=list)

    @property
    def done(self) -> bool:
        return self.all_given and all(future.done() for future in self.futures)

    @property
    def error(self) -> BaseException | None:
        return next((future.exception() for future in self.futures if future.exception() is not None), None)


def _result(entry: _Entry) -> Result:
    error = entry.error
    if isinstance(error, WorkerError):
        raise error
    results = [] if error is not None else [future.result() for future in entry.futures]
    if error is not None or not all(result.complete for result in results):
        return Result([], complete=False, error=error)
    chunks = [chunk for result in results for chunk in result.chunks]
    if len(chunks) == len(results) > 1:  # Join the chunks, because cursors must not depend on the number of workers.
        chunks = [concat_chunks(chunks)]
    return Result(chunks, complete=True)


class _Flow:
    """Queue of the jobs that a pool runs for one source."""

    def __init__(self, pool: Pool, jobs: Jobs, *, whole: bool) -> None:
        self._pool, self._jobs, self._whole = pool, jobs, whole
        self._entries: deque[_Entry] = deque()
        self._more = True  # True while there are more jobs
        self._failed: Exception | None = None  # error raised by the iterator of jobs
        self._changed = threading.Condition()
        self._running, self._unread, self._closed = 0, 0, False
        self._row_seconds: float | None = None
        self._most = 2 * pool.workers

    def next(self) -> _Entry | None:
        """Wait for the end of the next job, and return the job, or None after the last job. Meanwhile, send further jobs to the workers."""
        while True:
            self._give()
            if not self._entries:
                if self._failed is not None:
                    raise self._failed
                if not self._more:
                    return None
                continue
            first = self._entries[0]
            if first.done:
                self._entries.popleft()
                with self._changed:
                    self._unread -= sum(_bytes(future) for future in first.futures)
                return first
            with self._changed:
                self._changed.wait_for(partial(self._ready, first))

    def close(self) -> None:
        """Cancel waiting jobs, and stop running jobs early if possible."""
        self._closed = True
        for entry in self._entries:
            for future in entry.futures:
                future.cancel()
        self._jobs.close()

    def _ready(self, first: _Entry) -> bool:
        return first.done or self._room()

    def _room(self) -> bool:
        """Return True if another piece of work exists and may be sent to a worker.

        There are limits for the number of running pieces, the number of jobs in the queue, and the bytes of unread results.
        """
        if self._running >= self._most:
            return False
        if self._entries and not self._entries[-1].all_given:
            return True
        return self._more and len(self._entries) < self._most and self._unread < _UNREAD_BYTES

    def _give(self) -> None:
        """Send work to the workers until a limit is reached or no work remains."""
        while self._room():
            if self._entries and not self._entries[-1].all_given:
                self._submit(self._entries[-1])
            else:
                self._open()

    def _open(self) -> None:
        """Get the next job from the source."""
        try:
            job, after = next(self._jobs)
        except StopIteration:
            self._more = False
            return
        except Exception as error:  # noqa: BLE001  # raised later, in the order of the jobs
            self._more, self._failed = False, error
            return
        self._entries.append(_Entry(job, after))

    def _submit(self, entry: _Entry) -> None:
        """Send the next rows of a job to a worker."""
        rows, first = entry.job.task.rows, entry.begun
        # The rows of a `ChunkTask` are already in memory. Without expensive steps, sending the rows to a worker would take longer.
        if isinstance(entry.job.task, ChunkTask) and not are_costly(entry.job.segment.steps):
            entry.futures, entry.all_given = [Inline().submit(entry.job, lambda: False)], True
            with self._changed:
                self._unread += _bytes(entry.futures[0])
            return
        size = self._size(rows)
        # If fewer than 1.5 * `size` rows remain, one piece takes all of them. A very short piece is not worth a transfer to a worker.
        stop = rows if self._whole or rows - first < 1.5 * size else first + size
        part = None if (first, stop) == (0, rows) else entry.job.part(first, stop)
        if part is None:
            part, stop = entry.job, rows
        with self._changed:
            self._running += 1
        try:
            future = self._pool.submit(part.sent_to(self._pool.kind), lambda: self._closed)
        except Exception as error:  # noqa: BLE001  # unreadable, or impossible to send
            future = Future()
            future.set_exception(error)
        entry.futures.append(future)
        entry.begun, entry.all_given = stop, stop >= rows
        future.add_done_callback(partial(self._note, stop - first))

    def _size(self, rows: int) -> int:
        if self._row_seconds is None:
            return min(_FIRST_ROWS, max(1, rows // self._most))
        return max(1, int(_SECONDS / max(self._row_seconds, 1e-9)))

    def _note(self, rows: int, future: "Future[Result]") -> None:
        """Update counts and times after a worker has finished `rows` rows of a job."""
        with self._changed:
            self._running -= 1
            if not future.cancelled() and future.exception() is None:
                seconds = future.result().seconds
                self._pool.count(future.result())
                self._unread += _bytes(future)
                row_seconds = seconds / max(1, rows)
                self._row_seconds = row_seconds if self._row_seconds is None else (self._row_seconds + row_seconds) / 2
            self._changed.notify_all()


def _bytes(future: "Future[Result]") -> int:
    if future.cancelled() or future.exception() is not None:
        return 0
    return sum(chunk.nbytes for chunk in future.result().chunks)


class Inline(Pool):
    """Pool without workers. `submit` runs the job in the calling thread."""

    kind = "inline"

    def __init__(self) -> None:
        """Create a pool without workers."""
        super().__init__(1)

    def submit(self, job: Job, unwanted: Callable[[], bool]) -> "Future[Result]":
        """Run the job at once."""
        future: Future[Result] = Future()
        try:
            future.set_result(timed(job))
        except Exception as error:  # noqa: BLE001  # raised by `Future.result`
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Do nothing: there are no workers."""


class Threads(Pool):
    """Pool of threads in this process."""

    kind = "threads"

    def __init__(self, workers: int) -> None:
        """Create the thread pool."""
        super().__init__(workers)
        self._executor = ThreadPoolExecutor(workers, "mlxfp-worker")

    def submit(self, job: Job, unwanted: Callable[[], bool]) -> "Future[Result]":
        """Run a job in a thread, with the context variables of the caller (NumPy error state, decimal precision)."""
        context = context_until(unwanted)
        context.run(RUNNER.set, None)  # Hide the pool from code in a worker, because waiting for other workers could cause a deadlock.
        return self._executor.submit(context.run, timed, job)

    def close(self) -> None:
        """Stop the threads. A thread that is working ends before its next row."""
        self._executor.shutdown(wait=True, cancel_futures=True)


def unstarted(what: str, workers: int, error: BaseException | None) -> WorkerError:
    """Return the error for a thread or process that the system refused to start."""
    files, processes = (resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    limits = f"{files:,} open files and {'unlimited' if processes == resource.RLIM_INFINITY else f'{processes:,}'} processes"
    return WorkerError(
        f"A worker {what} cannot start: {error}, got workers={workers} with limits of {limits}. Use fewer workers, as in "
        "prefetch(2, workers=2), or raise the limits before Python starts: ulimit -n 1024 for files, ulimit -u 4096 for processes."
    )


def timed(job: Job) -> Result:
    """Run a job and measure its time."""
    __tracebackhide__ = True
    begin, on_processor = perf_counter(), thread_time()
    result = job.run()
    return result._replace(seconds=perf_counter() - begin, cpu=thread_time() - on_processor)
