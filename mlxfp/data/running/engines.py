"""Workers on the machines of a cluster: Ray and Spark. Jobs travel as bytes, with their rows as Arrow IPC."""

import pickle
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import pyarrow as pa

from mlxfp.core.running.segments import Job, Result
from mlxfp.data.running.pools import Pool, timed
from mlxfp.data.running.processes import dumps
from mlxfp.support.errors import WorkerError
from mlxfp.support.optional import optional


class RayPool(Pool):  # pragma: no cover  # its tests run where Ray is installed
    """The tasks of a Ray cluster. Ray runs a task again whose machine was lost."""

    kind = "processes"

    def __init__(self, workers: int | None) -> None:
        """Connect to the cluster that Ray was told of, or start Ray on this machine."""
        self._ray: Any = optional("ray", extra="ray", needed_by="runners.ray")
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            self._ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        super().__init__(workers or max(1, int(self._ray.cluster_resources().get("CPU", 1))))
        self._done = self._ray.remote(num_cpus=1)(done)

    def submit(self, job: Job, unwanted: Callable[[], bool]) -> "Future[Result]":
        """Give a job to the cluster."""
        received: Future[Result] = Future()
        received.set_running_or_notify_cancel()
        sent = self._done.remote(_as_bytes(job)).future()
        sent.add_done_callback(partial(self._receive, received))
        return received

    def close(self) -> None:
        """End Ray, if it was started here."""
        if self._is_ours:
            self._ray.shutdown()

    def _receive(self, received: "Future[Result]", sent: "Future[bytes]") -> None:
        try:
            received.set_result(pickle.loads(sent.result()))  # noqa: S301  # of our own workers
        except (
            self._ray.exceptions.WorkerCrashedError,
            self._ray.exceptions.OutOfMemoryError,
            self._ray.exceptions.RaySystemError,
        ) as error:
            received.set_exception(
                WorkerError(f"A Ray worker has ended, again and again: {error}. Use smaller rows_per_file, or fewer workers.")
            )
        except BaseException as error:  # noqa: BLE001  # of the job: it is done again by who waits, where it is raised as it is
            received.set_exception(error)


class SparkPool(Pool):
    """The tasks of a Spark session, or of Sail, which speaks the same: each job is a frame of one row."""

    kind = "processes"

    def __init__(self, session: Any, workers: int) -> None:
        """Use a session."""
        super().__init__(workers)
        self._session = session
        self._threads = ThreadPoolExecutor(workers, "mlxfp-spark")

    def submit(self, job: Job, unwanted: Callable[[], bool]) -> "Future[Result]":
        """Give a job to the session, in a thread that waits for it."""
        return self._threads.submit(self._run, _as_bytes(job))

    def close(self) -> None:
        """End the threads. The session stays."""
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _run(self, job: bytes) -> Result:
        frame = self._session.createDataFrame([(job,)], "job binary").mapInArrow(all_done, "work binary")
        result: Result = pickle.loads(bytes(frame.collect()[0][0]))  # noqa: S301  # of our own workers
        return result


# --- in workers


def done(job: bytes) -> bytes:
    """Run a pickled job; return the pickled result."""
    return _as_bytes(timed(pickle.loads(job)))  # noqa: S301  # of who writes


def all_done(frames: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the jobs of a frame."""
    for frame in frames:
        yield pa.record_batch({"work": pa.array([done(job.as_py()) for job in frame.column(0)], pa.binary())})


def _as_bytes(value: Any) -> bytes:
    return dumps(value, lambda inner: None, None)
